"""Registry of problem file formats: name, recognition, reader and writer of each.

A reader is ``read(source: SourceFile) -> Problem`` (pyDCOP's reader also takes the path of a distribution file). A
writer is ``write(problem: Problem) -> Iterable[str]`` and yields pieces of text. Both raise only
:class:`~dmcmc.inference.runtime.errors.DmcmcError`. This module handles compression, evidence files, file suffixes and
error messages for all of them.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from dmcmc.files.text import COMPRESSED_SUFFIXES, SourceFile, clipped, open_source
from dmcmc.files.write import replace_file
from dmcmc.formats import sniffing
from dmcmc.formats.foreign import refuse_foreign
from dmcmc.inference.model.problem import Problem, check_domains
from dmcmc.inference.runtime.errors import FileError, OutOfMemory, ProblemError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, memory_limit, resident_memory


@dataclass(frozen=True)
class Format:
    """A file format.

    Attributes
    ----------
    name : str
        Value of ``--format``.
    suffixes : tuple of str
        File suffixes (before ``.gz``, ``.xz`` or ``.bz2``). They select the format to write, and the format to read if
        the content does not identify it.
    summary : str
        One-line description for help texts.
    sniff : callable
        Returns whether the first bytes of an uncompressed file look like this format.
    reader, writer : str
        ``"module:function"``, imported on first use; empty if the format cannot be read or written.
    companion : str
        Option of :func:`load` that names a second file, if the format has one.
    logarithms : bool
        Whether utilities are the logarithms of the numbers in the file.
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
        "xmlbif",
        (".xmlbif", ".bifxml"),
        "XMLBIF: Bayesian networks",
        sniffing.is_xmlbif,
        "dmcmc.formats.xmlbif.read:read",
        "dmcmc.formats.xmlbif.write:write",
        "evidence",
        logarithms=True,
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
        "dmcmc.formats.bif:read",
        companion="evidence",
        logarithms=True,
    ),
    Format(
        "hugin",
        (".net",),
        "Hugin's NET: Bayesian networks",
        sniffing.is_hugin,
        "dmcmc.formats.hugin.read:read",
        "dmcmc.formats.hugin.write:write",
        "evidence",
        logarithms=True,
    ),
    Format(
        "csplib46",
        (),
        "CSPLib's meeting scheduling",
        sniffing.is_csplib_meetings,
        "dmcmc.formats.meetings.csplib:read",
    ),
    Format(
        "timefold",
        (),
        "Timefold's meeting scheduling",
        sniffing.is_timefold,
        "dmcmc.formats.meetings.timefold_problem:read",
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
    Format("calendar", (), "people and meetings", sniffing.is_calendar, "dmcmc.calendars.file.problem:read"),
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
        Name of a format in :data:`FORMATS`; None recognises it by the content, then by the suffix.
    evidence
        For belief networks: the file with observed values, by index or by name
        (:mod:`dmcmc.formats.common.evidence`); ``FILE:2`` is its second sample. None takes ``PATH.evid`` if it exists.
    distribution
        For pyDCOP files: the file that assigns variables to agents; None takes ``NAME_dist.yaml`` next to
        ``NAME.yaml`` if it exists.

    Raises
    ------
    FileError
        If the file cannot be read, is malformed or exceeds the memory; the message names the place.
    Unavailable
        For features that this version does not read.
    """
    return load_with_format(path, format, evidence, distribution)[1]


def load_with_format(
    path: str | os.PathLike[str],
    format: str | None = None,
    evidence: str | os.PathLike[str] | None = None,
    distribution: str | os.PathLike[str] | None = None,
) -> tuple[Format, Problem]:
    """Read a problem file as :func:`load` does, and return its format as well.

    Outside a run the file may take the memory of the process, and domains may be larger than a run can use.
    """
    is_for_run = MEMORY_ACCOUNT.budget is not None
    with MEMORY_ACCOUNT.open(memory_limit(), resident_memory()):
        chosen, problem = _load(path, format, evidence, distribution)
    try:
        if is_for_run:
            check_domains(problem)
    except ProblemError as error:
        raise FileError(f"{path}: {error}") from None
    return chosen, problem


def _load(
    path: str | os.PathLike[str],
    format: str | None,
    evidence: str | os.PathLike[str] | None,
    distribution: str | os.PathLike[str] | None,
) -> tuple[Format, Problem]:
    """Read a problem file within the open budget of memory."""
    selected = format_named(format) if format is not None else None
    given = {"evidence": evidence, "distribution": distribution}
    companions = {name: Path(file) for name, file in given.items() if file is not None}
    if selected is None or selected.name != "native":
        source = open_source(path, native=selected is None)
        if source is not None:
            selected = selected or recognise(source)
            if selected.name != "native" or source.path is None:
                return selected, _read(selected, source, companions)
    for option in companions:
        raise FileError(f"{path}: a native archive takes no {option} file")
    problem: Problem = _function(FORMATS[0].reader)(path)
    return FORMATS[0], problem


def parse(data: bytes, format: str | None = None, name: str = "text") -> Problem:
    """Read a problem from memory.

    Parameters
    ----------
    data
        Content of the file. A native archive cannot be read from memory.
    format
        Name of a format in :data:`FORMATS`; None recognises it by the content.
    name
        Name of the text in error messages.
    """
    source = SourceFile(name, data)
    return _read(format_named(format) if format is not None else recognise(source), source)


def save(problem: Problem, path: str | os.PathLike[str], format: str | None = None) -> None:
    """Write a problem atomically, compressed if the file's suffix says so.

    Raises
    ------
    FileError
        If the file cannot be written, or the format cannot express the problem.
    """
    chosen = format_to_write(path, format)
    write = _function(chosen.writer)
    if chosen.name == "native":
        write(problem, path)
        return
    try:
        pieces: Iterable[str] = write(problem)
        replace_file(path, pieces)
    except ProblemError as error:
        raise FileError(f"{path}: {chosen.name}: {error}") from error  # the cause lists what may be dropped


def format_to_write(path: str | os.PathLike[str], format: str | None = None) -> Format:
    """Return the format in which to write a file: the named one, or the one that the file's suffix gives.

    Raises
    ------
    FileError
        If the suffix gives no format.
    Unavailable
        For a format that cannot be written.
    """
    chosen = format_named(format) if format is not None else by_suffix(path)
    if chosen is None:
        known = ", ".join(s for f in FORMATS if f.writer for s in f.suffixes)
        raise FileError(f"{path}: its suffix gives no format; use one of {known}, or give --to")
    if not chosen.writer:
        raise Unavailable(f"{path}: {chosen.name} files can be read but not written in this version")
    return chosen


def format_named(format: str) -> Format:
    """Return the format with this name; the error for an unknown name lists the known ones."""
    for known in FORMATS:
        if known.name == format:
            return known
    raise Unavailable(f"format {format!r} is not known; there are {', '.join(f.name for f in FORMATS)}")


def by_suffix(path: str | os.PathLike[str]) -> Format | None:
    """Return the format that a file's suffix gives, or None.

    >>> by_suffix("a/b.WCSP.xz").name, by_suffix("b.txt")
    ('wcsp', None)
    """
    name = os.fspath(path).lower()
    compression = next((s for s in COMPRESSED_SUFFIXES if name.endswith(s)), "")
    stem = name[: len(name) - len(compression)]
    return next((f for f in FORMATS if stem.endswith(f.suffixes)), None)


def recognise(source: SourceFile) -> Format:
    """Return the format of a file by its first bytes, or else by its suffix."""
    head = source.data[: sniffing.HEAD_BYTES]
    by_content = next((f for f in FORMATS if f.sniff(head)), None)
    refuse_foreign(source, by_content is not None)
    recognised = by_content or by_suffix(source.name)
    if recognised is None:
        known = ", ".join(f.name for f in FORMATS)
        raise FileError(f"{source.name}: is none of the known formats ({known}); say which with --format")
    return recognised


def _read(chosen: Format, source: SourceFile, companions: dict[str, Path] | None = None) -> Problem:
    """Read a problem from a source in a known format, with its companion file."""
    if chosen.name == "native":
        raise FileError(f"{source.name}: a native archive must be a regular, uncompressed file")
    refuse_foreign(source)
    options = companions or {}
    for option in options.keys() - {chosen.companion}:
        raise FileError(f"{source.name}: a {chosen.name} file takes no {option} file")
    given = {} if chosen.companion == "evidence" else options
    try:
        problem: Problem = _function(chosen.reader)(source, **given)
        if chosen.companion == "evidence":
            from dmcmc.formats.common.evidence import observe  # imported late because it loads compiled code

            problem = observe(problem, source.path, options.get("evidence"), chosen.suffixes[0])
    except ProblemError as error:
        raise FileError(f"{source.name}: {clipped(str(error))}") from None
    except OutOfMemory as error:
        raise FileError(f"{source.name}: {error}") from None
    except (MemoryError, RecursionError):
        raise FileError(f"{source.name}: does not fit the memory") from None
    return problem


def _function(name: str) -> Callable[..., Any]:
    """Import the function given as ``"module:function"``."""
    module, function = name.split(":")
    imported: Callable[..., Any] = getattr(import_module(module), function)
    return imported
