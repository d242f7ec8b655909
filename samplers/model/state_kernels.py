# mypy: ignore-errors
"""A chain's state and the moves on it, shared by all samplers: evaluate, score, change one variable.

``z`` (n,) int32 holds the values, hidden variables first; ``scores`` (hidden, lanes) holds for every hidden variable
and each of its values the utility of its factors, all others as they are. Scores are kept up to date, not recomputed:
when a variable changes, its neighbours' rows move by the difference of two columns. Compact scores are kept modulo
2^16, which loses nothing: every score fits.

Utilities are whole numbers that order states by (violations, utility), see :mod:`dmcmc.samplers.model.chain_model`;
:func:`eased` is what a chain that weighs states takes instead.

Functions named ``*_column`` and ``best_value`` work on whole rows at once; the GPU has its own.
"""

import numba
import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox, uniform

ROW = 16  # on the CPU, rows of scores are padded to a multiple of it: one or two vectors


@numba.njit
def new_arrays(model):
    """Return z, scores and scratch for one chain."""
    stride = -(-model.lanes // ROW) * ROW
    z = np.zeros(model.domains.size, dtype=np.int32)
    scores = np.zeros((model.hidden, stride), dtype=model.data.dtype)
    return z, scores, np.zeros(max(stride, model.hidden), dtype=np.int32)


@njit(inline="always")
def column_of(model, column, z):
    """Return where a column starts in ``model.data`` for the values of the factor's other variables."""
    at = np.int64(model.column_at[column])
    for o in range(model.other_start[column], model.other_start[column + 1]):
        at += z[model.other_variable[o]] * model.other_stride[o]
    return at


@njit(_nrt=False)
def evaluate(model, z):
    """Return the utility of a state (int64), violations included."""
    total = np.int64(0)
    for f in range(model.factor_column.size):
        total += model.data[column_of(model, model.factor_column[f], z) + z[model.factor_variable[f]]]
    return total


@njit(inline="always")
def gain_of(scores, v, new, old):
    """Return the change of utility if v changed from one value to another (int64)."""
    return np.int64(scores[v, new]) - np.int64(scores[v, old])


@njit(inline="always")
def eased_by(utility, violation, penalty):
    """Return a utility as float64 with ``penalty`` for each violation, instead of more than anything else."""
    if violation == 0:
        return np.float64(utility)
    violations = (np.int64(1 << (violation - 1)) - utility) >> violation
    return np.float64(utility + (violations << violation)) - penalty * np.float64(violations)


@njit(inline="always")
def eased(model, utility):
    """Return a utility as float64 with ``model.penalty`` for each violation, instead of more than anything else."""
    return eased_by(utility, model.violation, model.penalty)


@njit(_nrt=False)
def feasible(model, utility):
    """Return whether a state of this utility violates nothing."""
    return model.violation == 0 or utility > -(1 << (model.violation - 1))


@njit(_nrt=False)
def fill_scores(model, z, scores):
    """Compute all scores of a state from nothing."""
    for v in range(model.hidden):
        for i in range(model.width[v]):
            scores[v, i] = 0
        for c in range(model.column_start[v], model.column_start[v + 1]):
            add_column(scores, v, model.data, column_of(model, c, z), model.width[v])


@njit(_nrt=False)
def random_state(model, z, rng):
    """Draw every hidden variable uniformly (trial 0 of the chain's counter)."""
    for block in range((model.hidden + 3) // 4):
        words = philox(rng[0], rng[1], rng[2], rng[3], 0, block)
        for i in range(4):
            v = 4 * block + i
            if v < model.hidden:
                z[v] = min(int(uniform(words[i]) * model.domains[v]), model.domains[v] - 1)


@njit(inline="always")
def change(model, z, scores, v, value):
    """Set hidden variable v to a value and bring its neighbours' scores up to date."""
    old = z[v]
    z[v] = value
    for t in range(model.touch_start[v], model.touch_start[v + 1]):
        column = model.touch_column[t]
        if model.touch_binary[t]:
            new_at = np.int64(model.column_at[column]) + value * model.touch_stride[t]
        else:
            new_at = column_of(model, column, z)
        old_at = new_at + (old - value) * model.touch_stride[t]
        w = model.touch_variable[t]
        move_column(scores, w, model.data, new_at, old_at, model.width[w])


@njit(_nrt=False)
def greedy_sweep(model, z, scores, utility):
    """Give each hidden variable in turn its best value (at a tie it stays, else the lowest); return the utility."""
    for v in range(model.hidden):
        old = z[v]
        new = best_value(scores, v, model.domains[v], old)
        if new != old:
            utility += gain_of(scores, v, new, old)
            change(model, z, scores, v, new)
    return utility


@njit(inline="always")
def best_value(scores, v, size, old):
    """Return the value with the best score: ``old`` if it ties, else the lowest."""
    row = scores[v, :size]
    top = row[0]
    for d in range(size):
        top = max(top, row[d])
    new = old
    if row[old] != top:
        new = 0
        while row[new] != top:
            new += 1
    return new


# Slices are made in the functions that loop over them: their indices are known to be in range, so the loops vectorise,
# and nobody counts references.


@njit(inline="always")
def add_column(scores, v, data, at, width):
    """Add one column of ``data`` to the scores of v."""
    row, plus = scores[v, :width], data[at : at + width]
    for i in range(width):
        row[i] += plus[i]


@njit(inline="always")
def move_column(scores, v, data, new_at, old_at, width):
    """Add one column of ``data`` to the scores of v, and take another off."""
    row, plus, minus = scores[v, :width], data[new_at : new_at + width], data[old_at : old_at + width]
    for i in range(width):
        row[i] += plus[i] - minus[i]
