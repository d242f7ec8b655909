"""``dmcmc init``: write commented example files."""

from importlib.resources import files
from pathlib import Path

from dmcmc.config.validate import suggestion
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, FileError

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
