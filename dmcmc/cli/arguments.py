"""The command line's grammar."""

import argparse
import textwrap
from typing import Any, NoReturn

from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.config.validate import suggestion
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.results.version import __version__

_EXITS = (
    "exit status: 0 an assignment that breaks no hard constraint (also when the time is over), 1 none found, or failed,"
    " 2 bad input or not available, 3 proven infeasible, 130 or 143 interrupted before there was an answer"
)
_RENAMED = {"--partition": "--split"}
_COMMANDS = (
    *("run", "solve", "init", "generate", "convert", "split", "graph"),
    *("experiment", "report", "samplers", "algorithms", "info", "warm-up", "completion"),
)

Commands = Any  # argparse calls it _SubParsersAction


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of printing a usage text, and never guesses at abbreviations."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message} (see '{self.prog} --help')")


class _FamilyParser(_Parser):
    """Lists the families in its help, and only then imports them."""

    def format_help(self) -> str:
        from dmcmc.generators import registry

        try:
            known = registry.names()
        except DmcmcError:
            known = {}
        self.epilog = "\n".join(["families, and their parameters with defaults:", *map(_family, known.items())])
        return super().format_help()


def _family(named: tuple[str, str]) -> str:
    """Return a family's lines of the help."""
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
        For anything unknown or missing.
    SystemExit
        After ``--help`` and ``--version`` have been answered.
    """
    if argv and not argv[0].startswith("-") and argv[0] not in _COMMANDS:
        raise ConfigError(f"unknown command '{argv[0]}'; {suggestion(argv[0], _COMMANDS, 'commands')}")
    parser, commands = _parsers()
    arguments, extra = parser.parse_known_args(argv)
    if arguments.command == "generate":  # argparse takes parameters only before the options
        arguments.parameters += [e for e in extra if not e.startswith("-")]
        extra = [e for e in extra if e.startswith("-")]
    if extra:
        word = next((e for e in extra if e.startswith("-")), extra[0])
        option = word.partition("=")[0]
        if option in _RENAMED:
            raise ConfigError(f"{arguments.command}: '{option}' is called '{_RENAMED[option]}'")
        options = [o for o in commands[arguments.command]._option_string_actions if o.startswith("--")]
        advice = suggestion(option, options, "options") if word.startswith("-") else "not expected here"
        raise ConfigError(f"{arguments.command}: unknown argument '{word}'; {advice}")
    return arguments


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser and, by name, those of the commands."""
    parser = _Parser(prog="dmcmc", description="Solve distributed constraint optimisation problems.", epilog=_EXITS)
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
    for name, text in (
        ("samplers", "list the local solvers"),
        ("algorithms", "list the algorithms"),
        ("info", "show versions, cores, memory and devices"),
    ):
        listing = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    warm = commands.add_parser(
        "warm-up",
        help="compile ahead what runs use",
        description="Compile ahead what runs use, once for this user and machine: some minutes.",
    )
    warm.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="where runs will be")
    completion = commands.add_parser(
        "completion",
        help="print a script that completes commands in a shell",
        description="Print a script that completes commands and options in a shell: for bash,"
        " 'eval \"$(dmcmc completion bash)\"' in ~/.bashrc.",
    )
    completion.add_argument("shell", metavar="SHELL", help="bash, zsh or fish")
    return parser, dict(commands.choices)


