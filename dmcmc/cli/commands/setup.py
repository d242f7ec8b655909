"""Commands about this installation, and the server of tools for assistants.

``dmcmc init``: write a commented example file. ``dmcmc completion SHELL``: print a script that completes commands,
options and some of their values. ``dmcmc mcp``: serve tools for planning calendars to an assistant.
"""

import argparse
from argparse import Namespace
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from dmcmc.cli.arguments import command_parsers
from dmcmc.cli.progress import emit
from dmcmc.files.document import suggestion, value_of
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, FileError

SHELLS = ("bash", "zsh", "fish")
VALUES = {
    "--device": ("auto", "cpu", "cuda"),
    "--task": ("mpe", "pr", "count", "mar", "max-marginals"),
    "--split": ("tree", "grow", "blocks"),
    "--drop": ("agents", "digits", "labels", "names", "sense"),
}
"""Possible values of some options; all others are completed with file names."""
_ACTIONS = ("list", "run", "page", "update")  # of the command benchmark
_WORDS = {"init": ("calendar", "configuration"), "completion": SHELLS, "benchmark": _ACTIONS}  # arguments of commands


def script(shell: str, commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the completion script for a shell.

    Parameters
    ----------
    shell
        One of :data:`SHELLS`.
    commands
        The parsers of the commands, by name.

    Raises
    ------
    ConfigError
        If the shell is unknown.
    """
    if shell not in SHELLS:
        raise ConfigError(f"completion: unknown shell {shell!r}; {suggestion(shell, SHELLS, 'shells')}")
    if shell == "fish":
        return _fish(commands)
    start = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return start + _bash(commands)


def _bash(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the script for bash (and for zsh with bashcompinit)."""
    cases = [f"    {name}) words='{' '.join(_words(name, parser))}' ;;" for name, parser in commands.items()]
    values = [f"    {option}) words='{' '.join(words)}' ;;" for option, words in VALUES.items()]
    return "\n".join(
        [
            "_dmcmc() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" words=""',
            '  case "${COMP_WORDS[COMP_CWORD-1]}" in',
            *values,
            "  esac",
            "  if [ $COMP_CWORD -eq 1 ]; then",
            f"    words='{' '.join([*commands, '--help', '--version'])}'",
            '  elif [ -z "$words" ]; then',
            '    case "${COMP_WORDS[1]}" in',
            *cases,
            "    esac",
            "  fi",
            '  COMPREPLY=( $(compgen -W "$words" -- "$current") )',
            "}",
            "complete -o default -F _dmcmc dmcmc",
            "",
        ]
    )


def _fish(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the script for fish."""
    names = " ".join(commands)
    lines = [f"complete -c dmcmc -n 'not __fish_seen_subcommand_from {names}' -f -a '{names}'"]
    for name, parser in commands.items():
        prefix = f"complete -c dmcmc -n '__fish_seen_subcommand_from {name}'"
        for word in _words(name, parser):
            if not word.startswith("-"):
                lines.append(f"{prefix} -a {word}")
            elif word in VALUES:
                lines.append(f"{prefix} -l {word[2:]} -x -a '{' '.join(VALUES[word])}'")
            elif word.startswith("--"):
                lines.append(f"{prefix} -l {word[2:]}")
    return "\n".join([*lines, ""])


def _words(name: str, parser: argparse.ArgumentParser) -> list[str]:
    """Return the arguments and options of a command."""
    words = list(_WORDS.get(name, ()))
    if name == "generate":
        from dmcmc.generators import registry

        words += registry.names()
    return words + [option for option in parser._option_string_actions if option.startswith("--")]


EXAMPLES = {"calendar": "calendar.yaml", "configuration": "run.yaml"}


def write_example(what: str, path: str | None = None) -> str:
    """Write an example file, unless the file exists already.

    Parameters
    ----------
    what
        One of :data:`EXAMPLES`.
    path
        The file to write; None for the default name.

    Returns
    -------
    str
        The message for the user.

    Raises
    ------
    ConfigError
        If the example is unknown.
    FileError
        If the file exists already, or cannot be written.
    """
    if what not in EXAMPLES:
        raise ConfigError(f"init: no example '{what}'; {suggestion(what, EXAMPLES, 'examples')}")
    path = path or EXAMPLES[what]
    if Path(path).exists():
        raise FileError(f"{path}: exists already; give another name, or remove the file first")
    replace_file(path, [(files("dmcmc") / "examples" / EXAMPLES[what]).read_text(encoding="utf-8")])
    return f"{path}: written; solve it with 'dmcmc run {path}'"


def init(arguments: Namespace) -> int:
    """Write a commented example file."""
    emit(write_example(arguments.what, arguments.path))
    return 0


def completion(arguments: Namespace) -> int:
    """Print a script that completes commands in a shell."""
    emit(script(arguments.shell, command_parsers()).rstrip("\n"))
    return 0


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
