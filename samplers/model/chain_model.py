"""The model that chains sample.

One agent's local problem as flat integer arrays, the layout that Markov chains read.

Variables are renumbered: hidden variables first, then interface variables. For every factor and every hidden variable v
in its scope there is a copy of the table with v's axis last. So the factor's utilities for all values of v are one
contiguous *column* of that copy. A column is padded with zeros to a multiple of four entries.

Entries are relative to the smallest or largest entry of their factor, so that they are small. They have 16 bits if
every sum of a variable's columns fits (*compact*), otherwise 32. A forbidden entry is an added −2^k, which exceeds all
utilities of the agent together. A chain's utility therefore orders states by (violations, utility). Utilities that are
too wide for that, or not integers, are scaled and rounded: chains only guide the search, because the values of tables
are computed from the original factors.

Turn an agent's tables into score columns by compiled passes, without a Python object per factor or column.

Keys for counter-based random bits: Philox4x32-10 (Salmon et al., SC 2011), equal on every processor in any order.

A chain is keyed, not seeded: the key is made from (seed, agent), the counter from (row, run, trial, block). So the bits
of a chain do not depend on ranks, threads or other chains.
"""

from math import ceil, log2
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.arithmetic import MAX_TOTAL_UTILITY, Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables, TableRanges, table_ranges
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ProblemError, ResourceError
from dmcmc.inference.runtime.memo import DerivedFacts
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.column_kernels import ColumnLinks, link_columns, write_columns
from dmcmc.samplers.model.proposal_kernels import jumps_of

if TYPE_CHECKING:
    from dmcmc.inference.model.factor_graph import FactorGraph
    from dmcmc.inference.model.subproblem import Subproblem


class TableStatistics(NamedTuple):
    """Ranges of an agent's tables, from which the scale of chain units is chosen.

    Attributes
    ----------
    low, top : (factors,) int64 or float64
        Smallest and largest finite entry of each table; 0 if it has none.
    span : (factors,) float64
        Their difference; 0 for factors without hidden variables.
    variable_range : (hidden,) float64
        Sum of ``span`` over the factors of each variable.
    variable_forbidding : (hidden,) int64
        Number of each variable's factors with forbidden entries.
    """

    low: Array
    top: Array
    span: NDArray[np.float64]
    variable_range: NDArray[np.float64]
    variable_forbidding: NDArray[np.int64]


class HiddenPositions(NamedTuple):
    """The hidden variables in the scopes of an agent's factors, one position after another.

    Attributes
    ----------
    factor, variable : (positions,) int64
        The factor of each position, and its hidden variable.
    constant : (factors,) bool
        Whether a factor has no hidden variable.
    """

    factor: NDArray[np.int64]
    variable: NDArray[np.int64]
    constant: NDArray[np.bool_]


def hidden_positions(flat: FlatTables, hidden: int) -> HiddenPositions:
    """Return the hidden variables in all scopes; they are the first ``hidden`` variables."""
    is_hidden = flat.scope < hidden
    factor = np.repeat(np.arange(flat.tables), flat.scope_start[1:] - flat.scope_start[:-1])[is_hidden]
    return HiddenPositions(factor, flat.scope[is_hidden], np.bincount(factor, minlength=flat.tables) == 0)


def table_statistics(ranges: TableRanges, positions: HiddenPositions, hidden: int) -> TableStatistics:
    """Return the ranges of all tables, and their sums over the factors of each hidden variable."""
    low, top, _ = ranges
    if low.dtype.kind == "i":  # int64 may not hold the difference, uint64 does
        span = (top.astype(np.uint64) - low.astype(np.uint64)).astype(np.float64)
    else:
        with np.errstate(over="ignore"):  # the caller reports a range beyond float64
            span = top - low
    factor, variable, constant = positions
    variable_range = np.bincount(variable, span[factor], hidden).astype(np.float64)
    forbidding = np.bincount(variable[ranges.forbidden[factor] > 0], minlength=hidden).astype(np.int64)
    span[constant] = 0.0
    return TableStatistics(low, top, span, variable_range, forbidding)


def _forbidden(flat: FlatTables) -> Any:
    """Return the tables' value of a forbidden entry in their dtype."""
    return flat.data.dtype.type(forbidden_value(flat.data.dtype))


