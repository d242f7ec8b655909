"""One agent's local problem as flat arrays of whole numbers, the way chains read it.

Variables are renumbered: hidden ones first, interface ones after. For every factor and every hidden variable v in it
there is a copy of the table with v's axis last, so that "this factor's utilities for all values of v" is one
contiguous *column* of it. A column is padded with zeros to a multiple of four entries.

Entries are relative to their factor's least or largest, so that they are small: 16 bits where every sum of a variable's
columns fits (*compact*), else 32. A forbidden entry is an added −2^k, more than all utilities of the agent together, so
that a chain's utility orders states by (violations, utility). Utilities too wide for that, and those that are not
whole, are scaled and rounded: chains only guide, tables are evaluated anew from the original factors.
"""

from math import ceil, log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.arithmetic import LARGEST
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array
from dmcmc.samplers.model.column_kernels import link_columns
from dmcmc.samplers.model.columns import Survey, fill_columns, survey_tables
from dmcmc.samplers.model.jumps import jumps_of

LANES = 4  # columns are padded to a multiple of it
MOST_ENTRIES = 2**31 - 1
PENALTY = 16.0  # of a violation, in spreads: too dear to keep at the temperatures at which utilities are told apart
_COMPACT = 2**16 - 1
_SUM = 2**30  # scores within this fit int32, with room for a difference of two
_FLOAT_RANGE = 2**24  # what the utilities of a problem of floats are scaled to together: whole float32 numbers


class ChainModel(NamedTuple):
    """What init and step functions see; plain arrays, readable on CPU and GPU.

    Attributes
    ----------
    domains : (n,) int32
        Domain sizes; the first ``hidden`` variables are hidden.
    hidden : int
    lanes : int
        Length of a row of scores: the largest ``width``.
    width : (hidden,) int32
        Domain sizes rounded up to a multiple of 4: the lengths of the variables' columns.
    data : (entries,) uint16 or int32
        All columns; those of one variable are contiguous, in the order of the factors.
    violation : int
        0 where nothing is forbidden; else k: a forbidden entry is an added −2^k.
    penalty : float
        What a violation costs a chain, in chain units; 0 where nothing is forbidden.
    spread : float
        The root mean square over hidden variables of Σ_f var(f), forbidden entries left out, in chain units: how much
        the scores of one variable typically differ.
    scale : float
        Chain units per unit of utility; a power of two.
    column_start : (hidden + 1,) int32
        Columns of variable v are ``column_start[v]:column_start[v + 1]``, one a factor of v.
    column_at : (columns,) int32
        Offset in ``data`` of the column for other variables all 0.
    other_start : (columns + 1,) int32
        The other variables of a column's factor are ``other_start[c]:other_start[c + 1]``.
    other_variable, other_stride : (others,) int32
        Those variables and their strides in ``data``.
    touch_start : (hidden + 1,) int32
        Columns that move when v changes are ``touch_start[v]:touch_start[v + 1]``.
    touch_variable, touch_column : (touches,) int32
        Whose scores change, and in which column.
    touch_stride : (touches,) int32
        Stride of v in it.
    touch_binary : (touches,) bool
        Whether v is the only other variable.
    factor_column, factor_variable : (factors,) int32
        One column of each factor, and its variable: how a whole state is evaluated.
    jumps : (any,) uint32
        How joint proposals move variables, see :mod:`dmcmc.samplers.model.jumps`.
    jump_at : (hidden,) int32
        Where each variable's table begins in it.
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


def flatten_local(local: LocalProblem) -> FlatTables:
    """Return an agent's tables in one array, their variables renumbered: hidden ones first, interface ones after."""
    flat = flatten([f.scope for f in local.factors], [f.table for f in local.factors])
    number = np.zeros(len(local.domains), dtype=np.int64)
    number[[*local.hidden, *local.interface]] = np.arange(len(local.hidden) + len(local.interface))
    return flat._replace(scope=number[flat.scope])


def build_model(local: LocalProblem, flat: FlatTables | None = None) -> ChainModel:
    """Lay out a local problem. Only factors with a hidden variable count: the others are constant in a row.

    Parameters
    ----------
    flat
        What :func:`flatten_local` returns, if it is there already.
    """
    flat = flatten_local(local) if flat is None else flat
    hidden = len(local.hidden)
    domains = local.domains[[*local.hidden, *local.interface]].astype(np.int32)
    width = -(-domains[:hidden] // LANES) * np.int32(LANES)
    survey = survey_tables(flat, hidden)
    scale, violation = _scale(survey, flat)
    compact = _compact(flat, survey, scale, violation)
    links = link_columns(flat.scope_start, flat.scope, domains, width, hidden)
    ACCOUNT.claim(links.entries * (2 if compact else 4), "columns that chains read")
    data = np.zeros(max(1, links.entries), dtype=np.uint16 if compact else np.int32)
    base = survey.low if compact else survey.top
    jumps, jump_at = jumps_of(domains[:hidden])
    variance = fill_columns(flat, domains, width, links, (base, survey.span, scale, violation), data)
    spread = float(np.sqrt(variance / max(1, hidden))) or 1.0
    return ChainModel(
        domains=domains,
        hidden=hidden,
        lanes=int(width.max(initial=LANES)),
        width=width,
        data=data,
        violation=violation,
        penalty=float(np.float32(PENALTY * spread)) if violation else 0.0,  # exact times a whole number
        spread=spread,
        scale=scale,
        jumps=jumps,
        jump_at=jump_at,
        **{name: array for name, array in links._asdict().items() if name in ChainModel._fields},
    )


def is_compact(flat: FlatTables, hidden: int) -> bool:
    """Return whether the columns of a model of these tables are 16-bit numbers."""
    survey = survey_tables(flat, hidden)
    return _compact(flat, survey, *_scale(survey, flat))


def _compact(flat: FlatTables, survey: Survey, scale: float, violation: int) -> bool:
    whole = flat.data.dtype.kind == "i" and scale == 1.0 and not violation
    return whole and bool(survey.variable_range.max(initial=0.0) <= _COMPACT)


def _scale(survey: Survey, flat: FlatTables) -> tuple[float, int]:
    """Return chain units per unit of utility, and k.

    Without forbidden entries the sums of a variable's columns must fit 2^30. With them 2^k must exceed twice the
    agent's total range, and as many violations as a variable has factors with forbidden entries must fit 2^30.

    Raises
    ------
    ProblemError
        If all utilities together do not fit a float64.
    """
    whole = flat.data.dtype.kind == "i"
    total = float(survey.span.sum())
    if not total <= 2 * LARGEST:
        raise ProblemError(f"the utilities add up to more than {LARGEST:.3g}; scale them down")
    most = int(survey.variable_hard.max(initial=0))
    if total == 0.0:
        return 1.0, 2 if most else 0
    room = _SUM / (4 * most + 2) if most else _SUM * total / float(survey.variable_range.max())
    rounding = flat.at.size  # every entry may be rounded up by half a unit
    fits = 2.0 ** np.floor(np.log2((room - rounding) / total)) if room > rounding else 2.0 ** -ceil(log2(total))
    wanted = 1.0 if whole else 2.0 ** np.floor(np.log2(_FLOAT_RANGE / max(total, 1e-250)))
    scale = float(min(fits, wanted))
    return scale, ceil(log2(2 * (total * scale + rounding) + 1)) if most else 0


def column_entries(local: LocalProblem) -> int:
    """Return an upper bound on the entries of an agent's columns."""
    return sum(f.table.size * len(f.scope) for f in local.factors) * LANES
