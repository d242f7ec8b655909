"""The result of a run: assignment, objective, bound, measurements of agents and messages, and the trace.

A result may have alternatives, and the cost of moving away from the assignment from which the run starts. The names of
improvers and search engines are those that results, traces and summaries show.
"""

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec

from dmcmc.files.write import replace_file
from dmcmc.inference.model.problem import SENSES, Label, html_table, one_line
from dmcmc.inference.runtime.types import Number


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """The part of an objective that is the cost of moving, in a run with ``stay``.

    Attributes
    ----------
    objective : int, float or None
        The value of the assignment on the problem's own factors, without the cost of moving; None if it breaks a hard
        constraint. The objective of the result is this number minus ``cost``, or plus ``cost`` if it is minimised.
    cost : int or float
        The sum of the weights of the variables that moved.
    count : int
        Number of variables that moved: their value differs from that of the start.
    moved : dict of str to label
        The value in the start of each variable that moved, by its name. Empty if the agents do not disclose their
        assignments.
    """

    objective: Number | None
    cost: Number
    count: int
    moved: Mapping[str, Label] = {}


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment that breaks no hard constraint, and the proof of its rank.

    Attributes
    ----------
    objective : int or float
        The value of the assignment on the original factors.
    bound : int, float or None
        Proven: no assignment that differs enough from all earlier alternatives is better. None without a proven bound.
    proven : bool
        Whether no such assignment is better than this one. If all earlier alternatives are proven as well and one
        changed variable is enough, this is the assignment of that rank.
    changed : int
        Number of variables whose value differs from that in the first alternative.
    assignment : dict
        The label of the value of each variable, by variable name.
    """

    objective: Number
    bound: Number | None
    proven: bool
    changed: int
    assignment: Mapping[str, Label]


Status = Literal["optimal", "feasible", "infeasible", "timeout", "unsatisfied"]

FORMAT_VERSION = 2
"""Version of the JSON text of results; its first field."""


_MAX_SHOWN_VARIABLES = 50  # variables of an assignment that a notebook shows
_MAX_SHOWN_BITS = 256  # bits of an integer that is shown with all its digits (77)


class MessageCount(msgspec.Struct, frozen=True):
    """The number of messages of one kind, and their total size.

    Attributes
    ----------
    count : int
        Number of messages.
    size : int
        Bytes of all of them together.
    """

    count: int
    size: int


class ChainReport(msgspec.Struct, frozen=True):
    """How well the Markov chains of an agent mix, from some chains that were run again and recorded.

    Attributes
    ----------
    chains, samples : int
        Number of recorded chains, and trials of each.
    distinct_states : float
        Mean number of distinct states that a chain visits.
    autocorrelation_time : float
        Mean integrated autocorrelation time of the utility, in trials.
    effective_samples : float
        Mean effective sample size of a row, all runs together: trials over the autocorrelation time, and at most the
        number of distinct states.
    frozen : float
        Share of the chains that stay at one state in their second half.
    """

    chains: int
    samples: int
    distinct_states: float
    autocorrelation_time: float
    effective_samples: float
    frozen: float


class AgentMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one agent.

    An agent's table has one row per *boundary assignment*: one combination of values of the variables that share a
    factor with another agent's variables (the agent's interface).

    Attributes
    ----------
    name : str
        The agent's name.
    method : str
        The method that its table was computed with, after ``auto`` was resolved.
    exact : bool
        Whether its table is exact.
    variables, interface : int
        Number of its variables, and of those that share a factor with another agent's variables.
    rank : int
        The MPI rank that it ran on.
    rows : int
        Number of boundary assignments that its table covers.
    cells, updates : int
        Table cells that its eliminations join, and variable updates of its Markov chains.
    samples : int
        Least number of samples that any boundary assignment has had, all runs together; 0 if only some boundary
        assignments were sampled.
    chains : ChainReport or None
        How well its Markov chains mix; None unless ``local.diagnose`` or ``local.guarantee`` is set and the chains
        have one constant temperature.
    time : float
        Wall-clock seconds of the local method.
    msg_count, msg_size : int
        Messages that it sent in the first cycle, and their bytes: one UTIL and one VALUE message per edge of the
        pseudo-tree.
    extra_msg_count, extra_msg_size : int
        The same for later cycles, which improve the answer: UTIL, VALUE and OUTSIDE messages.
    messages : dict of str to MessageCount
        All messages that it sent, by kind: ``UTIL``, ``VALUE``, ``OUTSIDE`` (upper bounds on what all other agents
        can add to its rows), ``REQUEST`` (for the message of a slice, a part of the elimination with some variables
        fixed), ``TABLE`` (to the first rank of its machine) and ``TREE`` (if the agents find their pseudo-tree
        themselves).
    z : int or None
        Largest number of variables of the mini-buckets (parts of a bucket that are joined separately) that its message
        was computed with; None if it is exact.
    gap : float or None
        The agent's part of the gap, in units of utility: upper bound minus lower bound of its table, at the assignment
        where the bound is attained. None without a bound.
    own_utilities, disclosed : int
        Number of utilities in the tables over its own variables, and an upper bound on how many of them others can
        reconstruct: its UTIL messages had at most that many entries. With hidden variables an entry is only a maximum
        of sums, so that others mostly learn less.
    retained : RetainedEntries or None
        Sizes of the messages, if the agent was eliminated without the entries that cannot beat the incumbent (the best
        assignment so far); None otherwise.
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
    chains: ChainReport | None = None
    time: float = 0.0
    msg_count: int = 0
    msg_size: int = 0
    extra_msg_count: int = 0
    extra_msg_size: int = 0
    messages: Mapping[str, MessageCount] = {}
    own_utilities: int = 0
    disclosed: int = 0
    z: int | None = None
    gap: float | None = None
    retained: "RetainedEntries | None" = None


class RetainedEntries(msgspec.Struct, frozen=True):
    """Sizes of the messages of an elimination that drops entries which cannot beat the incumbent (function filtering).

    Attributes
    ----------
    messages, sparse_messages : int
        Number of messages, and of those that are stored as sparse tables (which CUBE calls incomplete).
    dense_entries, retained_entries : float
        Entries of all messages as dense tables, and entries that were retained.
    bytes : int
        Memory of the retained entries in bytes.
    """

    messages: int
    sparse_messages: int
    dense_entries: float
    retained_entries: float
    bytes: int


class Solution(msgspec.Struct, frozen=True):
    """An assignment that breaks no hard constraint and is better than all earlier ones.

    Attributes
    ----------
    time : float
        Seconds since the start of the run.
    objective : int or float
        Its objective.
    assignment : dict of str to label
        The label of the value of each variable, by variable name.
    found_by : str
        Names of the improvers that found it, separated by commas, or the name of the algorithm.
    """

    time: float
    objective: Number
    assignment: Mapping[str, Label]
    found_by: str = ""

    def __repr__(self) -> str:
        return _short_repr(self)


class Effort(msgspec.Struct, frozen=True):
    """What a DCOP algorithm has done, and what it has, after one of its cycles.

    Attributes
    ----------
    cycle : int
        Cycles so far.
    time : float
        Seconds since the start of the run.
    now, best : int, float or None
        Objective of the values that the variables have now, and of the best ones so far; None if they break a hard
        constraint.
    messages, bytes : int
        Messages between agents so far, and their bytes, as the ranks count them.
    ncccs, operations : int
        Non-concurrent constraint checks (Meisels et al. 2002) and non-concurrent logical operations so far; 0 where an
        algorithm is compiled for all variables at once.
    simulated_time : float
        Seconds so far, as if each agent had its own machine; with the delays of messages.
    """

    cycle: int
    time: float
    now: Number | None
    best: Number | None
    messages: int
    bytes: int
    ncccs: int
    operations: int
    simulated_time: float


class TracePoint(msgspec.Struct, frozen=True):
    """The best objective and bound at one point in time.

    Attributes
    ----------
    time : float
        Seconds since the start of the run.
    objective : int, float or None
        The best objective; None before the first assignment that breaks no hard constraint.
    bound : int, float or None
        The best proven bound; None before there is one.
    found_by : str
        Names of the improvers that found them, separated by commas, or the name of the algorithm.
    retained : RetainedEntries or None
        Sizes of the messages so far of agents that are eliminated without the entries that cannot beat the incumbent;
        None if there are none.
    bound_shares : dict of str to float
        The share of each improver in the improvement of the bound since the point before; they add up to 1. Empty if
        not known.
    """

    time: float
    objective: Number | None
    bound: Number | None
    found_by: str = ""
    retained: RetainedEntries | None = None
    bound_shares: Mapping[str, float] = {}


class WorkDone(msgspec.Struct, frozen=True):
    """Cost and gains of one improver.

    Attributes
    ----------
    improver : str
        The name of a component that improves the answer or the bound (:mod:`dmcmc.anytime.improvers.registry`).
    seconds : float
        Working time in seconds, summed over threads and ranks: the total of all improvers may exceed the time of the
        run.
    objective_gain, bound_gain : float
        By how much it improved the objective and the bound, in units of the objective. The first answer and the first
        bound do not count as improvements.
    """

    improver: str
    seconds: float
    objective_gain: float
    bound_gain: float


class LevelReport(msgspec.Struct, frozen=True):
    """The objective and the bound of a level of the objective, in the problem's own sense.

    Attributes
    ----------
    name : str
        Name of the level; an earlier level counts more than all later ones.
    objective : int or None
        The objective of the assignment; None if it breaks a hard constraint of the level, or there is none.
    bound : int or None
        Proven: no assignment that is optimal in all earlier levels is better. None if nothing is proven.
    violation : int
        Number of hard constraints of the level that the assignment breaks.
    """

    name: str
    objective: int | None
    bound: int | None
    violation: int


class PresolveReport(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the problem that presolve removed, by reason. The answer covers the removed variables, too.

    Attributes
    ----------
    inconsistent, dominated : int
        Removed values: those that no allowed assignment has (arc consistency), and those that another value of the
        variable is never worse than (dominance).
    fixed : int
        Removed variables that had one value left.
    merged : int
        Removed variables that must be equal to another one (``presolve: merge``).
    eliminated : int
        Removed variables that were maximised out.
    free : int
        Removed variables that have no factor.
    factors, cells : int
        By how much the number of factors, and the number of their table entries, decreased.
    seconds : float
        Wall-clock seconds of presolve.
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
    """The claim of Theorem 1 of the DMCMC paper for a run; see :func:`guarantee_report`.

    Attributes
    ----------
    alpha, epsilon : float
        The percentile and the error probability of ``local.guarantee``.
    samples : int
        Least number of samples per row; 0 if no agent sampled.
    probability : float
        The probability that the solution is in the top ``alpha`` percentile.
    note : str
        What the claim depends on.
    effective_samples : float or None
        Least effective sample size of a row over the agents that sampled; None if it is not known.
    meaningful : bool
        Whether the effective sample size is at least the number of samples that the claim assumes.
    """

    alpha: float
    epsilon: float
    samples: int
    probability: float
    note: str = "the paper's claim (Theorem 1) under its assumptions on the samples; not a proof"
    effective_samples: float | None = None
    meaningful: bool = True


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of results that a command prints and writes as JSON."""

    def to_json(self) -> str:
        """Return the result as JSON text: ``format_version`` first, then all fields.

        Numbers are finite or null; integers are exact, however large.
        """
        limit = sys.get_int_max_str_digits()
        sys.set_int_max_str_digits(0)
        try:
            return json.dumps({"format_version": FORMAT_VERSION, **_plain(self)}, indent=2, allow_nan=False)
        finally:
            sys.set_int_max_str_digits(limit)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the JSON text to a file, completely or not at all; missing folders are created.

        Parameters
        ----------
        path : str or path
            The file.

        Raises
        ------
        FileError
            If the file cannot be written; names the path.
        """
        replace_file(path, [self.to_json(), "\n"])

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0."""
        return 0

    def __repr__(self) -> str:
        return _short_repr(self)


