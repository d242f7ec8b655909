"""Convert plain data into frozen structs, with errors that name the place, the expected and the given value.

Configurations and experiment files are validated with it. The structs are the specification: the annotation of a field
has its type and range, and the ``description`` in its :class:`msgspec.Meta` is the expected value in errors.
"""

import difflib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec

from dmcmc.config.document import Key, show
from dmcmc.inference.runtime.errors import ConfigError

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
    for field in fields.values():
        if field.required and field.name not in data:
            raise ConfigError(f"{at((*key, field.name))}: is missing")
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
