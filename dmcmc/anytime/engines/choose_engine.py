"""Choose the search engine of a run, give it the problem in its form, and start its process or thread."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ResourceError, Unavailable
from dmcmc.inference.runtime.memory import free_memory
from dmcmc.inference.runtime.threads import cores
from dmcmc.inference.runtime.types import Array
from dmcmc.results.result import BRANCH_AND_BOUND, CP_SAT, MAX_SAT, TOULBAR2
from dmcmc.samplers.contract import tuning as sampler_tuning
from dmcmc.samplers.cp_sat import solver as cp_sat
from dmcmc.samplers.cp_sat.solver import MAX_TOTAL_COST as cp_sat_total
from dmcmc.samplers.cp_sat.solver import CpSatProcess, excludes_minority, global_share, native_problem
from dmcmc.samplers.max_sat import native_problem as max_sat
from dmcmc.samplers.max_sat import native_problem as max_sat_problem
from dmcmc.samplers.max_sat.native_problem import MaxSatProcess, suits
from dmcmc.samplers.registry import engine_thread
from dmcmc.samplers.toulbar2.background_search import CostSearchEngine, Toulbar2Process, available
from dmcmc.samplers.toulbar2.compact_problem import MAX_TABLE_ARITY, CompactProblem, compact_problem, costs_of_compact
from dmcmc.samplers.toulbar2.costs import MAX_TOTAL_COST, CostProblem
from dmcmc.tuning import run as tuning

_BYTES_PER_ENTRY = 48  # bytes per table entry in the engine
_BYTES_PER_WIDE_ENTRY = 200  # bytes per listed tuple, or entry of a table, over more than three variables
# A hard table over two variables becomes cliques in CP-SAT: its entries are read, and then only their pattern is kept.
# Measured on office calendars with 28 million such entries.
_BYTES_PER_HARD_ENTRY = 20
_BYTES_PER_TABLE = 2000  # bytes per table or variable besides the entries
OWN_ENGINES = frozenset({BRANCH_AND_BOUND})
"""Engines of dmcmc, which are threads: they take tables only, and need compiled kernels."""


def has_many_constraints(problem: Problem) -> bool:
    """Return whether global constraints have most of a problem's (factor, variable) pairs."""
    return global_share(problem) >= sampler_tuning.MAJORITY_SHARE


def given_to_engine(engine: str, problem: Problem, memory: int) -> CompactProblem:
    """Return a problem in the form in which an engine takes it; it is computed once.

    Parameters
    ----------
    engine : str
        Name of the engine.
    problem : Problem
        The problem.
    memory : int
        Memory for the tables in bytes.

    Raises
    ------
    ResourceError
        If a factor fits the memory in none of the forms that the engine takes.
    """
    if problem.dense:
        return CompactProblem(problem)

    def given() -> CompactProblem:
        """Return the problem in the engine's form."""
        if engine == CP_SAT:
            return native_problem(problem)
        if engine == MAX_SAT:
            return max_sat_problem.native_problem(problem)
        return compact_problem(problem, memory, dense_only=engine in OWN_ENGINES)

    return problem.facts.get_or_compute(("given to engine", engine, memory), given)


def bytes_in_engine(given: CompactProblem, engine: str = TOULBAR2) -> int:
    """Return the approximate number of bytes that a problem takes in the engine, in the form in which it is given."""
    entries = sum(
        size * (_BYTES_PER_ENTRY if arity <= MAX_TABLE_ARITY else _BYTES_PER_WIDE_ENTRY) for arity, size in sizes(given)
    )
    entries -= (_BYTES_PER_ENTRY - _BYTES_PER_HARD_ENTRY) * hard_entries(given, engine)
    return entries + _BYTES_PER_TABLE * (len(given.problem.factors) + len(given.linear) + given.problem.n_variables)


def hard_entries(given: CompactProblem, engine: str) -> int:
    """Return the number of entries that CP-SAT only reads: those of conflicts, and the many −∞ of other hard tables."""
    if engine != CP_SAT:
        return 0
    pairs = (f for f in given.problem.factors if len(f.scope) == 2 and not isinstance(f, SparseFactor))
    tables = (factor.table for factor in pairs)
    return sum(table.size if excludes_minority(table) else _many_forbidden(table) for table in tables)


def _many_forbidden(table: Array) -> int:
    """Return the number of forbidden entries of a table that forbids most of them; 0 for other tables."""
    count = int(np.count_nonzero(forbidden(table)))
    return count if 2 * count > table.size else 0