class Result(Output, frozen=True, kw_only=True):
    """The result of a run. Objective and bound are in the problem's own sense (``max`` or ``min``).

    The JSON text (:meth:`to_json`, ``--json``, ``--output``) has the fields below after the integer ``format_version``,
    which is 2 for these names.

    Attributes
    ----------
    status : str
        ``optimal``: proven optimal. Integers equal their bound; floats differ from it by no more than the rounding
        error of this problem's sums. ``feasible``: breaks no hard constraint. ``infeasible``: proven that every
        assignment breaks one. ``timeout``: the time limit was reached (``feasible`` or not), or the run was
        interrupted. ``unsatisfied``: the assignment breaks hard constraints, infeasibility is not proven.
    objective : int, float or None
        The value of the assignment on the original factors; None if it breaks a hard constraint or there is none.
    tables_objective : int, float or None
        The same for the assignment of the last combination of the agents' tables alone, without local search and other
        improvers. It shows what the local solver contributes. None if it breaks a hard constraint or there is none.
    bound : int, float or None
        Proven: no assignment is better. None if there is no proven bound.
    gap : float or None
        Relative gap of objective and bound, see :func:`dmcmc.results.outcome.gap_of`.
    violation : int or None
        Number of hard constraints that the assignment breaks; None if there is no assignment.
    assignment : dict or None
        The label of the value of each variable, by variable name. None if there is no assignment, or if the agents do
        not disclose theirs.
    sense : str
        ``max`` or ``min``.
    time : float
        Wall-clock seconds since the work began, after imports and reading.
    time_compiling : float
        Processor seconds for compiling kernels during that time, of all processes; 0 if all kernels were in the cache.
    simulated_time : float or None
        Seconds until the last agent finishes if each agent had its own machine, like its rank's share of this one, and
        messages took no time (Sultanik et al. 2008). An agent waits for the messages that it needs, and works as long
        as it did here. Planning does not count, nor do OUTSIDE messages in later cycles.
    msg_count, msg_size : int
        Messages of all agents in the first cycle, and their bytes: one UTIL and one VALUE message per edge of the
        pseudo-tree, also between agents on the same rank. Bytes are those of table entries and of indices.
    extra_msg_count, extra_msg_size : int
        The same for later cycles, which a time budget or a small memory limit cause.
    ncccs : int
        Non-concurrent constraint checks (Meisels et al. 2002) on the clocks of ``simulated_time``: table cells that
        eliminations join, and values of a variable that samplers evaluate.
    messages : dict of str to MessageCount
        All messages of all agents in all cycles, by kind; see :class:`AgentMetrics`.
    control : dict of str to MessageCount
        Communication of the ranks that belongs to no agent, by purpose: decisions of rank 0 (``decided``), checks that
        no rank failed (``agree``), data that all ranks need (``merged``, ``allgather``) and results (``gather``).
        Bytes leave a rank; all ranks are added up.
    cycle : int or None
        Number of cycles of a DCOP algorithm other than dmcmc; None for dmcmc.
    course : tuple of Effort
        The measures of a DCOP algorithm after each cycle, or after some of them if there are more than 2,000; empty for
        dmcmc.
    note : str or None
        A remark, such as why the run ended early.
    presolve : PresolveReport or None
        Statistics of presolve; None if the problem was solved unchanged.
    work : tuple of WorkDone
        Time and improvements of each improver, in the order of their first use. Empty without a time budget.
    max_marginals : dict or None
        The best objective of an assignment with each value, by variable and label; None for a value that no
        assignment can have. Only if they were asked for and the problem was solved exactly.
    levels : tuple of LevelReport
        The levels of the objective, if it has some; ``objective`` and ``bound`` are then weighted sums.
    alternatives : tuple of Alternative
        Several good assignments, if they were asked for; the first is ``assignment``.
    moves : Moves or None
        With ``stay``: the objective without the cost of moving, that cost, and the variables that moved. The fields
        ``objective`` and ``bound`` include the cost.
    agents : tuple of AgentMetrics
        Measurements of each agent.
    trace : tuple of TracePoint
        Objective and bound over time.
    guarantee : GuaranteeReport or None
        The claim of Theorem 1 of the DMCMC paper, if ``local.guarantee`` was given and applies.
    provenance : dict
        Configuration, plan, seed, versions, platform, device, ranks and threads of the run.
    """

    status: Status
    objective: Number | None
    bound: Number | None
    gap: float | None
    violation: int | None
    assignment: Mapping[str, Label] | None
    sense: str
    time: float
    time_compiling: float = 0.0
    simulated_time: float | None = None
    msg_count: int = 0
    msg_size: int = 0
    extra_msg_count: int = 0
    extra_msg_size: int = 0
    ncccs: int = 0
    messages: Mapping[str, MessageCount] = {}
    control: Mapping[str, MessageCount] = {}
    cycle: int | None = None
    course: tuple[Effort, ...] = ()
    note: str | None = None
    presolve: PresolveReport | None = None
    work: tuple[WorkDone, ...] = ()
    max_marginals: Mapping[str, Mapping[Label, Number | None]] | None = None
    levels: tuple[LevelReport, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    moves: Moves | None = None
    agents: tuple[AgentMetrics, ...] = ()
    trace: tuple[TracePoint, ...] = ()
    guarantee: GuaranteeReport | None = None
    provenance: Mapping[str, Any] = {}
    tables_objective: Number | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 if no hard constraint is broken, 3 if proven infeasible, otherwise 1."""
        if self.status == "infeasible":
            return 3
        return 0 if self.violation == 0 else 1

    def __repr__(self) -> str:
        return one_line(f"Result {self.status}", self._facts())

    def _repr_html_(self) -> str:
        """Return the main fields and the first variables of the assignment as tables for notebooks."""
        table = html_table(f"Result: {self.status}", self._facts() | ({"note": self.note} if self.note else {}))
        if not self.assignment:
            return table
        shown: dict[str, object] = dict(islice(self.assignment.items(), _MAX_SHOWN_VARIABLES))
        hidden = len(self.assignment) - len(shown)
        title = f"the first {len(shown)} of {len(self.assignment):,} variables" if hidden else "all variables"
        return f"{table}<details><summary>assignment</summary>{html_table(title, shown)}</details>"

    def _facts(self) -> dict[str, str]:
        """Return the main fields as texts, by their names."""
        facts = {"objective": f"{_number_text(self.objective)} ({SENSES.get(self.sense, self.sense)})"}
        facts["bound"], facts["gap"] = _number_text(self.bound), _number_text(self.gap)
        if self.violation:
            facts["broken hard constraints"] = f"{self.violation:,}"
        facts["variables"] = "no assignment" if self.assignment is None else f"{len(self.assignment):,}"
        return facts | {"time": f"{self.time:.3f} s"}


def guarantee_report(
    alpha: float, epsilon: float, samples: int, agents: int, chains: Sequence[ChainReport | None] = ()
) -> GuaranteeReport:
    """Return Theorem 1's probability that the solution is in the top ``alpha`` percentile: ∏ (1 − ε_i).

    Parameters
    ----------
    alpha, epsilon
        The configured percentile and error probability, the same for all agents.
    samples
        Least number of samples per row that were drawn, all runs together; 0 if no agent sampled.
    agents
        Number of agents that sampled; ε_i is 0 for agents that were solved exactly.
    chains
        How well the chains of the agents that sampled mix. The claim is not meaningful if the effective sample size of
        one of them is below 1 / (``alpha`` · ``epsilon``), the number of independent samples that it assumes.
    """
    report = GuaranteeReport(alpha, epsilon, samples, (1 - epsilon) ** agents)
    known = [chain for chain in chains if chain is not None]
    if not known:
        return report
    least = min(known, key=lambda chain: chain.effective_samples)
    effective, needed = least.effective_samples, 1 / (alpha * epsilon)
    meaningful = effective >= needed
    note = f"{report.note}; it assumes {needed:,.0f} independent samples of a row, and {effective:,.3g} are effective"
    if not meaningful:
        frozen = max(chain.frozen for chain in known)
        state = f"{frozen:.0%} of an agent's chains stay at one state" if frozen else "samples are correlated"
        note = f"not meaningful: {state}; {note}"
    return msgspec.structs.replace(report, note=note, effective_samples=effective, meaningful=meaningful)


def _short_repr(value: msgspec.Struct) -> str:
    """Return ``Class(field=value, ...)`` with the number of items in place of every mapping and tuple."""
    fields = []
    for name in value.__struct_fields__:
        part = getattr(value, name)
        is_long = isinstance(part, Mapping | tuple) and len(part) > 0
        number = isinstance(part, int | float)
        shown = f"<{len(part):,} items>" if is_long else _number_text(part) if number else repr(part)
        fields.append(f"{name}={shown}")
    return f"{type(value).__name__}({', '.join(fields)})"


def _number_text(number: Number | None) -> str:
    """Return a number as short text; integers that no float can hold are given by their size."""
    if isinstance(number, int) and number.bit_length() > _MAX_SHOWN_BITS:
        return f"{'-' if number < 0 else ''}about 2^{number.bit_length()}"
    return str(number)


def _plain(value: Any) -> Any:
    """Return a value as plain JSON data: structs and mappings as objects, NumPy values and sequences as lists."""
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


# Improvers of single agents' tables; each runs on the agent's rank.
EXACT_ELIMINATION = "exact elimination"
FUNCTION_FILTERING = "function filtering"
SAMPLING = "sampling"
BOUND = "bound"
BRANCH = "branch and bound"  # over the boundary assignments (rows) of an agent
SEMIDEFINITE = "semidefinite"
# Improvers of the whole problem.
LOCAL_SEARCH = "local search"
RECOMBINATION = "recombination"
EXTERNAL_SEARCH = "external search"  # a search engine in the background; its gains carry the engine's own name:
TOULBAR2, CP_SAT, MAX_SAT, BRANCH_AND_BOUND = "toulbar2", "cp-sat", "max-sat", "branch-and-bound"
GPU_CHAINS = "gpu chains"  # in the background, with the GPU time that other work leaves
LAST_RUN = "last run"  # the run before in a session, whose bound is still known

ROUNDING = "roundings of the bound"  # name under which the kernels of roundings are declared
UNION_BOUND = "bound of the union"  # name under which the kernels of the union's bound are declared
