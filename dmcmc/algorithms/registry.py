"""Algorithms by name: the built-in ones, and those of other packages, registered under ``dmcmc.algorithms``.

``names()`` returns the summary of each algorithm by name. ``get(name)`` returns an algorithm, or raises an error with
the valid names.
"""

from dmcmc.algorithms.adopt import Adopt, BnBAdopt
from dmcmc.algorithms.afb import AFB
from dmcmc.algorithms.agent import DcopAgent
from dmcmc.algorithms.async_max_sum import AsyncMaxSum
from dmcmc.algorithms.bounded_max_sum import BOUNDED_MAX_SUM
from dmcmc.algorithms.cocoa import CoCoA
from dmcmc.algorithms.conc_fb import ConcFB
from dmcmc.algorithms.contract import Algorithm, Rewriting
from dmcmc.algorithms.dba import DBA, GDBA
from dmcmc.algorithms.dgls import DGLS
from dmcmc.algorithms.distributed_gibbs import GIBBS
from dmcmc.algorithms.dsa import ADSA, DSA, MixedDSA, SlopeDSA
from dmcmc.algorithms.duct import DUCT
from dmcmc.algorithms.k_opt import KOpt
from dmcmc.algorithms.max_sum import AlternatingMaxSum, MaxSum, ValuePropagation
from dmcmc.algorithms.mb_dpop import MBDPOP
from dmcmc.algorithms.mgm import MGM, MGM2
from dmcmc.algorithms.o_dpop import ODPOP
from dmcmc.algorithms.syncbb import SyncBB
from dmcmc.algorithms.tree import ADPOP, DPOP
from dmcmc.algorithms.tree_search import NCBB, PTFB
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.plugins import Plugins

GROUP = "dmcmc.algorithms"
OWN = "dmcmc"  # dmcmc's own algorithm, which is not in the registry
AnyAlgorithm = Algorithm | Rewriting | type[DcopAgent]
_BUILT_IN: tuple[AnyAlgorithm, ...] = (
    *(MGM, MGM2, KOpt, DSA, ADSA, MixedDSA, SlopeDSA, DBA, GDBA, DGLS, CoCoA),
    *(MaxSum, AlternatingMaxSum, ValuePropagation, AsyncMaxSum, GIBBS, DUCT),
    *(SyncBB, AFB, ConcFB, PTFB, NCBB, Adopt, BnBAdopt, DPOP, MBDPOP, ODPOP, ADPOP, BOUNDED_MAX_SUM),
)


def _accept(loaded: object) -> AnyAlgorithm | None:
    """Return a plug-in if it is an algorithm, else None."""
    if isinstance(loaded, type):
        return loaded if issubclass(loaded, DcopAgent) else None
    return loaded if isinstance(loaded, Algorithm | Rewriting) else None


_PLUGINS: Plugins[AnyAlgorithm] = Plugins(
    group=GROUP,
    noun="algorithm",
    built_in={algorithm.name: algorithm for algorithm in _BUILT_IN},
    accept=_accept,
    expected="is no Algorithm, no Rewriting and no subclass of DcopAgent",
    other_names=(OWN,),
)
names = _PLUGINS.names


def register(algorithm: AnyAlgorithm) -> None:
    """Make an algorithm known by its name in this process.

    Parameters
    ----------
    algorithm : Algorithm, Rewriting or subclass of DcopAgent
        The algorithm.

    Raises
    ------
    ConfigError
        If it is none of these, or has no name or that of another one.
    """
    name = str(getattr(algorithm, "name", ""))
    if _accept(algorithm) is None or not name:
        raise ConfigError(f"{algorithm!r} {_PLUGINS.expected}, or has no name")
    if _PLUGINS.added.get(name, algorithm) is not algorithm or is_built_in(name) or name == OWN:
        raise ConfigError(f"there is an algorithm {name!r} already; give this one another name")
    _PLUGINS.added[name] = algorithm


def described() -> dict[str, str]:
    """Return kind, summary and paper of every algorithm by name, in one line each."""
    lines = names()
    for name in _PLUGINS.built_in:
        algorithm = get(name)
        lines[name] = f"{algorithm.kind}: {algorithm.summary}" + f" ({algorithm.paper})" * bool(algorithm.paper)
    return lines


def is_built_in(name: str) -> bool:
    """Return whether an algorithm is part of dmcmc."""
    return name in _PLUGINS.built_in


get = _PLUGINS.get
