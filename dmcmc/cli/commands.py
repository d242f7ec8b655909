"""What each command does, once its arguments are parsed."""

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
from dmcmc.cli.file_roles import is_calendar
from dmcmc.cli.inputs import check_run, configuration, explainer, load, options_of
from dmcmc.cli.signals import SIGNALS
from dmcmc.cli.terminal import emit
from dmcmc.cli.write_result import Work, deliver
from dmcmc.config.configuration import Config
from dmcmc.config.problem_section import problem_of
from dmcmc.config.yaml_lines import value_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, Unavailable
from dmcmc.mpi.launcher import launched
from dmcmc.results.result import Output

if TYPE_CHECKING:
    from dmcmc.cli.solve_command import Job as SolveJob
    from dmcmc.mpi.world import World
    from dmcmc.run.monitoring.interrupt import Ending


class _Told(Work, Protocol):
    """A job of which rank 0 tells the others what they need."""

    def told(self, world: "World") -> Self:
        """Return what other ranks are told of what rank 0 knows."""


J = TypeVar("J", bound=_Told)

_GRACE = 2.0  # seconds
_FORWARDING = 0.5  # seconds; less than the grace


def run(arguments: Namespace) -> int:
    """Solve the problem of a configuration file on all ranks; returns this rank's exit code."""
    return _on_all_ranks(arguments, _prepare, _solve)


def solve(arguments: Namespace) -> int:
    """Solve a problem file on all ranks; returns this rank's exit code."""
    from dmcmc.cli import solve_command

    return _on_all_ranks(arguments, solve_command.prepare, solve_command.work)


def _on_all_ranks(
    arguments: Namespace,
    prepare: Callable[[Namespace], J],
    work: Callable[[J, "World", "Ending | None"], Output | None],
) -> int:
    """Let rank 0 prepare a job, all ranks do it, and rank 0 deliver what comes out: sooner if a signal asks for it."""
    from dmcmc.mpi.world import connect

    with warnings.catch_warnings(), SIGNALS.unheard():
        warnings.filterwarnings("ignore", "suspicious MPI execution environment")  # connect says it in one line
        world = connect()
    SIGNALS.join(world)
    if world.rank == 0 and world.bound is not None:
        from dmcmc.mpi.compute_node import advice

        print(f"dmcmc: warning: {advice(world.bound)}", file=sys.stderr, flush=True)
    ready = _prepare_together(world, arguments, prepare)
    if isinstance(ready, int):
        return ready
    ending = SIGNALS.begin(lambda found: deliver(found, ready, arguments))
    try:
        result = work(ready, world, ending)
    except (Exception, KeyboardInterrupt) as error:
        if SIGNALS.told:  # work that was given up, or a rank that has gone
            return SIGNALS.finish()
        if world.size == 1:
            raise
        return _abort(world, error)
    return 0 if result is None else SIGNALS.deliver(result)


def _prepare_together(world: "World", arguments: Namespace, prepare: Callable[[Namespace], J]) -> J | int:
    """Let rank 0 read configuration and problem, and give the job, or the exit code of its failure, to all."""
    ready: J | int = 0
    failure: BaseException | None = None
    if world.rank == 0:
        try:
            ready = prepare(arguments)
        except (Exception, KeyboardInterrupt) as error:
            ready, failure = exit_code(error), error
    told = ready if isinstance(ready, int) else ready.told(world)
    try:
        found = world.bcast(told)
    finally:
        if failure is not None:
            report(failure)
    return ready if world.rank == 0 else cast("J | int", found)


class _Job(NamedTuple):
    """What every rank knows before the work starts."""

    config: Config
    problem: Problem | None  # None where each rank reads its own agents' files, or gets their parts from rank 0
    explain: bool
    share_assignment: bool = False

    def told(self, world: "World") -> Self:
        """Leave out a problem that is dealt out."""
        from dmcmc.run.planning.divided_problem import is_dealt_out

        dealt = self.problem is not None and is_dealt_out(self.problem, self.config, world)
        return self._replace(problem=None) if dealt else self


def _prepare(arguments: Namespace) -> "_Job | SolveJob":
    if is_calendar(arguments.config):
        from dmcmc.cli import solve_command
        from dmcmc.cli.arguments import command_parsers

        usual = {action.dest: action.default for action in command_parsers()["solve"]._actions}
        return solve_command.prepare(Namespace(**usual | vars(arguments) | {"file": arguments.config}))
    check_options(arguments, arguments.config)
    config, document = configuration(arguments.config, arguments.set, options_of(arguments))
    check_run(config, document)
    if "directory" in config.problem:
        if arguments.explain:
            raise Unavailable("--explain: nobody knows what all agents will do; leave it out with problem.directory")
        shared = arguments.share_assignment or config.problem.get("share_assignment", False)
        return _Job(config, None, False, shared)
    if arguments.share_assignment:
        raise ConfigError("--share-assignment: is for problem.directory; the answer to one file is whole anyway")
    return _Job(config, problem_of(config.problem, document), arguments.explain)


