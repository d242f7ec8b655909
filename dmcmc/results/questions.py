"""The results of questions other than one solve.

They are conflicts (constraints that cannot hold together, and what relaxing one of them brings), explanations of belief
networks with the objective as a probability, one number for each value of each variable (``mar``, ``max-marginals``) or
about all assignments (``pr``, ``count``), and the events of a scenario, with one line of JSON for each.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from dmcmc.files.write import read_own, replace_file
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import FORMAT_VERSION, Output, Result


class RelaxedConstraint(msgspec.Struct, frozen=True, kw_only=True):
    """The objective of a problem in which one constraint of a conflict forbids nothing.

    Attributes
    ----------
    constraint : str
        The name of the constraint.
    objective : int, float or None
        The best objective that was found without it; None if nothing was found.
    status : str
        ``status`` of that run: with ``infeasible`` other constraints are in conflict, too.
    """

    constraint: str
    objective: Number | None
    status: str


class ConstraintConflict(Output, frozen=True, kw_only=True):
    """Hard constraints that cannot hold together.

    Attributes
    ----------
    status : str
        ``infeasible``: the constraints are a conflict, proven. ``feasible``: an assignment breaks no hard constraint.
        ``unknown``: neither was found out in time.
    constraints : tuple of str
        The names of the constraints; empty if there is no known conflict.
    minimal : bool
        Whether the constraints without any one of them can hold together; False also if a test took too long.
    relaxations : tuple of RelaxedConstraint
        For each constraint what relaxing it alone brings.
    time : float
        Wall-clock seconds.
    provenance : dict
        Configuration, versions and hardware of the run.
    """

    status: Literal["infeasible", "feasible", "unknown"]
    constraints: tuple[str, ...] = ()
    minimal: bool = False
    relaxations: tuple[RelaxedConstraint, ...] = ()
    time: float
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 3 if proven infeasible, 1 if unknown, otherwise 0."""
        return {"infeasible": 3, "unknown": 1}.get(self.status, 0)


class Explanation(Result, frozen=True, kw_only=True):
    """The most probable explanation of a belief network: a result with the product of probabilities.

    Attributes
    ----------
    value : float or None
        The product of the numbers in the file, e^objective; None if it is outside the range of floats.
    log10 : float or None
        Its decimal logarithm.
    """

    value: float | None
    log10: float | None


def as_explanation(result: Result) -> Explanation:
    """Return a result with the product of the numbers in the file; its objective is the natural logarithm of that."""
    ln = result.objective
    return Explanation(
        **msgspec.structs.asdict(result),
        value=None if ln is None else exp_or_none(ln),
        log10=None if ln is None else ln / math.log(10),
    )


def exp_or_none(ln: float) -> float | None:
    """Return e^ln; None if it overflows a float64, or underflows to 0.

    >>> exp_or_none(0.0), exp_or_none(1000.0), exp_or_none(-1000.0)
    (1.0, None, None)
    """
    if abs(ln) > 700:  # e^709.8 is the largest float64, e^-708.4 the smallest with full precision
        return None
    return math.exp(ln)


class ValueInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the best objective of an assignment with a value.

    Attributes
    ----------
    objective : int, float or None
        The best objective that was found with this value; None if no assignment was found.
    bound : int, float or None
        Proven: no assignment with this value is better. None without a bound, and for an impossible value.
    proven : bool
        Whether ``objective`` is the best one, or, if it is None, no allowed assignment has this value.
    """

    objective: Number | None
    bound: Number | None
    proven: bool


class Marginals(Output, frozen=True, kw_only=True):
    """Marginals or max-marginals of all variables.

    Attributes
    ----------
    task : str
        ``mar``: probabilities, proportional to Σ exp(utility) over all assignments with the value. ``max-marginals``:
        the best objective of an assignment with the value.
    status : str
        ``exact``; ``bounded`` if the time limit allowed only ``intervals`` (``max-marginals``); or ``infeasible`` if
        every assignment breaks a hard constraint.
    marginals : dict
        The number of each value, by variable name and label. With ``max-marginals``, None for a value that no allowed
        assignment has. Empty if infeasible or bounded.
    intervals : dict
        Bounds on the max-marginal of each value, by variable name and label, if ``status`` is ``bounded``.
    ln, log10 : float or None
        ln Z and its decimal logarithm (``mar``); None if infeasible.
    objective : int, float or None
        The best objective of all assignments (``max-marginals``), or of those found if bounded; None if infeasible.
    time, planning : float
        Wall-clock seconds after start-up, and the part of them for building the junction tree.
    variables, cliques, width, cells : int
        Number of variables and cliques, induced width, and entries of all cliques.
    tables : str
        ``dense``, or ``sparse`` if only allowed entries are stored; then ``cells`` counts these.
    provenance : dict
        Configuration, versions and hardware of the run.
    """

    task: Literal["mar", "max-marginals"]
    status: Literal["exact", "bounded", "infeasible"]
    marginals: Mapping[str, Mapping[Label, Number | None]]
    intervals: Mapping[str, Mapping[Label, ValueInterval]] = {}
    ln: float | None = None
    log10: float | None = None
    objective: Number | None = None
    time: float
    planning: float
    variables: int
    cliques: int
    width: int
    cells: int
    tables: Literal["dense", "sparse"] = "dense"
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def only(self, variables: Iterable[str]) -> "Marginals":
        """Return the numbers of some variables, in the given order."""
        names = tuple(variables)
        return replace(
            self,
            marginals={name: self.marginals[name] for name in names if self.marginals},
            intervals={name: self.intervals[name] for name in names if self.intervals},
        )

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 3 if proven infeasible, otherwise 0."""
        return 3 if self.status == "infeasible" else 0


