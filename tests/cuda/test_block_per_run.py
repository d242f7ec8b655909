"""The kernel with the paper's mapping of chains to threads draws what a NumPy version draws."""

import numpy as np
import pytest

from benchmarks.papers.block_per_run import sample_block_per_run, utility_of
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.samplers.model.state_kernels import philox, uniform

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")
RUNS, SAMPLES, KEY = 2, 3, (11, 12)


def small_agent(seed):
    """Return an agent with three hidden variables of three values, one interface variable and five factors."""
    rng = np.random.default_rng(seed)
    pairs = [(0, 1), (1, 2), (3, 1), (2, 3), (0, 3)]
    factors = tuple(Factor.of(pair, rng.integers(0, 3, (3, 3))) for pair in pairs)
    return LocalProblem(0, (0,), (1, 2, 3), factors, np.full(4, 3, dtype=np.int64))


def naive_chain(local, run, row):
    """Return the best utility and state of one chain, drawn variable by variable."""

    def random(trial, v):
        return uniform(philox(*KEY, row, run, trial, v)[0])

    values, hidden = 3, len(local.hidden)
    state = np.array([int(random(0, v) * values) for v in range(hidden)])
    best, best_state = -np.inf, None
    for trial in range(1, SAMPLES + 1):
        for v in range(hidden):
            scores = []
            for value in range(values):
                state[v] = value
                own = [f for f in local.factors if local.hidden[v] in f.scope]
                assignment = dict(zip((*local.hidden, *local.interface), (*state.tolist(), row), strict=True))
                scores.append(sum(f.table[tuple(assignment[u] for u in f.scope)] for f in own))
            weights = np.exp(np.array(scores, dtype=np.float32) - np.float32(max(scores)))
            below = np.cumsum(weights[:-1], dtype=np.float32)
            state[v] = int((np.float32(random(trial, v)) * weights.sum(dtype=np.float32) >= below).sum())
        utility = utility_of(local, row, state)
        if utility > best:
            best, best_state = utility, state.copy()
    return best, best_state


@pytest.mark.parametrize("seed", [0, 1])
def test_chains_equal_a_naive_version(seed):
    local = small_agent(seed)
    utility, states = sample_block_per_run(local, RUNS, SAMPLES, KEY)
    for run in range(RUNS):
        for row in range(local.rows):
            best, state = naive_chain(local, run, row)
            assert utility[run, row] == best
            assert states[run, row].tolist() == state.tolist()
