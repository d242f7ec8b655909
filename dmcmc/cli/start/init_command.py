"""``dmcmc init``: commented examples to begin with."""

from argparse import Namespace
from importlib.resources import files
from pathlib import Path

from dmcmc.cli.terminal import emit
from dmcmc.config.validate import suggestion
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, FileError

EXAMPLES = {"calendar": "calendar.yaml", "configuration": "run.yaml"}


def init(arguments: Namespace) -> int:
    """Write an example, if there is no such file yet, and say what to do with it."""
    if arguments.what not in EXAMPLES:
        raise ConfigError(f"init: no example '{arguments.what}'; {suggestion(arguments.what, EXAMPLES, 'examples')}")
    path = arguments.path or EXAMPLES[arguments.what]
    if Path(path).exists():
        raise FileError(f"{path}: is there already; give another name, or remove it first")
    replace_file(path, [(files("dmcmc") / "examples" / EXAMPLES[arguments.what]).read_text(encoding="utf-8")])
    emit(f"{path}: written; now 'dmcmc run {path}'")
    return 0
