"""Scenarios: events that change a problem, in pyDCOP's format with more actions, read and carried out in one session.

A scenario is a YAML file with a list of ``events``. Each has an ``id``, and either a ``delay`` in seconds or a list of
``actions``. pyDCOP's action is ``remove_agent``; the others are the changes of a session, and ``set_external_variable``
for an external variable of a pyDCOP file. After each event the problem is solved again, and what moved is reported.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dmcmc.files.document import Document, Key, read_data, show, suggestion
from dmcmc.files.text import open_source
from dmcmc.files.write import read_own
from dmcmc.formats import pydcop
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError
from dmcmc.results.questions import EventResult, ScenarioResult
from dmcmc.results.result import Result
from dmcmc.samplers.contract import tuning
from dmcmc.session.changes import Changes

if TYPE_CHECKING:
    from dmcmc.session.session import Session


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
    reader = _Reader(read_data(read_own(path, "", bytes), str(path)))
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


ExternalTables = Callable[[Mapping[str, Any]], Problem]  # reads a pyDCOP file with other values of external variables


def run_scenario(
    session: "Session",
    events: Sequence[ScenarioEvent],
    budget: float | None = None,
    *,
    external: ExternalTables | None = None,
    on_event: Callable[[EventResult], object] = lambda _: None,
) -> ScenarioResult:
    """Solve the problem of a session, and again after each event of a scenario; called by all ranks.

    The clock of the scenario is simulated: nothing waits. With a time budget, a run has at most the time until the next
    event.

    Parameters
    ----------
    session
        The session with the problem at the start. With ``stay``, moving a variable away from the answer before an
        event costs.
    events
        The events, of which the first one is the start (:func:`dmcmc.session.scenario.read_scenario`).
    budget
        Time budget of the session in seconds; None without one.
    external
        Returns the problem of the file with some values of external variables; None if there are none.
    on_event
        Called with each result as soon as it is known.

    Returns
    -------
    ScenarioResult
        The results of all events, on every rank.

    Raises
    ------
    DmcmcError
        If an event changes something that does not exist; the message begins with its place. Otherwise as for
        :func:`dmcmc.solve`.
    """
    values, before, results = dict[str, Any](), dict[str, Label](), list[EventResult]()
    for event in events:
        with session.changes() as changes:
            for action in event.actions:
                _change(changes, action, session.problem, values, external)
        result = session.solve(None if budget is None else min(budget, max(event.seconds, tuning.CHECK_SECONDS / 2)))
        found = _event_result(event, result, session, before)
        if result.assignment is not None:
            before = dict(result.assignment)
        results.append(found)
        on_event(found)
    return ScenarioResult(events=tuple(results))


def _change(
    changes: Changes,
    action: ScenarioAction,
    problem: Problem,
    values: dict[str, Any],
    external: ExternalTables | None,
) -> None:
    """Make one change; ``values`` has the external variables that were set so far."""
    try:
        if action.kind != SET_EXTERNAL_VARIABLE:
            getattr(changes, action.kind)(*action.arguments)
            return
        if external is None:
            raise ConfigError("only pyDCOP files have external variables")
        old = external(values)
        values[str(action.arguments[0])] = action.arguments[1]
        known = {factor.name for factor in problem.factors}
        tables = {factor.name: factor for factor in old.factors}
        for factor in external(values).factors:
            if factor != tables[factor.name] and factor.name in known:
                changes.set_table(factor.name, factor)
    except TypeError as error:
        raise ConfigError(f"{action.place}: {action.kind}: {' '.join(str(error).split())}") from None
    except DmcmcError as error:
        raise type(error)(f"{action.place}: {error}") from None


def _event_result(event: ScenarioEvent, result: Result, session: "Session", before: Mapping[str, Label]) -> EventResult:
    """Return the result of an event, compared with the answer before it."""
    after = dict(result.assignment or {})
    points = [point.time for point in result.trace if point.objective is not None]
    reaction = None if result.objective is None else min([*points, result.time])
    reused = session.reused
    assert reused is not None
    return EventResult(
        event=event.name,
        actions=tuple(action.text for action in event.actions),
        clock=event.clock,
        status=result.status,
        sense=result.sense,
        objective=result.objective,
        bound=result.bound,
        gap=result.gap,
        reaction=reaction,
        time=result.time,
        moved=sum(name in before and before[name] != value for name, value in after.items()),
        moving_cost=None if result.moves is None else result.moves.cost,
        changed={name: value for name, value in after.items() if name not in before or before[name] != value},
        removed=tuple(sorted(before.keys() - set(session.problem.variables))),
        tables_reused=reused.tables,
        messages_reused=reused.messages,
        msg_count=result.msg_count,
        msg_size=result.msg_size,
    )


def external_tables(path: str, distribution: str | None) -> ExternalTables:
    """Return a function that reads a pyDCOP file with given values of its external variables.

    Parameters
    ----------
    path
        The file.
    distribution
        The file with the variables that each agent hosts; None for the one next to it.
    """

    def read(values: Mapping[str, Any]) -> Problem:
        source = open_source(path, native=False)
        assert source is not None  # it was read before
        return pydcop.read(source, None if distribution is None else Path(distribution), values)

    return read
