"""Read the problem and the configuration that a command line names.

Configurations, calendars and problem files are recognised, so that a command can name the right one for a file.
"""

import io
import re
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from dmcmc.config.configuration import (
    FILE_OPTIONS,
    OPTION_OF,
    Config,
    config_of,
    option_place,
    problem_of,
    read_config,
    with_assigned_agents,
)
from dmcmc.files.document import MAX_CONFIG_BYTES, Document, read_content, value_of
from dmcmc.files.text import STANDARD_INPUT, decompressed, standard_input
from dmcmc.files.write import check_writable
from dmcmc.formats import registry as formats
from dmcmc.formats.registry import CALENDAR, FORMATS, HEAD_BYTES, by_suffix
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.device import resolve_device
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT, resident_memory

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
    return CALENDAR.matches(_beginning(path, HEAD_BYTES)) and not is_configuration(path)


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
    name = _sniffed(_beginning(path, HEAD_BYTES))
    if name is None:
        format = by_suffix(path)
        name = None if format is None or format.name == "pydcop" else format.name
    return name


def _sniffed(content: bytes) -> str | None:
    """Return the format that the first bytes of a file match; None if there is none."""
    return next((known.name for known in FORMATS if known.matches(content[:HEAD_BYTES])), None)


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


_IN_YAML = ("agents", "seed", *OPTION_OF.values())  # options whose values are read as YAML; the others are text


def options_of(arguments: Namespace) -> dict[str, Any]:
    """Return the given options of a command as keys and values of a configuration.

    Options that were not given, or that the command does not have, are left out.
    """
    words = ("seed", "device", "output", "checkpoint", "start")
    keys = {name: f"problem.{name}" for name in FILE_OPTIONS} | {name: name for name in words}
    keys |= {option: key for key, option in OPTION_OF.items()}
    given = {key: (name, getattr(arguments, name, None)) for name, key in keys.items()}
    return {
        key: value_of(value, f"--{name}") if name in _IN_YAML else value
        for key, (name, value) in given.items()
        if value is not None
    }


def configuration(
    path: str, overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> tuple[Config, Document]:
    """Read a configuration file (:func:`dmcmc.config.configuration.read_config`); reject problem files."""
    if is_configuration(path):
        if is_packed(path):
            raise ConfigError(f"{path}: is compressed; decompress the configuration first")
    elif kind := problem_kind(path):
        raise ConfigError(f"{path}: is a problem file ({kind}), not a configuration; use 'dmcmc solve {path}'")
    return read_config(path, overrides, options)


def load(path: str, arguments: Namespace) -> tuple[Problem, Config]:
    """Return the problem and the configuration of a file; a problem file has the default configuration."""
    options = options_of(arguments)
    if is_configuration(path):
        config, document = configuration(path, options=options)
        return problem_of(config.problem, document), config
    document = Document("", {"problem": {"file": path}})
    for name, value in options.items():
        document.override(tuple(name.split(".")), value, option_place(name))
    config = config_of(document)
    with MEMORY_ACCOUNT.open(config.budget.bytes, resident_memory()):
        problem = formats.load(
            path, format=arguments.format, evidence=arguments.evidence, distribution=arguments.distribution
        )
    return with_assigned_agents(problem, config.problem, document.at), config


def check_run(config: Config, document: Document) -> None:
    """Check the output file and the device of a run before any work is done; raise an error if one is not usable."""
    if config.output is not None:
        try:
            check_writable(config.output)
        except FileError as error:
            raise FileError(f"{document.at(('output',))}: {error}") from error
    if config.device == "cuda":
        resolve_device(config.device)
