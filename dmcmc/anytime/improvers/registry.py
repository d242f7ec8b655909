"""The improvers: those of this package, in the order in which they work, and those of the group ``dmcmc.improvers``.

``dmcmc.improvers`` is an entry-point group: a package that is installed with such an entry point adds an improver.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

from dmcmc.anytime.improvers import assignments
from dmcmc.anytime.improvers.bounds import BoundImprover, BranchAndBoundImprover, SemidefiniteImprover
from dmcmc.anytime.improvers.protocol import Improver, RankState
from dmcmc.anytime.improvers.tables import EliminationImprover, FilteringImprover, SamplingImprover
from dmcmc.anytime.scheduler.proposal import Effect, Properties, Proposal
from dmcmc.inference.runtime.plugins import Plugins

BUILT_IN: Mapping[str, type[Improver]] = {
    improver.name: improver
    for improver in (
        EliminationImprover,
        SamplingImprover,
        SemidefiniteImprover,
        BoundImprover,
        BranchAndBoundImprover,
        FilteringImprover,
        assignments.LocalSearchImprover,
        assignments.RecombinationImprover,
        assignments.ExternalSearchImprover,
        assignments.GpuChainsImprover,
    )
}


def _accept(loaded: object) -> type[Improver] | None:
    """Return the object if it is a class of improvers, else None."""
    return loaded if isinstance(loaded, type) and issubclass(loaded, Improver) else None


_PLUGINS: Plugins[type[Improver]] = Plugins(
    group="dmcmc.improvers",
    noun="improver",
    built_in=BUILT_IN,
    accept=_accept,
    expected="is not a class derived from Improver",
)
names = _PLUGINS.names


@cache
def installed() -> tuple[type[Improver], ...]:
    """Return the improvers of this package and of others; they are looked up once in a process.

    Raises
    ------
    ConfigError
        If an improver of another package cannot be loaded.
    """
    return tuple(_PLUGINS.get(name) for name in names())


def create(timed: bool) -> list[Improver]:
    """Return new improvers for a run. Those of other packages work only in runs with a time budget (``timed``)."""
    return [improver() for improver in (installed() if timed else BUILT_IN.values())]


def declared(improvers: Iterable[Improver]) -> dict[str, Properties]:
    """Return what improvers declare, by name."""
    return {improver.name: improver.properties for improver in improvers}


def proposals_of(improvers: Iterable[Improver], state: RankState) -> tuple[Proposal, ...]:
    """Return the proposals of all improvers that have their kernels, for one rank.

    Those that search with the cores need an assignment to start from, which no rank has with private inputs. While the
    kernels of an improver with proposals are compiled, the others are proposed for short slices (``awaited``): it
    begins as soon as it can.
    """
    found, waiting = list[Proposal](), False
    for improver in improvers:
        if state.best is None and _searches(improver.properties):
            continue
        proposals = improver.propose(state)
        if state.is_ready(improver.name):
            found += proposals
        else:
            waiting |= bool(proposals)
    return tuple(replace(proposal, awaited=True) for proposal in found) if waiting else tuple(found)


def _searches(properties: Properties) -> bool:
    """Return whether an improver searches for whole assignments with the cores of the ranks."""
    return Effect.ASSIGNMENTS in properties.effect and not properties.needs.in_background
