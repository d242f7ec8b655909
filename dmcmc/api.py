"""The Python interface: plan a run, solve a problem, and answer questions about it.

Numba, MPI and all compiled code are imported at their first use, not by ``import dmcmc``.
"""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol, Unpack

from dmcmc.algorithms.choice.choose_algorithm import algorithm_for, solve_as_configured
from dmcmc.config.make_settings import Keywords, settings_from
from dmcmc.config.settings import Settings
from dmcmc.files.write import check_folder, check_writable
from dmcmc.inference.building.builder import Builder, as_problem
from dmcmc.inference.building.levels import check_weighted
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory
from dmcmc.mpi.world import World
from dmcmc.problems import load
from dmcmc.questions.alternatives import AlternativesRequest, solve_with_alternatives
from dmcmc.questions.conflict import find_conflict
from dmcmc.questions.max_marginals import timed_max_marginals
from dmcmc.questions.sums import marginals
from dmcmc.report.explain import Plan, plan_of
from dmcmc.results.questions import ConstraintConflict, Marginals
from dmcmc.results.result import Result, Solution, TracePoint
from dmcmc.solving.observe import CallbackProgress, NoProgress
from dmcmc.solving.planning.plan import prepare

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


class Stages(Protocol):
    """An observer of the progress of a run."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Notify that a stage of ``total`` steps (None: unknown) begins; the stage before has ended."""

    def advance(self, steps: int = 1) -> None:
        """Notify that ``steps`` more steps of the stage are done."""


ProblemSource = Problem | Builder | str | os.PathLike[str]
Progress = Callable[[str], object] | Stages
Trace = Callable[[TracePoint], object]
Solutions = Callable[[Solution], object]


def plan(problem: ProblemSource, settings: Settings | None = None, **keywords: Unpack[Keywords]) -> Plan:
    """Return the plan of :func:`solve` for the same arguments, without solving.

    The elimination of each agent is planned and its method is chosen. With a time budget, ``auto`` first measures the
    speed of this machine if this could change a choice.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`.
    settings : Settings, optional
        As for :func:`solve`.
    **keywords
        As for :func:`solve`.

    Returns
    -------
    Plan
        The method of each agent with the reason, and width, table cells and memory. ``print`` shows it as a table.

    Raises
    ------
    DmcmcError
        As for :func:`solve`.

    Examples
    --------
    >>> from dmcmc import generate
    >>> plan(generate("random", agents=2, variables_per_agent=3, domain_size=2)).agents[0].method
    'exact'
    """
    return plan_of(prepare(problem_of(problem), settings_from(settings, keywords), World()))


def solve(
    problem: ProblemSource,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    trace: Trace | None = None,
    solution: Solutions | None = None,
    **keywords: Unpack[Keywords],
) -> Result:
    """Solve a problem in this process. For the ranks of an MPI program see :func:`solve_on`.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        The problem, the builder that :meth:`Problem.build` returned, or the path of a problem file (:func:`load`).
    settings : Settings, optional
        How to solve it; None for the defaults.
    progress : callable or Stages, optional
        Called with a line of text from time to time (``progress=print``); or an object with the methods
        ``stage(title, total)`` and ``advance(steps)``.
    trace : callable, optional
        Called with each new :class:`TracePoint` (``time``, ``objective``, ``bound``) as soon as it is found.
    solution : callable, optional
        Called with each better :class:`Solution` (``time``, ``objective``, ``assignment``) that breaks no hard
        constraint, possibly on another thread. Not for problems with one file per agent.
    **keywords
        Keys of a configuration that replace those of ``settings``: ``seed``, ``timeout``, ``gap``, ``memory``,
        ``device``, ``algorithm``, ``method``, ``runs`` and others (:class:`~dmcmc.config.settings.Keywords` has all).
        ``output`` names a file in an existing folder, to which the result is written as JSON.

    Returns
    -------
    Result
        The result, also if no assignment without broken constraints was found: see ``status``.

    Raises
    ------
    DmcmcError
        If the problem cannot be read, a setting is not allowed, a method is unknown or a table does not fit the memory;
        the message is one line.
    KeyboardInterrupt
        At Ctrl-C. With a time budget, the first Ctrl-C ends the run with the best result so far instead.

    Examples
    --------
    >>> from dmcmc import generate
    >>> result = solve(generate("random", agents=2, variables_per_agent=3, domain_size=2), seed=7)
    >>> result.status, result.objective == result.bound
    ('optimal', True)
    """
    chosen = settings_from(settings, keywords)
    given, callbacks = problem_of(problem, chosen), callbacks_of(progress, trace, solution)
    if chosen.output is not None:
        check_output(chosen.output)
    world = World()
    with algorithm_for(given, chosen, world) as algorithm:
        result = algorithm(given, chosen, world, callbacks)
    assert result is not None  # on rank 0
    if chosen.output is not None:
        result.write(chosen.output)
    return result


