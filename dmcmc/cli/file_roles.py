"""What a file is, a configuration or a problem: each command says which other one takes it."""

import io
import re

from dmcmc.config.configuration import Config
from dmcmc.config.yaml_lines import MOST_BYTES, read_content
from dmcmc.files.text import STANDARD_INPUT, standard_input, unpacked
from dmcmc.formats import sniffing
from dmcmc.formats.registry import FORMATS, by_suffix
from dmcmc.inference.runtime.errors import ConfigError

_WORDS = re.compile(rb"\b(?:" + "|".join(Config.__struct_fields__).encode() + rb")\b")
_PROBLEM = re.compile(rb"(?:^|\n)problem\s*:")
_ELSEWHERE = {"variables", "functions", "domains", "constraints"}  # keys of .cfn and pyDCOP files


def is_configuration(path: str) -> bool:
    """Return whether a file, packed or not, is a configuration: sections such as ``problem`` and ``local``."""
    content = _beginning(path, MOST_BYTES + 1)
    if len(content) > MOST_BYTES or not _WORDS.search(content):
        return False
    try:
        found = read_content(content, path).data
    except ConfigError:  # no YAML, or not quite
        return _PROBLEM.search(content) is not None and _sniffed(content) is None
    return bool(found.keys() & {*Config.__struct_fields__}) and not found.keys() & _ELSEWHERE


def is_calendar(path: str) -> bool:
    """Return whether a file is a calendar."""
    return sniffing.is_calendar(_beginning(path, sniffing.HEAD)) and not is_configuration(path)


def is_packed(path: str) -> bool:
    """Return whether a file's bytes are compressed."""
    with io.BytesIO(standard_input()) if path == STANDARD_INPUT else open(path, "rb") as raw:
        head = raw.read(6)
        return unpacked(raw, head) is not raw


def problem_kind(path: str) -> str | None:
    """Return the format of a problem file; None for anything else, such as a configuration with a slip in it."""
    found = _sniffed(_beginning(path, sniffing.HEAD))
    if found is None:
        named = by_suffix(path)
        found = None if named is None or named.name == "pydcop" else named.name
    return found


def _sniffed(content: bytes) -> str | None:
    """Return the format that a file's first bytes look like."""
    return next((known.name for known in FORMATS if known.sniff(content[: sniffing.HEAD])), None)


def _beginning(path: str, most: int) -> bytes:
    """Return the first bytes of a file, unpacked; none if it cannot be read."""
    try:
        with io.BytesIO(standard_input()) if path == STANDARD_INPUT else open(path, "rb") as raw:
            head = raw.read(6)
            raw.seek(0)
            with unpacked(raw, head) as stream:
                return stream.read(most)
    except Exception:  # reading it will tell what is wrong: unpackers raise several types
        return b""
