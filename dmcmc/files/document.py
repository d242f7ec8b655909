"""A document of plain data, such as a configuration, with the place of every key, and structs made from it.

A key is the path to a value: ``("local", "runs")`` is the key ``runs`` of the section ``local``. Errors name the file,
the line, the key, and the expected and the given value. The structs are the specification: the annotation of a field
has its type and range, and the ``description`` in its :class:`msgspec.Meta` is the expected value in errors.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, get_args, get_origin

import msgspec
import yaml

from dmcmc.files.text import STANDARD_INPUT, standard_input
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

Key = tuple[str, ...]


@dataclass
class Document:
    """Nested dictionaries, lists and scalars, with the place of each key.

    Attributes
    ----------
    name : str
        The file name for errors; empty without a file.
    data : dict
        The contents.
    places : dict of tuple of str to str
        File and line of each key of the file: ``"run.yaml:7"``.
    given : dict of tuple of str to str
        The option or keyword that replaced a key: ``"--set local.runs"``, ``"timeout"``.
    """

    name: str
    data: dict[str, Any] = field(default_factory=dict)
    places: dict[Key, str] = field(default_factory=dict)
    given: dict[Key, str] = field(default_factory=dict)

    def at(self, key: Key) -> str:
        """Return the name of a key for errors: ``run.yaml:7: local.runs`` or ``--set local.runs``.

        A missing key has the place of the section that it belongs to. An option or keyword has precedence over the
        file.
        """
        for length in range(len(key), 0, -1):
            if key[:length] in self.given:
                return ".".join((self.given[key[:length]], *key[length:]))
            if key[:length] in self.places:
                return f"{self.places[key[:length]]}: {'.'.join(key)}"
        return ": ".join(part for part in (self.name, ".".join(key)) if part)

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error about a key of a problem file, with its place."""
        raise FileError(f"{self.at(key)}: {message}")

    def override(self, key: Key, value: Any, what: str) -> None:
        """Set ``key`` to ``value`` and create missing sections; errors name the option ``what`` (``--seed``)."""
        section = self.data
        for part in key[:-1]:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        section[key[-1]] = value
        self.places = {k: place for k, place in self.places.items() if k[: len(key)] != key}
        self.given = {k: place for k, place in self.given.items() if k[: len(key)] != key} | {key: what}


class SectionReader:
    """Checks of the sections of a problem file.

    A ``key`` is the path of an entry in the file, such as ``("domains", "colours")``; error messages name it and its
    line.

    Parameters
    ----------
    document : Document
        The file with the lines of its entries.
    """

    def __init__(self, document: Document) -> None:
        self.document = document

    def section(self, name: str) -> dict[str, Any]:
        """Return a section with named entries; a missing section is empty."""
        entry = self.document.data.get(name)
        if entry is not None and not isinstance(entry, dict):
            self.fail((name,), f"expected names with their properties, got {show(entry)}")
        return entry or {}

    def check_keys(self, key: Key, entry: Iterable[str], known: Sequence[str]) -> None:
        """Check that all keys of an entry are known."""
        for name in entry:
            if name not in known:
                self.fail((*key, name), f"unknown key; {suggestion(name, known)}")

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        self.document.fail(key, message)


def show(value: Any) -> str:
    """Return a value for an error message: on one line, shortened, with the YAML words for None and booleans."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."


MAX_CONFIG_BYTES = 1 << 20  # size of a configuration file; problem files have no such limit
_MAX_NODES = 20_000  # limit for the values of a configuration, after aliases (repeated values) are expanded
_MAX_DEPTH = 20  # limit for nested sections and lists
_MAX_EVENTS = 3_000_000  # limit for the YAML events of any file, before aliases are expanded; bounds memory and time
_MAX_COPIES = 300_000  # limit for the values that the aliases of a problem file add; bounds memory and time
_BYTES_PER_EVENT = 600  # bytes of the nodes, values and places of one YAML event; measured with PyYAML's fast loader
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}
_DATE = "tag:yaml.org,2002:timestamp"  # dates stay text


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """PyYAML's fast loader if it is available; reads 1e3 as a number, as in YAML 1.2."""


