"""Read scenarios: events that change a problem, in pyDCOP's format with more actions.

A scenario is a YAML file with a list of ``events``. Each has an ``id``, and either a ``delay`` in seconds or a list of
``actions``. pyDCOP's action is ``remove_agent``; the others are the changes of a session, and ``set_external_variable``
for an external variable of a pyDCOP file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dmcmc.files.document import Document, Key, read_data, show, suggestion
from dmcmc.inference.runtime.errors import FileError

SET_EXTERNAL_VARIABLE = "set_external_variable"

_ACTIONS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "remove_agent": (("agent",), ()),
    "add_agent": (("agent",), ()),
    SET_EXTERNAL_VARIABLE: (("variable", "value"), ()),
    "set_table": (("factor", "table"), ()),
    "add_factor": (("scope", "table"), ("name", "level")),
    "remove_factor": (("factor",), ()),
    "add_variable": (("variable", "domain", "agent"), ()),
    "remove_variable": (("variable",), ()),
    "move_variable": (("variable", "agent"), ()),
    "set_domain": (("variable", "domain"), ()),
}
"""By the type of an action: the keys that it needs, and those that it may have (texts), in the order of arguments."""


@dataclass(frozen=True)
class ScenarioAction:
    """One change of the problem.

    Attributes
    ----------
    kind : str
        Name of the change.
    arguments : tuple
        Its arguments, in the order of the method of that name in :class:`dmcmc.session.changes.Changes`.
    place : str
        The file and the line, for error messages.
    """

    kind: str
    arguments: tuple[Any, ...]
    place: str

    @property
    def text(self) -> str:
        """The change in words, without tables."""
        shown = [str(part) for part in self.arguments if isinstance(part, str | int | float)]
        return " ".join([self.kind.replace("_", " "), *shown])


@dataclass(frozen=True)
class ScenarioEvent:
    """Changes that are made together.

    Attributes
    ----------
    name : str
        Name of the event.
    clock : float
        Seconds on the scenario's clock at which it happens.
    seconds : float
        Seconds until the next event; infinite after the last one.
    actions : tuple of ScenarioAction
        The changes; none at the start.
    """

    name: str
    clock: float
    seconds: float
    actions: tuple[ScenarioAction, ...]


def read_scenario(path: str | Path) -> list[ScenarioEvent]:
    """Read a scenario; its first event is the start, without changes.

    Parameters
    ----------
    path
        The YAML file.

    Returns
    -------
    list of ScenarioEvent
        The events in order. Delays between them are in their clocks.

    Raises
    ------
    FileError
        If the file cannot be read, or an event is not allowed; one line with the file, the line and the key.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from None
    reader = _Reader(read_data(content, str(path)))
    return reader.events()


class _Reader:
    """Reader of a scenario file."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise an error that names the place of a key."""
        raise FileError(f"{self.document.at(key)}: {message}")

    def events(self) -> list[ScenarioEvent]:
        """Return the events."""
        given = self.document.data.get("events")
        if not isinstance(given, list):
            self.fail(("events",), f"expected a list of events, got {show(given)}")
        begun: list[tuple[str, float, tuple[ScenarioAction, ...]]] = [("start", 0.0, ())]
        clock = 0.0
        for number, event in enumerate(given):
            key = ("events", str(number))
            if not isinstance(event, dict) or ("delay" in event) == ("actions" in event):
                self.fail(key, "expected an event with either 'delay' or 'actions'")
            for name in event.keys() - {"id", "delay", "actions"}:
                self.fail(key, f"unknown key {name!r}; {suggestion(str(name), ('id', 'delay', 'actions'))}")
            if "delay" in event:
                clock += self.delay(key, event["delay"])
                continue
            actions = event["actions"]
            if not isinstance(actions, list):
                self.fail(key, f"expected a list of actions, got {show(actions)}")
            begun.append((str(event.get("id", f"event {number}")), clock, tuple(self.action(key, a) for a in actions)))
        ends = [*(at for _, at, _ in begun[1:]), clock if clock > begun[-1][1] else float("inf")]
        pairs = zip(begun, ends, strict=True)
        return [ScenarioEvent(name, at, end - at, actions) for (name, at, actions), end in pairs]

    def delay(self, key: Key, seconds: Any) -> float:
        """Return a delay in seconds."""
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            self.fail(key, f"delay: expected seconds >= 0, got {show(seconds)}")
        return float(seconds)

    def action(self, key: Key, action: Any) -> ScenarioAction:
        """Return one action."""
        if not isinstance(action, dict) or action.get("type") not in _ACTIONS:
            kind = action.get("type") if isinstance(action, dict) else action
            self.fail(key, f"unknown action {show(kind)}; {suggestion(str(kind), _ACTIONS, 'actions')}")
        kind = str(action["type"])
        needed, optional = _ACTIONS[kind]
        for name in needed:
            if name not in action:
                self.fail(key, f"{kind}: '{name}' is missing")
        for name in action.keys() - {"type", *needed, *optional}:
            self.fail(key, f"{kind}: unknown key {name!r}; {suggestion(str(name), (*needed, *optional))}")
        for name in ("agent", "variable", "factor", "name", "level"):
            if isinstance(action.get(name), bool | None) and name in action:
                self.fail(key, f"{kind}: {name}: expected a name, got {show(action[name])}; quote names such as 'no'")
        given = [*(action[name] for name in needed), *(action.get(name, "") for name in optional)]
        return ScenarioAction(kind, tuple(given), self.document.at(key))
