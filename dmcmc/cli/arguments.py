"""The commands of the command line and their options, and how arguments are parsed.

A command is imported when it is called, so that the other ones do not slow down the start.
"""

import argparse
import textwrap
from argparse import Namespace
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NoReturn, cast

from dmcmc.config.configuration import FILE_OPTIONS
from dmcmc.files.document import suggestion
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.results.version import __version__

COMMANDS: Mapping[str, str] = {  # name: module in dmcmc.cli.commands, and its function
    "run": "solve:run",
    "solve": "solve:solve",
    "init": "setup:init",
    "generate": "problem_files:generate",
    "convert": "problem_files:convert",
    "split": "problem_files:split",
    "graph": "problem_files:graph",
    "experiment": "experiment:experiment",
    "report": "experiment:report",
    "benchmark": "benchmark:benchmark",
    "samplers": "problem_files:samplers",
    "algorithms": "problem_files:algorithms",
    "info": "problem_files:info",
    "warm-up": "warm_up:warm_up",
    "completion": "setup:completion",
    "mcp": "setup:mcp",
}


def function_of_command(name: str) -> Callable[[Namespace], int]:
    """Return the function of a command: it takes the parsed arguments and returns this rank's exit code."""
    module, _, function = COMMANDS[name].partition(":")
    return cast(Callable[[Namespace], int], getattr(import_module(f"dmcmc.cli.commands.{module}"), function))


_EXITS = (
    "exit status: 0 an assignment was found that breaks no hard constraint (also if the time limit was reached), 1 none"
    " was found, or an error, 2 bad input or not available, 3 proven infeasible, 130 or 143 interrupted before a result"
)
# Commands that compile kernels, or describe where they are kept
_WITH_CACHE = ("run", "solve", "generate", "convert", "split", "graph", "experiment", "benchmark", "info", "warm-up")

Commands = Any  # argparse._SubParsersAction


class _Parser(argparse.ArgumentParser):
    """A parser that raises errors instead of printing a usage text, and accepts no abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise a ``ConfigError`` that names the help."""
        raise ConfigError(f"{message} (see '{self.prog} --help')")


class _FamilyParser(_Parser):
    """A parser that lists the families of problems in its help; they are imported only for that."""

    def format_help(self) -> str:
        """Return the help text with all families and their parameters."""
        from dmcmc.generators import registry

        try:
            known = registry.names()
        except DmcmcError:
            known = {}
        self.epilog = "\n".join(["families with their parameters and default values:", *map(_family, known.items())])
        return super().format_help()


def _family(named: tuple[str, str]) -> str:
    """Return the lines of one family in the help text."""
    from dmcmc.generators import registry

    name, text = named
    parameters = " ".join(
        f"{key}={'none' if value is None else value}" for key, value in registry.defaults(name).items()
    )
    return f"\n  {name}: {text}\n{textwrap.fill(parameters, 76, initial_indent='    ', subsequent_indent='    ')}"


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    """Parse a command line.

    Raises
    ------
    ConfigError
        If an argument is unknown or missing.
    SystemExit
        After ``--help`` or ``--version`` was printed.
    """
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise ConfigError(f"unknown command '{argv[0]}'; {suggestion(argv[0], COMMANDS, 'commands')}")
    parser, commands = _parsers()
    arguments, extra = parser.parse_known_args(argv)
    if arguments.command == "generate":  # argparse accepts them only before the options
        arguments.parameters += [e for e in extra if not e.startswith("-")]
        extra = [e for e in extra if e.startswith("-")]
    if extra:
        word = next((e for e in extra if e.startswith("-")), extra[0])
        option = word.partition("=")[0]
        options = [o for o in commands[arguments.command]._option_string_actions if o.startswith("--")]
        advice = suggestion(option, options, "options") if word.startswith("-") else "not expected here"
        raise ConfigError(f"{arguments.command}: unknown argument '{word}'; {advice}")
    return arguments


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and the parsers of the commands by name."""
    parser = _Parser(
        prog="dmcmc", description="Solve distributed constraint optimisation problems (DCOP).", epilog=_EXITS
    )
    parser.add_argument("--version", action="version", version=f"dmcmc {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    _add_run(commands)
    _add_solve(commands)
    _add_init(commands)
    commands._parser_class = _FamilyParser
    _add_generate(commands)
    commands._parser_class = _Parser
    _add_convert(commands)
    _add_split(commands)
    _add_graph(commands)
    _add_experiment(commands)
    _add_report(commands)
    _add_benchmark(commands)
    for name, text in (
        ("samplers", "list the methods for the tables of agents"),
        ("algorithms", "list the algorithms"),
        ("info", "show versions, cores, memory and GPU"),
    ):
        listing = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_warm_up(commands)
    _add_mcp(commands)
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script that completes commands and options in a shell: for bash,"
        " 'eval \"$(dmcmc completion bash)\"' in ~/.bashrc.",
    )
    completion.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
    for name in _WITH_CACHE:
        commands.choices[name].add_argument(
            "--cache-dir",
            metavar="DIR",
            help="the folder for compiled kernels and measured rates (default: DMCMC_CACHE_DIR, or ~/.cache/dmcmc)",
        )
    return parser, dict(commands.choices)


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of all commands by name."""
    return _parsers()[1]


