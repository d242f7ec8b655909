"""The frontier with an arbitrary bounder: sound at any time, exact at the end; no buffer entry is lost or mixed up."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dmcmc.inference.bounds.branch_and_bound.bounder import (
    JOB_ROW,
    JOB_SOURCE,
    JOB_TARGET,
    JOB_THRESHOLD,
    JOB_WORK,
    LEAF,
    NO_VARIABLE,
    NOT_PROCESSED,
    OUT_OF_RANGE,
    UNFINISHED,
    BatchResult,
    NodeWork,
)
from dmcmc.inference.bounds.branch_and_bound.frontier import Frontier
from dmcmc.inference.bounds.branch_and_bound.open_nodes import node_bytes
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY, Scale

ROWS, SHAPE, MAX_BRANCHES = 3, (3, 4, 2), 4
WORK = NodeWork(root=9, restored=5, branch=2)


class ArbitraryBounder:
    """Bounds nodes by the best utility plus a random excess, and splits them at random; remembers what it stores."""

    def __init__(self, utilities, rng, interrupted):
        self.utilities, self.rng, self.interrupted = utilities, rng, interrupted
        self.stored = {}  # node of each buffer entry

    def best(self, row, mask):
        values = [np.flatnonzero(allowed) for allowed in mask]
        return int(self.utilities[row][np.ix_(*(v[v < d] for v, d in zip(values, SHAPE, strict=True)))].max())

    def bound(self, batch):
        results = BatchResult.unprocessed(batch)
        groups = len(batch.groups) - 1
        processed = self.rng.integers(0, groups + 1) if self.interrupted and self.rng.random() < 0.3 else groups
        for k in range(int(batch.groups[processed])):
            self.bound_job(k, batch.jobs[k], batch.masks[k], results)
        return results

    def bound_job(self, k, job, mask, results):
        row, source, counts = int(job[JOB_ROW]), int(job[JOB_SOURCE]), mask.sum(axis=1)
        assert counts.all()
        if source >= 0:  # a branch starts from its parent, an unfinished node from itself
            stored_row, stored_mask = self.stored[source]
            assert stored_row == row and not (mask & ~stored_mask).any()
            assert (job[JOB_WORK] == WORK.root) == bool((mask == stored_mask).all()) or job[JOB_WORK] == WORK.branch
        else:
            assert job[JOB_WORK] in (WORK.root, WORK.restored)
        best = self.best(row, mask)
        if (counts == 1).all():
            results.bounds[k], results.variables[k] = best, LEAF
        elif source >= 0 and self.rng.random() < 0.05:
            results.bounds[k] = OUT_OF_RANGE
        else:
            results.bounds[k] = best + self.rng.integers(0, 30)
            if results.bounds[k] >= job[JOB_THRESHOLD]:
                variable = self.rng.choice(np.flatnonzero(counts > 1))
                branches = self.rng.integers(2, min(MAX_BRANCHES, counts[variable]) + 1)
                numbers = self.rng.permutation(np.arange(counts[variable]) % branches)
                results.parts[k, np.flatnonzero(mask[variable])] = numbers
                unfinished = job[JOB_WORK] == WORK.branch and self.rng.random() < 0.2
                results.variables[k] = UNFINISHED if unfinished else variable
            else:
                results.variables[k] = NO_VARIABLE
        self.stored[int(job[JOB_TARGET])] = row, mask.copy()


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(MAX_BRANCHES + 1, 40), st.integers(1, 12), st.booleans(), st.booleans())
def test_any_bounder_gives_sound_bounds_that_never_rise_and_end_exact(seed, capacity, nodes, interrupted, fits):
    rng = np.random.default_rng(seed)
    utilities = rng.integers(-50, 50, (ROWS, *SHAPE))
    allowed = np.arange(max(SHAPE)) < np.array(SHAPE)[:, None]
    exact = utilities.reshape(ROWS, -1).max(axis=1)
    bounds, rows = np.full(ROWS, 999), np.arange(ROWS)
    memory = 1 << 20 if fits else ROWS * node_bytes(*allowed.shape)
    frontier = Frontier(allowed, bounds, Scale(0, True, 999, -999), capacity, memory)
    bounder, none = ArbitraryBounder(utilities, rng, interrupted), np.full(ROWS, MINUS_INFINITY)
    frontier.begin(bounds, rows, none, none)
    for _ in range(2000):
        if not frontier.size:
            break
        chosen, batch = frontier.next_batch(nodes, WORK)
        results = bounder.bound(batch)
        before = frontier.bounds()[1]
        frontier.record(chosen, batch, results)
        assert (frontier.bounds()[1] <= before).all() and (frontier.bounds()[1] >= exact).all()
        held = [entry for entry in frontier.open_nodes.entry.tolist() if entry >= 0]
        assert sorted([*held, *frontier.entries.free]) == list(range(capacity))
    assert not frontier.size and frontier.bounds()[1].tolist() == exact.tolist()
    found_rows, values = frontier.leaves.pop_all()
    assert found_rows.tolist() == rows.tolist()
    assert [utilities[(row, *own)] for row, own in enumerate(values.tolist())] == exact.tolist()
    assert (results.bounds != NOT_PROCESSED).any()
