"""Carry out the commands after their arguments are parsed."""

import json
import os
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, cast

from dmcmc.cli.calendar import check_options
from dmcmc.cli.failure import exit_code, report
from dmcmc.cli.file_roles import is_calendar, is_configuration
from dmcmc.cli.inputs import check_run, configuration, explainer, load, options_of
from dmcmc.cli.signals import SIGNALS
from dmcmc.cli.terminal import emit
from dmcmc.cli.write_result import SolvedJob, deliver
from dmcmc.config.configuration import Config
from dmcmc.config.problem_section import problem_of
from dmcmc.config.yaml_lines import value_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, Unavailable
from dmcmc.mpi.launcher import launched
from dmcmc.results.result import Output

if TYPE_CHECKING:
    from dmcmc.cli.solve_command import SolveJob
    from dmcmc.mpi.world import World
from dmcmc.session.scenario import ScenarioEvent
from dmcmc.solving.monitoring.interrupt import RunHandle


class _SharedJob(SolvedJob, Protocol):
    """A job that rank 0 prepares and sends to the other ranks."""

    def for_other_ranks(self, world: "World") -> Self:
        """Return the job without the data that other ranks do not need."""


J = TypeVar("J", bound=_SharedJob)

_OTHER_RANKS_WAIT = 2.0  # seconds that a failed rank waits for a more informative error of another one
_FORWARDING = 0.5  # seconds for the launcher to pass an error line on; less than the wait above


def run(arguments: Namespace) -> int:
    """Solve the problem of a configuration file on all ranks; return this rank's exit code."""
    return _on_all_ranks(arguments, _prepare, _solve)


def solve(arguments: Namespace) -> int:
    """Solve a problem file on all ranks; return this rank's exit code."""
    from dmcmc.cli import solve_command

    return _on_all_ranks(arguments, solve_command.prepare, solve_command.work)


def _on_all_ranks(
    arguments: Namespace,
    prepare: Callable[[Namespace], J],
    work: Callable[[J, "World", "RunHandle | None"], Output | None],
) -> int:
    """Prepare a job on rank 0, carry it out on all ranks, and deliver the result on rank 0.

    After a signal, ``SIGNALS`` delivers the best result so far earlier.

    Parameters
    ----------
    arguments
        The parsed command line.
    prepare
        Called on rank 0 only: checks the arguments, reads the problem, and returns the job.
    work
        Called on every rank with the job, the MPI ranks and the handle by which a signal ends the run (None without
        signal handling). Returns the result on rank 0, and None on the others.

    Returns
    -------
    int
        This rank's exit code; 0 on ranks without a result.
    """
    from dmcmc.mpi.world import connect

    with warnings.catch_warnings(), SIGNALS.default_handling():
        warnings.filterwarnings("ignore", "suspicious MPI execution environment")  # connect reports it in one line
        world = connect()
    SIGNALS.processes.world = world
    if world.rank == 0 and world.core_binding is not None:
        from dmcmc.mpi.compute_node import binding_advice

        print(f"dmcmc: warning: {binding_advice(world.core_binding)}", file=sys.stderr, flush=True)
    job = _prepare_together(world, arguments, prepare)
    if isinstance(job, int):
        return job
    run_handle = SIGNALS.begin(lambda found: deliver(found, job, arguments))
    try:
        result = work(job, world, run_handle)
    except (Exception, KeyboardInterrupt) as error:
        if SIGNALS.is_ending:  # the run was ended, or another rank has ended
            return SIGNALS.finish()
        if world.size == 1:
            raise
        return _abort(world, error)
    return 0 if result is None else SIGNALS.deliver(result)


def _prepare_together(world: "World", arguments: Namespace, prepare: Callable[[Namespace], J]) -> J | int:
    """Read configuration and problem on rank 0, and return the job, or the exit code of a failure, on all ranks."""
    job_or_code: J | int = 0
    failure: BaseException | None = None
    if world.rank == 0:
        try:
            job_or_code = prepare(arguments)
        except (Exception, KeyboardInterrupt) as error:
            job_or_code, failure = exit_code(error), error
    message = job_or_code if isinstance(job_or_code, int) else job_or_code.for_other_ranks(world)
    try:
        received = world.bcast(message)
    finally:
        if failure is not None:
            report(failure)
    return job_or_code if world.rank == 0 else cast("J | int", received)