def _add_run(commands: Commands) -> None:
    """Add the command ``run``."""
    run = commands.add_parser(
        "run",
        help="solve the problem of a configuration file",
        description="Solve the problem of a configuration file, alone or under 'mpirun -n N'.",
        epilog=_EXITS,
    )
    run.add_argument("config", metavar="CONFIG.yaml", help="a configuration, or a calendar; - is standard input")
    run.add_argument(
        "--share-assignment", action="store_true", help="with problem.directory: gather the assignments of all agents"
    )
    _add_run_options(run)
    _add_file_options(run)


def _add_solve(commands: Commands) -> None:
    """Add the command ``solve``."""
    solve = commands.add_parser(
        "solve",
        help="solve a problem file",
        description="Solve a problem file of any known format, alone or under 'mpirun -n N': exactly if that fits the"
        " memory, otherwise by sampling.",
        epilog="tasks: mpe: the best assignment; for a belief network, the most probable explanation of the evidence."
        " pr: the partition function, the sum of exp(utility) or exp(-cost) over all assignments; with --z an upper"
        " bound on it. count: the number of assignments that break no hard constraint. mar: the probability of each"
        " value of each variable. max-marginals: the best objective of an assignment with each value. conflict: a"
        " minimal set of hard constraints that cannot hold together. " + _EXITS,
    )
    solve.add_argument("file", metavar="FILE", help="the problem file; - is standard input")
    solve.add_argument(
        "--task",
        metavar="TASK",
        default="mpe",
        help="mpe (default), pr, count, mar, max-marginals, conflict (see below)",
    )
    solve.add_argument(
        "--max-marginals",
        action="store_true",
        help="if the answer is proven optimal: also the best objective with each value",
    )
    solve.add_argument(
        "--alternatives",
        metavar="K",
        help="find the K best assignments, proven if they fit exact elimination; with --distance: K diverse ones",
    )
    solve.add_argument(
        "--within", metavar="GAP", help="with --alternatives: only those within this relative gap of the best one"
    )
    solve.add_argument(
        "--distance",
        metavar="N",
        help="with --alternatives: any two differ in at least N variables (default 1); in a calendar, in N meetings",
    )
    solve.add_argument(
        "--query",
        metavar="NAMES|FILE",
        help="with --task mar and max-marginals: the variables to print, with commas between them, the most wanted"
        " first; or a file as UAI has it: their number, then their indices from 0",
    )
    solve.add_argument(
        "--method", metavar="METHOD", default="auto", help="auto (default), exact, mini-bucket or the name of a sampler"
    )
    solve.add_argument("--z", metavar="N", help="mini-buckets with messages of at most N variables; or auto")
    solve.add_argument(
        "--order", metavar="FILE", help="elimination order: a file with one variable name per line (local.order)"
    )
    _add_run_options(solve)
    _add_file_options(solve)


def _add_init(commands: Commands) -> None:
    """Add the command ``init``."""
    init = commands.add_parser(
        "init", help="write a commented example file", description="Write a commented example file to start from."
    )
    init.add_argument("what", metavar="WHAT", help="the kind of file: calendar or configuration")
    init.add_argument("path", metavar="PATH", nargs="?", help="the file to write (default: calendar.yaml or run.yaml)")