# Arguments of a resolver for floats of YAML 1.2 that YAML 1.1 reads as text: tag, pattern, first characters.
FLOATS = ("tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(*FLOATS)


def read(path: str | Path) -> Document:
    """Read a YAML file of nested sections.

    Raises
    ------
    ConfigError
        If the file cannot be read, is not valid YAML, is too large or too deeply nested, has a key twice, or is not a
        mapping.
    """
    name = str(path)
    if name == STANDARD_INPUT:
        return read_content(standard_input(), "standard input")
    try:
        with open(path, "rb") as stream:
            content = stream.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{name}: no such file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return read_content(content, name)


def read_content(content: bytes, name: str) -> Document:
    """Parse the contents of a configuration file; see :func:`read`."""
    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{name}: larger than {MAX_CONFIG_BYTES} bytes, too large for a configuration")
    document = Document(name)
    data = _parse(content, name, document.places, _MAX_NODES)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1: expected sections such as 'problem:', got {show(data)}")
    document.data = data
    return document


def read_data(content: bytes, name: str) -> Document:
    """Parse a problem file: like :func:`read`, without the size limit; 1e3 stays a float.

    Raises
    ------
    ConfigError
        As for :func:`read`.
    """
    document = Document(name)
    data = _parse(content, name, document.places, None, whole=False)
    if not isinstance(data, dict):
        raise ConfigError(f"{name}:1: expected sections such as 'variables:', got {show(data)}")
    document.data = data
    return document


def value_of(text: str, where: str) -> Any:
    """Return a YAML text (the right side of ``--set key=value``) as plain data."""
    return _parse(text.encode(errors="surrogatepass"), where, None, _MAX_NODES)


def _parse(content: bytes, name: str, places: dict[Key, str] | None, max_nodes: int | None, whole: bool = True) -> Any:
    """Parse one YAML document.

    Parameters
    ----------
    content
        The text in UTF-8.
    name
        The name of the file or option for errors.
    places
        Receives the file and line of each key; None: errors have no line.
    max_nodes
        Largest number of values; None: those of the file and some copies by aliases.
    whole
        Whether 1e3 is read as the integer 1000.
    """
    try:
        count = _count_events(content, name, places is not None)
        MEMORY_ACCOUNT.claim(_BYTES_PER_EVENT * count, f"{name}: the values of the text")
        loader = _Loader(content)
        node = loader.get_single_node()
        max_nodes = count + _MAX_COPIES if max_nodes is None else max_nodes
        return None if node is None else _YamlBuilder(loader, name, places, max_nodes, whole).build(node, (), 0)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None and places is not None else ""
        problem = " ".join(part for part in (error.problem, error.context) if part)
        if "nesting depth" in problem:  # PyYAML from 6.0.4 on has its own limit
            raise ConfigError(f"{name}{line}: too many or too deeply nested values") from None
        raise ConfigError(f"{name}{line}: not valid YAML: {problem}") from None
    except (yaml.YAMLError, ValueError) as error:  # bytes that are not valid text
        raise ConfigError(f"{name}: not valid YAML: {' '.join(str(error).split())}") from None


def _count_events(content: bytes, name: str, lines: bool) -> int:
    """Return the number of values; reject deep nesting and very long files before any value is built.

    The values are YAML events: each scalar, and the start and end of each list and mapping. ``lines`` says whether
    errors name the line.
    """
    depth = count = 0
    for event in yaml.parse(content, Loader=_Loader):
        count += 1
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH or count > _MAX_EVENTS:
            line = f":{event.start_mark.line + 1}" if lines and event.start_mark is not None else ""
            raise ConfigError(f"{name}{line}: too many or too deeply nested values")
    return count


@dataclass
class _YamlBuilder:
    """Builds plain data from YAML nodes and counts them, which limits the expansion of nested aliases.

    Attributes
    ----------
    loader : yaml loader
        Converts scalars.
    name : str
        Name of the file or option for errors.
    places : dict or None
        Receives the file and line of each key; None: errors have no line.
    max_nodes : int
        Largest number of values.
    whole : bool
        Whether 1e3 is read as the integer 1000.
    nodes : int
        Number of values built so far.
    """

    loader: Any
    name: str
    places: dict[Key, str] | None
    max_nodes: int
    whole: bool
    nodes: int = 0

    def build(self, node: yaml.Node, key: Key, depth: int) -> Any:
        """Return the plain data of a node."""
        self.nodes += 1
        if self.nodes > self.max_nodes or depth > _MAX_DEPTH:
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
        except (ValueError, LookupError):  # an explicit tag that does not fit its value, such as !!int '' or !!bool 3
            raise ConfigError(f"{self._place(node)}: {show(node.value)} is not a valid value") from None
        if (
            self.whole
            and isinstance(value, float)
            and "e" in node.value.lower()
            and value.is_integer()
            and abs(value) < 2**63
        ):
            return int(value)
        return value

    def _entries(self, node: yaml.MappingNode, key: Key) -> Iterator[tuple[str, yaml.Node]]:
        """Yield the keys and values of a mapping; reject keys that occur twice."""
        seen: dict[str, int] = {}
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{self._place(key_node)}: a key must be a word")
            name = str(key_node.value)
            if name in seen:
                dotted = ".".join((*key, name))
                raise ConfigError(f"{self._place(key_node)}: {dotted}: is given twice (first in line {seen[name]})")
            seen[name] = key_node.start_mark.line + 1
            if self.places is not None:
                self.places[(*key, name)] = self._place(key_node)
            yield name, value

    def _place(self, node: yaml.Node) -> str:
        """Return the file, and the line if lines are known, of a node."""
        return self.name if self.places is None else f"{self.name}:{node.start_mark.line + 1}"


S = TypeVar("S", bound=msgspec.Struct)
At = Callable[[Key], str]  # returns the name of a key for errors: ``run.yaml:7: local.runs``


def struct_of(kind: type[S], data: Any, at: At, key: Key = ()) -> S:
    """Build a struct from plain data.

    Parameters
    ----------
    kind
        A struct whose fields are structs, or are annotated with a ``Meta`` that has a ``description``. With
        ``extra={"parse": function}`` the function converts text to the value, or raises a ``ValueError``.
    data
        A mapping; None is an empty one.
    at
        Returns the name of a key for errors.
    key
        The key of ``data`` itself.

    Raises
    ------
    ConfigError
        If a key is unknown or missing, or its value is not allowed.
    """
    fields = _fields(kind)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{at(key)}: expected a section with the keys {', '.join(fields)}, got {show(data)}")
    for name in data:
        if name not in fields:
            raise ConfigError(f"{at((*key, name))}: unknown key; {suggestion(name, fields)}")
    for known in fields.values():
        if known.required and known.name not in data:
            raise ConfigError(f"{at((*key, known.name))}: is missing")
    return kind(**{name: _value(fields[name].type, value, at, (*key, name)) for name, value in data.items()})


@cache  # msgspec resolves the annotations at every call
def _fields(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a struct by name."""
    return {f.name: f for f in msgspec.structs.fields(kind)}


def suggestion(name: str, known: Iterable[str], what: str = "known") -> str:
    """Return ``did you mean 'x'? (known: x, y)``, or only the known names if none is similar."""
    names = list(known)
    if not names:
        return f"there are no {what}"
    close = difflib.get_close_matches(name, names, n=1)
    listed = f"{what}: {', '.join(names)}"
    return f"did you mean '{close[0]}'? ({listed})" if close else listed


def _value(annotation: Any, value: Any, at: At, key: Key) -> Any:
    """Return the value of one field, checked against its annotation.

    A value for a struct is checked field by field, so that an error names the inner key. A text is converted first if
    the annotation has a ``parse`` function, such as ``"8GiB"`` to bytes.
    """
    meta = annotation.__metadata__[0] if get_origin(annotation) is Annotated else msgspec.Meta()
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    inner = next((t for t in (kind, *get_args(kind)) if isinstance(t, type) and issubclass(t, msgspec.Struct)), None)
    if inner is not None and (isinstance(value, dict) or kind is inner):
        return struct_of(inner, value, at, key)
    parse = (meta.extra or {}).get("parse")
    try:
        if parse is not None and isinstance(value, str):
            value = parse(value)
        return msgspec.convert(value, annotation)
    except (msgspec.ValidationError, ValueError, OverflowError):
        raise ConfigError(f"{at(key)}: expected {meta.description}, got {show(value)}") from None
