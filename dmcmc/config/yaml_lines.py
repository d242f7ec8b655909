"""YAML as plain data that remembers where every key stood, so that an error can name the file and the line."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dmcmc.config.document import Document, Key, show
from dmcmc.files.text import STANDARD_INPUT, standard_input
from dmcmc.inference.runtime.errors import ConfigError

MOST_BYTES = 1 << 20  # of a configuration
_MAX_NODES = 20_000  # of a configuration, after aliases are expanded
_MAX_DEPTH = 20
_MAX_EVENTS = 3_000_000  # of any file, before that
_MAX_COPIES = 300_000  # that a problem file's aliases may make
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}
_DATE = "tag:yaml.org,2002:timestamp"  # stays text


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The fast loader, where PyYAML has it; reads 1e3 as a number, as YAML 1.2 does and YAML 1.1 does not."""


# What YAML 1.2 reads as a float and YAML 1.1 does not, as resolvers take it: tag, form, first characters.
FLOATS = ("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(*FLOATS)


def read(path: str | Path) -> Document:
    """Read a YAML file of nested sections.

    Raises
    ------
    ConfigError
        For a file that cannot be read, is no YAML, is too large or too deep, has a key twice, or is not a mapping.
    """
    name = str(path)
    if name == STANDARD_INPUT:
        return read_content(standard_input(), "standard input")
    try:
        with open(path, "rb") as stream:
            content = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return read_content(content, name)


def read_content(content: bytes, name: str) -> Document:
    """Parse what a configuration file holds; see :func:`read`."""
    if len(content) > MOST_BYTES:
        raise ConfigError(f"{name}: larger than {MOST_BYTES} bytes; this is no configuration")
    document = Document(name)
    data = _parse(content, name, document.places, _MAX_NODES)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1: expected sections such as 'problem:', got {show(data)}")
    document.data = data
    return document


def read_data(content: bytes, name: str) -> Document:
    """Parse a problem file: like :func:`read`, for contents that may be long; 1e3 stays a float.

    Raises
    ------
    ConfigError
        As :func:`read` does.
    """
    document = Document(name)
    data = _parse(content, name, document.places, None, whole=False)
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1: expected sections such as 'variables:', got {show(data)}")
    document.data = data
    return document


def value_of(text: str, where: str) -> Any:
    """Return a piece of YAML (the right side of ``--set key=value``) as plain data."""
    return _parse(text.encode(errors="surrogatepass"), where, None, _MAX_NODES)


def _parse(content: bytes, name: str, places: dict[Key, str] | None, most: int | None, whole: bool = True) -> Any:
    """Parse one document; the place of each key goes to ``places`` (None: errors give no line).

    At most ``most`` values are built (None: what the file has, and some copies); with ``whole``, 1e3 is read as 1000.
    """
    try:
        count = _count_events(content, name, places is not None)
        loader = _Loader(content)
        node = loader.get_single_node()
        most = count + _MAX_COPIES if most is None else most
        return None if node is None else _Builder(loader, name, places, most, whole).build(node, (), 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None and places is not None else ""
        problem = " ".join(part for part in (error.problem, error.context) if part)
        if "nesting depth" in problem:  # PyYAML from 6.0.4 on counts it, too
            raise ConfigError(f"{name}{line}: too many or too deeply nested values") from None
        raise ConfigError(f"{name}{line}: not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # bytes that are no text
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None


def _count_events(content: bytes, name: str, lines: bool) -> int:
    """Return how many values there are; refuse deep nesting and endless lists before anything is built of them."""
    depth = count = 0
    for event in yaml.parse(content, Loader=_Loader):
        count += 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH or count > _MAX_EVENTS:
            line = f":{event.start_mark.line + 1}" if lines and event.start_mark is not None else ""
            raise ConfigError(f"{name}{line}: too many or too deeply nested values")
    return count


@dataclass
class _Builder:
    """Turns nodes into plain data and counts them, so that aliases of aliases end."""

    loader: Any
    name: str
    places: dict[Key, str] | None
    most: int
    whole: bool
    nodes: int = 0

    def build(self, node: yaml.Node, key: Key, depth: int) -> Any:
        self.nodes += 1
        if self.nodes > self.most or depth > _MAX_DEPTH:
            raise ConfigError(f"{self._place(node)}: too many or too deeply nested values")
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return {name: self.build(value, (*key, name), depth + 1) for name, value in self._entries(node, key)}
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.build(item, (*key, str(i)), depth + 1) for i, item in enumerate(node.value)]
        if not isinstance(node, yaml.ScalarNode) or node.tag not in _TAGS | {_DATE}:
            raise ConfigError(f"{self._place(node)}: not valid YAML here: the tag {node.tag}")
        if node.tag == _DATE:
            return node.value
        try:
            value = self.loader.construct_object(node)
        except (ValueError, LookupError):  # PyYAML takes a tag's word for what follows: !!int '', !!bool 3
            raise ConfigError(f"{self._place(node)}: {show(node.value)} is not a valid value") from None
        if (
            self.whole
            and isinstance(value, float)
            and "e" in node.value.lower()
            and value.is_integer()
            and abs(value) < 2**63
        ):
            return int(value)  # 1e3 is as whole as 1000
        return value

    def _entries(self, node: yaml.MappingNode, key: Key) -> Iterator[tuple[str, yaml.Node]]:
        seen: dict[str, int] = {}
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self._place(key_node)}: a key must be a word")
            name = str(key_node.value)
            if name in seen:
                dotted = ".".join((*key, name))
                raise ConfigError(f"{self._place(key_node)}: {dotted}: stands twice (first in line {seen[name]})")
            seen[name] = key_node.start_mark.line + 1
            if self.places is not None:
                self.places[(*key, name)] = self._place(key_node)
            yield name, value

    def _place(self, node: yaml.Node) -> str:
        return self.name if self.places is None else f"{self.name}:{node.start_mark.line + 1}"
