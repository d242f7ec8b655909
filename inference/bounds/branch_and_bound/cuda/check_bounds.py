"""Check without the kernels what the bounds of a dual ascent rest on: its potentials, and the open nodes of a search.

The tables of a dual ascent are valid if no assignment has a larger utility than the sum of the entries that it selects.
The bound of a node is valid if no assignment of the node that matters has a larger utility. Both are compared with the
utilities of random assignments, computed from the agent's factors. Every message moves utility between tables for all
assignments at once, so an error in a table shows in most assignments that select it.
"""

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.dual_bounder import CpuBatchRunner
from dmcmc.inference.bounds.branch_and_bound.node_kernels import FORBIDDEN_INT16
from dmcmc.inference.bounds.branch_and_bound.open_nodes import OpenNodes, utilities_of
from dmcmc.inference.bounds.branch_and_bound.row_search import BoundarySearch
from dmcmc.inference.bounds.contract.tuning import MAX_EVALUATED_ENTRIES, MAX_NODES_PER_BATCH
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import DualGraph, DualPotentials
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN, FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.runtime.errors import GpuFault
from dmcmc.inference.runtime.types import Ints
from dmcmc.inference.tuning import SAMPLE_SIZE

if TYPE_CHECKING:
    from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import StoredNode

_NODES_AT_ONCE = 64  # nodes whose assignments are evaluated together
_ASSIGNMENTS_PER_NODE = 4  # an error shows in most assignments


class WrongBound(RuntimeError):
    """A dual bound below the utility of an assignment that it covers; this is an error of the program."""


def check_dual_bounds(
    state: DualState, search: BoundarySearch | None, until: float, best: tuple[Ints, int | float] | None = None
) -> None:
    """Check the potentials of an agent, and the open nodes of its search, the ones with the best bounds first.

    Parameters
    ----------
    state : DualState
        The agent's dual ascent, on the CPU or on a GPU.
    search : BoundarySearch or None
        The branch and bound over its rows.
    until : float
        Time (``time.perf_counter``) at which the check of the nodes ends early.
    best : tuple of (n,) int64 and utility, or None
        Values of the hidden variables and utility of an assignment of an agent without boundary variables.

    Raises
    ------
    GpuFault
        If a number that a GPU has computed is wrong; this is an error of the program or of the device.
    WrongBound
        If a number of the CPU is wrong.
    """
    rng = np.random.default_rng(state.sweeps_done)
    if best is not None:
        utility = np.array([state.layout.scale.encode_up(best[1])])
        _compare(state, "bounds", state.bounds[:1] + state.layout.scale.threshold_error, utility)
        _compare(state, "potentials", sums_of(state.layout.whole, state.potentials, best[0][None]), utility)
    affordable = MAX_EVALUATED_ENTRIES // max(1, len(state.local.factors))
    count = SAMPLE_SIZE if state.remote is not None else min(SAMPLE_SIZE, affordable)
    _check_potentials(state, rng, count)
    if search is not None and count and search.bounder.scale == state.layout.scale:
        nodes, thresholds = search.best_nodes(2 * MAX_NODES_PER_BATCH)
        stored = stored_nodes_of(search, nodes)
        while time.perf_counter() < until and (batch := list(islice(stored, _NODES_AT_ONCE))):
            numbers = np.array([node for node, _ in batch])
            _check_nodes(state, nodes.where(numbers), [tables for _, tables in batch], thresholds[numbers], rng)


def stored_nodes_of(search: BoundarySearch, nodes: OpenNodes) -> "Iterator[tuple[int, StoredNode | None]]":
    """Yield the numbers of some open nodes, with the tables of those that a GPU holds, and None on the CPU."""
    if isinstance(search.bounder.runner, CpuBatchRunner):
        return ((number, None) for number in range(nodes.row.size))
    from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import GpuDualBounder

    return search.bounder.stored_nodes(nodes.entry) if isinstance(search.bounder, GpuDualBounder) else iter(())


def _check_potentials(state: DualState, rng: np.random.Generator, count: int) -> None:
    """Check the potentials of the whole graph by random assignments of all variables."""
    graph, shape, n = state.layout.whole, state.local.interface_shape, state.layout.n_hidden
    values = _random_values(np.arange(state.width) < graph.domains[:, None], count, rng)
    digits = tuple(values[:, n:].T)
    rows = np.ravel_multi_index(digits, shape) if shape else np.zeros(len(values), dtype=np.int64)
    _compare(state, "potentials", sums_of(graph, state.potentials, values), _encoded(state, rows, values[:, :n]))