def fill_columns(
    flat: FlatTables,
    domains: NDArray[np.int32],
    width: NDArray[np.int32],
    links: ColumnLinks,
    quantisation: tuple[Array, NDArray[np.float64], float, int],
    out: Array,
) -> float:
    """Write the columns; return Σ over columns of the variance of the factor's finite entries, in squared chain units.

    Parameters
    ----------
    flat : FlatTables
        The tables.
    domains, width : (n,) and (hidden,) int32
        Domain sizes, and padded sizes of the hidden variables.
    links : ColumnLinks
        Offsets of the columns.
    quantisation : (base, span, scale, violation)
        An entry becomes (entry − base of its factor) · scale, rounded; a forbidden entry becomes −2^violation.
    out : (entries,) uint16 or int32
        The columns; zero before.
    """
    variance: float = write_columns(flat, domains, width, links, quantisation, _forbidden(flat), out)
    return variance


LANES = 4  # columns are padded to a multiple of this number of entries
MAX_COLUMN_ENTRIES = 2**31 - 1  # of an agent's columns: offsets are int32
VIOLATION_PENALTY = 16.0  # in units of ``spread``: too high for violations to persist in cold chains
MAX_COMPACT_SCORE = 2**16 - 1  # scores up to this bound fit uint16
_MAX_SCORE = 2**30  # bound on absolute scores: the difference of two scores still fits int32
_SCALED_FLOAT_RANGE = 2**24  # total range of scaled floats: integers that float32 represents exactly

_MAX_CACHED_POSITIONS = 10_000  # positions of all scopes of an agent whose layout is cached


class ChainModel(NamedTuple):
    """Integer score columns of one agent, as the ``init`` and ``step`` functions of a sampler read them.

    All fields are plain arrays and numbers, readable on the CPU and the GPU. *Chain units* are the integer units of
    ``data``.

    Attributes
    ----------
    domains : (n,) int32
        Domain sizes; the first ``hidden`` variables are hidden, the others are the interface.
    hidden : int
        Number of hidden variables.
    lanes : int
        Length of a row of scores: the largest ``width``.
    width : (hidden,) int32
        Domain sizes rounded up to a multiple of 4: the lengths of the variables' columns.
    data : (entries,) uint16 or int32
        All columns; those of one variable are contiguous, in the order of the factors.
    violation : int
        0 if no entry is forbidden; otherwise k, where a forbidden entry is an added −2^k.
    penalty : float
        Cost of a violation in the eased utility of a chain, in chain units; 0 if no entry is forbidden.
    spread : float
        The root mean square over hidden variables of Σ_f var(f), without forbidden entries, in chain units: the typical
        difference between the scores of one variable.
    scale : float
        Chain units per unit of utility; a power of two.
    column_start : (hidden + 1,) int32
        Columns of variable v are ``column_start[v]:column_start[v + 1]``, one per factor of v.
    column_at : (columns,) int32
        Offset in ``data`` of the column for which all other variables of the factor are 0.
    other_start : (columns + 1,) int32
        The other variables of a column's factor are ``other_start[c]:other_start[c + 1]``.
    other_variable, other_stride : (others,) int32
        Those variables, and the distance in ``data`` between two of their values.
    touch_start : (hidden + 1,) int32
        The columns of other hidden variables that depend on v are ``touch_start[v]:touch_start[v + 1]``.
    touch_variable, touch_column : (touches,) int32
        The variable whose scores change with v, and its column.
    touch_stride : (touches,) int32
        Distance in ``data`` between two values of v in that column.
    touch_binary : (touches,) bool
        Whether v is the only other variable of the column's factor.
    factor_column, factor_variable : (factors,) int32
        One column of each factor, and the variable of that column; they suffice to evaluate a whole state.
    jumps : (any,) uint32
        Alias tables of the joint proposal, see :mod:`dmcmc.samplers.model.proposal_kernels`.
    jump_at : (hidden,) int32
        Offset of each variable's alias table in ``jumps``.
    """

    domains: NDArray[np.int32]
    hidden: int
    lanes: int
    width: NDArray[np.int32]
    data: Array
    violation: int
    penalty: float
    spread: float
    scale: float
    column_start: NDArray[np.int32]
    column_at: NDArray[np.int32]
    other_start: NDArray[np.int32]
    other_variable: NDArray[np.int32]
    other_stride: NDArray[np.int32]
    touch_start: NDArray[np.int32]
    touch_variable: NDArray[np.int32]
    touch_column: NDArray[np.int32]
    touch_stride: NDArray[np.int32]
    touch_binary: NDArray[np.bool_]
    factor_column: NDArray[np.int32]
    factor_variable: NDArray[np.int32]
    jumps: NDArray[np.uint32]
    jump_at: NDArray[np.int32]