def _add_generate(commands: Commands) -> None:
    """Add the command ``generate``."""
    generate = commands.add_parser(
        "generate",
        help="write a generated problem to a file",
        description="Write a generated problem to a file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    generate.add_argument("family", metavar="FAMILY", help="the family of problems (listed below)")
    generate.add_argument("parameters", metavar="PARAM=VALUE", nargs="*", default=[], help="parameters of the family")
    generate.add_argument(
        "--output", metavar="FILE", required=True, help="the file to write; its suffix selects the format"
    )
    generate.add_argument("--seed", metavar="N", help="random seed of the problem (default 0)")
    _add_write_options(generate)


def _add_convert(commands: Commands) -> None:
    """Add the command ``convert``."""
    convert = commands.add_parser(
        "convert",
        help="write a problem in another format",
        description="Write a problem file in another format. What that cannot express is an error without --drop.",
    )
    convert.add_argument("input", metavar="IN", help="a problem file, or a configuration")
    convert.add_argument("output", metavar="OUT", help="the file to write; its suffix selects the format")
    _add_write_options(convert)
    _add_file_options(convert)


def _add_split(commands: Commands) -> None:
    """Add the command ``split``."""
    split = commands.add_parser(
        "split",
        help="write one file per agent, with only the data of that agent",
        description="Write a problem as a folder with a small index and one file per agent, which has only the data of"
        " that agent. A configuration with 'problem: {directory: DIR}' solves it; each rank reads only the files of its"
        " agents.",
    )
    split.add_argument("input", metavar="PROBLEM", help="a problem file, or a configuration")
    split.add_argument("output", metavar="DIR", help="the folder to write")
    _add_file_options(split)


def _add_graph(commands: Commands) -> None:
    """Add the command ``graph``."""
    graph = commands.add_parser(
        "graph",
        help="show and draw the graphs of a problem",
        description="Show the primal graph, the agents, the pseudo-tree, induced widths and table sizes of a problem.",
    )
    graph.add_argument("input", metavar="FILE", help="a problem file, or a configuration")
    graph.add_argument("--output", metavar="PATH", help="also draw the graphs to this file (.svg, .png, .pdf or .dot)")
    graph.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_file_options(graph)


def _add_experiment(commands: Commands) -> None:
    """Add the command ``experiment``."""
    experiment = commands.add_parser(
        "experiment",
        help="carry out an experiment: many runs with several methods",
        description="Carry out all runs of an experiment file that have no result yet: combinations of configuration"
        " keys, seeds, methods and other solvers. Each result, also a failure, is a line of DIR/runs.jsonl.",
    )
    experiment.add_argument("config", metavar="CONFIG.yaml", help="the experiment file (see docs/experiments.md)")
    experiment.add_argument("--output", metavar="DIR", required=True, help="the folder for the results")
    experiment.add_argument(
        "--quick", action="store_true", help="a smaller experiment: apply the section 'quick' of the file"
    )
    experiment.add_argument("--resume", action="store_true", help="continue an experiment that was interrupted")
    experiment.add_argument(
        "--jobs", metavar="N", default="1", help="number of parallel runs, each with its own cores (default 1)"
    )
    experiment.add_argument("--method", metavar="NAME", action="append", help="run only this method (repeatable)")


def _add_report(commands: Commands) -> None:
    """Add the command ``report``."""
    report = commands.add_parser(
        "report",
        help="write the report of an experiment, or of one result",
        description="For the folder of an experiment: write a web page and tables (Markdown, LaTeX, CSV). For a result"
        " that a run wrote with --output: write a web page.",
    )
    report.add_argument("input", metavar="DIR|RESULT.json|EVENTS.jsonl", help="an experiment's folder, or a result")
    report.add_argument("--output", metavar="FILE.html", help="the page of a result (default: in the same folder)")
    measures = "cycle, messages, bytes, ncccs, operations, simulated_time, time, now or best"
    for axis in ("x", "y"):
        text = f"the {axis} axis of a chart of an algorithm's course: {measures} (objective now, best so far)"
        report.add_argument(f"--{axis}", metavar="MEASURE", help=text)
    report.add_argument(
        "--figures", metavar="pdf|png|svg", help="also draw the charts of an experiment with matplotlib"
    )


def _add_benchmark(commands: Commands) -> None:
    """Add the command ``benchmark``."""
    benchmark = commands.add_parser(
        "benchmark",
        help="compare algorithms on 120 fixed problems with known optima and bounds",
        description="list: show the problems, their best known values and proven bounds. run: run algorithms or other"
        " solvers on them; finished runs are not repeated. page: draw one page from the folders of runs. update: take"
        " better values and bounds from the folders of runs into the set.",
    )
    benchmark.add_argument("action", metavar="ACTION", help="list, run, page or update")
    benchmark.add_argument("folder", metavar="DIR", nargs="*", help="page and update: the folders of runs")
    for option, text in (
        ("algorithm", "run: an algorithm ('dmcmc algorithms' lists them, plug-ins too) or dmcmc (repeatable)"),
        ("solver", "run: another solver: toulbar2, cp-sat, pydcop-dsa, ... (repeatable)"),
        ("size", "only problems of this size: small, medium, large or huge (repeatable)"),
        ("problem", "only problems with this word in their names (repeatable)"),
    ):
        benchmark.add_argument(f"--{option}", metavar="NAME", action="append", default=[], help=text)
    benchmark.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="run: a setting of the algorithms (repeatable)"
    )
    benchmark.add_argument("--timeout", metavar="SECONDS", default="12", help="run: time limit of a run (default 12)")
    benchmark.add_argument("--cycles", metavar="N", help="run: number of cycles (default: the algorithm's)")
    benchmark.add_argument("--seeds", metavar="N", default="1", help="run: runs per problem and algorithm (default 1)")
    benchmark.add_argument("--jobs", metavar="N", default="1", help="run: number of parallel runs (default 1)")
    benchmark.add_argument("--output", metavar="PATH", help="run: folder of the results; page: the file to write")
    benchmark.add_argument("--file", metavar="SET.csv", help="another set than that of dmcmc")
    benchmark.add_argument("--json", action="store_true", help="list: print JSON instead of a table")


