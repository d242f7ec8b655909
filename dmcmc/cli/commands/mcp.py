"""``dmcmc mcp``: serve tools for planning calendars to an assistant."""

from argparse import Namespace
from pathlib import Path

from dmcmc.config.yaml_lines import value_of
from dmcmc.inference.runtime.errors import ConfigError


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