class _RunJob(NamedTuple):
    """The data of ``dmcmc run`` that all ranks need.

    Attributes
    ----------
    config : Config
        The configuration.
    problem : Problem or None
        The problem; None if each rank reads its agents' files, or gets their parts from rank 0.
    explain : bool
        Whether to print the plan first.
    share_assignment : bool
        Whether rank 0 gathers the assignment of a problem with one file per agent.
    events : tuple of ScenarioEvent
        The events of a scenario; empty without one.
    calendar : None
        Calendars are jobs of ``dmcmc solve``.
    """

    config: Config
    problem: Problem | None
    explain: bool
    share_assignment: bool = False
    events: "tuple[ScenarioEvent, ...]" = ()
    calendar: None = None

    def for_other_ranks(self, world: "World") -> Self:
        """Return the job without the problem if its parts are scattered over the ranks."""
        from dmcmc.solving.planning.divided_problem import is_scattered

        if self.events:
            return self
        scattered = self.problem is not None and is_scattered(self.problem, self.config, world)
        return self._replace(problem=None) if scattered else self


def _prepare(arguments: Namespace) -> "_RunJob | SolveJob":
    """Read the configuration and the problem of ``dmcmc run``; a calendar becomes a job of ``dmcmc solve``."""
    if is_calendar(arguments.config):
        from dmcmc.cli import solve_command
        from dmcmc.cli.arguments import command_parsers

        defaults = {action.dest: action.default for action in command_parsers()["solve"]._actions}
        return solve_command.prepare(Namespace(**defaults | vars(arguments) | {"file": arguments.config}))
    check_options(arguments, arguments.config)
    config, document = configuration(arguments.config, arguments.set, options_of(arguments))
    check_run(config, document)
    if "directory" in config.problem:
        if arguments.explain:
            raise Unavailable("--explain: is not possible with problem.directory: no rank knows all agents; remove it")
        shared = arguments.share_assignment or config.problem.get("share_assignment", False)
        return _RunJob(config, None, False, shared)
    if arguments.share_assignment:
        raise ConfigError("--share-assignment: is for problem.directory; other results are complete without it")
    problem = problem_of(config.problem, document)
    if "scenario" not in config.problem:
        return _RunJob(config, problem, arguments.explain)
    from dmcmc.session.scenario import read_scenario

    if arguments.explain:
        raise Unavailable("--explain: is not possible with problem.scenario, whose problem changes; remove it")
    return _RunJob(config, problem, False, events=tuple(read_scenario(config.problem["scenario"])))


def _solve(job: "_RunJob | SolveJob", world: "World", ending: "RunHandle | None") -> Output | None:
    """Solve the problem of a job; return the result on rank 0.

    ``ending`` is the handle by which a signal ends the run.
    """
    if not isinstance(job, _RunJob):
        from dmcmc.cli import solve_command

        return solve_command.work(job, world, ending)
    from dmcmc.cli.progress import progress_for
    from dmcmc.run.algorithms.choose_algorithm import solve
    from dmcmc.run.solve_directory import solve_directory

    with progress_for(world.rank, job.config.budget.time) as progress:
        if job.events and job.problem is not None:
            from dmcmc.cli.solve_tasks.scenario import run_events

            return run_events(job.problem, job.config, job.events, world, progress, ending)
        if "directory" in job.config.problem:
            folder, shared = job.config.problem["directory"], job.share_assignment
            return solve_directory(folder, job.config, world, progress, shared, ending)
        return solve(job.problem, job.config, world, progress, explainer(job.explain), ending)


def _abort(world: "World", error: BaseException) -> int:
    """Report an error, end all ranks by ``MPI_Abort``, and return the exit code for the error.

    Ranks other than 0 wait a moment: mostly rank 0 fails in the same way, reports it once and ends the others. A rank
    that only knows that another one failed waits longer, since that one has the more informative error.
    """
    from dmcmc.mpi.collective_calls import OtherRankError

    if isinstance(error, OtherRankError):
        time.sleep(2 * _OTHER_RANKS_WAIT)
    elif world.rank != 0:
        time.sleep(_OTHER_RANKS_WAIT)
    report(error, world.rank or None)
    time.sleep(_FORWARDING)  # an immediate abort can overtake the line in the launcher
    world.abort(exit_code(error))
    return exit_code(error)


