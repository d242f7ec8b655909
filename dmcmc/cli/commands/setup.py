"""Commands about this installation, and the server of tools for assistants.

Commands that prepare later runs: ``dmcmc init``, ``completion`` and ``warm-up``.

``dmcmc mcp``: serve tools for planning calendars to an assistant.
"""

from argparse import Namespace
from pathlib import Path

from dmcmc.cli.inputs import configuration, is_calendar, is_configuration
from dmcmc.cli.progress import emit
from dmcmc.files.document import value_of
from dmcmc.inference.runtime.errors import ConfigError


def init(arguments: Namespace) -> int:
    """Write a commented example file."""
    from dmcmc.cli.completion import write_example

    emit(write_example(arguments.what, arguments.path))
    return 0


def completion(arguments: Namespace) -> int:
    """Print a script that completes commands in a shell."""
    from dmcmc.cli.arguments import command_parsers
    from dmcmc.cli.completion import script

    emit(script(arguments.shell, command_parsers()).rstrip("\n"))
    return 0


def warm_up(arguments: Namespace) -> int:
    """Compile all kernels in advance, or those of one configuration."""
    from dmcmc.cli.progress import progress_for
    from dmcmc.cli.warm_up import warm_up_by_runs, warm_up_kernels

    jobs = None if arguments.jobs is None else value_of(arguments.jobs, "--jobs")
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise ConfigError(f"--jobs: expected a whole number of at least 1, got {arguments.jobs!r}")
    with progress_for(0) as progress:
        if arguments.config is None:
            compiled = warm_up_kernels(arguments.device or "auto", progress, jobs)
        else:
            compiled = warm_up_by_runs(_short_runs(arguments.config, arguments.device), progress)
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


def mcp(arguments: Namespace) -> int:
    """Serve tools for planning calendars to an assistant until standard input ends."""
    from dmcmc.calendars.assistant import CalendarTools, make_server

    folder, seconds = Path(arguments.folder), value_of(arguments.timeout, "--timeout")
    if not folder.is_dir():
        raise ConfigError(f"--folder: {folder} is no folder")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ConfigError(f"--timeout: expected a number of seconds above 0, got {arguments.timeout!r}")
    make_server(CalendarTools(folder, float(seconds))).run("stdio")
    return 0
