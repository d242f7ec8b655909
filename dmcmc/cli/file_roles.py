"""Recognise configurations, calendars and problem files, so that a command can name the right one for a file."""

import io
import re
from argparse import Namespace

from dmcmc.config.configuration import Config
from dmcmc.config.yaml_lines import MAX_CONFIG_BYTES, read_content
from dmcmc.files.text import STANDARD_INPUT, decompressed, standard_input
from dmcmc.files.write import check_writable
from dmcmc.formats import sniffing
from dmcmc.formats.registry import FORMATS, by_suffix
from dmcmc.inference.runtime.errors import ConfigError

_KEYS = re.compile(rb"\b(?:" + "|".join(Config.__struct_fields__).encode() + rb")\b")
_PROBLEM = re.compile(rb"(?:^|\n)problem\s*:")
_PROBLEM_KEYS = {"variables", "functions", "domains", "constraints"}  # top-level keys of .cfn and pyDCOP files


def is_configuration(path: str) -> bool:
    """Return whether a file, compressed or not, is a configuration: it has keys such as ``problem`` or ``local``."""
    content = _beginning(path, MAX_CONFIG_BYTES + 1)
    if len(content) > MAX_CONFIG_BYTES or not _KEYS.search(content):
        return False
    try:
        data = read_content(content, path).data
    except ConfigError:  # no YAML, or YAML with an error
        return _PROBLEM.search(content) is not None and _sniffed(content) is None
    return bool(data.keys() & {*Config.__struct_fields__}) and not data.keys() & _PROBLEM_KEYS


def is_calendar(path: str) -> bool:
    """Return whether a file is a calendar."""
    return sniffing.is_calendar(_beginning(path, sniffing.HEAD_BYTES)) and not is_configuration(path)


def check_options(arguments: Namespace, path: str) -> None:
    """Check the options for calendars before any work is done; raise an error if a file cannot be written."""
    for option in ("keep", "move_cost"):
        if getattr(arguments, option, None) is not None and not is_calendar(path):
            raise ConfigError(f"--{option.replace('_', '-')}: is for calendars, not for {path}")
    for option in ("html", "ics"):
        target = getattr(arguments, option, None)
        if target is None:
            continue
        if not is_calendar(path):
            raise ConfigError(f"--{option}: is for calendars, not for {path} ('dmcmc init calendar' writes an example)")
        check_writable(target if option == "html" or target.lower().endswith(".ics") else f"{target}/all.ics")


def is_packed(path: str) -> bool:
    """Return whether a file's bytes are compressed."""
    with io.BytesIO(standard_input()) if path == STANDARD_INPUT else open(path, "rb") as raw:
        head = raw.read(6)
        return decompressed(raw, head) is not raw


def problem_kind(path: str) -> str | None:
    """Return the format of a problem file; None for other files, such as a configuration with a spelling mistake."""
    name = _sniffed(_beginning(path, sniffing.HEAD_BYTES))
    if name is None:
        format = by_suffix(path)
        name = None if format is None or format.name == "pydcop" else format.name
    return name


def _sniffed(content: bytes) -> str | None:
    """Return the format that the first bytes of a file match; None if there is none."""
    return next((known.name for known in FORMATS if known.sniff(content[: sniffing.HEAD_BYTES])), None)


def _beginning(path: str, max_bytes: int) -> bytes:
    """Return the first bytes of a file, decompressed; empty if the file cannot be read."""
    try:
        with io.BytesIO(standard_input()) if path == STANDARD_INPUT else open(path, "rb") as raw:
            head = raw.read(6)
            raw.seek(0)
            with decompressed(raw, head) as stream:
                return stream.read(max_bytes)
    except Exception:  # decompressors raise many types; reading the file later reports the error
        return b""