def command_parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by name."""
    return _parsers()[1]


def _add_run(commands: Commands) -> None:
    run = commands.add_parser(
        "run",
        help="solve the problem of a configuration file",
        description="Solve the problem of a configuration file, alone or under 'mpirun -n N'.",
        epilog=_EXITS,
    )
    run.add_argument("config", metavar="CONFIG.yaml", help="what to solve and how, or a calendar; - is standard input")
    run.add_argument(
        "--share-assignment", action="store_true", help="with problem.directory: gather the values of all agents"
    )
    _add_run_options(run)
    _add_file_options(run)


def _add_solve(commands: Commands) -> None:
    solve = commands.add_parser(
        "solve",
        help="solve a problem file",
        description="Solve a problem file of any known format, alone or under 'mpirun -n N': exactly where that fits"
        " the memory, by sampling elsewhere.",
        epilog="mpe: the best assignment; of a belief network, the most probable explanation of the evidence."
        " pr: the partition function, the sum over all assignments of exp(utility) or exp(-cost); with --z, an upper"
        " bound on it. count: how many assignments break no hard constraint. mar: how probable each value of each"
        " variable is. max-marginals: the best objective of an assignment with each value. " + _EXITS,
    )
    solve.add_argument("file", metavar="FILE", help="the problem; - is standard input")
    solve.add_argument("--task", metavar="TASK", default="mpe", help="mpe (default), pr, count, mar or max-marginals")
    solve.add_argument(
        "--max-marginals", action="store_true", help="with a proven answer: the best objective that each value allows"
    )
    solve.add_argument(
        "--method", metavar="METHOD", default="auto", help="auto (default), exact, mini-bucket or a sampler's name"
    )
    solve.add_argument("--z", metavar="N", help="mini-buckets: messages of at most N variables, or auto")
    solve.add_argument(
        "--order", metavar="FILE", help="eliminate the variables in this order, one name a line (local.order)"
    )
    _add_run_options(solve)
    _add_file_options(solve)


def _add_init(commands: Commands) -> None:
    init = commands.add_parser(
        "init", help="write a commented example", description="Write a commented example to begin with."
    )
    init.add_argument("what", metavar="WHAT", help="calendar or configuration")
    init.add_argument("path", metavar="PATH", nargs="?", help="the file to write (default: calendar.yaml or run.yaml)")


def _add_generate(commands: Commands) -> None:
    generate = commands.add_parser(
        "generate",
        help="write a generated problem to a file",
        description="Write a generated problem to a file.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    generate.add_argument("family", metavar="FAMILY", help="the kind of problem (listed below)")
    generate.add_argument("parameters", metavar="PARAM=VALUE", nargs="*", default=[], help="the family's parameters")
    generate.add_argument("--output", metavar="FILE", required=True, help="the file to write; its name says the format")
    generate.add_argument("--seed", metavar="N", help="seed of the problem (default 0)")
    _add_write_options(generate)


def _add_convert(commands: Commands) -> None:
    convert = commands.add_parser(
        "convert",
        help="write a problem in another format",
        description="Write a problem file in another format. What that format cannot say is an error, unless dropped.",
    )
    convert.add_argument("input", metavar="IN", help="a problem file, or a configuration")
    convert.add_argument("output", metavar="OUT", help="the file to write; its name says the format")
    _add_write_options(convert)
    _add_file_options(convert)


def _add_split(commands: Commands) -> None:
    split = commands.add_parser(
        "split",
        help="write one file an agent, with only what that agent may know",
        description="Write a problem as a folder: one file an agent with only what that agent may know, and a small"
        " index. A configuration with 'problem: {directory: DIR}' solves it; each rank reads its own agents' files.",
    )
    split.add_argument("input", metavar="PROBLEM", help="a problem file, or a configuration")
    split.add_argument("output", metavar="DIR", help="the folder to write")
    _add_file_options(split)


def _add_graph(commands: Commands) -> None:
    graph = commands.add_parser(
        "graph",
        help="show and draw the graphs of a problem",
        description="Show a problem's primal graph, agents, pseudo-tree, widths and table sizes.",
    )
    graph.add_argument("input", metavar="FILE", help="a problem file, or a configuration")
    graph.add_argument("--output", metavar="PATH", help="also draw to this file (.svg, .png, .pdf or .dot)")
    graph.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_file_options(graph)


def _add_experiment(commands: Commands) -> None:
    experiment = commands.add_parser(
        "experiment",
        help="carry out an experiment: many runs, of several methods",
        description="Carry out the runs of an experiment's file that have no result yet: grids over configuration keys,"
        " seeds, methods and other solvers. Each result is a line of DIR/runs.jsonl; failures are results, too.",
    )
    experiment.add_argument("config", metavar="CONFIG.yaml", help="the experiment (docs/experiments.md)")
    experiment.add_argument("--output", metavar="DIR", required=True, help="the folder of results")
    experiment.add_argument("--quick", action="store_true", help="with what the file's section 'quick' changes")
    experiment.add_argument("--resume", action="store_true", help="go on where an experiment has ended early")
    experiment.add_argument("--jobs", metavar="N", default="1", help="runs side by side, each on its own cores (1)")
    experiment.add_argument(
        "--method", metavar="NAME", action="append", help="only this method, others later (may stand there repeatedly)"
    )


def _add_report(commands: Commands) -> None:
    report = commands.add_parser(
        "report",
        help="write the report of an experiment, or of one result",
        description="Of a folder of results: a page that needs nothing else, with tables (Markdown, LaTeX, CSV) beside"
        " it. Of a result that a run has written (--output): its page.",
    )
    report.add_argument("input", metavar="DIR|RESULT.json", help="what 'experiment', or a run, has written")
    report.add_argument("--output", metavar="FILE.html", help="the page of a result (default: beside it)")
    report.add_argument("--figures", metavar="pdf|png|svg", help="also draw an experiment's charts with matplotlib")


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to run and where the result goes."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key of the configuration, e.g. local.runs=20 (repeatable)",
    )
    parser.add_argument(
        "--algorithm", metavar="NAME", help="dmcmc (default) or another one ('dmcmc algorithms' lists them)"
    )
    parser.add_argument("--seed", metavar="N", help="seed of the samplers (a generated problem's is problem.seed)")
    parser.add_argument("--device", metavar="auto|cpu|cuda", help="where to compute")
    parser.add_argument("--timeout", metavar="SECONDS", help="stop then, with the best so far (after compiling)")
    parser.add_argument("--gap", metavar="GAP", help="stop at |bound - objective| / max(1, |objective|) <= GAP")
    parser.add_argument(
        "--memory",
        metavar="SIZE",
        help="bytes that each rank may take beside the interpreter's 300 MB, as 2GiB (default: half of what is free,"
        " divided by the ranks that share it)",
    )
    parser.add_argument("--explain", action="store_true", help="first say what each agent will do, and why")
    parser.add_argument("--output", metavar="PATH", help="also write the result as JSON to this file")
    parser.add_argument("--checkpoint", metavar="DIR", help="keep finished tables and the best answer there, and go on")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is being done, with the time, to stderr")
    parser.add_argument("--html", metavar="PATH", help="of a calendar: also write a web page")
    parser.add_argument(
        "--ics", metavar="PATH", help="of a calendar: also write NAME.ics, or a folder with one file a person"
    )


def _add_write_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a problem is written."""
    parser.add_argument("--to", metavar="FORMAT", help="the format to write, whatever the name says")
    parser.add_argument(
        "--drop",
        metavar="WHAT",
        action="append",
        default=[],
        help="what the format cannot say and may be lost: agents, digits, labels, names or sense (repeatable)",
    )


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a problem file is read."""
    for name, (metavar, text) in FILE_OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