def build_model(local: "Subproblem") -> ChainModel:
    """Lay out a local problem as score columns; see :func:`score_columns`."""
    return score_columns(local.graph, local.ranges, local.known)


def score_columns(
    graph: "FactorGraph", ranges: TableRanges | None = None, known: DerivedFacts | None = None
) -> ChainModel:
    """Lay out a graph of dense tables as score columns; its free variables are the hidden ones.

    Only factors with a hidden variable are included: the others are constant in a row.

    Parameters
    ----------
    graph : FactorGraph
        The graph.
    ranges : TableRanges, optional
        The ranges of its tables, if they are known.
    known : DerivedFacts, optional
        Cache for what depends on the structure of the graph alone.

    Raises
    ------
    ProblemError
        If the sum of all utilities does not fit a float64.
    """
    flat, hidden = graph.flat, graph.free
    if known is None or graph.scope.size > _MAX_CACHED_POSITIONS:
        known = DerivedFacts()
    layout = known.get_or_compute("score columns", lambda: _layout(graph))
    domains, width, links = layout.domains, layout.width, layout.links
    statistics = table_statistics(ranges or table_ranges(flat), layout.positions, hidden)
    scale, violation = _scale(statistics, flat)
    compact = _fits_compact(flat, statistics, scale, violation)
    MEMORY_ACCOUNT.claim(links.entries * (2 if compact else 4), "score columns of the samplers")
    data = np.zeros(max(1, links.entries), dtype=np.uint16 if compact else np.int32)
    base = statistics.low if compact else statistics.top
    variance = fill_columns(flat, domains, width, links, (base, statistics.span, scale, violation), data)
    spread = float(np.sqrt(variance / max(1, hidden))) or 1.0
    return ChainModel(
        domains=domains,
        hidden=hidden,
        lanes=int(width.max(initial=LANES)),
        width=width,
        data=data,
        violation=violation,
        penalty=float(np.float32(VIOLATION_PENALTY * spread))
        if violation
        else 0.0,  # float32: times an integer it is exact
        spread=spread,
        scale=scale,
        jumps=layout.jumps,
        jump_at=layout.jump_at,
        **layout.link_fields,
    )


_LINK_FIELDS = tuple([name for name in ColumnLinks._fields if name in ChainModel._fields])


class _StructuralColumns(NamedTuple):
    """The part of a chain model that depends on the structure of its graph alone.

    ``link_fields`` are those of ``links`` that are fields of the chain model.
    """

    domains: NDArray[np.int32]
    width: NDArray[np.int32]
    links: Any
    link_fields: dict[str, Any]
    positions: HiddenPositions
    jumps: NDArray[np.uint32]
    jump_at: NDArray[np.int32]


