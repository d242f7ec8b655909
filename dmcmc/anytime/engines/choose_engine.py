"""Choose the search engine of a run: which one, whether it starts in time, and whether it gets a dedicated core."""

from typing import TYPE_CHECKING

from dmcmc.anytime.engines.given_problem import (
    OWN_ENGINES,
    bytes_in_engine,
    given_to_engine,
    hard_entries,
    has_many_constraints,
    sizes,
)
from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.inference.runtime.memory import free_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.results.result import AND_OR, BRANCH_AND_BOUND, CP_SAT, MAX_SAT, TOULBAR2
from dmcmc.samplers.cp_sat import process as cp_sat
from dmcmc.samplers.max_sat import process as max_sat
from dmcmc.samplers.max_sat.native_problem import suits
from dmcmc.samplers.toulbar2.process import available
from dmcmc.samplers.tuning import common
from dmcmc.solving.planning.combination_plan import may_split_buckets
from dmcmc.tuning import anytime as tuning

if TYPE_CHECKING:
    from dmcmc.solving.planning.setup import Setup

# Engines that take global constraints as they are: they need no presolve, division or plan before they start.
_TAKE_CONSTRAINTS = frozenset({CP_SAT, MAX_SAT})
_PRINTED_NAMES = {
    TOULBAR2: "toulbar2",
    CP_SAT: "CP-SAT",
    MAX_SAT: "MaxSAT",
    BRANCH_AND_BOUND: "branch and bound",
    AND_OR: "AND/OR search",
}


def wanted(settings: Settings) -> bool:
    """Return whether a run with these settings runs an external search in the background."""
    if settings.search == "auto":
        all_automatic = settings.local.method == "auto" and settings.combine.method == "auto"
        return settings.budget.time is not None and all_automatic and cores() > 1
    return settings.search != "none"


def choose_engine(settings: Settings, problem: Problem) -> str | None:
    """Return the engine of the external search; None for no search.

    An engine that the settings name is taken. If global constraints have most of all (factor, variable) pairs, the
    result is MaxSAT if it is installed and costs are few and small, or else CP-SAT if that is installed. Otherwise it
    is toulbar2 if that is installed, or else our branch and bound. It is None if the settings exclude a search, or the
    problem's tables are too large for the engine's memory.

    Raises
    ------
    Unavailable
        If the settings ask for an engine that is not installed.
    """
    if not wanted(settings):
        return None
    if settings.search == TOULBAR2 and not available():
        raise Unavailable("search: toulbar2 needs pytoulbar2; pip install 'dmcmc[toulbar2]'")
    if settings.search == CP_SAT and not cp_sat.available():
        raise Unavailable("search: cp-sat needs ortools; pip install 'dmcmc[search]'")
    if settings.search == MAX_SAT and not max_sat.available():
        raise Unavailable("search: max-sat needs python-sat; pip install 'dmcmc[search]'")
    try:
        given = given_to_engine(_engine(settings, problem), problem, settings.budget.bytes)
    except ResourceError:  # a factor fits the memory in no form
        return None
    fits = bytes_in_engine(given, _engine(settings, problem)) <= 2 * common.MEMORY_SHARE * engine_memory(settings)
    return _engine(settings, problem) if fits else None


def _engine(settings: Settings, problem: Problem) -> str:
    """Return the engine that a run with these settings uses for a problem, if it uses one."""
    if settings.search not in ("auto", "none"):
        return settings.search
    if has_many_constraints(problem):
        if max_sat.available() and problem.facts.get_or_compute("suits max-sat", lambda: suits(problem)):
            return MAX_SAT
        if cp_sat.available():
            return CP_SAT
    return TOULBAR2 if available() else BRANCH_AND_BOUND


def engine_for_given(settings: Settings, problem: Problem) -> str | None:
    """Return the engine that starts on the problem as given, before it is presolved, divided and planned.

    It is an engine that takes global constraints as they are, for a problem that mainly has such constraints. The
    result is None if the problem has another engine, which starts later, or the time would be over before the engine's
    first result.

    Raises
    ------
    Unavailable
        If the settings ask for an engine that is not installed.
    """
    if settings.budget.time is None or not has_many_constraints(problem):
        return None
    engine = choose_engine(settings, problem)
    return engine if engine in _TAKE_CONSTRAINTS and _starts_on_own_core(settings, problem) else None


def starts_in_time(settings: Settings, problem: Problem) -> bool:
    """Return whether the first result is likely to come in time if the engine shares its core with other work."""
    if settings.search != "auto" or problem.n_agents == 1 or settings.budget.time is None:
        return True
    return (
        settings.budget.time >= common.GRACE_SECONDS
        and _start_seconds(settings, problem, tuning.START_SECONDS_PER_ENTRY)
        <= common.UNTRIED_SHARE * settings.budget.time
    )


def has_own_core(setup: "Setup", engine: str) -> bool:
    """Return whether the engine gets a dedicated core: if one agent has all variables, or tables have to be split.

    With split tables a combination proves little, however good the agents' tables are, while toulbar2 or CP-SAT
    searches the whole problem. The core is not reserved if the time would be over before the first result.
    """
    settings, problem = setup.config, setup.original
    if problem.n_agents == 1:
        return True
    return (
        engine not in OWN_ENGINES
        and settings.search == "auto"
        and _starts_on_own_core(settings, problem)
        and may_split_buckets(setup)
    )


def _starts_on_own_core(settings: Settings, problem: Problem) -> bool:
    """Return whether the first result is likely to come in time if the engine has a dedicated core."""
    seconds = settings.budget.time
    return seconds is None or (
        seconds >= common.GRACE_SECONDS
        and _start_seconds(settings, problem, tuning.OWN_CORE_START_SECONDS_PER_ENTRY) <= common.MAIN_SHARE * seconds
    )


def _start_seconds(settings: Settings, problem: Problem, seconds_per_entry: float) -> float:
    """Return the estimated seconds until the engine's first result."""
    engine = _engine(settings, problem)
    given = given_to_engine(engine, problem, settings.budget.bytes)
    hard = hard_entries(given, engine)
    return (
        seconds_per_entry * (sum(size for _, size in sizes(given)) - hard) + tuning.START_SECONDS_PER_HARD_ENTRY * hard
    )


def engine_memory(settings: Settings) -> int:
    """Return the number of bytes that the engine's process may take."""
    free = free_memory()
    return int(common.MEMORY_SHARE * (settings.budget.bytes if free is None else min(settings.budget.bytes, free)))


def outlook(setup: "Setup") -> str:
    """Return the line of ``--explain`` about the external search; an empty string if it is not wanted."""
    settings, problem = setup.config, setup.original
    if not wanted(settings):
        return ""
    engine = choose_engine(settings, problem)
    if engine is None:
        return "no external search: the problem's tables are too large for its part of the memory"
    own_core = has_own_core(setup, engine)
    on_given = engine_for_given(settings, setup.given.problem) is not None
    if not (own_core or on_given or starts_in_time(settings, problem)):
        return "no external search: it takes too long to start for this time budget"
    name = _PRINTED_NAMES[engine]
    where = "on a dedicated core" if own_core or settings.search != "auto" else "on cores that other work leaves idle"
    return f"{name} searches the whole problem in the background, {where}, unless tables prove the optimum first"
