# mypy: ignore-errors
"""The state of a chain: random numbers, starts, and evaluation.

A chain's state and the moves on it, shared by all samplers: evaluate, score, change one variable.

``z`` (n,) int32 holds the values, hidden variables first. ``scores`` (hidden, lanes), uint16 or int32, holds for every
hidden variable and each of its values the utility of the variable's factors, with all other variables unchanged. Scores
are updated incrementally: when a variable changes, its neighbours' rows change by the difference of two columns.
Compact scores are computed modulo 2^16, which is exact because every score fits.

Utilities are integers that order states by (violations, utility), see :mod:`dmcmc.samplers.model.chain_model`. The
*eased* utility of :func:`eased` subtracts a finite penalty per violation instead; chains compare it with a temperature.

Functions named ``*_column`` and ``best_value`` work on whole rows at once; the Gibbs kernel for GPUs has its own.

Philox4x32-10 (Salmon et al., SC 2011): random bits from a key and a counter.

Random choices between chains: the rows that a warm round starts from, and exchanges of temperatures.

A row is an assignment of the agent's boundary variables (its interface), numbered in C order; its chains are its runs.

Compiled passes that evaluate hidden assignments, on an agent's original factors or on its score columns.
"""

import math

import numpy as np

from dmcmc.inference.runtime.compile import njit

_MULTIPLY_0 = np.uint64(0xD2511F53)
_MULTIPLY_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)
_LOW_32_BITS = np.uint64(0xFFFFFFFF)
_WORD_BITS = np.uint64(32)
ROUNDS = 10


@njit(allocates=False)
def philox(k0, k1, c0, c1, c2, c3):
    """Return four 32-bit random words (as uint64) for a key of two words and a counter of four words.

    Parameters
    ----------
    k0, k1 : uint64
        The key, each below 2^32.
    c0, c1, c2, c3 : int
        The counter, each below 2^32; for chains: row, run, trial, block.
    """
    k0, k1 = np.uint64(k0), np.uint64(k1)
    c0, c1, c2, c3 = np.uint64(c0), np.uint64(c1), np.uint64(c2), np.uint64(c3)
    for _ in range(ROUNDS):
        left = _MULTIPLY_0 * c0
        right = _MULTIPLY_1 * c2
        c0 = (right >> _WORD_BITS) ^ c1 ^ k0
        c1 = right & _LOW_32_BITS
        c2 = (left >> _WORD_BITS) ^ c3 ^ k1
        c3 = left & _LOW_32_BITS
        k0 = (k0 + _WEYL_0) & _LOW_32_BITS
        k1 = (k1 + _WEYL_1) & _LOW_32_BITS
    return c0, c1, c2, c3


@njit(allocates=False)
def uniform(word):
    """Return a 32-bit random word as a float64 strictly inside (0, 1)."""
    return (np.float64(word) + 0.5) * 2.0**-32


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


START_BLOCK = 1 << 24  # first block of a chain's counter that its trials do not use
SWAP_BLOCK = 1 << 25


@njit(allocates=False)
def start_row(shape, row, run, key, first):
    """Return the row whose best state one chain of a warm round starts from.

    Run 0 starts from its own row; other runs start from a row that differs in one interface variable, drawn uniformly.

    Parameters
    ----------
    shape : (|B|,) int64
        Domain sizes of the interface variables; rows are in C order.
    row, run : int
        Numbers of the row and of the run.
    key : (2,) uint64
        Key of the agent's chains.
    first : int
        Number of the round's first trial.
    """
    movable = 0
    for b in range(shape.size):
        movable += shape[b] > 1
    if run == 0 or movable == 0:
        return row
    words = philox(key[0], key[1], row, run, first, START_BLOCK)
    chosen = np.int64((words[0] * np.uint64(movable)) >> np.uint64(32))
    stride = 1
    for b in range(shape.size - 1, -1, -1):
        stride *= shape[b]
    for b in range(shape.size):
        stride //= shape[b]
        if shape[b] == 1:
            continue
        if chosen == 0:
            value = row // stride % shape[b]
            other = np.int64((words[1] * np.uint64(shape[b] - 1)) >> np.uint64(32))
            return row + (other + (other >= value) - value) * stride
        chosen -= 1
    return row


@njit(allocates=False)
def exchanges(cold_temperature, hot_temperature, rise, key0, key1, row, rung, trial):
    """Return whether the runs on two neighbouring rungs are exchanged, by the rule of parallel tempering.

    They are if log(u) < (1 / T_cold − 1 / T_hot) · (U_hot − U_cold), with u uniform in (0, 1).

    Parameters
    ----------
    cold_temperature, hot_temperature : float32
        Temperatures of the two rungs, in chain units.
    rise : float64
        U_hot − U_cold, where U are the utilities in which each violation has a finite penalty (*eased*).
    key0, key1 : uint64
        Key of the agent's chains.
    row, rung, trial : int
        Counter of the random bits: the row, the lower rung and the trial.
    """
    rate_difference = 1.0 / np.float64(cold_temperature) - 1.0 / np.float64(hot_temperature)
    return math.log(uniform(philox(key0, key1, row, rung, trial, SWAP_BLOCK)[0])) < rate_difference * rise


@njit(nogil=True)
def evaluate_all(flat, domains, states, forbidden, zero, lowest, values):
    """Set ``values[row]`` to the sum of the factors' entries at the row's interface values and hidden values.

    Parameters
    ----------
    flat : FlatTables
        The agent's tables.
    domains : (n,) int32
        Domain sizes, hidden variables first.
    states : (rows, hidden) integers
        Hidden values of each row.
    forbidden : scalar of the dtype of the tables
        The value of a forbidden entry.
    zero, lowest : scalars of the dtype of ``values``
        The sum of no factors, and the result of a row with a forbidden entry.
    values : (rows,) int64 or float64
        The result.
    """
    rows, hidden = states.shape
    z = np.zeros(domains.size, dtype=np.int64)
    for row in range(rows):
        quotient = row
        for v in range(domains.size - 1, hidden - 1, -1):
            z[v] = quotient % domains[v]
            quotient //= domains[v]
        for v in range(hidden):
            z[v] = states[row, v]
        total = zero
        for f in range(flat.at.size - 1):
            cell = 0
            for s in range(flat.scope_start[f], flat.scope_start[f + 1]):
                cell = cell * domains[flat.scope[s]] + z[flat.scope[s]]
            entry = flat.data[flat.at[f] + cell]
            if entry == forbidden:
                total = zero
                values[row] = lowest
                break
            total += entry
        else:
            values[row] = total


@njit(nogil=True)
def evaluate_chains(model, shape, rows, states, values):
    """Set ``values[i]`` to the utility in chain units of row ``rows[i]`` with hidden values ``states[rows[i]]``.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    shape : (|B|,) int64
        Domain sizes of the interface variables.
    rows : (k,) int64
        Numbers of rows in C order.
    states : (rows, hidden) integers
        Hidden values of every row.
    values : (k,) int64
        The result.
    """
    z = np.zeros(model.domains.size, dtype=np.int32)
    for i in range(rows.size):
        set_interface(model, shape, rows[i], z)
        for v in range(model.hidden):
            z[v] = states[rows[i], v]
        values[i] = evaluate(model, z)
