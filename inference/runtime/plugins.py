"""Plug-ins by name: a group's own, and those that other distributions register under its entry-point group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from dmcmc.inference.runtime.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """One kind of plug-in; each has a ``summary``.

    Attributes
    ----------
    group : str
        The entry-point group.
    what : str
        What one of them is, for errors.
    ours : dict
        Those of this distribution; no other can take their names.
    accept : callable
        Turns what an entry point loads into a plug-in; None if it is none.
    expected : str
        What an entry point should load, for errors.
    also : sequence of str
        Names that are known besides, for errors.
    """

    group: str
    what: str
    ours: Mapping[str, T]
    accept: Callable[[object], T | None]
    expected: str
    also: Sequence[str] = ()

    def names(self) -> dict[str, str]:
        """Return every known name with its line of help; a plug-in that cannot be loaded says why."""
        lines = {name: _summary(plugin) for name, plugin in self.ours.items()}
        for name, entry in self._entries().items():
            try:
                lines[name] = _summary(self._load(entry))
            except ConfigError as error:
                lines[name] = f"cannot be loaded: {error}"
        return lines

    def get(self, name: str) -> T:
        """Return a plug-in.

        Raises
        ------
        ConfigError
            If there is none of this name, which lists the known ones, or it cannot be loaded.
        """
        if name in self.ours:
            return self.ours[name]
        entries = self._entries()
        if name in entries:
            return self._load(entries[name])
        known = [*self.ours, *entries]
        close = get_close_matches(name, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ConfigError(f"unknown {self.what} {name!r}{hint} (known: {', '.join([*self.also, *known])})")

    def _entries(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self.ours}

    def _load(self, entry: EntryPoint) -> T:
        try:
            loaded = entry.load()
        except Exception as error:  # whatever a foreign module raises on import
            raise ConfigError(f"plug-in {entry.name!r} ({entry.value}): {type(error).__name__}: {error}") from error
        plugin = self.accept(loaded)
        if plugin is None:
            raise ConfigError(f"plug-in {entry.name!r} ({entry.value}) {self.expected}")
        return plugin


def _summary(plugin: object) -> str:
    return str(getattr(plugin, "summary", ""))
