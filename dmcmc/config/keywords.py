"""Settings from keywords: every key of a configuration by its own name, or a section as a whole."""

import os
from collections.abc import Mapping
from types import NoneType
from typing import Any, TypedDict

import msgspec
import numpy as np

from dmcmc.config.document import Document, Key
from dmcmc.config.settings import Algorithm, Budget, Combine, Cooling, Guarantee, Local, Settings, settings_of
from dmcmc.config.validate import suggestion
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.memo import Memo

Data = Mapping[str, Any]


class Keywords(TypedDict, total=False):
    """What :func:`dmcmc.solve` and others take beside :class:`~dmcmc.config.settings.Settings`, and instead of it.

    ``timeout`` is ``budget.time``. A section (``local``, ``combine``, ``budget``) is given as its struct, or as a
    mapping of some of its keys; ``combine`` also as its method alone.
    """

    algorithm: str | Algorithm | Data
    local: Local | Data
    method: str
    runs: int
    samples: int
    temperature: float | str | Cooling | Data
    guarantee: Guarantee | Data | None
    cells: int | str
    rows: int | str
    order: str | None
    bound: str
    combine: Combine | Data | str
    z: int | str
    partition: str
    tree: str
    mode: str
    moment_matching: bool
    budget: Budget | Data
    timeout: float | None
    time: float | None
    memory: int | str
    gap: float
    search: str
    polish: str
    device: str
    seed: int
    reduce: str
    output: str | os.PathLike[str] | None
    checkpoint: str | os.PathLike[str] | None


_SIMPLE = (str, int, float, bool, NoneType)
_READ = Memo[Settings](64)  # by simple keywords: to check them takes longer than some stages of a small problem
_SECTIONS = {"local": Local, "combine": Combine, "budget": Budget}
_PLAIN = ("algorithm", "search", "polish", "device", "seed", "reduce", "output", "checkpoint")
_KEYS: dict[str, Key] = {name: (name,) for name in _PLAIN}
_KEYS["timeout"] = ("budget", "time")
for _section, _kind in _SECTIONS.items():
    for _name in _kind.__struct_fields__:
        _KEYS.setdefault(_name, (_section, _name))  # of the two methods, local's


def settings_from(settings: Settings | None, keywords: Mapping[str, Any]) -> Settings:
    """Return settings with what keywords change in them.

    Parameters
    ----------
    settings
        None for the defaults.
    keywords
        Those of :class:`Keywords`.

    Raises
    ------
    ConfigError
        For an unknown keyword, or a value that is not allowed; names the key.

    Examples
    --------
    >>> settings_from(None, {"runs": 3, "timeout": 20, "combine": {"z": 4}}).budget.time
    20.0
    """
    if settings is not None or not all(type(value) in _SIMPLE for value in keywords.values()):
        return _settings_from(settings, keywords)
    key = tuple([(name, type(value), value) for name, value in keywords.items()])
    return _READ.get(key, lambda: _settings_from(None, keywords))


def _settings_from(settings: Settings | None, keywords: Mapping[str, Any]) -> Settings:
    names = () if settings is None else Settings.__struct_fields__  # those of a configuration, without its problem
    document = Document("", {name: _plain(getattr(settings, name)) for name in names})
    if settings is not None and settings.local.guarantee is not None and "samples" not in keywords:
        del document.data["local"]["samples"]  # what the guarantee has made of them
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
            document.override(_KEYS[name], _plain(value), name)
        elif name not in _SECTIONS:
            raise ConfigError(f"unknown keyword '{name}'; {suggestion(name, (*_KEYS, *_SECTIONS), 'keywords')}")
    return settings_of(document)


def _plain(value: Any) -> Any:
    """Return structs as mappings, NumPy's numbers as Python's, paths as text."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
