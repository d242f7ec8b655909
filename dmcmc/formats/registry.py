"""The formats of problem files: how one is recognised, read, and converted into another.

Registry of problem file formats: name, recognition, reader and writer of each.

A reader is ``read(source: SourceFile) -> Problem`` (pyDCOP's reader also takes the path of a distribution file). A
writer is ``write(problem: Problem) -> Iterable[str]`` and yields pieces of text. Both raise only
:class:`~dmcmc.inference.runtime.errors.DmcmcError`. This module handles compression, evidence files, file suffixes and
error messages for all of them.

Recognise the format of a file by its first bytes.

Formats of other programs that are not read: name them, with the way to a format that is read.

Convert problem files from one format to another.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from dmcmc.files.text import COMPRESSED_SUFFIXES, SourceFile, clipped, open_source
from dmcmc.files.write import check_writable, replace_file
from dmcmc.formats.common.factor_entries import DROPPABLE, Inexpressible, drop_features
from dmcmc.inference.model.problem import Problem, check_domains
from dmcmc.inference.runtime.errors import ConfigError, FileError, OutOfMemory, ProblemError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, memory_limit, resident_memory

HEAD_BYTES = 4096  # bytes at the start of a file that suffice to recognise its format

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
XML_START = rb"(?:\s++|<\?(?>.*?\?>)|<!--(?>.*?-->))*+"  # white space, processing instructions and comments
_UAI = re.compile(rb"\s*(?:MARKOV|BAYES)\s", re.IGNORECASE)
_BIF = re.compile(rb"(?:\s++|//[^\n]*+\n|/\*(?>.*?\*/))*+(?:network|variable)\b[^:{]*+\{", re.DOTALL)
_HUGIN = re.compile(
    rb"(?:\s++|%[^\n]*+\n|//[^\n]*+\n|/\*(?>.*?\*/))*+"
    rb"(?:net|class\s++\S++|(?:discrete\s++|continuous\s++)?node\s++\S++)\s*+\{",
    re.DOTALL,
)
_XMLBIF = re.compile(XML_START + rb"<(?:!DOCTYPE\s++)?BIF\b", re.DOTALL)
_TIMEFOLD = re.compile(rb'\s*\{[^\x00]*"(?:durationInGrains|meetingAssignmentList|timeGrainList)"\s*:')
_CSPLIB_MEETINGS = re.compile(rb"(?:^|\n)\s*number of meetings\s*[:=]", re.IGNORECASE)
_CFN = re.compile(rb"(?:\s++|#[^\n]*+\n)*+\{")
_WCSP = re.compile(rb"\s*\S+\s+\d+\s+\d+\s+\d+\s+\d+(?:\s|$)")
_CALENDAR = re.compile(rb"(?:^|\n)calendar\s*:(?:\s|$)")
_YAML = re.compile(rb"(?:^|\n)(?:name|description|objective|domains|variables|constraints|agents)\s*:(?:\s|$)")


def is_native(head: bytes) -> bool:
    """Return whether the file is a zip archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_xml(head: bytes) -> bool:
    """Return whether the first character opens an XML tag."""
    return head.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"<")


def is_xmlbif(head: bytes) -> bool:
    """Return whether the first element, or the document type, is ``BIF``."""
    return _XMLBIF.match(head.removeprefix(_BYTE_ORDER_MARK)) is not None


def is_uai(head: bytes) -> bool:
    """Return whether the first word is MARKOV or BAYES."""
    return _UAI.match(head) is not None


def is_bif(head: bytes) -> bool:
    """Return whether the file starts with a ``network`` or ``variable`` block, possibly after comments."""
    return _BIF.match(head.removeprefix(_BYTE_ORDER_MARK)) is not None


def is_hugin(head: bytes) -> bool:
    """Return whether the file starts with a ``net``, ``class`` or ``node`` block, possibly after comments."""
    return _HUGIN.match(head.removeprefix(_BYTE_ORDER_MARK)) is not None


def is_timefold(head: bytes) -> bool:
    """Return whether the file is a JSON object with meetings that last a number of time grains."""
    return _TIMEFOLD.match(head) is not None


def is_csplib_meetings(head: bytes) -> bool:
    """Return whether a line states the number of meetings."""
    return _CSPLIB_MEETINGS.search(head) is not None


def is_cfn(head: bytes) -> bool:
    """Return whether the file starts with a brace, possibly after comments."""
    return _CFN.match(head) is not None


def is_wcsp(head: bytes) -> bool:
    """Return whether the file begins with a word and four numbers."""
    return _WCSP.match(head) is not None


def is_yaml(head: bytes) -> bool:
    """Return whether a line starts with one of pyDCOP's top-level keys."""
    return _YAML.search(head) is not None


def begins_calendar(head: bytes) -> bool:
    """Return whether a line starts with the key ``calendar``."""
    return _CALENDAR.search(head) is not None


class ForeignFormat(NamedTuple):
    """A format that is not read.

    Attributes
    ----------
    description : str
        The program or language, for the error message.
    suffixes : tuple of str
        Suffixes of its files, for files whose content says nothing.
    start : re.Pattern of bytes
        Matches the beginning of a file.
    remedy : str
        How to convert such a file, for the error message.
    """

    description: str
    suffixes: tuple[str, ...]
    start: re.Pattern[bytes]
    remedy: str


