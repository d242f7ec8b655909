"""Bound providers by name: those of this package, and those that other packages register under ``dmcmc.bounds``.

``names()`` lists the names, and ``get(name)`` returns a provider. ``dmcmc.bounds`` is an entry-point group: a package
that is installed with such an entry point adds a provider.
"""

from collections.abc import Callable
from typing import NamedTuple

from dmcmc.inference.bounds.calibration import CalibratedBoundState
from dmcmc.inference.bounds.contract.protocol import BoundProvider, BoundState
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.mini_bucket import MiniBucketState
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteState
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.runtime.plugins import Plugins


class OwnProvider(NamedTuple):
    """A bound provider of this package.

    Attributes
    ----------
    name : str
        Name in the configuration.
    summary : str
        One line of help.
    create : callable
        ``create(local, backend)`` returns an agent's initial bound.
    """

    name: str
    summary: str
    create: Callable[[LocalProblem, Backend], BoundState]

    def start(self, local: LocalProblem, backend: Backend = CPU) -> BoundState:
        """Return an agent's initial bound, after at most one sweep of dual ascent."""
        return self.create(local, backend)


_OWN_PROVIDERS = (
    OwnProvider("dual", "dual ascent on factors: fast, any arity", lambda local, on: DualState(local, False, on)),
    OwnProvider(
        "triangles",
        "dual ascent on factors and the triangles of their graph: tighter",
        lambda local, on: DualState(local, True, on),
    ),
    OwnProvider("mini-bucket", "mini-buckets after dual ascent: any number of interface variables", MiniBucketState),
    OwnProvider(
        "dual+mini-bucket",
        "dual ascent and mini-buckets of its potentials: time is divided by measured gain",
        lambda local, on: CalibratedBoundState(local, False, on),
    ),
    OwnProvider(
        "triangles+mini-bucket",
        "dual ascent with triangles and mini-buckets of its potentials: time is divided by measured gain",
        lambda local, on: CalibratedBoundState(local, True, on),
    ),
    OwnProvider(
        "semidefinite",
        "the semidefinite relaxation, by descent: for many variables that nearly all share factors",
        SemidefiniteState,
    ),
)


_PLUGINS: Plugins[BoundProvider] = Plugins(
    group="dmcmc.bounds",
    noun="bound provider",
    built_in={provider.name: provider for provider in _OWN_PROVIDERS},
    accept=lambda loaded: loaded if isinstance(loaded, BoundProvider) else None,
    expected="is not a BoundProvider",
    other_names=("auto", "none"),
)
built_in = _PLUGINS.built_in
names = _PLUGINS.names
get = _PLUGINS.get