def solve_on(
    world: "World | Comm",
    problem: ProblemSource | None,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    trace: Trace | None = None,
    solution: Solutions | None = None,
    **keywords: Unpack[Keywords],
) -> Result:
    """Solve a problem on all ranks of an MPI program; each rank calls it with the same problem and settings.

    Parameters
    ----------
    world : MPI.Comm or World
        An mpi4py communicator, such as ``MPI.COMM_WORLD``, or the value of :func:`dmcmc.mpi.world.connect`.
    problem : Problem, Builder, str, path or None
        As for :func:`solve`; each rank reads a file. If only rank 0 has it and the others give None, each rank receives
        only the parts of its agents.
    settings : Settings, optional
        As for :func:`solve`.
    progress, trace, solution : callable, optional
        As for :func:`solve`; called on rank 0 only.
    **keywords
        As for :func:`solve`; rank 0 writes the file ``output``.

    Returns
    -------
    Result
        The result, the same on every rank.

    Raises
    ------
    DmcmcError
        As for :func:`solve`, on every rank.
    """
    if not isinstance(world, World) and not hasattr(world, "Get_rank"):
        raise ConfigError(f"world: expected an MPI communicator, got {world!r}")
    ranks, chosen = world if isinstance(world, World) else World(world), settings_from(settings, keywords)
    given = ranks.on_all_ranks(lambda: None if problem is None and ranks.rank > 0 else problem_of(problem, chosen))
    return _solve_on_ranks(ranks, given, chosen, callbacks_of(progress, trace, solution))


def alternatives(
    problem: ProblemSource,
    k: int = 5,
    within: float | None = None,
    distance: int = 1,
    *,
    over: Iterable[str] | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[Keywords],
) -> Result:
    """Find several good assignments: the k best ones, or diverse ones that differ in several variables.

    With ``distance=1`` these are the k best assignments, proven if a junction tree of the whole problem fits the memory
    (Nilsson 1998). Otherwise the problem is solved once per assignment, each time with the constraint that it differs
    from all earlier ones in at least ``distance`` variables.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`.
    k : int
        Number of assignments, the best one included.
    within : float, optional
        Largest relative gap to the best assignment, such as 0.02 for 2 %.
    distance : int
        Least number of variables in which any two of the assignments differ.
    over : iterable of str, optional
        The variables that count for ``distance``; None for all of them.
    settings : Settings, optional
        As for :func:`solve`.
    progress : callable or Stages, optional
        As for :func:`solve`, for the first assignment.
    **keywords
        As for :func:`solve`. ``timeout`` is the limit for all assignments together.

    Returns
    -------
    Result
        The result of :func:`solve` with ``alternatives``, in the order in which they were found; the first is the
        answer of the result. ``note`` says why there are fewer than k.

    Raises
    ------
    DmcmcError
        As for :func:`solve`, or if k, ``within``, ``distance`` or ``over`` is not allowed.

    Examples
    --------
    >>> from dmcmc import generate
    >>> problem = generate("random", agents=2, variables_per_agent=3, domain_size=2)
    >>> found = alternatives(problem, 3).alternatives
    >>> [x.proven for x in found], found[0].objective >= found[1].objective >= found[2].objective
    ([True, True, True], True)
    """
    chosen, given = settings_from(settings, keywords), problem_of(problem)
    if chosen.output is not None:
        check_output(chosen.output)
    request = AlternativesRequest(k, within, distance, None if over is None else tuple(over))
    result = solve_with_alternatives(given, chosen, request, callbacks_of(progress, None, None))
    if chosen.output is not None:
        result.write(chosen.output)
    return result