def _check_nodes(
    state: DualState,
    nodes: OpenNodes,
    stored: "Sequence[StoredNode | None]",
    thresholds: Ints,
    rng: np.random.Generator,
) -> None:
    """Check the tables and the bounds of some nodes by random assignments of the values that remain.

    An assignment whose utility is below the threshold does not matter: a bound only has to cover the others.
    """
    count, graph = _ASSIGNMENTS_PER_NODE, state.layout.hidden
    values = [_random_values(mask, count, rng) for mask in nodes.masks(state.layout.n_hidden)]
    utilities = _encoded(state, np.repeat(nodes.row, count), np.concatenate(values))
    for number, (node, own) in enumerate(zip(stored, values, strict=True)):
        if node is not None:
            sums = node.constant + sums_of(graph, node.potentials, own, node.bit_shift)
            _compare(state, "tables of a node", sums, utilities[count * number : count * (number + 1)])
    matters = np.repeat(thresholds, count) <= utilities
    _compare(state, "bound of a node", np.repeat(nodes.bound, count)[matters], utilities[matters])


def _compare(state: DualState, what: str, found: Ints, utilities: Ints) -> None:
    """Raise an error if a number is less than the utility of the assignment that it has to cover."""
    wrong = np.flatnonzero(np.maximum(found, MINUS_INFINITY) < utilities)  # constants below minus infinity
    if wrong.size:
        what = f"the {'GPU' if state.remote is not None else 'CPU'}'s {what} of agent {state.local.agent}"
        text = f"{what} give {found[wrong[0]]}, less than the utility {utilities[wrong[0]]} of an assignment"
        if state.remote is not None:
            raise GpuFault(f"error of the program: {text}; the bound is computed again on the CPU")
        raise WrongBound(text)


def sums_of(graph: DualGraph, tables: DualPotentials, values: Ints, bit_shift: int | None = None) -> Ints:
    """Return the sum of the entries that each assignment selects; far below all utilities if one is forbidden.

    Parameters
    ----------
    graph : DualGraph
    tables : DualPotentials
        Tables over ``graph``.
    values : (k, n) int64
        Assignments.
    bit_shift : int or None
        Left shift of the triangles' tables in bits, if they are stored as int16.

    Returns
    -------
    (k,) int64
        The sums.
    """
    selected = list(_selected(graph, tables, values, bit_shift))
    entries = np.concatenate(selected, axis=1).astype(np.int64)
    is_forbidden = (entries < FORBIDDEN_BELOW).any(axis=1)
    return np.where(is_forbidden, MINUS_INFINITY, entries.sum(axis=1))


def _selected(
    graph: DualGraph, tables: DualPotentials, values: Ints, bit_shift: int | None
) -> Iterator[NDArray[np.int32]]:
    """Yield the entries that assignments (k, n) select, (k, tables of a kind) int32 for each kind of table."""
    yield tables.unary[np.arange(values.shape[1]), values]
    first, second = values[:, graph.pairs[:, 0]], values[:, graph.pairs[:, 1]]
    yield tables.pair[np.arange(len(graph.pairs)), first, second]
    numbers, corners = np.arange(len(graph.triangles)), values[:, graph.corners]
    for side, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        entries = tables.triangle[numbers, side, corners[:, :, a], corners[:, :, b]]
        if bit_shift is not None:
            entries = np.where(entries == FORBIDDEN_INT16, FORBIDDEN, entries.astype(np.int32) << bit_shift)
        yield entries
    for s in range(graph.entry_start.size - 1):
        scope = graph.scope_variables[graph.scope_start[s] : graph.scope_start[s + 1]]
        cells = np.ravel_multi_index(tuple(values[:, scope].T), tuple(graph.domains[scope].tolist()))
        yield tables.higher_order[graph.entry_start[s] + cells][:, None]


def _random_values(allowed: NDArray[np.bool_], count: int, rng: np.random.Generator) -> Ints:
    """Return random assignments of allowed values, (count, n) int64, for a mask (n, W) with a value in each row."""
    weights = rng.random((count, *allowed.shape))
    values: Ints = np.where(allowed, weights, -1.0).argmax(axis=2)
    return values


def _encoded(state: DualState, rows: Ints, values: Ints) -> Ints:
    """Return the utilities of rows with values of the hidden variables in the agent's scale, rounded up."""
    scale = state.layout.scale
    return np.array([scale.encode_up(utility) for utility in utilities_of(state.local, rows, values)], dtype=np.int64)
