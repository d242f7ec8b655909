"""Slow reference implementations: plain Python numbers, every table written out in full.

Tables are object arrays of Python ints or floats, with ``-inf`` for forbidden entries. Integers neither round nor wrap.
"""

from fractions import Fraction
from itertools import product

import numpy as np

from dmcmc.inference.model.tables import forbidden

INFINITY = float("inf")


def utilities(table):
    """Return a factor's table as Python numbers."""
    plain = np.array(table, dtype=object)
    plain[forbidden(table)] = -INFINITY
    return plain


def decoded(values, arithmetic):
    """Return an encoded table as Python numbers."""
    values = np.asarray(values)
    plain = np.array(values, dtype=object)
    plain[(values < arithmetic.forbidden_below) | (values == arithmetic.lowest)] = -INFINITY
    return plain


def plain_tables(tables, arithmetic):
    """Return encoded tables as pairs of scope and Python numbers."""
    return [(scope, decoded(values, arithmetic)) for scope, values in tables]


def same_numbers(left, right, tolerance=0.0):
    """Return whether two tables are equal entry by entry: −inf exactly, finite numbers up to an absolute tolerance."""
    left, right = np.asarray(left, dtype=object), np.asarray(right, dtype=object)
    return left.shape == right.shape and all(
        a == b or (abs(a) < INFINITY and abs(b) < INFINITY and abs(a - b) <= tolerance)
        for a, b in zip(left.ravel(), right.ravel(), strict=True)
    )


def join(tables, variables, domains):
    """Return the sum of tables, dense over ``variables`` in that order."""
    total = np.zeros([int(domains[v]) for v in variables], dtype=object)
    for scope, values in tables:
        axes = sorted(range(len(scope)), key=lambda axis: variables.index(scope[axis]))
        shape = [int(domains[v]) if v in scope else 1 for v in variables]
        total = total + np.asarray(values, dtype=object).transpose(axes).reshape(shape)
    return np.asarray(total, dtype=object)


def maximum(table, axes):
    """Maximise a table over some axes."""
    for axis in sorted(axes, reverse=True):
        table = np.asarray(np.maximum.reduce(table, axis=axis), dtype=object)
    return table


def marginal(tables, eliminate, keep, domains):
    """Return the maximum over ``eliminate`` of the sum of tables, dense over ``keep``."""
    return maximum(join(tables, [*keep, *eliminate], domains), range(len(keep), len(keep) + len(eliminate)))


def utility(problem, values, exact=False):
    """Return the utility of an assignment (to be maximised), −inf if it is infeasible; exact rationals if ``exact``."""
    total = 0
    for factor in problem.factors:
        entry = factor.table[tuple(values[v] for v in factor.scope)]
        if forbidden(entry):
            return -INFINITY
        total += Fraction(entry.item()) if exact else entry.item()
    return total


def optimum(problem, exact=False):
    """Return the best utility of all assignments, −inf if none is feasible; exact rationals if ``exact``."""
    return max(utility(problem, values, exact) for values in product(*map(range, problem.domains.tolist())))


def row_values(local):
    """Return the best utility of an agent's factors for every assignment of its boundary variables."""
    tables = [(f.scope, utilities(f.table)) for f in local.factors]
    return marginal(tables, local.hidden, local.interface, local.domains)


def attained(local, values):
    """Return the utility of an agent's factors at the values of its variables, −inf if one forbids them."""
    return sum(utilities(f.table)[tuple(values[v] for v in f.scope)] for f in local.factors)


def simulate_order(scopes, domains, order):
    """Eliminate step by step on sets of neighbours; return each step's neighbours and joined cells."""
    neighbours = {v: set() for v in range(len(domains))}
    for scope in scopes:
        for v in scope:
            neighbours[v] |= set(scope) - {v}
    steps = []
    for v in order:
        around = neighbours.pop(v)
        cells = int(domains[v])
        for u in around:
            neighbours[u] = (neighbours[u] | around) - {u, v}
            cells *= int(domains[u])
        steps.append((around, cells))
    return steps


def philox(key, counter):
    """Return the four words of Philox4x32-10 (Salmon et al., SC 2011) for a key of two words and a counter of four."""
    mask = 2**32 - 1
    k, c = list(key), list(counter)
    for _ in range(10):
        left, right = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(right >> 32) ^ c[1] ^ k[0], right & mask, (left >> 32) ^ c[3] ^ k[1], left & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return tuple(c)