def conflict(
    problem: ProblemSource, settings: Settings | None = None, **keywords: Unpack[Keywords]
) -> ConstraintConflict:
    """Explain why a problem is infeasible: a minimal set of hard constraints that cannot hold together.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`; its agents do not matter.
    settings : Settings, optional
        As for :func:`solve`.
    **keywords
        As for :func:`solve`. ``timeout`` is the limit for all tests together.

    Returns
    -------
    ConstraintConflict
        The constraints, whether they are a minimal set, and for each the best objective without it alone.

    Raises
    ------
    DmcmcError
        As for :func:`solve`.

    Examples
    --------
    >>> from dmcmc import Problem
    >>> builder = Problem.build()
    >>> x = builder.variable("x", 2)
    >>> for value, name in enumerate(("not 0", "not 1")):
    ...     _ = builder.factor((x,), [float("-inf") if v == value else 0 for v in range(2)], name=name)
    >>> conflict(builder).constraints
    ('not 0', 'not 1')
    """
    return find_conflict(problem_of(problem), settings_from(settings, keywords))


def max_marginals(
    problem: ProblemSource,
    variables: Iterable[str] = (),
    *,
    settings: Settings | None = None,
    **keywords: Unpack[Keywords],
) -> Marginals:
    """Return the best objective of an assignment with each value of each variable ("why not this value?").

    Without ``timeout`` they are exact, by a junction tree of the whole problem. With it, they are bounded where neither
    the tree nor an elimination of all other variables fits.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`; its agents do not matter.
    variables : iterable of str
        The variables that are asked, the most wanted first; all of them if empty.
    settings : Settings, optional
        As for :func:`solve`.
    **keywords
        As for :func:`solve`.

    Returns
    -------
    Marginals
        ``marginals`` with exact numbers, or ``intervals`` with bounds, by variable and value.

    Raises
    ------
    DmcmcError
        As for :func:`solve`; without ``timeout`` also if the tables do not fit the memory.

    Examples
    --------
    >>> from dmcmc import Problem
    >>> builder = Problem.build()
    >>> pair = builder.variable("a", 2), builder.variable("b", 2)
    >>> max_marginals(builder.factor(pair, [[1, 5], [3, 0]]).problem(), ["a"]).marginals
    {'a': {0: 5, 1: 3}}
    """
    given, chosen, asked = problem_of(problem), settings_from(settings, keywords), tuple(variables)
    check_weighted(given, "max-marginals")
    for name in asked:
        if name not in given.variables:
            raise ConfigError(f"variables: variable {name!r} does not exist{suggest_name(name, given.variables)}")
    if chosen.budget.time is None:
        found = marginals(given, chosen, "max-marginals")
    else:
        found = timed_max_marginals(given, chosen, asked)
    return found.only(asked) if asked else found


def problem_of(source: ProblemSource | None, settings: Settings | None = None) -> Problem:
    """Return the problem that an argument stands for: itself, a builder's, or that of a file, within its budget."""
    if isinstance(source, Problem):
        return source
    if not isinstance(source, str | os.PathLike):
        return as_problem(source)
    if settings is None:
        return load(source)
    with MEMORY_ACCOUNT.open(settings.budget.bytes, resident_memory()):
        return load(source)


def callbacks_of(progress: Progress | None, trace: Trace | None, solution: Solutions | None) -> CallbackProgress:
    """Return the callbacks of a run; raise ConfigError if one cannot be called."""
    for name, callback in (("progress", progress), ("trace", trace), ("solution", solution)):
        if callback is not None and not callable(callback) and not (name == "progress" and hasattr(callback, "stage")):
            raise ConfigError(f"{name}: expected a function, got {callback!r}")
    return CallbackProgress(progress, trace, solution)


def check_output(path: str | os.PathLike[str]) -> None:
    """Raise FileError if the folder of a file does not exist, or the file cannot be written."""
    check_folder(path)
    check_writable(path)


def _solve_on_ranks(world: World, problem: Problem | None, settings: Settings, progress: CallbackProgress) -> Result:
    """Solve a problem on all ranks and write the result on rank 0."""
    output = settings.output
    if output is not None:
        world.on_first_rank(lambda: check_output(output))
    result = solve_as_configured(problem, settings, world, progress if world.rank == 0 else NoProgress())

    def deliver() -> Result:
        assert result is not None  # on rank 0
        if output is not None:
            result.write(output)
        return result

    return world.on_first_rank(deliver)