def _layout(graph: "FactorGraph") -> _StructuralColumns:
    """Return the layout of a graph: widths and links of its columns, and the jumps of its domains."""
    domains = graph.domains.astype(np.int32)
    width = -(-domains[: graph.free] // LANES) * np.int32(LANES)
    links = link_columns(graph.scope_start, graph.scope, graph.start, graph.factor, graph.position, domains, width)
    positions = hidden_positions(graph.flat, graph.free)
    fields = {name: getattr(links, name) for name in _LINK_FIELDS}
    return _StructuralColumns(domains, width, links, fields, positions, *jumps_of(domains[: graph.free]))


def is_compact(problem: Problem) -> bool:
    """Return whether a model of all variables of a problem of dense tables has 16-bit columns."""
    flat, hidden = problem.flat, problem.n_variables
    statistics = table_statistics(problem.ranges, hidden_positions(flat, hidden), hidden)
    return _fits_compact(flat, statistics, *_scale(statistics, flat))


def _fits_compact(flat: FlatTables, statistics: TableStatistics, scale: float, violation: int) -> bool:
    """Return whether the columns fit 16 bits: integers, not scaled, none forbidden, of small range."""
    unscaled = flat.data.dtype.kind == "i" and scale == 1.0 and not violation
    return unscaled and bool(statistics.variable_range.max(initial=0.0) <= MAX_COMPACT_SCORE)


def _scale(statistics: TableStatistics, flat: FlatTables) -> tuple[float, int]:
    """Return chain units per unit of utility, and k (0 if no entry is forbidden).

    Without forbidden entries, the sums of a variable's columns must fit 2^30. With forbidden entries, 2^k must exceed
    twice the agent's total range, and the largest possible number of violations in one variable's factors must fit
    2^30.

    Raises
    ------
    ProblemError
        If the sum of all utilities does not fit a float64.
    """
    integral = flat.data.dtype.kind == "i"
    total = float(statistics.span.sum())
    if not total <= 2 * MAX_TOTAL_UTILITY:
        raise ProblemError(f"the utilities add up to more than {MAX_TOTAL_UTILITY:.3g}; scale them down")
    max_forbidding = int(statistics.variable_forbidding.max(initial=0))
    if total == 0.0:
        return 1.0, 2 if max_forbidding else 0
    capacity = (
        _MAX_SCORE / (4 * max_forbidding + 2)
        if max_forbidding
        else _MAX_SCORE * total / float(statistics.variable_range.max())
    )
    rounding = flat.at.size  # each entry may be rounded up by half a chain unit
    largest_scale = (
        2.0 ** np.floor(np.log2((capacity - rounding) / total)) if capacity > rounding else 2.0 ** -ceil(log2(total))
    )
    preferred_scale = 1.0 if integral else 2.0 ** np.floor(np.log2(_SCALED_FLOAT_RANGE / max(total, 1e-250)))
    scale = float(min(largest_scale, preferred_scale))
    return scale, ceil(log2(2 * (total * scale + rounding) + 1)) if max_forbidding else 0


def check_chain_memory(method: str, local: "Subproblem", memory: int, arithmetic: Arithmetic) -> None:
    """Raise a ``ResourceError`` if the rows of an agent's chains or their score columns do not fit in memory.

    Parameters
    ----------
    method
        Name of the sampler, for the message.
    local
        The agent's subproblem.
    memory
        Bytes that the tables of the agent may take.
    arithmetic
        Number format of the tables.
    """
    # Bytes per value of a state. Per row: a table entry, two utilities (16 bytes) and two states.
    state = 1 if local.domains.max(initial=1) <= 256 else 4
    rows = local.rows * (arithmetic.dtype.itemsize + 16 + 2 * state * len(local.hidden))
    if rows > memory:
        raise ResourceError(
            f"local.method: {method}: {len(local.interface)} interface variables make {local.rows:,} rows"
            f" ({rows:,} bytes, budget.memory leaves {memory:,}); use local.method: exact, which does not"
            " enumerate them, or fewer interface variables"
        )
    entries = column_entries(local)
    if entries > MAX_COLUMN_ENTRIES or 4 * entries > memory:
        raise ResourceError(
            f"local.method: {method}: an agent's tables make up to {entries:,} column entries, 4 bytes each"
            f" (at most {MAX_COLUMN_ENTRIES:,}, and budget.memory leaves {memory:,} bytes);"
            " divide it into more agents"
        )


def column_entries(local: "Subproblem") -> int:
    """Return an upper bound on the number of entries of an agent's columns."""
    return sum(f.table.size * len(f.scope) for f in local.factors) * LANES


def chain_key(seed: int, agent: int) -> tuple[int, int]:
    """Return the two 32-bit key words of an agent's chains: a SplitMix64 hash of (seed, agent).

    Parameters
    ----------
    seed : int
        Any integer; it is folded to 64 bits.
    agent : int
        Number of the agent.
    """
    mask = (1 << 64) - 1
    state = 0
    for part in (seed ^ (seed >> 64), agent):  # the seed is hashed first: seed 1, agent 0 is not seed 0, agent 1
        state = (state + part + 0x9E3779B97F4A7C15) & mask
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
        state ^= state >> 31
    return state & 0xFFFFFFFF, state >> 32