def _solve(job: "_Job | SolveJob", world: "World", ending: "Ending | None") -> Output | None:
    if not isinstance(job, _Job):
        from dmcmc.cli import solve_command

        return solve_command.work(job, world, ending)
    from dmcmc.cli.progress import progress_for
    from dmcmc.run.algorithms.choose_algorithm import solve
    from dmcmc.run.private.solve import solve_directory

    with progress_for(world.rank, job.config.budget.time) as progress:
        if "directory" in job.config.problem:
            folder, shared = job.config.problem["directory"], job.share_assignment
            return solve_directory(folder, job.config, world, progress, shared, ending)
        return solve(job.problem, job.config, world, progress, explainer(job.explain), ending)


def _abort(world: "World", error: BaseException) -> int:
    """Report an error and end all ranks.

    A rank other than 0 waits a moment: mostly rank 0 fails in the same way, says so once, and ends the others. A rank
    that only knows that another one has failed waits longer: that one says more, and ends the others.
    """
    from dmcmc.mpi.world import FailedElsewhere

    if isinstance(error, FailedElsewhere):
        time.sleep(2 * _GRACE)
    elif world.rank != 0:
        time.sleep(_GRACE)
    report(error, world.rank or None)
    time.sleep(_FORWARDING)  # an abort at once can outrun the line on its way through the launcher
    world.abort(exit_code(error))
    return exit_code(error)


def generate(arguments: Namespace) -> int:
    """Write a generated problem to a file and say what it is."""
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
    emit(f"{arguments.output}: {_description(written)}")
    return 0


def _description(problem: Problem) -> str:
    """Return the size of a problem in one line.

    >>> from dmcmc import Factor
    >>> _description(Problem(("x", "y"), [2, 3], ("a",), [0, 0], (Factor.of((0,), [1, 2]),)))
    '1 agent, 2 variables, 2 to 3 values each, 1 factor over up to 1 variable, 0 forbidden entries, sense max'
    """
    low, high = int(problem.domains.min(initial=2**62)), int(problem.domains.max(initial=0))
    values = f"{low} values each" if low == high else f"{low} to {high} values each"
    arity = max((len(f.scope) for f in problem.factors), default=0)
    parts = [
        _count(problem.n_agents, "agent"),
        _count(problem.n_variables, "variable"),
        values if problem.n_variables else "no values",
        f"{_count(len(problem.factors), 'factor')} over up to {_count(arity, 'variable')}",
        f"{problem.forbidden_entries()} forbidden entries",
        f"sense {problem.sense}",
    ]
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def convert(arguments: Namespace) -> int:
    """Write a problem in another format and say what it is."""
    from dmcmc.formats.convert import check, write

    check(arguments.output, arguments.to, arguments.drop)
    problem, _ = load(arguments.input, arguments)
    written = write(problem, arguments.output, arguments.to, arguments.drop)
    emit(f"{arguments.output}: {_description(written)}")
    return 0


def split(arguments: Namespace) -> int:
    """Write one file an agent and say how many there are."""
    from dmcmc.formats import agent_files

    problem, config = load(arguments.input, arguments)
    count = agent_files.write(problem, arguments.output, config.budget.bytes)
    emit(f"{arguments.output}: {_count(count, 'agent')}, a file each, and {agent_files.INDEX}")
    return 0


def graph(arguments: Namespace) -> int:
    """Show and draw a problem's graphs."""
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

    auto = {"auto": "exact where the budget allows it, else annealing with a bound"}
    _list(auto | dict(sorted(registry.names().items())), arguments.json)
    return 0


def algorithms(arguments: Namespace) -> int:
    """List the algorithms."""
    from dmcmc.algorithms import registry

    ours = {registry.OWN: "agents of many variables: exact or sampled tables, bounds, DPOP or ADPOP (the default)"}
    _list(ours | registry.names(), arguments.json)
    return 0


def info(arguments: Namespace) -> int:
    """Show what this installation is and what it may use."""
    from dmcmc.results.provenance import machine, seat

    if not launched(os.environ):
        _list(machine(), arguments.json)
        return 0
    from dmcmc.mpi.compute_node import advice
    from dmcmc.mpi.world import connect

    world = connect()
    seats = world.gather({"rank": world.rank} | seat() | ({"bound": advice(world.bound)} if world.bound else {}))
    if seats is not None:
        rows: dict[str, Any] = machine()
        if arguments.json:
            rows["ranks"] = seats
        else:
            rows |= {f"rank {one.pop('rank')}": ", ".join(f"{k} {v}" for k, v in one.items()) for one in seats}
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
    """Compile ahead what runs use."""
    from dmcmc.cli.progress import progress_for
    from dmcmc.cli.setup_commands.warm_up import warm_up as compile_ahead

    with progress_for(0) as progress:
        kernels, seconds = compile_ahead(arguments.device, progress)
    emit(f"{kernels} kernels are compiled ({seconds:.0f} s)")
    return 0


def init(arguments: Namespace) -> int:
    """Write a commented example."""
    from dmcmc.cli.setup_commands.example import write_example

    emit(write_example(arguments.what, arguments.path))
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
}