def _add_warm_up(commands: Commands) -> None:
    """Add the command ``warm-up``."""
    warm = commands.add_parser(
        "warm-up",
        help="compile all kernels in advance",
        description="Compile all kernels in advance, once for this user and machine, on all cores. Later runs start at"
        " once.",
    )
    warm.add_argument(
        "--for",
        dest="config",
        metavar="CONFIG.yaml",
        help="compile only what a run of this configuration, calendar or problem file needs",
    )
    warm.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        help="the device that later runs use (default: auto, or that of CONFIG.yaml)",
    )
    warm.add_argument("--jobs", metavar="N", help="number of processes that compile (default: one per core)")


def _add_mcp(commands: Commands) -> None:
    """Add the command ``mcp``."""
    mcp = commands.add_parser(
        "mcp",
        help="serve tools for planning calendars to an assistant (Model Context Protocol)",
        description="Serve tools for planning calendars to an assistant, by the Model Context Protocol over standard"
        " input and output, until the input ends. Calendars come as text; the files that they name (iCalendar files and"
        " polls) are read from one folder only, and nothing is written.",
    )
    mcp.add_argument(
        "--folder", metavar="DIR", default=".", help="the folder of the files that calendars name (default: here)"
    )
    mcp.add_argument("--timeout", metavar="SECONDS", default="60", help="largest time limit of one call (default 60)")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of runs: settings, limits and output."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="set a key of the configuration, such as local.runs=20 (repeatable)",
    )
    parser.add_argument(
        "--algorithm",
        metavar="NAME",
        help="the algorithm: dmcmc (default) or another one ('dmcmc algorithms' lists them)",
    )
    parser.add_argument(
        "--seed", metavar="N", help="random seed of the run (problem.seed is that of a generated problem)"
    )
    parser.add_argument("--device", metavar="auto|cpu|cuda", help="the device to compute on")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        help="time limit; the result is the best answer found so far",
    )
    parser.add_argument("--gap", metavar="GAP", help="stop when |bound - objective| / max(1, |objective|) <= GAP")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory limit of each rank, such as 2GiB, in addition to 300 MB for the interpreter (default: half of the"
        " free memory, divided by the ranks that share the machine)",
    )
    parser.add_argument(
        "--explain", action="store_true", help="first print the plan: the method of each agent, with the reason"
    )
    parser.add_argument("--output", metavar="PATH", help="also write the result as JSON to this file")
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="save finished tables and the best answer in this folder; a later run continues from them",
    )
    parser.add_argument(
        "--start",
        metavar="FILE",
        help="start from the assignment in this file: the JSON of a result, a JSON object of values, or CSV",
    )
    parser.add_argument(
        "--stay",
        metavar="WEIGHT",
        help="the cost of moving a variable away from the start; or costs by variable, such as '{x: 2, y: 1}'",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only errors to standard error")
    parser.add_argument("-v", "--verbose", action="store_true", help="log the progress with times to standard error")
    _add_calendar_options(parser)


def _add_calendar_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of runs of calendars: bookings and files of the answer."""
    parser.add_argument("--html", metavar="PATH", help="for calendars: also write a web page")
    parser.add_argument(
        "--keep",
        metavar="FILE",
        help="for calendars: the meetings of this earlier answer (JSON) are booked; they stay unless moving them pays",
    )
    parser.add_argument(
        "--move-cost", metavar="N", help="for calendars: what moving a booked meeting costs (default: as the file says)"
    )
    parser.add_argument(
        "--ics",
        metavar="PATH",
        help="for calendars: also write one .ics file, or a folder with one per person",
    )


def _add_write_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for writing a problem."""
    parser.add_argument("--to", metavar="FORMAT", help="the format to write (default: by the suffix of the file)")
    parser.add_argument(
        "--drop",
        metavar="WHAT",
        action="append",
        default=[],
        help="information that may be lost, with commas between several words: agents, digits, labels, names, sense,"
        " constant, or all, which is only what the format cannot express",
    )


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for reading a problem file."""
    for name, (metavar, text) in FILE_OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
