"""Algorithms by name: the built-in ones, and those of other packages, registered under ``dmcmc.algorithms``.

``names()`` returns the summary of each algorithm by name. ``get(name)`` returns an algorithm, or raises an error with
the valid names.
"""

from dmcmc.algorithms.contract import Algorithm, Rewriting
from dmcmc.algorithms.dgls import DGLS
from dmcmc.algorithms.distributed_gibbs import GIBBS
from dmcmc.algorithms.dsa import DSA
from dmcmc.algorithms.duct import DUCT
from dmcmc.algorithms.max_sum import MAX_SUM
from dmcmc.algorithms.mgm import MGM, MGM2
from dmcmc.algorithms.tree import ADPOP, DPOP
from dmcmc.inference.runtime.plugins import Plugins

GROUP = "dmcmc.algorithms"
OWN = "dmcmc"  # dmcmc's own algorithm, which is not in the registry
_BUILT_IN: tuple[Algorithm | Rewriting, ...] = (MGM, MGM2, DSA, DGLS, MAX_SUM, GIBBS, DUCT, DPOP, ADPOP)


def _accept(loaded: object) -> Algorithm | Rewriting | None:
    """Return a plug-in if it is an algorithm, else None."""
    return loaded if isinstance(loaded, Algorithm | Rewriting) else None


_PLUGINS: Plugins[Algorithm | Rewriting] = Plugins(
    group=GROUP,
    noun="algorithm",
    built_in={algorithm.name: algorithm for algorithm in _BUILT_IN},
    accept=_accept,
    expected="is neither an Algorithm nor a Rewriting",
    other_names=(OWN,),
)
names = _PLUGINS.names
get = _PLUGINS.get
