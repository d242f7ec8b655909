"""Former names of configuration keys, keywords and classes: the one table, and the warning for a former name.

Names were changed in version 0.2.0 from words of this project to the field's terms. The former names are accepted in
this release. Former names of fields and improvers in results are in :mod:`dmcmc.results.legacy_names`.
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from dmcmc.config.document import Document, Key
from dmcmc.inference.runtime.errors import ConfigError

RENAMED_KEYS: Mapping[Key, Key] = {
    ("polish",): ("local_search",),
    ("reduce",): ("presolve",),
    ("problem", "reduce"): ("problem", "presolve"),
}
"""Former configuration keys, as tuples of names, and the present ones; a key keeps its section."""

RENAMED_SETTINGS = {old[0]: new[0] for old, new in RENAMED_KEYS.items() if len(old) == 1}
"""Former keywords and attributes of :class:`~dmcmc.config.settings.Settings`, and the present ones."""

RENAMED_CLASSES = {"Algorithm": "AlgorithmSettings"}
"""Former names of classes in :mod:`dmcmc.config.settings`, and the present ones."""


class RenamedWarning(DeprecationWarning):
    """Report that a former name was used; the command line prints it as one line."""


def warn_renamed(where: str, new: str) -> None:
    """Warn that a former name was used, at the line of the caller outside dmcmc.

    Parameters
    ----------
    where : str
        The former name, with its file and line where there is one: ``"run.yaml:7: polish"``.
    new : str
        The present name.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "dmcmc":
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{where}: is now called '{new}'; the old name will be removed", RenamedWarning, stacklevel=level)


def current_key(key: Key, where: str) -> Key:
    """Return the present name of a configuration key; warn if ``key`` is a former one.

    Parameters
    ----------
    key : tuple of str
        The sections and the name: ``("problem", "reduce")``.
    where : str
        How the warning names the key: ``"--set problem.reduce"``.
    """
    if key not in RENAMED_KEYS:
        return key
    warn_renamed(where, ".".join(RENAMED_KEYS[key]))
    return RENAMED_KEYS[key]


def rename_keys(document: Document) -> None:
    """Replace the former keys of a configuration by the present ones, in place, with one warning for each.

    Raises
    ------
    ConfigError
        If both the former and the present name are given.
    """
    for old, new in RENAMED_KEYS.items():
        section: Any = document.data
        for name in old[:-1]:
            section = section.get(name) if isinstance(section, dict) else None
        if not isinstance(section, dict) or old[-1] not in section:
            continue
        if new[-1] in section:
            raise ConfigError(f"{document.at(old)}: is the old name of '{'.'.join(new)}', which is given, too")
        warn_renamed(document.at(old), ".".join(new))
        section[new[-1]] = section.pop(old[-1])
        for places in (document.places, document.given):
            if old in places:
                places[new] = places.pop(old)


def current_keywords(keywords: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return keyword arguments by their present names, with one warning for each former one.

    Raises
    ------
    ConfigError
        If both the former and the present name are given.
    """
    renamed = dict(keywords)
    for old, new in RENAMED_SETTINGS.items():
        if old in renamed:
            if new in renamed:
                raise ConfigError(f"{old}: is the old name of '{new}', which is given, too")
            warn_renamed(old, new)
            renamed[new] = renamed.pop(old)
    return renamed


_DOTTED = {".".join(old): ".".join(new) for old, new in RENAMED_KEYS.items()}


def former_names(data: Any) -> dict[str, str]:
    """Return the former keys in nested plain data, in sections or as dotted names, each with its present name.

    >>> former_names([{"base": {"polish": "none"}}, {"problem.reduce": "auto"}])
    {'polish': 'local_search', 'problem.reduce': 'problem.presolve'}
    """
    parts = data if isinstance(data, list) else data.values() if isinstance(data, Mapping) else ()
    former = {name: _DOTTED[name] for name in data if name in _DOTTED} if isinstance(data, Mapping) else {}
    for part in parts:
        former |= former_names(part)
    return former


def current_dotted(data: Any) -> Any:
    """Return plain data with the former keys replaced, in nested sections and in dotted names; without warnings.

    Experiments use it for what an earlier version wrote.

    >>> current_dotted({"base": {"polish": "none"}, "grid": {"problem.reduce": ["auto"]}})
    {'base': {'local_search': 'none'}, 'grid': {'problem.presolve': ['auto']}}
    """
    if isinstance(data, list):
        return [current_dotted(part) for part in data]
    if not isinstance(data, Mapping):
        return data
    return {_DOTTED.get(name, name): current_dotted(part) for name, part in data.items()}


def renamed_attribute(old: str, new: str) -> Any:
    """Return a property that reads the attribute ``new`` and warns that ``old`` is its former name."""

    def read(self: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", new)
        return getattr(self, new)

    return property(read, doc=f"Former name of ``{new}``.")
