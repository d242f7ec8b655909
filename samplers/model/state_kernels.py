# mypy: ignore-errors
"""A chain's state and the moves on it, shared by all samplers: evaluate, score, change one variable.

``z`` (n,) int32 holds the values, hidden variables first. ``scores`` (hidden, lanes), uint16 or int32, holds for every
hidden variable and each of its values the utility of the variable's factors, with all other variables unchanged. Scores
are updated incrementally: when a variable changes, its neighbours' rows change by the difference of two columns.
Compact scores are computed modulo 2^16, which is exact because every score fits.

Utilities are integers that order states by (violations, utility), see :mod:`dmcmc.samplers.model.chain_model`. The
*eased* utility of :func:`eased` subtracts a finite penalty per violation instead; chains compare it with a temperature.

Functions named ``*_column`` and ``best_value`` work on whole rows at once; the Gibbs kernel for GPUs has its own.
"""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.rng_kernels import philox, uniform

ROW_MULTIPLE = 16  # on the CPU, rows of scores are padded to a multiple of this number: one or two vector registers


@njit()
def new_arrays(model):
    """Return ``z``, ``scores`` and ``scratch`` of one chain, all zero."""
    stride = -(-model.lanes // ROW_MULTIPLE) * ROW_MULTIPLE
    z = np.zeros(model.domains.size, dtype=np.int32)
    scores = np.zeros((model.hidden, stride), dtype=model.data.dtype)
    return z, scores, np.zeros(max(stride, model.hidden), dtype=np.int32)


@njit(allocates=False)
def column_of(model, column, z):
    """Return the offset in ``model.data`` of a column, for the values in ``z`` of the factor's other variables."""
    at = np.int64(model.column_at[column])
    for o in range(model.other_start[column], model.other_start[column + 1]):
        at += z[model.other_variable[o]] * model.other_stride[o]
    return at


@njit(allocates=False)
def evaluate(model, z):
    """Return the utility of a state (int64) in chain units, computed from the factors, with −2^k per violation.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    z : (n,) int32
        The state.
    """
    total = np.int64(0)
    for f in range(model.factor_column.size):
        total += model.data[column_of(model, model.factor_column[f], z) + z[model.factor_variable[f]]]
    return total


@njit(allocates=False)
def gain_of(scores, v, new, old):
    """Return the change of utility (int64) if v changed from value ``old`` to value ``new``."""
    return np.int64(scores[v, new]) - np.int64(scores[v, old])


@njit(allocates=False)
def eased_utility(utility, violation, penalty):
    """Return a utility as float64 with ``penalty`` subtracted per violation, instead of 2^violation.

    With k = ``violation``, the number of violations is ⌊(2^(k − 1) − utility) / 2^k⌋, since the other utilities stay
    below 2^(k − 1) in absolute value; k = 0 means that no entry is forbidden.
    """
    if violation == 0:
        return np.float64(utility)
    violations = (np.int64(1 << (violation - 1)) - utility) >> violation
    return np.float64(utility + (violations << violation)) - penalty * np.float64(violations)


@njit(allocates=False)
def eased(model, utility):
    """Return a utility as float64 with ``model.penalty`` subtracted per violation, instead of 2^k.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    utility : int64
        Utility of a state, from :func:`evaluate`.
    """
    return eased_utility(utility, model.violation, model.penalty)


@njit(allocates=False)
def feasible(model, utility):
    """Return whether a state of this utility violates no hard constraint: it is above −2^k / 2."""
    return model.violation == 0 or utility > -(1 << (model.violation - 1))


@njit(allocates=False)
def fill_scores(model, z, scores):
    """Compute all scores of a state from the columns.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    z : (n,) int32
        The state.
    scores : (hidden, lanes) uint16 or int32
        Overwritten with the scores.
    """
    for v in range(model.hidden):
        for i in range(model.width[v]):
            scores[v, i] = 0
        for c in range(model.column_start[v], model.column_start[v + 1]):
            add_column(scores, v, model.data, column_of(model, c, z), model.width[v])


@njit(allocates=False)
def random_state(model, z, rng):
    """Draw every hidden variable uniformly and independently (trial 0 of the chain's counter).

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    z : (n,) int32
        The state; its hidden values are overwritten.
    rng : tuple of four uint64
        Key 0, key 1, row, run.
    """
    for block in range((model.hidden + 3) // 4):
        words = philox(rng[0], rng[1], rng[2], rng[3], 0, block)
        for i in range(4):
            v = 4 * block + i
            if v < model.hidden:
                z[v] = min(int(uniform(words[i]) * model.domains[v]), model.domains[v] - 1)


@njit(allocates=False)
def change(model, z, scores, v, value):
    """Set hidden variable v to a value and update its neighbours' scores.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    z : (n,) int32
        The state; changed.
    scores : (hidden, lanes) uint16 or int32
        The scores of ``z``; changed.
    v, value : int
        The variable and its new value.
    """
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


@njit(allocates=False)
def greedy_sweep(model, z, scores, utility):
    """Set each hidden variable in turn to its best value, and return the utility.

    At a tie the present value stays, or else the lowest best value is taken.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    z : (n,) int32
        The state; changed.
    scores : (hidden, lanes) uint16 or int32
        The scores of ``z``; changed.
    utility : int64
        The utility of ``z``.
    """
    for v in range(model.hidden):
        old = z[v]
        new = best_value(scores, v, model.domains[v], old)
        if new != old:
            utility += gain_of(scores, v, new, old)
            change(model, z, scores, v, new)
    return utility


@njit(allocates=False)
def sweep_greedily(model, z, scores, utility, sweeps):
    """Improve a state by greedy sweeps until none is better, at most ``sweeps``; return its utility."""
    for _ in range(sweeps):
        better = greedy_sweep(model, z, scores, utility)
        if better == utility:
            break
        utility = better
    return utility


@njit(allocates=False)
def set_interface(model, shape, row, z):
    """Set the interface variables in ``z`` to the values of a row."""
    for b in range(shape.size - 1, -1, -1):
        z[model.hidden + b] = row % shape[b]
        row //= shape[b]


@njit(allocates=False)
def set_hidden(model, source, z, scores):
    """Set the hidden variables in ``z`` to the values ``source``; return the utility."""
    for v in range(model.hidden):
        z[v] = source[v]
    fill_scores(model, z, scores)
    return evaluate(model, z)


@njit(allocates=False)
def best_value(scores, v, size, old):
    """Return the value with the largest score: ``old`` if it ties, else the lowest such value."""
    row = scores[v, :size]
    best = row[0]
    for d in range(size):
        best = max(best, row[d])
    new = old
    if row[old] != best:
        new = 0
        while row[new] != best:
            new += 1
    return new


# Slices are made in the functions that loop over them: the compiler then knows that indices are in range, the loops
# vectorise, and no reference counts are needed.


@njit(allocates=False)
def add_column(scores, v, data, at, width):
    """Add the column of ``data`` at offset ``at`` to the scores of v; ``width`` entries."""
    row, plus = scores[v, :width], data[at : at + width]
    for i in range(width):
        row[i] += plus[i]


@njit(allocates=False)
def move_column(scores, v, data, new_at, old_at, width):
    """Add the column of ``data`` at offset ``new_at`` to the scores of v, and subtract the one at ``old_at``."""
    row, plus, minus = scores[v, :width], data[new_at : new_at + width], data[old_at : old_at + width]
    for i in range(width):
        row[i] += plus[i] - minus[i]
