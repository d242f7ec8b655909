# mypy: ignore-errors
"""The passes that evaluate hidden assignments: on an agent's original factors, and as chains do."""

import numpy as np

from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.model.state_kernels import evaluate


@njit(nogil=True)
def evaluate_all(flat, domains, states, never, zero, lowest, values):
    rows, hidden = states.shape
    z = np.zeros(domains.size, dtype=np.int64)
    for row in range(rows):
        rest = row
        for v in range(domains.size - 1, hidden - 1, -1):
            z[v] = rest % domains[v]
            rest //= domains[v]
        for v in range(hidden):
            z[v] = states[row, v]
        total = zero
        for f in range(flat.at.size - 1):
            cell = 0
            for s in range(flat.scope_start[f], flat.scope_start[f + 1]):
                cell = cell * domains[flat.scope[s]] + z[flat.scope[s]]
            entry = flat.data[flat.at[f] + cell]
            if entry == never:
                total = zero
                values[row] = lowest
                break
            total += entry
        else:
            values[row] = total


@njit(nogil=True)
def evaluate_chains(model, shape, rows, states, values):
    z = np.zeros(model.domains.size, dtype=np.int32)
    for i in range(rows.size):
        rest = rows[i]
        for b in range(shape.size - 1, -1, -1):
            z[model.hidden + b] = rest % shape[b]
            rest //= shape[b]
        for v in range(model.hidden):
            z[v] = states[rows[i], v]
        values[i] = evaluate(model, z)
