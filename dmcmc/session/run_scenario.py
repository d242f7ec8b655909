"""Go through the events of a scenario: change the problem, solve it again, and report what moved."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmcmc.files.text import open_source
from dmcmc.formats import pydcop
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.results.questions import EventResult, ScenarioResult
from dmcmc.results.result import Result
from dmcmc.samplers.tuning import common
from dmcmc.session.changes import Changes
from dmcmc.session.scenario import SET_EXTERNAL_VARIABLE, ScenarioAction, ScenarioEvent

if TYPE_CHECKING:
    from dmcmc.session.session import Session

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
        result = session.solve(None if budget is None else min(budget, max(event.seconds, common.CHECK_SECONDS / 2)))
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
