"""Convert problem files from one format to another."""

from collections.abc import Collection
from typing import NamedTuple

from dmcmc.files.write import check_writable
from dmcmc.formats import registry as formats
from dmcmc.formats.common.factor_entries import DROPPABLE, Inexpressible, drop_features
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, FileError

ALL = "all"  # word for every feature that the format cannot express
_SENSES = {"wcsp": "min", "uai": "max", "xmlbif": "max", "hugin": "max"}  # formats that have only one sense
_WITHOUT_CONSTANT = ("wcsp",)  # formats without negative constants


class Conversion(NamedTuple):
    """A problem as it was written, and the features that were dropped because of the word ``all``."""

    problem: Problem
    dropped: tuple[str, ...]


def write(problem: Problem, path: str, format: str | None = None, drop: Collection[str] = ()) -> Conversion:
    """Write a problem in a format.

    Parameters
    ----------
    problem
        The problem to write.
    path
        The file; its suffix gives the format unless ``format`` is set.
    format
        Name of a format in :data:`dmcmc.formats.registry.FORMATS`.
    drop
        Features to drop, from :data:`dmcmc.formats.common.factor_entries.DROPPABLE`; an item may list several, with
        commas between them. With ``all``, the features that the format cannot express are dropped, and no others.

    Raises
    ------
    FileError
        If the format cannot express the problem; the message lists all features that it cannot express.
    ConfigError
        For an unknown word in ``drop``.
    """
    check(path, format, drop)
    words = _words(drop)
    name = formats.format_to_write(path, format).name
    features = {word for word in words if word in DROPPABLE and (word != "constant" or name in _WITHOUT_CONSTANT)}
    dropped: list[str] = []
    while True:
        written = drop_features(problem, {*features, *dropped}, _SENSES.get(name))
        try:
            formats.save(written, path, format)
        except FileError as error:
            cause = error.__cause__
            found = cause.features if isinstance(cause, Inexpressible) else ()
            new = [feature for feature in found if feature not in features and feature not in dropped]
            if ALL not in words or not new:
                raise
            dropped += new
        else:
            return Conversion(written, tuple(dropped))


def check(path: str, format: str | None = None, drop: Collection[str] = ()) -> None:
    """Check a target file, its format and the features to drop before the problem is read.

    Raises
    ------
    FileError
        If the file cannot be written, or its suffix gives no format.
    ConfigError
        For an unknown word in ``drop``.
    """
    for word in _words(drop):
        if word not in DROPPABLE and word != ALL:
            raise ConfigError(f"--drop {word}: expected one of {', '.join(DROPPABLE)}, or {ALL}")
    formats.format_to_write(path, format)
    check_writable(path)


def _words(drop: Collection[str]) -> list[str]:
    """Return the single words of lists with commas.

    >>> _words(["agents,names", "labels"])
    ['agents', 'names', 'labels']
    """
    return [word.strip() for item in drop for word in item.split(",")]
