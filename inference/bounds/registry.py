"""Providers of bounds by name: ours, and those that other distributions register under ``dmcmc.bounds``."""

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from dmcmc.inference.bounds import dual, mini_bucket
from dmcmc.inference.bounds.protocol import BoundProvider
from dmcmc.inference.errors import ConfigError

GROUP = "dmcmc.bounds"

_OURS: dict[str, BoundProvider] = {p.name: p for p in (dual.DUAL, dual.TRIANGLES, mini_bucket.PROVIDER)}


def names() -> dict[str, str]:
    """Return every known name with its line of help; a plug-in that cannot be loaded says why."""
    lines = {name: provider.summary for name, provider in _OURS.items()}
    for name, entry in _entries().items():
        try:
            lines[name] = _load(entry).summary
        except ConfigError as error:
            lines[name] = f"cannot be loaded: {error}"
    return lines


def get(name: str) -> BoundProvider:
    """Return a provider of bounds.

    Raises
    ------
    ConfigError
        If there is none of this name; lists the known ones.
    """
    if name in _OURS:
        return _OURS[name]
    entries = _entries()
    if name in entries:
        return _load(entries[name])
    known = [*_OURS, *entries]
    close = get_close_matches(name, known, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ConfigError(f"unknown provider of bounds {name!r}{hint} (known: {', '.join(known)})")


def _entries() -> dict[str, EntryPoint]:
    """Return the registered plug-ins; a name of ours is not replaced."""
    return {entry.name: entry for entry in entry_points(group=GROUP) if entry.name not in _OURS}


def _load(entry: EntryPoint) -> BoundProvider:
    """Import a plug-in: anything with name, summary and start."""
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a foreign module raises on import
        raise ConfigError(f"plug-in {entry.name!r} ({entry.value}): {type(error).__name__}: {error}") from error
    if all(hasattr(loaded, part) for part in ("name", "summary", "start")):
        provider: BoundProvider = loaded
        return provider
    raise ConfigError(f"plug-in {entry.name!r} ({entry.value}) is no BoundProvider")
