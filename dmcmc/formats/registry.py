"""Problem files: one registry says what each format is called, how it is recognised, read and written.

A reader is ``read(source: Source) -> Problem`` (pyDCOP's takes the path of a distribution, too); a writer is
``write(problem: Problem) -> Iterable[str]``, pieces of text. Both raise only
:class:`~dmcmc.inference.runtime.errors.DmcmcError`. Compression, files, evidence and names are dealt with here.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dmcmc.files.text import PACKERS, Source, clipped, open_source
from dmcmc.files.write import replace_file
from dmcmc.formats import sniffing
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import FileError, ProblemError, Unavailable


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    name : str
        What ``--format`` takes.
    suffixes : tuple of str
        File names end so (before ``.gz``, ``.xz`` or ``.bz2``): the format to write, and to read where the content
        does not tell.
    summary : str
        For the reader.
    sniff : callable
        Whether the first bytes of an unpacked file look like it.
    reader, writer : str
        ``"module:function"``, imported on first use; empty where there is none.
    companion : str
        The option of :func:`load` that names a second file, if the format has one.
    logarithms : bool
        Whether utilities are the logarithms of the file's numbers.
    """

    name: str
    suffixes: tuple[str, ...]
    summary: str
    sniff: Callable[[bytes], bool]
    reader: str
    writer: str = ""
    companion: str = ""
    logarithms: bool = False


FORMATS: tuple[Format, ...] = (
    Format(
        "native",
        (".npz",),
        "dmcmc's own archive",
        sniffing.is_native,
        "dmcmc.formats.native:load",
        "dmcmc.formats.native:save",
    ),
    Format(
        "xcsp",
        (".xml",),
        "XCSP 2.1 as FRODO has it",
        sniffing.is_xml,
        "dmcmc.formats.xcsp.read:read",
        "dmcmc.formats.xcsp.write:write",
    ),
    Format(
        "uai",
        (".uai",),
        "UAI: Bayesian and Markov networks",
        sniffing.is_uai,
        "dmcmc.formats.uai.read:read",
        "dmcmc.formats.uai.write:write",
        "evidence",
        logarithms=True,
    ),
    Format(
        "bif",
        (".bif",),
        "BIF: Bayesian networks",
        sniffing.is_bif,
        "dmcmc.formats.bif.read:read",
        companion="evidence",
        logarithms=True,
    ),
    Format(
        "cfn",
        (".cfn",),
        "toulbar2's JSON",
        sniffing.is_cfn,
        "dmcmc.formats.cfn.read:read",
        "dmcmc.formats.cfn.write:write",
    ),
    Format(
        "wcsp",
        (".wcsp",),
        "weighted CSP",
        sniffing.is_wcsp,
        "dmcmc.formats.wcsp.read:read",
        "dmcmc.formats.wcsp.write:write",
    ),
    Format("calendar", (), "people and meetings", sniffing.is_calendar, "dmcmc.formats.calendar.problem:read"),
    Format(
        "pydcop",
        (".yaml", ".yml"),
        "pyDCOP's YAML",
        sniffing.is_yaml,
        "dmcmc.formats.pydcop.read:read",
        "dmcmc.formats.pydcop.write:write",
        "distribution",
    ),
)


def load(
    path: str | os.PathLike[str],
    format: str | None = None,
    evidence: str | os.PathLike[str] | None = None,
    distribution: str | os.PathLike[str] | None = None,
) -> Problem:
    """Read a problem file, compressed or not.

    Parameters
    ----------
    path
        The file.
    format
        A name of :data:`FORMATS`; None looks at the content, then at the name.
    evidence
        For UAI and BIF files: the file with observed values, by index or by name
        (:mod:`dmcmc.formats.common.evidence`); None takes ``PATH.evid`` where there is one.
    distribution
        For pyDCOP files: the file that says which agent hosts what; None takes ``NAME_dist.yaml`` beside ``NAME.yaml``
        where there is one.

    Raises
    ------
    FileError
        If the file cannot be read, is not well formed or does not fit the memory; names the place.
    Unavailable
        For what this version does not read.
    """
    return load_with_format(path, format, evidence, distribution)[1]


