"""Eliminate in slices: for some values of one kept variable at a time, so that the tables fit the memory.

A *slice* has some consecutive values of a variable that is kept. Its messages are smaller by the ratio of these values
to all, and the remaining tables of all slices together are those of the undivided elimination. This is the idea of
MB-DPOP (Petcu and Faltings 2007) within one agent: there, values of *cut* variables are taken one at a time between
agents (:mod:`dmcmc.inference.dpop.slicing`). Messages without the variable are made once per slice.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.types import Ints


class Slices(NamedTuple):
    """A division of an elimination into slices.

    Attributes
    ----------
    variable : int
        The kept variable whose values are divided.
    values : int
        Maximum number of its values in a slice.
    entries : int
        Table entries of the largest slice, and of the remaining tables of all slices.
    cells : int
        Joined cells of all slices of a part.
    """

    variable: int
    values: int
    entries: int
    cells: int


def choose_slices(
    scopes: Sequence[Sequence[int]],
    domains: Ints,
    plan: EliminationPlan,
    keep: Sequence[int],
    max_entries: float,
    parts: int = 1,
) -> Slices | None:
    """Choose the variable and the slices that join the fewest cells, so that each slice fits a number of entries.

    Parameters
    ----------
    scopes
        The scope of each input table.
    domains : (variables,) int64
        Domain sizes.
    plan
        The undivided elimination.
    keep
        The kept variables, candidates for the division.
    max_entries
        Upper bound on the entries of the tables that exist at the same time.
    parts
        Number of processes that share the values of the variable; each makes its part in slices.

    Returns
    -------
    Slices or None
        None if no division fits. If the undivided elimination fits and ``parts`` is 1, there is one slice.

    Examples
    --------
    >>> scopes, domains = [(0, 1), (1, 2), (2, 3)], np.array([8, 6, 6, 8])
    >>> plan = plan_elimination(scopes, domains, order=[1, 2], keep=[0, 3])
    >>> plan.entries, choose_slices(scopes, domains, plan, [0, 3], max_entries=240)
    (244, Slices(variable=0, values=4, entries=228, cells=672))
    """
    order, remaining = plan.program.variable.tolist(), sum(int(plan.sizes[t]) for t in plan.remaining)
    best: Slices | None = None
    for v in keep:
        part = -(-int(domains[v]) // parts)
        if plan.entries > max_entries * int(domains[v]):
            continue  # not even slices of one value fit
        values, sizes = part, domains.copy()
        while True:
            sizes[v] = values
            slice_plan = plan_elimination(scopes, sizes, order, keep)
            entries = slice_plan.entries + (remaining if values < int(domains[v]) else 0)
            if entries <= max_entries or values == 1:
                break
            values = -(-values // 2)
        cells = slice_plan.cells * -(-part // values)
        if entries <= max_entries and (best is None or cells < best.cells):
            best = Slices(v, values, entries, cells)
    return best


def eliminate_in_slices(
    tables: Sequence[EncodedTable],
    domains: Ints,
    order: Sequence[int],
    keep: Sequence[int],
    slices: Slices,
    values: range,
    eliminate: Callable[[Sequence[EncodedTable], EliminationPlan], Elimination],
) -> list[EncodedTable]:
    """Return the remaining tables for a range of values of the divided variable.

    Parameters
    ----------
    tables
        The input tables.
    domains : (variables,) int64
        Domain sizes.
    order, keep
        The eliminated and the kept variables.
    slices
        The division.
    values
        Consecutive values of the divided variable, of which all slices are made.
    eliminate
        Carries out a plan.

    Returns
    -------
    list of EncodedTable
        Axes of the divided variable have ``len(values)`` entries.
    """
    v, found = slices.variable, list[EncodedTable]()
    for begin in range(values.start, values.stop, slices.values):
        end = min(begin + slices.values, values.stop)
        part = [
            EncodedTable(scope, entries[tuple(slice(begin, end) if u == v else slice(None) for u in scope)])
            for scope, entries in tables
        ]
        sizes = domains.copy()
        sizes[v] = end - begin
        remaining = eliminate(part, plan_elimination([t.scope for t in part], sizes, order, keep)).remaining()
        for number, (scope, entries) in enumerate(remaining):
            if begin == values.start:
                shape = tuple(len(values) if u == v else n for u, n in zip(scope, entries.shape, strict=True))
                found.append(EncodedTable(scope, np.empty(shape, dtype=entries.dtype)))
            place = slice(begin - values.start, end - values.start)
            found[number].values[tuple(place if u == v else slice(None) for u in scope)] = entries
    return found
