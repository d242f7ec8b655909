"""Branch and bound on the GPU equals the CPU's to the bit; runs under Numba's simulator."""

from dataclasses import replace

import numpy as np
import pytest
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_FIELDS,
    JOB_ROW,
    JOB_SOURCE,
    JOB_TARGET,
    JOB_THRESHOLD,
    JOB_WORK,
    NO_VARIABLE,
    NOT_PROCESSED,
    NodeWork,
    SearchBatch,
    run_batches,
)
from dmcmc.inference.bounds.branch_and_bound.cuda.check_bounds import check_dual_bounds
from dmcmc.inference.bounds.branch_and_bound.cuda.dual_bounder import GpuDualBounder
from dmcmc.inference.bounds.branch_and_bound.cuda.node_kernels import NOTE_FIELDS
from dmcmc.inference.bounds.branch_and_bound.dual_bounder import (
    CpuDualBounder,
    entry_bytes,
)
from dmcmc.inference.bounds.branch_and_bound.frontier import Frontier
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    run_boundary_searches,
)
from dmcmc.inference.bounds.contract.tuning import MAX_FRONTIER_BYTES
from dmcmc.inference.bounds.dual.cuda.device_ascent import place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.errors import GpuFault

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


SCOPES = [(0, 1), (2, 0), (1, 2), (2, 3), (1, 3), (3, 4), (4,), (0, 4), (1, 4), (0,)]


