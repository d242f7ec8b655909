"""The front door for Python: load or generate a problem, plan, solve.

Numba, MPI and all that compiles is imported when it is first needed, not by ``import dmcmc``.
"""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from dmcmc.config.keywords import Keywords, settings_from
from dmcmc.config.settings import Settings
from dmcmc.files.write import check_writable
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.mpi.world import World
from dmcmc.report.plan import Plan, plan_of
from dmcmc.results.result import Result, Solution, TracePoint
from dmcmc.run.monitoring.progress import Silent, Watched

if TYPE_CHECKING:
    from mpi4py.MPI import Comm


class Stages(Protocol):
    """What may be told how far a run is."""

    def stage(self, title: str, total: int | None = None) -> None:
        """Begin a stage of ``total`` steps (None: unknown); the one before is over."""

    def advance(self, steps: int = 1) -> None:
        """Report that ``steps`` more steps of the stage are done."""


Progress = Callable[[str], object] | Stages
Trace = Callable[[TracePoint], object]
Solutions = Callable[[Solution], object]


def load(
    path: str | os.PathLike[str],
    *,
    agents: int | None = None,
    split: str = "tree",
    format: str | None = None,
    evidence: str | os.PathLike[str] | None = None,
    distribution: str | os.PathLike[str] | None = None,
) -> Problem:
    """Read a problem file of any known format, compressed or not.

    Parameters
    ----------
    path
        The file; its content, or else its name, tells the format.
    agents
        Give the variables to so many agents; None leaves them to the file's own, or to one.
    split
        How that is done: ``tree``, ``grow`` or ``blocks`` (:mod:`dmcmc.inference.dpop.assign_variables`).
    format
        What the file is read as: ``native``, ``wcsp``, ``cfn``, ``uai``, ``bif``, ``xcsp`` or ``pydcop``.
    evidence
        For belief networks: the file with observed values.
    distribution
        For pyDCOP problems: the file that says which agent hosts what.

    Raises
    ------
    DmcmcError
        One line: what is wrong with the file, and where.
    """
    from dmcmc.formats import registry as formats

    problem = formats.load(path, format=format, evidence=evidence, distribution=distribution)
    if agents is None:
        return problem
    from dmcmc.inference.dpop import assign_variables as splitting

    return splitting.split(problem, agents, split)


def generate(family: str, **parameters: Any) -> Problem:
    """Return a problem of a family.

    Parameters
    ----------
    family
        ``meeting-scheduling``, ``random``, ``random-network``, ``scale-free``, ``colouring`` or ``grid``.
    parameters
        Those of the family that differ from its defaults (``dmcmc generate --help`` and README); ``seed`` is 0.

    Raises
    ------
    DmcmcError
        For an unknown family or parameter, and for a value that is not allowed; names the known ones.

    Examples
    --------
    >>> generate("random", agents=2, variables_per_agent=3, seed=7).n_variables
    6
    """
    from dmcmc.generators import registry

    try:
        return registry.generate(family, {"seed": 0} | parameters)
    except DmcmcError as error:
        raise type(error)(f"generate {family}: {error}") from error


def plan(problem: Problem, settings: Settings | None = None, **keywords: Unpack[Keywords]) -> Plan:
    """Return what :func:`solve` would do with the same arguments, without doing it.

    Each agent's elimination is planned, and its method chosen. With a time budget ``auto`` measures this machine first,
    where that could change a choice.

    Parameters
    ----------
    problem, settings, keywords
        As for :func:`solve`.

    Returns
    -------
    Plan
        Width, cells and bytes, and what ``auto`` would do for each agent, and why; ``print`` shows it as a table.

    Raises
    ------
    DmcmcError
        As for :func:`solve`.

    Examples
    --------
    >>> plan(generate("random", agents=2, variables_per_agent=3, domain_size=2)).agents[0].method
    'exact'
    """
    from dmcmc.run.planning.plan import prepare

    return plan_of(prepare(problem, settings_from(settings, keywords), World()))


def solve(
    problem: Problem,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    trace: Trace | None = None,
    solution: Solutions | None = None,
    **keywords: Unpack[Keywords],
) -> Result:
    """Solve a problem in this process; for the ranks of an MPI program see :func:`solve_on`.

    Parameters
    ----------
    problem
        What to solve.
    settings
        How: a configuration without its problem. None for the defaults.
    progress
        Called with a line of text now and then (``progress=print``); or an object with ``stage(title, total)`` and
        ``advance(steps)``.
    trace
        Called with each new :class:`TracePoint` (``time``, ``objective``, ``bound``) as it is found.
    solution
        Called with each better :class:`Solution` (``time``, ``objective``, ``assignment``), which breaks nothing, as
        it is found; perhaps on another thread. Not where agents have files of their own.
    keywords
        Keys of a configuration by their own names, which change ``settings``: ``seed``, ``timeout``, ``gap``,
        ``memory``, ``device``, ``algorithm``, ``method``, ``runs``, ... (:class:`~dmcmc.config.keywords.Keywords` has
        all). ``output`` names a file that the result is written to as JSON.

    Returns
    -------
    Result
        Also where no assignment without violations was found: ``status`` says so.

    Raises
    ------
    DmcmcError
        One line: a setting that is not allowed, a table that does not fit the memory, a method that is not known.
    KeyboardInterrupt
        At Ctrl-C. With a time budget, the first one during the run ends it with the best so far instead.

    Examples
    --------
    >>> result = solve(generate("random", agents=2, variables_per_agent=3, domain_size=2), seed=7)
    >>> result.status, result.objective == result.bound
    ('optimal', True)
    """
    return _solve(World(), problem, settings_from(settings, keywords), Watched(progress, trace, solution))


def solve_on(
    world: "World | Comm",
    problem: Problem | None,
    settings: Settings | None = None,
    *,
    progress: Progress | None = None,
    trace: Trace | None = None,
    solution: Solutions | None = None,
    **keywords: Unpack[Keywords],
) -> Result:
    """Solve a problem on all ranks of an MPI program; called by each with the same problem and settings.

    Parameters
    ----------
    world
        An mpi4py communicator, such as ``MPI.COMM_WORLD``, or what :func:`dmcmc.mpi.world.connect` returns.
    problem, settings, progress, trace, solution, keywords
        As for :func:`solve`. Where rank 0 alone has the problem (the others give None) each rank gets its own agents'
        parts only. ``progress``, ``trace`` and ``solution`` are called on rank 0 only; ``output`` is written there.

    Returns
    -------
    Result
        The same on every rank.

    Raises
    ------
    DmcmcError
        As for :func:`solve`, on every rank.
    """
    ranks = world if isinstance(world, World) else World(world)
    return _solve(ranks, problem, settings_from(settings, keywords), Watched(progress, trace, solution))


def _solve(world: World, problem: Problem | None, settings: Settings, progress: Watched) -> Result:
    from dmcmc.run.algorithms import choose_algorithm as run

    output = settings.output
    if output is not None:
        world.decided(lambda: check_writable(output))
    found = run.solve(problem, settings, world, progress if world.rank == 0 else Silent())

    def delivered() -> Result:
        assert found is not None  # rank 0 has it
        if output is not None:
            found.write(output)
        return found

    return world.decided(delivered)