def sizes(given: CompactProblem) -> Iterator[tuple[int, int]]:
    """Yield the arity and the number of costs of each table or list of tuples, and 1 and the terms of each sum."""
    for factor in given.problem.factors:
        yield len(factor.scope), factor.utilities.size if isinstance(factor, SparseFactor) else factor.table.size
    for constraint in given.linear:
        yield 1, len(constraint.terms)
    for automaton in given.native.automata:
        yield 1, sum(layer.utility.size for layer in automaton.layers)
    for factor in given.native.constraints:
        yield 1, sum(array.size for array in factor.arrays())


# Engines that take global constraints as they are: they need no presolve, division or plan before they start.
_TAKE_CONSTRAINTS = frozenset({CP_SAT, MAX_SAT})
_PRINTED_NAMES = {
    TOULBAR2: "toulbar2",
    CP_SAT: "CP-SAT",
    MAX_SAT: "MaxSAT",
    BRANCH_AND_BOUND: "branch and bound",
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
    fits = bytes_in_engine(given, _engine(settings, problem)) <= 2 * sampler_tuning.MEMORY_SHARE * engine_memory(
        settings
    )
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
        settings.budget.time >= sampler_tuning.GRACE_SECONDS
        and _start_seconds(settings, problem, tuning.START_SECONDS_PER_ENTRY)
        <= sampler_tuning.UNTRIED_SHARE * settings.budget.time
    )


def has_own_core(settings: Settings, problem: Problem, engine: str, may_split_buckets: bool) -> bool:
    """Return whether the engine gets a dedicated core: if one agent has all variables, or tables have to be split.

    With split tables a combination proves little, however good the agents' tables are, while toulbar2 or CP-SAT
    searches the whole problem. The core is not reserved if the time would be over before the first result.
    """
    return problem.n_agents == 1 or (
        engine not in OWN_ENGINES
        and settings.search == "auto"
        and may_split_buckets
        and _starts_on_own_core(settings, problem)
    )


def _starts_on_own_core(settings: Settings, problem: Problem) -> bool:
    """Return whether the first result is likely to come in time if the engine has a dedicated core."""
    seconds = settings.budget.time
    return seconds is None or (
        seconds >= sampler_tuning.GRACE_SECONDS
        and _start_seconds(settings, problem, tuning.OWN_CORE_START_SECONDS_PER_ENTRY)
        <= sampler_tuning.MAIN_SHARE * seconds
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
    return int(
        sampler_tuning.MEMORY_SHARE * (settings.budget.bytes if free is None else min(settings.budget.bytes, free))
    )


def outlook(settings: Settings, given: Problem, problem: Problem, may_split_buckets: bool) -> str:
    """Return the line of ``--explain`` about the external search; an empty string if it is not wanted.

    ``problem`` is the given problem after presolve; the other parameters are those of :func:`has_own_core`.
    """
    if not wanted(settings):
        return ""
    engine = choose_engine(settings, problem)
    if engine is None:
        return "no external search: the problem's tables are too large for its part of the memory"
    own_core = has_own_core(settings, problem, engine, may_split_buckets)
    on_given = engine_for_given(settings, given) is not None
    if not (own_core or on_given or starts_in_time(settings, problem)):
        return "no external search: it takes too long to start for this time budget"
    name = _PRINTED_NAMES[engine]
    where = "on a dedicated core" if own_core or settings.search != "auto" else "on cores that other work leaves idle"
    return f"{name} searches the whole problem in the background, {where}, unless tables prove the optimum first"


class EngineStart(NamedTuple):
    """How an engine is started.

    Attributes
    ----------
    start : callable
        Starts the engine, given its memory in bytes.
    is_process : bool
        Whether the engine is a process; otherwise it is a thread, which needs compiled kernels.
    """

    start: Callable[[int], CostSearchEngine]
    is_process: bool


def start_of(engine: str | None, known: Callable[[], NDArray[np.int64] | None]) -> EngineStart:
    """Return how an engine is started.

    Parameters
    ----------
    engine : str or None
        Name of the engine.
    known : callable
        Returns the best known assignment, (n,) int64; None before there is one.
    """
    processes: dict[str, Callable[[int], CostSearchEngine]] = {
        TOULBAR2: partial(Toulbar2Process, known=known),
        CP_SAT: partial(CpSatProcess, known=known),
        MAX_SAT: MaxSatProcess,
    }
    process = processes.get(engine or "")
    return EngineStart(engine_thread, False) if process is None else EngineStart(process, True)


def problem_costs(memory: int, problem: Problem, engine: str, check: Callable[[], None]) -> CostProblem:
    """Return a problem as costs for an engine, without factors that have no variables.

    Parameters
    ----------
    memory : int
        Memory for tables in bytes.
    problem : Problem
        The problem.
    engine : str
        Name of the engine.
    check : callable
        Called often; it may raise an error to end the conversion.
    """
    max_total = cp_sat_total if engine == CP_SAT else MAX_TOTAL_COST
    return costs_of_compact(given_to_engine(engine, problem, memory), constants=False, check=check, max_total=max_total)