def generate(arguments: Namespace) -> int:
    """Write a generated problem to a file and print its size."""
    from dmcmc.formats.convert import check, write
    from dmcmc.generators import registry

    parameters: dict[str, Any] = {}
    for text in arguments.parameters:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError(f"generate: expected PARAM=VALUE, such as agents=10, got {text!r}")
        if name in parameters:
            raise ConfigError(f"generate: {name}: is given twice")
        parameters[name] = value_of(value, f"generate: {name}")
    if arguments.seed is not None:
        if "seed" in parameters:
            raise ConfigError("generate: seed: is given twice (seed=... and --seed)")
        parameters["seed"] = value_of(arguments.seed, "--seed")
    check(arguments.output, arguments.to, arguments.drop)
    try:
        problem = registry.generate(arguments.family, {"seed": 0} | parameters)
    except DmcmcError as error:
        raise type(error)(f"generate {arguments.family}: {error}") from error
    written = write(problem, arguments.output, arguments.to, arguments.drop)
    dropped = f"; dropped: {', '.join(written.dropped)}" if written.dropped else ""
    emit(f"{arguments.output}: {_description(written.problem)}{dropped}")
    return 0


def _description(problem: Problem) -> str:
    """Return the size of a problem in one line.

    >>> from dmcmc import Factor
    >>> _description(Problem(("x", "y"), [2, 3], ("a",), [0, 0], (Factor.of((0,), [1, 2]),)))
    '1 agent, 2 variables, 2 to 3 values each, 1 factor over at most 1 variable, 0 forbidden entries, sense max'
    """
    low, high = int(problem.domains.min(initial=2**62)), int(problem.domains.max(initial=0))
    values = f"{low} values each" if low == high else f"{low} to {high} values each"
    arity = max((len(f.scope) for f in problem.factors), default=0)
    parts = [
        _count(problem.n_agents, "agent"),
        _count(problem.n_variables, "variable"),
        values if problem.n_variables else "no values",
        f"{_count(len(problem.factors), 'factor')} over at most {_count(arity, 'variable')}",
        f"{problem.forbidden_entries()} forbidden entries",
        f"sense {problem.sense}",
    ]
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    """Return a number with a noun in the right form."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def convert(arguments: Namespace) -> int:
    """Write a problem in another format and print its size."""
    from dmcmc.formats.convert import check, write

    check(arguments.output, arguments.to, arguments.drop)
    problem, _ = load(arguments.input, arguments)
    written = write(problem, arguments.output, arguments.to, arguments.drop)
    dropped = f"; dropped: {', '.join(written.dropped)}" if written.dropped else ""
    emit(f"{arguments.output}: {_description(written.problem)}{dropped}")
    return 0


def split(arguments: Namespace) -> int:
    """Write one file per agent and print their number."""
    from dmcmc.formats import agent_files

    problem, config = load(arguments.input, arguments)
    count = agent_files.write(problem, arguments.output, config.budget.bytes)
    emit(f"{arguments.output}: {_count(count, 'file')}, one per agent, and {agent_files.INDEX}")
    return 0


def graph(arguments: Namespace) -> int:
    """Show the properties of a problem's graphs, and draw them."""
    from dmcmc.report.graph import facts_of
    from dmcmc.report.graph_summary import summary

    if arguments.output is not None:
        from dmcmc.report.drawing import check_picture

        check_picture(arguments.output)
    problem, config = load(arguments.input, arguments)
    facts = facts_of(problem, config.budget.bytes)
    if arguments.output is not None:
        from dmcmc.report.drawing import draw

        draw(problem, facts, arguments.output)
    emit(json.dumps(facts.plain(), indent=2) if arguments.json else summary(facts))
    return 0


def experiment(arguments: Namespace) -> int:
    """Carry out an experiment."""
    from dmcmc.cli import experiment_command

    return experiment_command.experiment(arguments)


def write_report(arguments: Namespace) -> int:
    """Write the report of an experiment, or of one result."""
    from dmcmc.cli import report_command

    return report_command.report(arguments)


def samplers(arguments: Namespace) -> int:
    """List the local solvers."""
    from dmcmc.samplers import registry

    auto = {"auto": "exact if the time and memory limits allow it, otherwise a sampler with a bound"}
    _list(auto | dict(sorted(registry.names().items())), arguments.json)
    return 0