class Sums(Output, frozen=True, kw_only=True):
    """A partition function, or the number of solutions.

    Attributes
    ----------
    task : str
        ``pr``: Z = Σ exp(utility) over all assignments. ``count``: the number of assignments that break no hard
        constraint.
    status : str
        ``exact``; ``bound``: the number is an upper bound; ``infeasible``: it is 0, since every assignment breaks a
        hard constraint.
    value : int, float or None
        The number: an exact integer, or a float; None if it is outside the range of floats.
    ln, log10 : float or None
        Its natural and decimal logarithm; None if it is 0.
    time : float
        Wall-clock seconds after start-up.
    variables, width, cells : int
        Number of variables, induced width and table cells of the elimination.
    z : int or None
        Largest number of variables of a mini-bucket's message, if the number is a bound.
    provenance : dict
        Configuration, versions and hardware of the run.
    """

    task: Literal["pr", "count"]
    status: Literal["exact", "bound", "infeasible"]
    value: Number | None
    ln: float | None
    log10: float | None
    time: float
    variables: int
    width: int
    cells: int
    z: int | None = None
    provenance: Mapping[str, Any] = msgspec.field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 3 if proven infeasible, otherwise 0."""
        return 3 if self.status == "infeasible" else 0


_HEAD_BYTES = 100  # bytes of a file that have the field ``kind``

KIND = "scenario event"
"""The field ``kind`` of each line."""


class EventResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer after one event of a scenario.

    Attributes
    ----------
    event : str
        Name of the event; ``start`` before the first one.
    actions : tuple of str
        The changes that the event made.
    clock : float
        Seconds on the scenario's clock: the sum of the delays so far.
    status : str
        As in :class:`~dmcmc.results.result.Result`.
    sense : str
        ``max`` or ``min``.
    objective, bound : int, float or None
        The best objective, and a proven bound; with ``stay`` they include the cost of moving.
    gap : float or None
        Their relative gap.
    reaction : float or None
        Seconds from the event to the first answer without broken constraints; None without one.
    time : float
        Seconds from the event to the last answer.
    moved : int
        Number of variables that existed before the event and have another value now.
    moving_cost : int, float or None
        With ``stay``: the cost of moving.
    changed : dict of str to label
        The value of each variable that moved or is new, by its name. The values of all lines together are the answer.
    removed : tuple of str
        The variables that no longer exist.
    tables_reused, messages_reused : int
        Agents whose tables, and whose UTIL messages, were kept.
    msg_count, msg_size : int
        Messages between agents, and their bytes.
    """

    event: str
    actions: tuple[str, ...]
    clock: float
    status: str
    sense: str
    objective: Number | None
    bound: Number | None
    gap: float | None
    reaction: float | None
    time: float
    moved: int
    moving_cost: Number | None
    changed: Mapping[str, Label]
    removed: tuple[str, ...] = ()
    tables_reused: int = 0
    messages_reused: int = 0
    msg_count: int = 0
    msg_size: int = 0

    def to_line(self) -> str:
        """Return the result as one line of JSON."""
        return json.dumps({"format_version": FORMAT_VERSION, "kind": KIND, **msgspec.to_builtins(self)}) + "\n"


class ScenarioResult(Output, frozen=True, kw_only=True):
    """The results of all events of a scenario so far.

    Attributes
    ----------
    events : tuple of EventResult
        One result for the problem as given, and one for each event.
    """

    events: tuple[EventResult, ...]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write one line of JSON for each event.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        FileError
            If the file cannot be written.
        """
        replace_file(path, [event.to_line() for event in self.events])

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 if no answer breaks a hard constraint, otherwise 1."""
        return 0 if all(event.objective is not None for event in self.events) else 1


def has_events(path: Path) -> bool:
    """Return whether a file has the results of events, by its first characters."""
    with suppress(OSError), open(path, "rb") as stream:
        return KIND.encode() in stream.read(_HEAD_BYTES)
    return False


def read_events(path: Path) -> Sequence[EventResult]:
    """Read the lines of a scenario's results.

    Raises
    ------
    FileError
        If the file cannot be read, or a line is no result of an event; one line with the place.
    """
    return read_own(path, "a file of results of events", _events_in)


def _events_in(content: bytes) -> Sequence[EventResult]:
    """Return the results of events in lines of JSON; raise a ``ValueError`` if there are none."""
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        try:
            found.append(msgspec.json.decode(line, type=EventResult))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if not found:
        raise ValueError("it has no lines")
    return found
