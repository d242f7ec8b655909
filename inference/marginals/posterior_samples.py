"""Draw exact samples from a calibrated junction tree: forward sampling from the roots to the leaves.

A clique is drawn given the values of its separator, which its parent has drawn. The weight of an assignment of the
clique is the product of its factors and of its children's upward messages (Dawid 1992, §4.2).
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from dmcmc.inference.junction_tree.passes import CliqueTreePasses
from dmcmc.inference.junction_tree.sparse_passes import SparsePasses
from dmcmc.inference.junction_tree.sum_product_kernels import to_logarithms
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.sparse_table import fields_of
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES

_BYTES_PER_ENTRY = 40  # offset, weight, its exponential, the running sum and a copy


def draw_entries(log_weights: Array, start: Ints, group: Ints, rng: np.random.Generator) -> Ints:
    """Draw an entry of a group for each sample, with probabilities proportional to exp(log_weights).

    Parameters
    ----------
    log_weights : (entries,) float64
        Logarithms of the weights, group by group; −∞ for an entry that cannot be drawn.
    start : (groups + 1,) int64
        The first entry of each group, and the end. No group is empty or has only the weight 0.
    group : (samples,) int64
        The group of each sample.
    rng : Generator
        The random numbers.

    Returns
    -------
    (samples,) int64
        The positions of the drawn entries in ``log_weights``.

    Examples
    --------
    >>> weights = np.log([0.5, 0.5]).tolist() + [-np.inf, 0.0]
    >>> draw_entries(np.array(weights), np.array([0, 2, 4]), np.array([1, 1]), np.random.default_rng(0)).tolist()
    [3, 3]
    """
    largest = np.repeat(np.maximum.reduceat(log_weights, start[:-1]), np.diff(start))
    running_sum = np.cumsum(np.exp(log_weights - largest))
    before = np.concatenate(([0.0], running_sum))[start[:-1]][group]
    end = running_sum[start[1:] - 1][group]
    # rounding must not carry a number to the next group
    targets = np.minimum(before + rng.random(group.size) * (end - before), np.nextafter(end, -np.inf))
    drawn: Ints = running_sum.searchsorted(targets, side="right")
    return drawn


def sample_dense(
    passes: CliqueTreePasses, scopes: Sequence[tuple[int, ...]], samples: int, rng: np.random.Generator
) -> Ints:
    """Draw assignments from dense tables whose upward messages are up to date on the CPU.

    Parameters
    ----------
    passes : CliqueTreePasses
        The tables and messages; sums, not maxima.
    scopes : sequence of tuple of int
        The variables of each clique, children before their parents.
    samples : int
        Number of samples.
    rng : Generator
        The random numbers.

    Returns
    -------
    (samples, variables) int64
        One value index per variable.
    """
    program, layout = passes.layout.program, passes.layout
    messages = layout.up_message(0) + np.arange(len(scopes))
    to_logarithms(program, passes.arena, passes.linear_tables, messages)
    values = np.zeros((samples, program.domains.size), dtype=np.int64)
    for clique in reversed(range(len(scopes))):
        passes.stop.check()
        message = layout.up_message(clique)
        separator = program.scope[program.scope_start[message] : program.scope_start[message + 1]]
        free = [v for v in scopes[clique] if v not in separator.tolist()]
        free_values = _value_grid(free, program.domains, program.observed)
        given, group = np.unique(values[:, separator], axis=0, return_inverse=True)
        group = group.reshape(-1)
        entries, order = len(free_values), np.argsort(group, kind="stable")
        MEMORY_ACCOUNT.claim(_BYTES_PER_ENTRY * entries, "the weights of a clique for sampling")
        at_once = max(1, MAX_ENUMERATED_ENTRIES // entries)
        for first in range(0, len(given), at_once):
            rows = given[first : first + at_once]
            begin, end = np.searchsorted(group[order], [first, first + len(rows)])
            drawn_for = order[begin:end]
            log_weights = _log_weights(passes, clique, (separator.tolist(), rows), (free, free_values)).reshape(-1)
            start = np.arange(len(rows) + 1) * entries
            drawn = draw_entries(log_weights, start, group[drawn_for] - first, rng)
            values[drawn_for[:, None], free] = free_values[drawn % entries]
    return values


def _value_grid(variables: Sequence[int], domains: Ints, observed: Ints) -> Ints:
    """Return all assignments of some variables that agree with the evidence, (assignments, variables)."""
    choices = [np.arange(domains[v]) if observed[v] < 0 else observed[v : v + 1] for v in variables]
    columns = np.meshgrid(*choices, indexing="ij")
    return np.array([c.reshape(-1) for c in columns], dtype=np.int64).reshape(len(variables), -1).T


def _log_weights(
    passes: CliqueTreePasses,
    clique: int,
    given: tuple[Sequence[int], Ints],
    free: tuple[Sequence[int], Ints],
) -> Array:
    """Return the log-weights of a clique's assignments: the sum of its factors and its children's messages.

    ``given`` and ``free`` are variables and their assignments, one a row. The result has the shape (assignments of
    ``given``, assignments of ``free``).
    """
    program, layout = passes.layout.program, passes.layout
    factors = range(program.factor_start[clique], program.factor_start[clique + 1])
    children = program.child[program.child_start[clique] : program.child_start[clique + 1]].tolist()
    log_weights = np.zeros((len(given[1]), len(free[1])))
    for table in (*factors, *map(layout.up_message, children)):
        scope = program.scope[program.scope_start[table] : program.scope_start[table + 1]].tolist()
        is_message = table >= len(layout.factors)  # a message has entries only for the observed value
        sizes = [1 if is_message and program.observed[v] >= 0 else int(program.domains[v]) for v in scope]
        stride = {
            v: 0 if size == 1 else prod(sizes[i + 1 :]) for i, (v, size) in enumerate(zip(scope, sizes, strict=True))
        }
        by_given, by_free = (
            rows @ np.array([stride.get(v, 0) for v in variables], dtype=np.int64) for variables, rows in (given, free)
        )
        log_weights += passes.arena[program.at[table] + by_given[:, None] + by_free]
    return log_weights


def sample_sparse(passes: SparsePasses, samples: int, rng: np.random.Generator) -> Ints:
    """Draw assignments from sparse tables whose upward messages are up to date on the CPU.

    Parameters
    ----------
    passes : SparsePasses
        The rows and messages; sums, not maxima.
    samples : int
        Number of samples.
    rng : Generator
        The random numbers.

    Returns
    -------
    (samples, variables) int64
        One value index per variable.
    """
    domains, tree = passes.domains, passes.tree
    values = np.zeros((samples, domains.size), dtype=np.int64)
    for clique in reversed(range(len(tree.scopes))):
        passes.stop.check()
        table, separator = passes.cliques[clique], list(tree.separators[clique])
        keys = values[:, separator] << fields_of(separator, domains).shift
        wanted, group = np.unique(
            passes.separators[clique].searchsorted(np.bitwise_or.reduce(keys, axis=1)), return_inverse=True
        )
        row_group = passes.clique_to_separator[clique]
        order = np.argsort(row_group, kind="stable")
        order = order[np.isin(row_group[order], wanted)]
        start = np.append(row_group[order].searchsorted(wanted), order.size)
        log_weights = passes.row_values(clique, up=True)[order]
        rows = order[draw_entries(log_weights, start, group.reshape(-1), rng)]
        fields = fields_of(table.scope, domains)
        values[:, list(table.scope)] = (table.keys[rows, None] >> fields.shift) & fields.mask
    return values
