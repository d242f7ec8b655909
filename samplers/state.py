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


@njit(cache=True, inline="always")
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
        add_column(scores, w, model.data, new_at, old_at, model.domains[w])


@njit(cache=True, inline="always")
def add_column(scores, v, data, new_at, old_at, size):
    """Add one column of ``data`` to the scores of v, and take another off."""
    # Slices made here: their indices are known to be in range, so the loop vectorises, and nobody counts references.
    row, plus, minus = scores[v, :size], data[new_at : new_at + size], data[old_at : old_at + size]
    for i in range(size):
        row[i] += plus[i] - minus[i]