_EXPORT = "export it as XMLBIF or BIF"
FOREIGN = (
    ForeignFormat("GeNIe's format", (".xdsl", ".dsl"), re.compile(XML_START + rb"<smile\b", re.DOTALL), _EXPORT),
    ForeignFormat(
        "XCSP3",
        (),
        re.compile(XML_START + rb"<instance\b[^>]*\bformat\s*=\s*[\"']XCSP3", re.DOTALL),
        "XCSP 2.1, .wcsp and .cfn are read",
    ),
    ForeignFormat("Netica's format", (".dne", ".neta"), re.compile(rb"\s*// ~->\[DNET"), _EXPORT),
    ForeignFormat("Microsoft's format for belief networks", (".dsc",), re.compile(rb"\s*belief\s+network\b"), _EXPORT),
    ForeignFormat(
        "Microsoft's XML for belief networks",
        (".xbn",),
        re.compile(XML_START + rb"<(?:!DOCTYPE\s+)?ANALYSISNOTEBOOK\b", re.DOTALL),
        _EXPORT,
    ),
    ForeignFormat("OpenMarkov's format", (".pgmx",), re.compile(XML_START + rb"<ProbModelXML\b", re.DOTALL), _EXPORT),
)


def refuse_foreign(source: SourceFile, is_recognised: bool = True) -> None:
    """Raise an error that names the format of a file if it is one of :data:`FOREIGN`.

    Parameters
    ----------
    source
        The file.
    is_recognised
        Whether the content is that of a known format; otherwise the file's suffix counts, too.

    Raises
    ------
    Unavailable
        If the content, or the suffix, is that of a format that is not read.
    """
    head, name = source.data[:HEAD_BYTES].removeprefix(b"\xef\xbb\xbf"), source.name.lower()
    for known in FOREIGN:
        if known.start.match(head) or (not is_recognised and name.endswith(known.suffixes)):
            raise Unavailable(f"{source.name}: is in {known.description}, which is not read; {known.remedy}")


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
        is_native,
        "dmcmc.formats.native:load",
        "dmcmc.formats.native:save",
    ),
    Format(
        "xmlbif",
        (".xmlbif", ".bifxml"),
        "XMLBIF: Bayesian networks",
        is_xmlbif,
        "dmcmc.formats.xmlbif:read",
        "dmcmc.formats.xmlbif:write",
        "evidence",
        logarithms=True,
    ),
    Format(
        "xcsp",
        (".xml",),
        "XCSP 2.1 as FRODO has it",
        is_xml,
        "dmcmc.formats.xcsp:read",
        "dmcmc.formats.xcsp:write",
    ),
    Format(
        "uai",
        (".uai",),
        "UAI: Bayesian and Markov networks",
        is_uai,
        "dmcmc.formats.uai:read",
        "dmcmc.formats.uai:write",
        "evidence",
        logarithms=True,
    ),
    Format(
        "bif",
        (".bif",),
        "BIF: Bayesian networks",
        is_bif,
        "dmcmc.formats.bif:read",
        companion="evidence",
        logarithms=True,
    ),
    Format(
        "hugin",
        (".net",),
        "Hugin's NET: Bayesian networks",
        is_hugin,
        "dmcmc.formats.hugin:read",
        "dmcmc.formats.hugin:write",
        "evidence",
        logarithms=True,
    ),
    Format(
        "csplib46",
        (),
        "CSPLib's meeting scheduling",
        is_csplib_meetings,
        "dmcmc.formats.meetings.csplib:read",
    ),
    Format(
        "timefold",
        (),
        "Timefold's meeting scheduling",
        is_timefold,
        "dmcmc.formats.meetings.timefold:read",
    ),
    Format(
        "cfn",
        (".cfn",),
        "toulbar2's JSON",
        is_cfn,
        "dmcmc.formats.cfn:read",
        "dmcmc.formats.cfn:write",
    ),
    Format(
        "wcsp",
        (".wcsp",),
        "weighted CSP",
        is_wcsp,
        "dmcmc.formats.wcsp:read",
        "dmcmc.formats.wcsp:write",
    ),
    Format("calendar", (), "people and meetings", begins_calendar, "dmcmc.calendars.file.problem:read"),
    Format(
        "pydcop",
        (".yaml", ".yml"),
        "pyDCOP's YAML",
        is_yaml,
        "dmcmc.formats.pydcop:read",
        "dmcmc.formats.pydcop:write",
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
    head = source.data[:HEAD_BYTES]
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
    name = format_to_write(path, format).name
    features = {word for word in words if word in DROPPABLE and (word != "constant" or name in _WITHOUT_CONSTANT)}
    dropped: list[str] = []
    while True:
        written = drop_features(problem, {*features, *dropped}, _SENSES.get(name))
        try:
            save(written, path, format)
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
    format_to_write(path, format)
    check_writable(path)


def _words(drop: Collection[str]) -> list[str]:
    """Return the single words of lists with commas.

    >>> _words(["agents,names", "labels"])
    ['agents', 'names', 'labels']
    """
    return [word.strip() for item in drop for word in item.split(",")]
