"""Plain data of a configuration with the place of every key, so that errors can name the file and the line.

A key is the path to a value: ``("local", "runs")`` is the key ``runs`` of the section ``local``.
"""

from dataclasses import dataclass, field
from typing import Any

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


def show(value: Any) -> str:
    """Return a value for an error message: on one line, shortened, with the YAML words for None and booleans."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of thousands of digits
        text = "a very long number"
    return text if len(text) <= 60 else f"{text[:57]}..."
