"""Formats of other programs that are not read: name them, with the way to a format that is read."""

import re
from typing import NamedTuple

from dmcmc.files.text import SourceFile
from dmcmc.formats.sniffing import HEAD_BYTES, XML_START
from dmcmc.inference.runtime.errors import Unavailable


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
