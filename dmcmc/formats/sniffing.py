"""Recognise the format of a file by its first bytes."""

import re

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


def is_calendar(head: bytes) -> bool:
    """Return whether a line starts with the key ``calendar``."""
    return _CALENDAR.search(head) is not None