def agent(seed, hard, scopes, largest):
    """Return an agent with one interface variable and four hidden ones."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, largest, 5)
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 99, hard)) for s in scopes]
    return LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64))


def frontier_of(state, capacity):
    allowed = state.potentials.unary[: state.layout.n_hidden] >= FORBIDDEN_BELOW
    frontier = Frontier(allowed, state.bounds, state.layout.scale, capacity, MAX_FRONTIER_BYTES)
    rows = np.arange(state.bounds.size)
    cutoffs = np.full(rows.size, MINUS_INFINITY)
    frontier.begin(state.bounds, rows, cutoffs, cutoffs)
    return frontier


def release_all_entries(frontier):
    """Release all buffer entries, as if other nodes needed them."""
    frontier.entries.free += [entry for entry in frontier.open_nodes.entry.tolist() if entry >= 0]
    frontier.open_nodes.entry[:] = -1


@pytest.mark.parametrize(
    "seeds, hard, scopes, largest",
    [
        ((0, 4), 0.0, SCOPES, 5),
        ((1,), 0.4, SCOPES, 5),
        ((2,), 0.0, [*SCOPES, (0, 2, 4), (1, 2, 3)], 5),
        ((3,), 0.0, SCOPES, 11),
    ],
)
def test_batches_of_all_agents_equal_the_cpus(seeds, hard, scopes, largest, exact_memory):
    locals_, capacity = [agent(seed, hard, scopes, largest) for seed in seeds], 9
    cpu_states, gpu_states = ([DualState(local, triangles=True) for local in locals_] for _ in range(2))
    place_on_device(gpu_states)  # on the device in one group
    bounders = [
        [CpuDualBounder(state, capacity * entry_bytes(state.layout.hidden, state.width)) for state in cpu_states],
        [GpuDualBounder(state) for state in gpu_states],
    ]
    frontiers = [[frontier_of(state, capacity) for state in states] for states in (cpu_states, gpu_states)]
    for round_index in range(4 if len(seeds) == 1 else 2):
        for frontier in [*frontiers[0], *frontiers[1]] if round_index == 3 else []:
            release_all_entries(frontier)
        chosen = [[frontier.next_batch(2, NodeWork(2, 1, 1)) for frontier in some] for some in frontiers]
        found = [
            run_batches([(bounder, batch) for bounder, (_, batch) in zip(some, batches, strict=True)], NO_DEADLINE)
            for some, batches in zip(bounders, chosen, strict=True)
        ]
        for cpu_batch, gpu_batch, cpu_result, gpu_result in zip(*chosen, *found, strict=True):
            assert cpu_batch[1].jobs.tolist() == gpu_batch[1].jobs.tolist()
            assert cpu_result.bounds.tolist() == gpu_result.bounds.tolist()
            assert cpu_result.variables.tolist() == gpu_result.variables.tolist()
            branching = cpu_result.variables >= 0
            assert cpu_result.parts[branching].tolist() == gpu_result.parts[branching].tolist()
            assert (cpu_result.masks[branching] == gpu_result.masks[branching]).all()
        for some, batches, results in zip(frontiers, chosen, found, strict=True):
            for frontier, (nodes, batch), cpu_result in zip(some, batches, results, strict=True):
                frontier.record(nodes, batch, cpu_result)
        assert [frontier.bounds()[1].tolist() for frontier in frontiers[0]] == [
            frontier.bounds()[1].tolist() for frontier in frontiers[1]
        ]


def test_an_infeasible_row_makes_its_branches_infeasible():
    local = agent(0, 0.0, SCOPES, 5)
    first = np.arange(local.domains[4]) == 0
    local = replace(local, factors=(*local.factors, Factor.of((4,), np.where(first, -np.inf, 0))))
    for bounder in (
        CpuDualBounder(DualState(local, triangles=True), 1 << 20),
        GpuDualBounder(DualState(local, triangles=True)),
    ):
        layout = bounder.state.layout
        jobs = np.zeros((4, JOB_FIELDS), dtype=np.int64)
        jobs[:, JOB_ROW], jobs[:, JOB_WORK], jobs[:, JOB_THRESHOLD] = [0, 0, 0, 1], 1, MINUS_INFINITY
        jobs[:, JOB_SOURCE], jobs[:, JOB_TARGET] = [-1, 0, 0, -1], [0, 1, 0, 2]
        masks = np.repeat((layout.potentials.unary[: layout.n_hidden] >= FORBIDDEN_BELOW)[None], 4, axis=0)
        (found,) = run_batches([(bounder, SearchBatch(jobs, np.array([0, 3, 4]), masks))], NO_DEADLINE)
        assert found.bounds[:3].tolist() == [MINUS_INFINITY] * 3 and found.variables[:3].tolist() == [NO_VARIABLE] * 3
        assert found.bounds[3] > MINUS_INFINITY


def test_a_search_that_ends_returns_its_part_of_the_buffer():
    states = [DualState(agent(seed, 0.0, SCOPES, 4), triangles=True) for seed in (0, 4)]
    place_on_device(states)
    for _ in range(3):  # as often as a search is dropped and created anew
        bounders = [GpuDualBounder(state) for state in states]
        buffer = bounders[0].runner
        assert buffer is bounders[1].runner and not buffer.free_parts
        firsts = sorted(bounder.part.first for bounder in bounders)
        assert firsts == [0, buffer.capacity]
        assert firsts[1] + buffer.capacity <= buffer._entry_notes.size // NOTE_FIELDS
        assert GpuDualBounder(states[0]).runner is not buffer  # a further search gets a buffer of its own
        with pytest.raises(IndexError, match="node entry"):
            bounders[0].part.place(np.array([-1, buffer.capacity]))
        assert bounders[1].part.place(np.array([-1, 0])).tolist() == [-1, bounders[1].part.first]
        del bounders, buffer
    assert states[0].remote.group.node_buffer() is None  # the last search has freed the memory


def searched(hard, scopes, largest):
    """Return a dual ascent on the GPU and a branch and bound over its rows after some batches."""
    state = DualState(agent(5, hard, scopes, largest), triangles=True)
    search = BoundarySearch(state, GpuDualBounder(state))
    no_cutoffs = np.full(state.bounds.size, -np.inf)
    run_boundary_searches([BoundarySearchRequest(search, no_cutoffs, no_cutoffs)], batches=1)
    nodes, _ = search.best_nodes(100)
    assert (nodes.entry >= 0).any()
    return state, search


@pytest.mark.parametrize("hard, scopes", [(0.0, SCOPES), (0.3, SCOPES), (0.0, [*SCOPES, (0, 2, 4), (1, 2, 3)])])
def test_the_check_on_the_cpu_accepts_what_the_gpu_has_computed(hard, scopes):
    state, search = searched(hard, scopes, 4)
    check_dual_bounds(state, search, np.inf)


@pytest.mark.parametrize("part", ["potentials", "tables", "bounds"])
def test_the_check_on_the_cpu_finds_wrong_numbers(part, monkeypatch):
    state, search = searched(0.0, SCOPES, 4)
    group, buffer = state.remote.group, search.bounder.runner
    if part == "potentials":
        group._arena.copy_to_device(group._arena.copy_to_host() - 1000)
        state.record_device_sweeps(state.sweeps_done, True)
    elif part == "tables":
        buffer._buffer.copy_to_device(buffer._buffer.copy_to_host() - 1000)
    else:
        nodes, thresholds = search.best_nodes(100)
        lowered = nodes._replace(bound=nodes.bound - (1 << 20))
        monkeypatch.setattr(search, "best_nodes", lambda count: (lowered, thresholds))
    with pytest.raises(GpuFault, match="error of the program"):
        check_dual_bounds(state, search, np.inf)


def test_a_batch_after_the_deadline_stays_unprocessed():
    state = DualState(agent(0, 0.0, SCOPES, 5), triangles=True)
    bounder, frontier, rows = GpuDualBounder(state), frontier_of(state, 5), np.arange(state.bounds.size)
    chosen, batch = frontier.next_batch(2, NodeWork(2, 1, 1))
    (found,) = run_batches([(bounder, batch)], Deadline(until=0.0))
    assert (found.bounds == NOT_PROCESSED).all()
    frontier.record(chosen, batch, found)
    assert frontier.size == rows.size and frontier.bounds()[1].tolist() == state.bounds.tolist()
