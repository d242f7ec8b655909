"""What a run returns: an assignment, what it is worth, what is proven about it, and what it took."""

import json
import math
import os
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Literal

import msgspec

from dmcmc.files.write import replace_file
from dmcmc.inference.model.exact_sum import nearest
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number

Status = Literal["optimal", "feasible", "infeasible", "timeout", "unsatisfied"]


class MessageCount(msgspec.Struct, frozen=True):
    """How many messages there were, and bytes in all of them."""

    count: int
    size: int


class AgentMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What one agent did.

    Attributes
    ----------
    method : str
        The local solver, after ``auto`` has been resolved; ``exact`` says whether its table is exact.
    variables, interface : int
        How many the agent owns, and how many of them share a factor with another agent's.
    rows : int
        Interface assignments the agent's table covers.
    cells, updates : int
        Table cells eliminated, and variable updates sampled.
    samples : int
        That every interface assignment has had at least, all runs together; 0 where only a list of them was sampled.
    time : float
        Wall seconds of the local solver.
    msg_count, msg_size : int
        Messages sent in the first cycle, one UTIL and one VALUE an edge of the agents' tree, and their bytes.
    extra_msg_count, extra_msg_size : int
        Likewise in later cycles, which improve the answer: UTIL, VALUE, and what others add to an agent's rows.
    messages : dict
        All that it sent, of each kind: ``UTIL``, ``VALUE``, ``OUTSIDE`` (what others add to an agent's rows),
        ``REQUEST`` (for a slice's message), ``TABLE`` (to its node's core), ``TREE`` (to
        find the agents' tree, where they do).
    z : int or None
        Limit of the mini-buckets that its interface was eliminated with; None if that was exact.
    gap : float or None
        How much of the bound is this agent's: its table from above less that from below, where the bound is attained,
        in units of utility. None without a bound.
    kept : KeptEntries or None
        Where it was eliminated without what cannot beat the incumbent.
    """

    name: str
    method: str
    exact: bool
    variables: int
    interface: int
    rank: int = 0
    rows: int = 0
    cells: int = 0
    updates: int = 0
    samples: int = 0
    time: float = 0.0
    msg_count: int = 0
    msg_size: int = 0
    extra_msg_count: int = 0
    extra_msg_size: int = 0
    messages: Mapping[str, MessageCount] = {}
    z: int | None = None
    gap: float | None = None
    kept: "KeptEntries | None" = None


class KeptEntries(msgspec.Struct, frozen=True):
    """What an elimination's messages have held.

    Attributes
    ----------
    messages, incomplete : int
        All of them, and those that list only what can still win; the others are dense.
    entries, rows : float
        Of all messages made dense, and what was kept of them.
    bytes : int
    """

    messages: int
    incomplete: int
    entries: float
    rows: float
    bytes: int


class Solution(msgspec.Struct, frozen=True):
    """An assignment without violations, better than all before it.

    Attributes
    ----------
    time : float
        Seconds from the start of the run.
    objective : number
    assignment : dict
        Value labels by the names of variables.
    by : str
        What kinds of work brought it.
    """

    time: float
    objective: Number
    assignment: Mapping[str, Label]
    by: str = ""


class TracePoint(msgspec.Struct, frozen=True):
    """The best objective and bound known after ``time`` seconds, and what kinds of work brought it.

    ``parts`` are their parts of how much better the bound is than before, all of them 1 together; nothing where that is
    not known. ``kept`` is what messages hold by then of agents that are eliminated without what cannot beat the
    incumbent, None without any.
    """

    time: float
    objective: Number | None
    bound: Number | None
    by: str = ""
    kept: KeptEntries | None = None
    parts: Mapping[str, float] = {}


class WorkDone(msgspec.Struct, frozen=True):
    """What one kind of work took and brought.

    Attributes
    ----------
    kind : str
        ``search`` (local search over the whole assignment), ``eliminate`` (agents, exactly), ``sample``, ``bound``,
        ``semidefinite`` (lifts of rows' bounds), ``branch`` (search in rows), ``filter``,
        ``combine`` (again, with more), or beside all else ``toulbar2`` and ``gpu search`` (chains of the whole).
    seconds : float
        Summed over agents; of work by all ranks together, as the first one has it.
    objective, bound : float
        How much better the answer and its bound are by it, in the problem's own unit; the first answer and the first
        bound are no gain.
    """

    kind: str
    seconds: float
    objective: float
    bound: float


class Reductions(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken out of the problem before anything else, by what; the answer has it back.

    Attributes
    ----------
    inconsistent, dominated : int
        Values that no assignment has, by arc consistency; values that others are never worse than.
    fixed, merged, eliminated, free : int
        Variables that had one value left, that were copies of others (``reduce: merge``), that were maximised out in
        place, and that no factor is over.
    factors, cells : int
        How many fewer factors there are, and fewer entries in all.
    seconds : float
    """

    inconsistent: int = 0
    dominated: int = 0
    fixed: int = 0
    merged: int = 0
    eliminated: int = 0
    free: int = 0
    factors: int = 0
    cells: int = 0
    seconds: float = 0.0


class GuaranteeReport(msgspec.Struct, frozen=True):
    """Theorem 1 of the DMCMC paper; see :func:`guarantee_report`."""

    alpha: float
    epsilon: float
    samples: int
    probability: float
    note: str = "the paper's claim (Theorem 1) under its assumptions on the samples; not a proof"


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What a command may print and write as JSON."""

    def to_json(self) -> str:
        """Return everything as JSON: numbers are finite or null, integers exact whatever their size."""
        limit = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            return json.dumps(_plain(self), indent=2, allow_nan=False)
        finally:
            sys.set_int_max_str_digits(limit)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON to a file, all of it or nothing; folders are created.

        Raises
        ------
        FileError
            If that is not possible; names the path.
        """
        replace_file(path, [self.to_json(), "\n"])

    @property
    def exit_code(self) -> int:
        """What the command line exits with."""
        return 0


class Result(Output, frozen=True, kw_only=True):
    """The outcome of a run, in the problem's own sense.

    Attributes
    ----------
    status
        ``optimal`` (proven: integers are equal to their bound, floats as near as the rounding of this problem's sums
        lets them be, whatever constants are added), ``feasible`` (no hard constraint broken), ``infeasible`` (proven),
        ``timeout`` (the budget ended), ``unsatisfied`` (hard constraints broken, infeasibility not proven).
    objective
        The assignment on the original factors; None when it breaks a hard constraint, or there is none.
    bound
        Proven: no assignment is better. None when nothing is.
    gap
        :func:`gap_of` the two: relative to the objective, constants included, but at least to 1.
    violation
        Hard constraints that the assignment breaks.
    assignment
        Value labels by variable name; None where there is none, and where agents keep theirs to themselves.
    sense
        ``max`` or ``min``.
    time
        Wall seconds of the solve after start-up.
    simulated_time
        Seconds until the last agent is done if every agent had a machine like its rank's share of this one to itself,
        and messages took no time (Sultanik et al. 2008): an agent waits for those that it hears from, and works as long
        as it did here. Planning is not counted, nor what all others add to an agent's rows in later cycles.
    msg_count, msg_size
        Messages and bytes of the first cycle, by all agents: one UTIL and one VALUE an edge of the agents' tree,
        whether MPI carries it or both agents are on one rank; bytes are those of tables' entries and of indices.
    extra_msg_count, extra_msg_size
        Likewise of later cycles, which a time budget or a small memory brings.
    ncccs
        Non-concurrent constraint checks (Meisels et al. 2002), on clocks as those of ``simulated_time``: cells that
        eliminations join, and values of a variable that draws look at.
    messages
        All agents' messages of each kind, in all cycles.
    control
        What ranks tell each other besides, by what it is for: choices that rank 0 makes (``decided``), whether all is
        well (``agree``), what all have to know (``merged``, ``allgather``), results (``gather``); bytes that leave a
        rank, all ranks together. No agents' messages.
    cycle
        Rounds of a cyclic algorithm.
    note
        What a reader should know besides: why a run ended early. None where there is nothing.
    reductions
        What was taken out of the problem beforehand, by what; None where it was solved as it is.
    work
        What each kind of work took and brought, in the order of their first use.
    max_marginals
        By variable, by label: the best objective of an assignment with that value, None for a value that none can
        have; where the problem was solved exactly and they were asked for, else None.
    agents, trace, guarantee, provenance
        Details.
    """

    status: Status
    objective: Number | None
    bound: Number | None
    gap: float | None
    violation: int | None
    assignment: Mapping[str, Label] | None
    sense: str
    time: float
    simulated_time: float | None = None
    msg_count: int = 0
    msg_size: int = 0
    extra_msg_count: int = 0
    extra_msg_size: int = 0
    ncccs: int = 0
    messages: Mapping[str, MessageCount] = {}
    control: Mapping[str, MessageCount] = {}
    cycle: int | None = None
    note: str | None = None
    reductions: Reductions | None = None
    work: tuple[WorkDone, ...] = ()
    max_marginals: Mapping[str, Mapping[Label, Number | None]] | None = None
    agents: tuple[AgentMetrics, ...] = ()
    trace: tuple[TracePoint, ...] = ()
    guarantee: GuaranteeReport | None = None
    provenance: Mapping[str, Any] = {}

    @property
    def exit_code(self) -> int:
        """What the command line exits with: 0 for an assignment that breaks nothing, 3 if proven infeasible, else 1."""
        if self.status == "infeasible":
            return 3
        return 0 if self.violation == 0 else 1


def gap_of(objective: Number | None, bound: Number | None) -> float | None:
    """Return |bound - objective| / max(1, |objective|); None if either is missing or not finite.

    It is relative to the objective as it is reported, constants included, and to 1 where that is smaller. So it says
    how much is open, but proves nothing: it may round to 0. ``status`` says what is proven.

    >>> gap_of(200, 210), gap_of(0.5, 0.75), gap_of(None, 3)
    (0.05, 0.25, None)
    """
    if objective is None or bound is None or not (_finite(objective) and _finite(bound)):
        return None
    try:
        return float(abs(bound - objective) / max(1, abs(objective)))
    except OverflowError:  # integers beyond all floats
        gap = nearest(abs(Fraction(bound) - Fraction(objective)) / max(Fraction(1), abs(Fraction(objective))))
        return float(gap) if math.isfinite(gap) else None


def guarantee_report(alpha: float, epsilon: float, samples: int, agents: int) -> GuaranteeReport:
    """Return Theorem 1's probability that the solution is in the top ``alpha`` percentile: ∏ (1 - ε_i).

    Parameters
    ----------
    alpha, epsilon
        As configured, the same for all agents.
    samples
        Really drawn a row at least, all runs together; 0 if no agent sampled.
    agents
        How many agents sampled; for those solved exactly ε_i is 0.
    """
    return GuaranteeReport(alpha, epsilon, samples, (1 - epsilon) ** agents)


def _finite(number: Any) -> bool:
    return isinstance(number, int) or math.isfinite(number)


def _plain(value: Any) -> Any:
    """Return structs, mappings, sequences and NumPy values as what JSON has."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, msgspec.Struct):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {str(_plain(k)): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return _plain(value.tolist())
    return str(value)
