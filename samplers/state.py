"""A chain's state and the moves on it, shared by all samplers: evaluate, score, change one variable.

``z`` (n,) int32 holds the values, hidden variables first; ``scores`` (hidden, lanes) holds for every hidden variable
and each of its values the utility of its factors, all others as they are. Scores are kept up to date, not recomputed:
when a variable changes, its neighbours' rows move by the difference of two columns.
"""

from numba import njit

from dmcmc.samplers.rng import philox, uniform


@njit(cache=True)
def column_of(model, column, z):
    """Return where a column starts in ``model.data`` for the values of the factor's other variables."""
    at = model.column_at[column]
    for o in range(model.other_start[column], model.other_start[column + 1]):
        at += z[model.other_variable[o]] * model.other_stride[o]
    return at


@njit(cache=True)
def evaluate(model, z):
    """Return the utility of a state, penalties included."""
    total = model.data[0] - model.data[0]
    for f in range(model.factor_column.size):
        total += model.data[column_of(model, model.factor_column[f], z) + z[model.factor_variable[f]]]
    return total


@njit(cache=True)
def fill_scores(model, z, scores):
    """Compute all scores of a state from nothing."""
    for v in range(model.hidden):
        row = scores[v]
        row[: model.domains[v]] = 0
        for c in range(model.column_start[v], model.column_start[v + 1]):
            at = column_of(model, c, z)
            for i in range(model.domains[v]):
                row[i] += model.data[at + i]


@njit(cache=True)
def random_state(model, z, rng):
    """Draw every hidden variable uniformly (trial 0 of the chain's counter)."""
    for block in range((model.hidden + 3) // 4):
        words = philox(rng[0], rng[1], rng[2], rng[3], 0, block)
        for i in range(4):
            v = 4 * block + i
            if v < model.hidden:
                z[v] = min(int(uniform(words[i]) * model.domains[v]), model.domains[v] - 1)


@njit(cache=True)
def change(model, z, scores, v, value):
    """Set hidden variable v to a value and bring its neighbours' scores up to date."""
    old = z[v]
    z[v] = value
    for t in range(model.touch_start[v], model.touch_start[v + 1]):
        column = model.touch_column[t]
        if model.touch_binary[t]:
            new_at = model.column_at[column] + value * model.touch_stride[t]
        else:
            new_at = column_of(model, column, z)
        old_at = new_at + (old - value) * model.touch_stride[t]
        w = model.touch_variable[t]
        add_column(scores[w], model.data[new_at:], model.data[old_at:], model.domains[w])


@njit(cache=True)
def add_column(row, new, old, size):
    """Add new − old to the first ``size`` entries of a row."""
    to, plus, minus = row[:size], new[:size], old[:size]  # slices: indices known to be in range vectorise
    for i in range(size):
        to[i] += plus[i] - minus[i]
