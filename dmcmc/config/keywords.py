"""Make settings from keyword arguments: single keys of a configuration, or whole sections."""

import os
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypedDict

import msgspec
import numpy as np

from dmcmc.config.document import Document, Key
from dmcmc.config.legacy_keys import RENAMED_SETTINGS, current_keywords
from dmcmc.config.settings import (
    AlgorithmSettings,
    Budget,
    Combine,
    Cooling,
    Guarantee,
    Local,
    Settings,
    Stay,
    settings_of,
)
from dmcmc.config.validate import suggestion
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.memo import Memo

Data = Mapping[str, Any]


class Keywords(TypedDict, total=False):
    """Keyword arguments of :func:`dmcmc.solve` and others, in addition to ``settings`` or in place of it.

    Each keyword is a key of a configuration, explained at the class of its section in
    :mod:`dmcmc.config.settings`; ``timeout`` is the key ``budget.time``. A section (``local``, ``combine``,
    ``budget``) is given as its class, or as a mapping of some of its keys; ``combine`` may also be a method's name.
    Former names (:data:`dmcmc.config.legacy_keys.RENAMED_SETTINGS`) are accepted with a ``DeprecationWarning``.
    """

    algorithm: str | AlgorithmSettings | Data
    local: Local | Data
    method: str
    runs: int
    samples: int
    temperature: float | str | Cooling | Data
    guarantee: Guarantee | Data | None
    diagnose: bool
    cells: int | str
    rows: int | str
    order: str | None
    bound: str
    combine: Combine | Data | str
    z: int | str
    partition: str
    tree: str
    root: str | None
    mode: str
    moment_matching: bool
    budget: Budget | Data
    timeout: float | None
    time: float | None
    memory: int | str
    gap: float
    search: str
    local_search: str
    device: str
    seed: int
    presolve: str
    output: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None
    start: msgspec.Struct | Data | str | os.PathLike[str] | None
    stay: Stay | Data | None


_SIMPLE = (str, int, float, bool, NoneType)  # types of keyword values for which settings are cached
# Cache of settings made from plain keyword values alone: checking these takes longer than solving a tiny problem.
_CACHE = Memo[Settings](64)
_SECTIONS = {"local": Local, "combine": Combine, "budget": Budget}
_TOP_LEVEL = (
    "algorithm",
    "search",
    "local_search",
    "device",
    "seed",
    "presolve",
    "output",
    "checkpoint",
    "start",
    "stay",
)
# The configuration key that each keyword sets, except for whole sections.
_KEYS: dict[str, Key] = {name: (name,) for name in _TOP_LEVEL}
_KEYS["timeout"] = ("budget", "time")
for _section, _section_class in _SECTIONS.items():
    for _name in _section_class.__struct_fields__:
        _KEYS.setdefault(_name, (_section, _name))  # the keyword ``method`` is local.method, not combine.method


def settings_from(settings: Settings | None, keywords: Mapping[str, Any]) -> Settings:
    """Return settings with some keys replaced by keyword arguments.

    Settings made from simple keyword values alone are cached.

    Parameters
    ----------
    settings
        The settings to start from; None for the defaults.
    keywords
        The keyword arguments, see :class:`Keywords`.

    Raises
    ------
    ConfigError
        If a keyword is unknown or its value is not allowed; names the key.

    Examples
    --------
    >>> settings_from(None, {"runs": 3, "timeout": 20, "combine": {"z": 4}}).budget.time
    20.0
    """
    if RENAMED_SETTINGS.keys() & keywords.keys():
        keywords = current_keywords(keywords)
    if settings is not None or not all(type(value) in _SIMPLE for value in keywords.values()):
        return _settings_from(settings, keywords)
    key = tuple([(name, type(value), value) for name, value in keywords.items()])
    return _CACHE.get(key, lambda: _settings_from(None, keywords))


def _settings_from(settings: Settings | None, keywords: Mapping[str, Any]) -> Settings:
    """Return the settings without the cache; see :func:`settings_from`.

    A whole configuration may be passed as settings. Its problem is ignored: only the fields of ``Settings`` are read.
    """
    if settings is not None and not isinstance(settings, Settings):
        hint = "give its keys as keywords" if isinstance(settings, Mapping) else "give keywords, as timeout=10"
        raise ConfigError(f"settings: expected dmcmc.Settings, got {type(settings).__name__}; {hint}")
    names = () if settings is None else Settings.__struct_fields__
    document = Document("", {name: _plain(getattr(settings, name)) for name in names})
    if settings is not None and settings.local.guarantee is not None and "samples" not in keywords:
        del document.data["local"]["samples"]  # it was computed from the guarantee
    if "time" in keywords and "timeout" in keywords:
        raise ConfigError("timeout: is given twice (time and timeout)")
    for name, value in keywords.items():
        if name in _SECTIONS:
            section = {"method": value} if name == "combine" and isinstance(value, str) else _plain(value)
            if not isinstance(section, Mapping):
                raise ConfigError(f"{name}: expected a mapping of its keys, got {value!r}")
            for key, part in section.items():
                document.override((name, str(key)), part, f"{name}.{key}")
    for name, value in keywords.items():
        if name in _KEYS:
            document.override(_KEYS[name], _assignment_of(value) if name == "start" else _plain(value), name)
        elif name not in _SECTIONS:
            raise ConfigError(f"unknown keyword '{name}'; {suggestion(name, (*_KEYS, *_SECTIONS), 'keywords')}")
    return settings_of(document)


def _assignment_of(start: Any) -> Any:
    """Return the keyword ``start`` as plain data: the assignment of a result, or the value itself."""
    if isinstance(start, msgspec.Struct):
        start = getattr(start, "assignment", None)
        if start is None:
            raise ConfigError("start: the result has no assignment")
    return _plain(start)


def _plain(value: Any) -> Any:
    """Return a value as plain data: structs as mappings, NumPy numbers as Python numbers, paths as text."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
