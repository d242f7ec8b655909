"""Make settings from a configuration or from keyword arguments, and check names and keys that depend on each other.

A keyword argument is a key of a configuration, or a whole section.
"""

import os
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypedDict

import msgspec
import numpy as np

from dmcmc.algorithms import registry as algorithms
from dmcmc.algorithms.contract import checked
from dmcmc.algorithms.population import Delays
from dmcmc.config.settings import (
    MAX_COUNT,
    AlgorithmSettings,
    Budget,
    Combine,
    Cooling,
    Guarantee,
    Local,
    Settings,
    Stay,
)
from dmcmc.files.document import Document, Key, struct_of, suggestion
from dmcmc.inference.bounds import registry as bounds
from dmcmc.inference.dpop import trees
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.inference.runtime.memo import Memo
from dmcmc.samplers import registry as samplers


def settings_of(document: Document) -> Settings:
    """Build settings from a document and check them, also keys that depend on each other.

    Raises
    ------
    ConfigError
        If a key is unknown or a value is not allowed; the message is one line with the place of the key.
    Unavailable
        If an optional package that the settings need is not installed.
    """
    settings = struct_of(Settings, document.data, document.at)
    check_settings(settings, document)
    return settings


def check_settings(settings: Settings, document: Document) -> None:
    """Raise a ``ConfigError`` if keys that are valid alone do not fit together."""
    _check_algorithm(settings.algorithm_settings, document)
    _check_local(settings.local, document)
    _check_combine(settings.combine, document)
    if settings.start is not None and settings.local_search == "none":
        raise ConfigError(f"{document.at(('start',))}: needs the local search; remove start or local_search: none")
    if settings.start is not None and settings.stay is None and settings.algorithm_settings.name != "dmcmc":
        name = settings.algorithm_settings.name
        raise ConfigError(f"{document.at(('start',))}: the algorithm {name} takes no start; remove one of the two")
    if settings.local_search == "none" and settings.budget.time is not None:
        place = document.at(("local_search",))
        raise ConfigError(f"{place}: none needs a run without a time budget; remove budget.time or local_search")


def _check_algorithm(settings: AlgorithmSettings, document: Document) -> None:
    """Raise an error if the algorithm is unknown or does not take the given parameters."""
    if settings.name == "dmcmc":
        if settings != AlgorithmSettings():
            place = document.at(("algorithm",))
            raise ConfigError(
                f"{place}: the algorithm dmcmc has no cycles, parameters, delay, loss or runtime; remove them"
            )
        return
    try:
        algorithm = algorithms.get(settings.name)
    except DmcmcError as error:
        raise type(error)(f"{document.at(('algorithm',))}: {error}") from error
    checked(algorithm, settings.parameters, document.at(("algorithm", "parameters")))
    if settings.needs_agents:
        Delays(settings.delay, settings.loss, where=document.at(("algorithm", "delay")))
        if not isinstance(algorithm, type):
            raise ConfigError(
                f"{document.at(('algorithm',))}: {settings.name} does not run as agents; remove delay, loss and runtime"
            )


def _check_combine(combine: Combine, document: Document) -> None:
    """Raise a ``ConfigError`` for an unknown tree, or for a key of mini-buckets if the method has none."""
    if combine.tree not in ("auto", "depth-first"):
        try:
            trees.get(combine.tree)
        except DmcmcError as error:
            raise type(error)(f"{document.at(('combine', 'tree'))}: {error}") from error
    for name in ("z", "partition", "moment_matching") if combine.method in ("exact", "sliced") else ():
        if getattr(combine, name) != getattr(Combine(), name):
            place = document.at(("combine", name))
            raise ConfigError(
                f"{place}: applies to mini-buckets only, not to combine.method: {combine.method}; remove it"
            )


def _check_local(local: Local, document: Document) -> None:
    """Raise an error for an unknown sampler or bound provider, or for a guarantee that cannot be met."""
    section = document.data.get("local") or {}
    if local.guarantee is not None:
        if section.get("samples", local.samples) != local.samples:
            place = document.at(("local", "samples"))
            raise ConfigError(f"{place}: is computed from local.guarantee; remove one of the two")
        if local.samples > MAX_COUNT:
            place = document.at(("local", "guarantee"))
            samples = f"{local.guarantee.samples:.3e}"
            raise ConfigError(f"{place}: needs {samples} samples per row, more than 2^31 - 1; raise alpha or epsilon")
    if local.bound not in ("auto", "none"):
        try:
            bounds.get(local.bound)
        except DmcmcError as error:
            raise type(error)(f"{document.at(('local', 'bound'))}: {error}") from error
    if local.method != "auto":
        try:
            samplers.get(local.method)
        except DmcmcError as error:
            raise type(error)(f"{document.at(('local', 'method'))}: {error}") from error


Data = Mapping[str, Any]


class Keywords(TypedDict, total=False):
    """Keyword arguments of :func:`dmcmc.solve` and others, in addition to ``settings`` or in place of it.

    Each keyword is a key of a configuration, explained at the class of its section in
    :mod:`dmcmc.config.settings`; ``timeout`` is the key ``budget.time``. A section (``local``, ``combine``,
    ``budget``) is given as its class, or as a mapping of some of its keys; ``combine`` may also be a method's name.
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
