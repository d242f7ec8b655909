"""A search engine beside the run, on a core of its own, as long as it may bring something: toulbar2, or our own."""

from collections.abc import Sequence

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import Unavailable
from dmcmc.inference.runtime.memory import free_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.run.improvers.protocol import Slice, Standing
from dmcmc.run.planning.combination_plan import splits
from dmcmc.run.planning.setup import Setup
from dmcmc.run.scheduler.proposal import BESIDE, BRANCH_AND_BOUND, TOULBAR2, Grant, Offer
from dmcmc.samplers.toulbar2.search import available

_SHARE = 0.25  # of the memory is for it, on top of what the run takes
_HANDED = 0.5  # of that, at most, is for the tables as they are handed over and kept
_ENTRY, _LISTED, _TABLE = 48, 200, 2000  # bytes of an entry; of one over more than three variables; of a table
_BEGIN, _BEGIN_SHARE = 5e-6, 0.1  # seconds an entry until it says something behind other work; its part of the time
_ALONE, _ALONE_SHARE = 1e-6, 0.5  # the same on a core of its own; else the local search does more with that core
_SHORT = 0.5  # seconds: where several agents have less, nothing begins beside them


class SearchEngine:
    """Let it go on beside all else, or wait for it where there is nothing else to do."""

    name = BESIDE

    def offers(self, standing: Standing) -> list[Offer]:
        """Offer it as long as it may bring something; where it is not granted, it ends."""
        return [Offer(self.name, float("inf"))] if standing.beside else []

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Wait where that is all that is granted."""
        slice.wait(sum(grant.seconds for grant in grants))


def wanted(settings: Settings) -> bool:
    """Return whether a run with such settings would have one beside it."""
    if settings.search == "auto":
        open_ended = settings.local.method == "auto" and settings.combine.method == "auto"
        return settings.budget.time is not None and open_ended and cores() > 1
    return settings.search != "none"


def engine_for(settings: Settings, problem: Problem) -> str | None:
    """Return which search engine a run has beside it, if any: toulbar2 where it is installed, unless ours is asked for.

    Raises
    ------
    Unavailable
        If toulbar2 is asked for, and not installed.
    """
    if not wanted(settings):
        return None
    if settings.search == TOULBAR2 and not available():
        raise Unavailable("search: toulbar2 needs pytoulbar2; pip install 'dmcmc[search]'")
    if bytes_handed(problem) > _HANDED * memory_of(settings):
        return None
    return TOULBAR2 if settings.search != BRANCH_AND_BOUND and available() else BRANCH_AND_BOUND


def in_time(settings: Settings, problem: Problem) -> bool:
    """Return whether it is likely to say something in time behind agents' tables, which want the cores as well."""
    if settings.search != "auto" or problem.n_agents == 1 or settings.budget.time is None:
        return True
    return settings.budget.time >= _SHORT and _BEGIN * _entries(problem) <= _BEGIN_SHARE * settings.budget.time


def has_core(setup: Setup, engine: str) -> bool:
    """Return whether it has a core of its own: where one agent has all, or tables have to be split.

    Then a combination proves little, however good agents' tables are, while toulbar2 looks at the whole; not where the
    time is over before it has begun.
    """
    settings, problem = setup.config, setup.problem
    if problem.n_agents == 1:
        return True
    seconds = settings.budget.time
    begins = seconds is None or (seconds >= _SHORT and _ALONE * _entries(problem) <= _ALONE_SHARE * seconds)
    return engine == TOULBAR2 and settings.search == "auto" and begins and splits(setup)


def _entries(problem: Problem) -> int:
    """Return how many entries it is handed."""
    return sum(factor.table.size for factor in problem.factors)


def bytes_handed(problem: Problem) -> int:
    """Return about what the tables of a problem take there."""
    entries = sum(f.table.size * (_ENTRY if len(f.scope) <= 3 else _LISTED) for f in problem.factors)
    return entries + _TABLE * (len(problem.factors) + problem.n_variables)


def memory_of(settings: Settings) -> int:
    """Return the bytes that its process may take."""
    free = free_memory()
    return int(_SHARE * (settings.budget.bytes if free is None else min(settings.budget.bytes, free)))


def outlook(setup: Setup) -> str:
    """Return what ``--explain`` says of it; nothing where it is not wanted."""
    settings, problem = setup.config, setup.problem
    if not wanted(settings):
        return ""
    engine = engine_for(settings, problem)
    if engine is None:
        return "no search engine runs beside it: the tables are too large for its part of the memory"
    core = has_core(setup, engine)
    if not core and not in_time(settings, problem):
        return "no search engine runs beside it: for the time, it takes too long to begin"
    name = "toulbar2" if engine == TOULBAR2 else "branch and bound"
    where = "on a core of its own" if core or settings.search != "auto" else "behind other work"
    return f"{name} searches the whole beside the run, {where}, unless tables prove the answer at once"
