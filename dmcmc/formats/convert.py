"""Turning one problem file into another."""

from collections.abc import Collection

from dmcmc.files.write import check_writable
from dmcmc.formats import registry as formats
from dmcmc.formats.common.factor_entries import DROPPABLE, without
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError

_SENSES = {"wcsp": "min", "uai": "max"}  # formats that know one sense


def write(problem: Problem, path: str, format: str | None = None, drop: Collection[str] = ()) -> Problem:
    """Write a problem in a format; return what was written.

    Parameters
    ----------
    problem
        What to write.
    path
        Its name says the format, unless ``format`` does.
    format
        A name of :data:`dmcmc.formats.FORMATS`.
    drop
        Some of :data:`dmcmc.formats.common.factor_entries.DROPPABLE`: what may be lost.

    Raises
    ------
    FileError
        If the format cannot say what the problem says.
    ConfigError
        For an unknown word in ``drop``.
    """
    check(path, format, drop)
    sense = _SENSES.get(formats.to_write(path, format).name)
    written = without(problem, drop, sense)
    formats.save(written, path, format)
    return written


def check(path: str, format: str | None = None, drop: Collection[str] = ()) -> None:
    """Raise what is wrong with a file to write, its format or what may be lost, before the problem is there.

    Raises
    ------
    FileError
        If the file cannot be written, or its name says no format.
    ConfigError
        For an unknown word in ``drop``.
    """
    for word in drop:
        if word not in DROPPABLE:
            raise ConfigError(f"--drop {word}: expected one of {', '.join(DROPPABLE)}")
    formats.to_write(path, format)
    check_writable(path)
