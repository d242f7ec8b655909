"""Block moves on the GPU, or under Numba's simulator: equal to a naive NumPy twin, and optimal where elimination is."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from support.numpy_gibbs import philox_twin
from support.problem_strategies import deterministic_grid, random_problem

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.factor_graph import build_graph
from dmcmc.inference.runtime.deadline import NO_DEADLINE
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.samplers.blocks.block_selection_kernels import entry_of, grow
from dmcmc.samplers.blocks.neighbourhood_search import new_workspace, order_for_cuts, penalised_graph
from dmcmc.samplers.blocks.starts import starts_of
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.registry import get

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

KEY = np.array([3, 5], dtype=np.uint64)


@pytest.fixture(autouse=True)
def two_copies(monkeypatch):
    """Few chains, for the simulator."""
    monkeypatch.setattr("dmcmc.samplers.contract.tuning.GPU_CHAINS", 2)


def device_blocks(graph, states):
    from dmcmc.samplers.blocks.cuda.chains import DeviceBlockChains

    order = order_for_cuts(graph, NO_DEADLINE)
    return DeviceBlockChains(graph, KEY, np.array(states, dtype=np.int32), order), order


def noise(chain, number, v, x):
    word = philox_twin((3, 5), (chain, number << 3 | 4, v, x))[0]
    return -math.log(-math.log((word + 0.5) * 2.0**-32))


def value(graph, z):
    return sum(entry_of(graph, z, f) for f in range(graph.scope_start.size - 1))


def redrawn(graph, z, block, temperature, chain, number):
    """A block's values drawn in turn, each by the sum or the maximum over all variables that are not drawn yet."""
    z, drawn = np.array(z, dtype=np.int64), set()
    for v in reversed(block):
        undrawn = [u for u in block if u not in drawn and u != v]
        scores = []
        for x in range(graph.domains[v]):
            totals = []
            for values in product(*(range(graph.domains[u]) for u in undrawn)):
                z[undrawn], z[v] = values, x
                totals.append(value(graph, z))
            top = max(totals)
            if temperature:
                top = top / temperature + math.log(sum(math.exp((t - top) / temperature) for t in totals))
            scores.append((top + noise(chain, number, v, x) if temperature else top, noise(chain, number, v, x), x))
        z[v] = max(scores)[2]
        drawn.add(v)
    return z


@pytest.mark.parametrize("seed", range(6))
def test_moves_equal_those_of_the_naive_twin(seed):
    from dmcmc.samplers.blocks.cuda.descriptor_kernels import encode_move

    rng = np.random.default_rng(seed)
    problem = random_problem(seed, variables=6, factors=9, domain=3, arity=3, hard=0.2 * (seed % 2))
    n = problem.n_variables
    graph = penalised_graph(build_graph(problem))._replace(free=max(1, n - 1))
    states = rng.integers(0, problem.domains, (2, n))
    chains, _ = device_blocks(graph, states)
    blocks, moves, workspace = [], [], new_workspace(graph, True)
    for _ in range(3):
        size = grow(
            graph,
            workspace,
            rng.integers(0, graph.free),
            27,
            200,
            True,
            rng.integers(1, 99, 1, dtype=np.uint64),
        )
        blocks.append(workspace.block[:size].tolist())
        moves.append(encode_move(graph, workspace, size))
    temperatures = [0.0, 40.0, 0.0]
    chains._run(moves, temperatures, False)
    found = chains._states.copy_to_host()[: 2 * n].reshape(2, n)
    bests, tops = chains._best_states.copy_to_host()[: 2 * n].reshape(2, n), chains._best_utilities.copy_to_host()[:2]
    for chain in range(2):
        z, seen = states[chain], []
        for number, (block, temperature) in enumerate(zip(blocks, temperatures, strict=True)):
            z = redrawn(graph, z, block, temperature, chain, number)
            seen += [z] if temperature == 0 else []
        assert found[chain].tolist() == z.tolist()
        assert bests[chain].tolist() == max(seen, key=lambda z: value(graph, z)).tolist()
        assert tops[chain] == pytest.approx(
            value(graph, bests[chain].astype(np.int64)), abs=1e-9 * -graph.forbidden_entry
        )


def test_draws_follow_the_boltzmann_distribution():
    problem = deterministic_grid(2, np.random.default_rng(4), forbidden=0.2)
    graph, temperature, draws = penalised_graph(build_graph(problem)), 30.0, 120
    from dmcmc.samplers.blocks.cuda.descriptor_kernels import encode_move

    chains, _ = device_blocks(graph, np.zeros((draws, 4)))
    workspace = new_workspace(graph, True)
    workspace.block[:4] = 2, 0, 3, 1
    chains._run([encode_move(graph, workspace, 4)], [temperature], False)
    found = chains._states.copy_to_host()[: 4 * draws].reshape(draws, 4)
    states = np.array(list(product(*map(range, problem.domains.tolist()))))
    weights = np.exp([value(graph, s) / temperature for s in states])
    weights /= weights.sum()
    for v, x in product(range(4), range(3)):
        share, expected = (found[:, v] == x).mean(), weights[states[:, v] == x].sum()
        assert share == pytest.approx(expected, abs=5 * np.sqrt(0.25 / draws))


@pytest.mark.parametrize("reads", [1 << 17, 1])
def test_starts_equal_those_of_the_cpu(reads, monkeypatch):
    monkeypatch.setattr("dmcmc.samplers.contract.tuning.READS_PER_LAUNCH", reads)
    problem = deterministic_grid(3, np.random.default_rng(5), forbidden=0.1)
    graph = penalised_graph(build_graph(problem))._replace(free=7)
    states = np.zeros((2, 9), dtype=np.int64)
    states[1, 7:] = 1, 2
    chains, order = device_blocks(graph, states)
    starts = starts_of(graph, order, states[0], KEY, NO_DEADLINE)
    chains.start(starts)
    found = chains._states.copy_to_host()[:18].reshape(2, 9)
    assert found.tolist() == [starts.draw(chain, 0, states[chain]).tolist() for chain in range(2)]
    for given, drawn, best in zip(states, found, chains.best(), strict=True):
        assert value(graph, best.astype(np.int64)) == max(value(graph, given), value(graph, drawn.astype(np.int64)))


def test_rows_equal_those_of_exact_elimination(monkeypatch):
    monkeypatch.setattr(Backend, "samples_on_gpu", lambda self, updates: self.device == "cuda")
    monkeypatch.delattr("dmcmc.samplers.methods.blocks.BlockSearch")  # the chains of the CPU
    problem = replace(deterministic_grid(3, np.random.default_rng(6)), agents=("a", "b"), owner=np.arange(9) // 5)
    locals_, arithmetic = divide(problem).locals, choose_arithmetic(problem.factors)
    local = min(locals_, key=lambda local: local.rows)
    sampling = Sampling(arithmetic, runs=1, samples=30)
    get("blocks").load([local], replace(sampling, backend=Backend("cuda")))
    found = get("blocks").solve([local], replace(sampling, backend=Backend("cuda")))[0].lower[0].values
    exact = get("exact").solve([local], sampling)[0].lower
    for row in np.ndindex(local.interface_shape):
        given_values = dict(zip(local.interface, row, strict=True))
        proven = sum(int(t.values[tuple(given_values[v] for v in t.scope)]) for t in exact)
        assert found[row] == (proven if proven > arithmetic.lowest / 2 else arithmetic.lowest)
