"""``dmcmc init``: commented examples to begin with."""

from importlib.resources import files
from pathlib import Path

from dmcmc.config.validate import suggestion
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, FileError

EXAMPLES = {"calendar": "calendar.yaml", "configuration": "run.yaml"}


def write_example(what: str, path: str | None = None) -> str:
    """Write an example, if there is no such file yet.

    Parameters
    ----------
    what
        One of :data:`EXAMPLES`.
    path
        Where; None for its usual name.

    Returns
    -------
    str
        What to say of it.

    Raises
    ------
    ConfigError
        For an unknown example.
    FileError
        If the file is there already, or cannot be written.
    """
    if what not in EXAMPLES:
        raise ConfigError(f"init: no example '{what}'; {suggestion(what, EXAMPLES, 'examples')}")
    path = path or EXAMPLES[what]
    if Path(path).exists():
        raise FileError(f"{path}: is there already; give another name, or remove it first")
    replace_file(path, [(files("dmcmc") / "examples" / EXAMPLES[what]).read_text(encoding="utf-8")])
    return f"{path}: written; now 'dmcmc run {path}'"
