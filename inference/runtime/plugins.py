"""Named plug-ins: built-in ones, and those that other distributions register under an entry-point group."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from dmcmc.inference.runtime.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Plugins(Generic[T]):
    """A registry of plug-ins of one type; each plug-in has a ``summary``.

    Attributes
    ----------
    group : str
        The entry-point group.
    noun : str
        The word for a plug-in in error messages.
    built_in : dict from str to plug-in
        The plug-ins of this distribution by name; others cannot replace them.
    accept : callable
        Converts the loaded object of an entry point to a plug-in; returns None if the object is unsuitable.
    expected : str
        The fault of an unsuitable object, as the end of the error message after the plug-in's name.
    other_names : sequence of str
        Further valid names, for error messages.
    added : dict from str to plug-in
        The plug-ins that this process has added.
    """

    group: str
    noun: str
    built_in: Mapping[str, T]
    accept: Callable[[object], T | None]
    expected: str
    other_names: Sequence[str] = ()
    added: dict[str, T] = field(default_factory=dict)

    def names(self) -> dict[str, str]:
        """Return the summary of every plug-in by name; for a plug-in that cannot be loaded, the reason."""
        lines = {name: _summary(plugin) for name, plugin in {**self.built_in, **self.added}.items()}
        for name, entry in self._entries().items():
            try:
                lines[name] = _summary(self._load(entry))
            except ConfigError as error:
                lines[name] = f"cannot be loaded: {error}"
        return lines

    def get(self, name: str) -> T:
        """Return the plug-in with this name.

        Raises
        ------
        ConfigError
            If the name is unknown (the message lists the valid names) or the plug-in cannot be loaded.
        """
        here = {**self.built_in, **self.added}
        if name in here:
            return here[name]
        entries = self._entries()
        if name in entries:
            return self._load(entries[name])
        known = [*here, *entries]
        similar = get_close_matches(name, known, 1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        raise ConfigError(f"unknown {self.noun} {name!r}{hint} (known: {', '.join([*self.other_names, *known])})")

    def _entries(self) -> dict[str, EntryPoint]:
        """Return the entry points of the group by name, without those that have the name of a built-in plug-in."""
        return {entry.name: entry for entry in entry_points(group=self.group) if entry.name not in self.built_in}

    def _load(self, entry: EntryPoint) -> T:
        """Load the plug-in of an entry point; raise ConfigError if this fails."""
        try:
            loaded = entry.load()
        except Exception as error:  # the import of foreign code may raise anything
            raise ConfigError(f"plug-in {entry.name!r} ({entry.value}): {type(error).__name__}: {error}") from error
        plugin = self.accept(loaded)
        if plugin is None:
            raise ConfigError(f"plug-in {entry.name!r} ({entry.value}) {self.expected}")
        return plugin


def _summary(plugin: object) -> str:
    """Return the one-line description of a plug-in."""
    return str(getattr(plugin, "summary", ""))
