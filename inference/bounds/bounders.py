"""Bounders of branch and bound by name: those of this package, and those registered under ``dmcmc.bounders``.

``dmcmc.bounders`` is an entry-point group: an installed package with such an entry point adds a ``BounderFactory``.
``create_boundary_search`` in ``branch_and_bound_rows`` compares their bounders by a short trial.
"""

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, runtime_checkable

from dmcmc.inference.bounds.branch_and_bound.bounder import Bounder
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import CpuDualBounder
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.mini_bucket_bounder import mini_bucket_bounder
from dmcmc.inference.bounds.mini_bucket_steps import MINI_BUCKET_BOUNDS
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.plugins import Plugins

_LOG = logging.getLogger(__name__)


@runtime_checkable
class BounderFactory(Protocol):
    """Creates the bounder of an agent's branch and bound; a plug-in."""

    @property
    def summary(self) -> str:
        """One line of help."""
        ...

    def create(self, state: DualState, memory_limit: int) -> Bounder | None:
        """Return a bounder of an agent's nodes; None if it does not suit the agent.

        Parameters
        ----------
        state : DualState
            The agent's dual ascent: its factors (``local``), integer scale, potentials, and the bounds of its rows.
        memory_limit : int
            Bytes for what the bounder stores.
        """
        ...


class OwnFactory(NamedTuple):
    """A ``BounderFactory`` of this package.

    Attributes
    ----------
    summary : str
        One line of help.
    create : callable
        See ``BounderFactory.create``.
    """

    summary: str
    create: Callable[[DualState, int], Bounder | None]


def _accept(loaded: object) -> BounderFactory | None:
    """Return the object if it has the members of a ``BounderFactory``, else None."""
    return loaded if isinstance(loaded, BounderFactory) else None


DUAL = "dual"
_PLUGINS: Plugins[BounderFactory] = Plugins(
    group="dmcmc.bounders",
    noun="bounder",
    built_in={
        DUAL: OwnFactory("dual ascent at each node, which inherits its parent's tables", CpuDualBounder),
        "mini-bucket": OwnFactory(
            "messages of mini-buckets, computed once: many nodes a second in sparse problems",
            lambda state, limit: (
                mini_bucket_bounder(state, limit) if state.has_mini_buckets and MINI_BUCKET_BOUNDS.is_ready() else None
            ),
        ),
    },
    accept=_accept,
    expected="is not a BounderFactory",
)
names = _PLUGINS.names
get = _PLUGINS.get


def other_bounders(state: DualState, memory_limit: int) -> Iterator[Bounder]:
    """Yield the bounders of all factories but dual ascent that suit an agent; plug-ins that fail are logged."""
    for name in names():
        try:
            bounder = None if name == DUAL else get(name).create(state, memory_limit)
        except ConfigError as error:
            _LOG.warning(f"dmcmc: {error}")
            continue
        if bounder is not None:
            yield bounder