def algorithms(arguments: Namespace) -> int:
    """List the algorithms."""
    from dmcmc.algorithms import registry

    ours = {registry.OWN: "the default: exact or sampled tables of agents with many variables, bounds, DPOP or ADPOP"}
    _list(ours | registry.names(), arguments.json)
    return 0


def info(arguments: Namespace) -> int:
    """Show the versions and the hardware that this installation uses."""
    from dmcmc.results.provenance import machine, rank_machine

    if not launched(os.environ):
        _list(machine(), arguments.json)
        return 0
    from dmcmc.mpi.compute_node import binding_advice
    from dmcmc.mpi.world import connect

    world = connect()
    machines = world.gather(
        {"rank": world.rank}
        | rank_machine()
        | ({"bound": binding_advice(world.core_binding)} if world.core_binding else {})
    )
    if machines is not None:
        rows: dict[str, Any] = machine()
        if arguments.json:
            rows["ranks"] = machines
        else:
            rows |= {f"rank {data.pop('rank')}": ", ".join(f"{k} {v}" for k, v in data.items()) for data in machines}
        _list(rows, arguments.json)
    return 0


def _list(rows: Mapping[str, Any], as_json: bool) -> None:
    """Print names and values, as a JSON object or in two columns."""
    if as_json:
        emit(json.dumps(rows, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for name, value in rows.items():
        table.add_row(Text(name, style="bold"), Text("-" if value is None else str(value)))
    emit(table)


def completion(arguments: Namespace) -> int:
    """Print a script that completes commands in a shell."""
    from dmcmc.cli.arguments import command_parsers
    from dmcmc.cli.setup_commands.completion import script

    emit(script(arguments.shell, command_parsers()).rstrip("\n"))
    return 0


def warm_up(arguments: Namespace) -> int:
    """Compile all kernels in advance, or those of one configuration."""
    from dmcmc.cli.progress import progress_for
    from dmcmc.cli.setup_commands import warm_up as compiling

    jobs = None if arguments.jobs is None else value_of(arguments.jobs, "--jobs")
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise ConfigError(f"--jobs: expected a whole number of at least 1, got {arguments.jobs!r}")
    with progress_for(0) as progress:
        if arguments.config is None:
            compiled = compiling.warm_up(arguments.device or "auto", progress, jobs)
        else:
            compiled = compiling.warm_up_by_runs(_short_runs(arguments.config, arguments.device), progress)
    emit(f"{compiled.new} kernels compiled, {compiled.stored} stored ({compiled.seconds:.0f} s)")
    return 0


def _short_runs(path: str, device: str | None) -> list[list[str]]:
    """Return command lines that need the same kernels as a later run of a file, and write nothing.

    One has a time limit of one second. Without a time limit in the file, there is another one without.
    """
    command = "run" if is_calendar(path) or is_configuration(path) else "solve"
    run = [command, path, "--quiet", "--json", "--set", "output=null", "--set", "checkpoint=null"]
    run += [] if device is None else ["--device", device]
    limited = is_calendar(path) or (command == "run" and configuration(path)[0].budget.time is not None)
    return [[*run, "--timeout", "1"], *([] if limited else [run])]


def init(arguments: Namespace) -> int:
    """Write a commented example file."""
    from dmcmc.cli.setup_commands.example import write_example

    emit(write_example(arguments.what, arguments.path))
    return 0


def mcp(arguments: Namespace) -> int:
    """Serve tools for planning calendars to an assistant until standard input ends."""
    from pathlib import Path

    from dmcmc.assistant.server import serve

    folder, seconds = Path(arguments.folder), value_of(arguments.timeout, "--timeout")
    if not folder.is_dir():
        raise ConfigError(f"--folder: {folder} is no folder")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"--timeout: expected a number of seconds above 0, got {arguments.timeout!r}")
    serve(folder, float(seconds))
    return 0


COMMANDS: Mapping[str, Callable[[Namespace], int]] = {
    "run": run,
    "solve": solve,
    "init": init,
    "completion": completion,
    "generate": generate,
    "convert": convert,
    "split": split,
    "graph": graph,
    "experiment": experiment,
    "report": write_report,
    "samplers": samplers,
    "algorithms": algorithms,
    "info": info,
    "warm-up": warm_up,
    "mcp": mcp,
}