def load_with_format(
    path: str | os.PathLike[str],
    format: str | None = None,
    evidence: str | os.PathLike[str] | None = None,
    distribution: str | os.PathLike[str] | None = None,
) -> tuple[Format, Problem]:
    """Read a problem file as :func:`load` does; return also what format it has."""
    chosen = named(format) if format is not None else None
    given = {"evidence": evidence, "distribution": distribution}
    companions = {name: Path(file) for name, file in given.items() if file is not None}
    if chosen is None or chosen.name != "native":
        source = open_source(path, native=chosen is None)
        if source is not None:
            chosen = chosen or recognise(source)
            if chosen.name != "native" or source.path is None:
                return chosen, _read(chosen, source, companions)
    for option in companions:
        raise FileError(f"{path}: a native archive takes no {option}")
    problem: Problem = _function(FORMATS[0].reader)(path)
    return FORMATS[0], problem


def parse(data: bytes, format: str | None = None, name: str = "text") -> Problem:
    """Read a problem from memory; ``name`` is how errors call it. Native archives need a file."""
    source = Source(name, data)
    return _read(named(format) if format is not None else recognise(source), source)


def save(problem: Problem, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a problem, whole or not at all; compressed where the name says so.

    Raises
    ------
    FileError
        If the file cannot be written, or the format cannot say what the problem says.
    """
    chosen = to_write(path, format)
    write = _function(chosen.writer)
    if chosen.name == "native":
        write(problem, path)
        return
    try:
        pieces: Iterable[str] = write(problem)
        replace_file(path, pieces)
    except ProblemError as error:
        raise FileError(f"{path}: {chosen.name}: {error}") from None


def to_write(path: str | os.PathLike[str], format: str | None = None) -> Format:
    """Return the format that a file will have: a name of :data:`FORMATS`, or what the file's name says.

    Raises
    ------
    FileError
        If the name says none.
    Unavailable
        For a format that is not written.
    """
    chosen = named(format) if format is not None else by_suffix(path)
    if chosen is None:
        known = ", ".join(s for f in FORMATS if f.writer for s in f.suffixes)
        raise FileError(f"{path}: its name says no format; known are {known}, or give --to")
    if not chosen.writer:
        raise Unavailable(f"{path}: {chosen.name} files are read, not written, in this version")
    return chosen


def named(format: str) -> Format:
    """Return the format of a name, or say which there are."""
    for known in FORMATS:
        if known.name == format:
            return known
    raise Unavailable(f"format {format!r} is not known; there are {', '.join(f.name for f in FORMATS)}")


def by_suffix(path: str | os.PathLike[str]) -> Format | None:
    """Return the format that a file's name says.

    >>> by_suffix("a/b.WCSP.xz").name, by_suffix("b.txt")
    ('wcsp', None)
    """
    name = os.fspath(path).lower()
    packing = next((s for s in PACKERS if name.endswith(s)), "")
    stem = name[: len(name) - len(packing)]
    return next((f for f in FORMATS if stem.endswith(f.suffixes)), None)


def recognise(source: Source) -> Format:
    """Return the format of a file by its first bytes, or else by its name."""
    head = source.data[: sniffing.HEAD]
    found = next((f for f in FORMATS if f.sniff(head)), None) or by_suffix(source.name)
    if found is None:
        known = ", ".join(f.name for f in FORMATS)
        raise FileError(f"{source.name}: is none of the known formats ({known}); say which with --format")
    return found


def _read(chosen: Format, source: Source, companions: dict[str, Path] | None = None) -> Problem:
    if chosen.name == "native":
        raise FileError(f"{source.name}: a native archive is needed as a plain file")
    options = companions or {}
    for option in options.keys() - {chosen.companion}:
        raise FileError(f"{source.name}: a {chosen.name} file takes no {option}")
    given = {} if chosen.companion == "evidence" else options
    try:
        problem: Problem = _function(chosen.reader)(source, **given)
        if chosen.companion == "evidence":
            from dmcmc.formats.common.evidence import observe  # compiles: not before it is needed

            problem = observe(problem, source.path, options.get("evidence"), chosen.suffixes[0])
    except ProblemError as error:
        raise FileError(f"{source.name}: {clipped(str(error))}") from None
    except (MemoryError, RecursionError):
        raise FileError(f"{source.name}: does not fit the memory") from None
    return problem


def _function(name: str) -> Callable[..., Any]:
    module, function = name.split(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found
