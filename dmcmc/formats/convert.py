"""Convert problem files from one format to another."""

from collections.abc import Collection

from dmcmc.files.write import check_writable
from dmcmc.formats import registry as formats
from dmcmc.formats.common.factor_entries import DROPPABLE, drop_features
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError

_SENSES = {"wcsp": "min", "uai": "max"}  # formats that have only one sense


def write(problem: Problem, path: str, format: str | None = None, drop: Collection[str] = ()) -> Problem:
    """Write a problem in a format and return the problem as written.

    Parameters
    ----------
    problem
        The problem to write.
    path
        The file; its suffix gives the format unless ``format`` is set.
    format
        Name of a format in :data:`dmcmc.formats.registry.FORMATS`.
    drop
        Features that may be lost, from :data:`dmcmc.formats.common.factor_entries.DROPPABLE`.

    Raises
    ------
    FileError
        If the format cannot express the problem.
    ConfigError
        For an unknown word in ``drop``.
    """
    check(path, format, drop)
    sense = _SENSES.get(formats.format_to_write(path, format).name)
    written = drop_features(problem, drop, sense)
    formats.save(written, path, format)
    return written


def check(path: str, format: str | None = None, drop: Collection[str] = ()) -> None:
    """Check a target file, its format and the features to drop before the problem is read.

    Raises
    ------
    FileError
        If the file cannot be written, or its suffix gives no format.
    ConfigError
        For an unknown word in ``drop``.
    """
    for word in drop:
        if word not in DROPPABLE:
            raise ConfigError(f"--drop {word}: expected one of {', '.join(DROPPABLE)}")
    formats.format_to_write(path, format)
    check_writable(path)
