"""The formats of problem files: how one is recognised, read, written, and converted into another.

The module of a format has a reader, ``read(source: SourceFile) -> Problem`` (pyDCOP's reader also takes the path of a
distribution file), and perhaps a writer, ``write(problem: Problem) -> Iterable[str]``, which yields pieces of text.
Both raise only :class:`~dmcmc.inference.runtime.errors.DmcmcError`. This module handles compression, evidence files,
file suffixes and error messages for all of them. A format is recognised by the first bytes of a file, or else by its
suffix. An error names the formats of other programs that are not read, and how to convert them.
"""

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from dmcmc.files.text import COMPRESSED_SUFFIXES, SourceFile, clipped, open_source
from dmcmc.files.write import check_writable, replace_file
from dmcmc.formats.common.factor_entries import DROPPABLE, Inexpressible, drop_features
from dmcmc.inference.model.problem import Problem, check_domains
from dmcmc.inference.runtime.errors import ConfigError, FileError, OutOfMemory, ProblemError, Unavailable
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, memory_limit, resident_memory

HEAD_BYTES = 4096  # bytes at the start of a file that suffice to recognise its format

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_XML_START = rb"(?:\s++|<\?(?>.*?\?>)|<!--(?>.*?-->))*+"  # white space, processing instructions and comments


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
    pattern : str
        Regular expression that the first bytes of an uncompressed file match somewhere, without a byte order mark.
    module : str
        Module with the functions ``read`` and ``write``, imported on first use; empty for the one with the format's
        name in this package.
    is_writable : bool
        Whether the format can be written.
    companion : str
        Option of :func:`load` that names a second file, if the format has one.
    logarithms : bool
        Whether utilities are the logarithms of the numbers in the file.
    """

    name: str
    suffixes: tuple[str, ...]
    summary: str
    pattern: bytes
    module: str = ""
    is_writable: bool = True
    companion: str = ""
    logarithms: bool = False

    def matches(self, head: bytes) -> bool:
        """Return whether the first bytes of a file look like this format."""
        return re.search(self.pattern, head.removeprefix(_BYTE_ORDER_MARK)) is not None

    @property
    def functions(self) -> ModuleType:
        """The module of the format."""
        return import_module(self.module or f"{__package__}.{self.name}")


_UAI = rb"(?i)\A\s*(?:MARKOV|BAYES)\s"
_BIF = rb"(?s)\A(?:\s++|//[^\n]*+\n|/\*(?>.*?\*/))*+(?:network|variable)\b[^:{]*+\{"
_HUGIN = (
    rb"(?s)\A(?:\s++|%[^\n]*+\n|//[^\n]*+\n|/\*(?>.*?\*/))*+"
    rb"(?:net|class\s++\S++|(?:discrete\s++|continuous\s++)?node\s++\S++)\s*+\{"
)
_XMLBIF = rb"(?s)\A" + _XML_START + rb"<(?:!DOCTYPE\s++)?BIF\b"
_CSPLIB = rb"(?i)(?:^|\n)\s*number of meetings\s*[:=]"
_TIMEFOLD = rb'\A\s*\{[^\x00]*"(?:durationInGrains|meetingAssignmentList|timeGrainList)"\s*:'
_CFN = rb"\A(?:\s++|#[^\n]*+\n)*+\{"
_WCSP = rb"\A\s*\S+\s+\d+\s+\d+\s+\d+\s+\d+(?:\s|\Z)"
_YAML = rb"(?:^|\n)(?:name|description|objective|domains|variables|constraints|agents)\s*:(?:\s|\Z)"
_EVIDENCE = "evidence"
NATIVE = Format("native", (".npz",), "dmcmc's own archive", rb"\APK(?:\x03\x04|\x05\x06)")
CALENDAR = Format(
    "calendar", (), "people and meetings", rb"(?:^|\n)calendar\s*:(?:\s|\Z)", "dmcmc.calendars.file.problem", False
)
_MEETINGS = "dmcmc.formats.meetings"
FORMATS: tuple[Format, ...] = (
    NATIVE,
    Format(
        "xmlbif", (".xmlbif", ".bifxml"), "XMLBIF: Bayesian networks", _XMLBIF, companion=_EVIDENCE, logarithms=True
    ),
    Format("xcsp", (".xml",), "XCSP 2.1 as FRODO has it", rb"\A\s*<"),
    Format("uai", (".uai",), "UAI: Bayesian and Markov networks", _UAI, companion=_EVIDENCE, logarithms=True),
    Format("bif", (".bif",), "BIF: Bayesian networks", _BIF, is_writable=False, companion=_EVIDENCE, logarithms=True),
    Format("hugin", (".net",), "Hugin's NET: Bayesian networks", _HUGIN, companion=_EVIDENCE, logarithms=True),
    Format("csplib46", (), "CSPLib's meeting scheduling", _CSPLIB, f"{_MEETINGS}.csplib", is_writable=False),
    Format("timefold", (), "Timefold's meeting scheduling", _TIMEFOLD, f"{_MEETINGS}.timefold", is_writable=False),
    Format("cfn", (".cfn",), "toulbar2's JSON", _CFN),
    Format("wcsp", (".wcsp",), "weighted CSP", _WCSP),
    CALENDAR,
    Format("pydcop", (".yaml", ".yml"), "pyDCOP's YAML", _YAML, companion="distribution"),
)
"""All formats; the first one that matches a file is taken."""


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
    ForeignFormat("GeNIe's format", (".xdsl", ".dsl"), re.compile(_XML_START + rb"<smile\b", re.DOTALL), _EXPORT),
    ForeignFormat(
        "XCSP3",
        (),
        re.compile(_XML_START + rb"<instance\b[^>]*\bformat\s*=\s*[\"']XCSP3", re.DOTALL),
        "XCSP 2.1, .wcsp and .cfn are read",
    ),
    ForeignFormat("Netica's format", (".dne", ".neta"), re.compile(rb"\s*// ~->\[DNET"), _EXPORT),
    ForeignFormat("Microsoft's format for belief networks", (".dsc",), re.compile(rb"\s*belief\s+network\b"), _EXPORT),
    ForeignFormat(
        "Microsoft's XML for belief networks",
        (".xbn",),
        re.compile(_XML_START + rb"<(?:!DOCTYPE\s+)?ANALYSISNOTEBOOK\b", re.DOTALL),
        _EXPORT,
    ),
    ForeignFormat("OpenMarkov's format", (".pgmx",), re.compile(_XML_START + rb"<ProbModelXML\b", re.DOTALL), _EXPORT),
)


def _refuse_foreign(source: SourceFile, is_recognised: bool = True) -> None:
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
    head, name = source.data[:HEAD_BYTES].removeprefix(_BYTE_ORDER_MARK), source.name.lower()
    for known in FOREIGN:
        if known.start.match(head) or (not is_recognised and name.endswith(known.suffixes)):
            raise Unavailable(f"{source.name}: is in {known.description}, which is not read; {known.remedy}")


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
    given = {_EVIDENCE: evidence, "distribution": distribution}
    companions = {name: Path(file) for name, file in given.items() if file is not None}
    with MEMORY_ACCOUNT.open(memory_limit(), resident_memory()):
        chosen, problem = _load(path, None if format is None else format_named(format), companions)
    try:
        if is_for_run:
            check_domains(problem)
    except ProblemError as error:
        raise FileError(f"{path}: {error}") from None
    return chosen, problem


def _load(path: str | os.PathLike[str], selected: Format | None, companions: dict[str, Path]) -> tuple[Format, Problem]:
    """Read a problem file within the open budget of memory."""
    if selected is not NATIVE:
        source = open_source(path, native=selected is None)
        if source is not None:
            selected = selected or recognise(source)
            if selected is not NATIVE or source.path is None:
                return selected, _read(selected, source, companions)
    for option in companions:
        raise FileError(f"{path}: a native archive takes no {option} file")
    problem: Problem = NATIVE.functions.load(path)
    return NATIVE, problem


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
    if chosen is NATIVE:
        chosen.functions.save(problem, path)
        return
    try:
        replace_file(path, chosen.functions.write(problem))
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
        known = ", ".join(s for f in FORMATS if f.is_writable for s in f.suffixes)
        raise FileError(f"{path}: its suffix gives no format; use one of {known}, or give --to")
    if not chosen.is_writable:
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
    by_content = next((f for f in FORMATS if f.matches(head)), None)
    _refuse_foreign(source, by_content is not None)
    recognised = by_content or by_suffix(source.name)
    if recognised is None:
        known = ", ".join(f.name for f in FORMATS)
        raise FileError(f"{source.name}: is none of the known formats ({known}); say which with --format")
    return recognised


def _read(chosen: Format, source: SourceFile, companions: dict[str, Path] | None = None) -> Problem:
    """Read a problem from a source in a known format, with its companion file."""
    if chosen is NATIVE:
        raise FileError(f"{source.name}: a native archive must be a regular, uncompressed file")
    _refuse_foreign(source)
    options = companions or {}
    for option in options.keys() - {chosen.companion}:
        raise FileError(f"{source.name}: a {chosen.name} file takes no {option} file")
    given = {} if chosen.companion == _EVIDENCE else options
    try:
        problem: Problem = chosen.functions.read(source, **given)
        if chosen.companion == _EVIDENCE:
            from dmcmc.formats.common.evidence import observe  # imported late because it loads compiled code

            problem = observe(problem, source.path, options.get(_EVIDENCE), chosen.suffixes[0])
    except ProblemError as error:
        raise FileError(f"{source.name}: {clipped(str(error))}") from None
    except OutOfMemory as error:
        raise FileError(f"{source.name}: {error}") from None
    except (MemoryError, RecursionError):
        raise FileError(f"{source.name}: does not fit the memory") from None
    return problem


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
