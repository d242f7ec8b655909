"""Whole-problem chains on the GPU, or under Numba's simulator: equal to a naive NumPy twin, and useful to a run."""

import time
from dataclasses import replace
from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
from support.numpy_gibbs import philox_twin, weights_twin
from support.problem_strategies import random_table

from dmcmc import Factor, Problem
from dmcmc.anytime.improvers.assignments import BackgroundGpuChains
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor_graph import build_graph
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import GPU_CLAIMS, gpu_problem
from dmcmc.samplers.contract.tuning import GRAPH_DESCENT_SWEEPS
from dmcmc.samplers.local_search.chains import TemperatureRange
from dmcmc.samplers.local_search.cuda.background_search import BackgroundChains, IncumbentObserver
from dmcmc.samplers.local_search.cuda.chains import AnnealingSchedule, DeviceAnnealingChains, load_kernels
from dmcmc.samplers.local_search.cuda.layout import lay_out
from dmcmc.samplers.local_search.local_search import LocalSearch

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

KEY = np.array([3, 5], dtype=np.uint64)


def mixed_problem(seed, floats=False):
    """Unary, binary and wider tables, forbidden entries, and a sparse table."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, 5, 7)
    scopes = [(0,), (0, 1), (1, 2), (2, 0), (1, 3), (1, 4), (1, 6), (6, 3, 1), (5, 4, 2)]
    tables = [random_table(rng, tuple(domains[list(s)]), 20, 0.2 * (seed % 2), floats) for s in scopes]
    tuples = np.array([[0, 0, 0, 0], [1, 1, 0, 1]], dtype=np.int32)
    listed = SparseFactor((0, 3, 4, 5), tuple(domains[[0, 3, 4, 5]].tolist()), tuples, np.array([7, 3, -2]))
    factors = (*(Factor.of(s, t) for s, t in zip(scopes, tables, strict=True)), listed)
    return Problem(tuple("abcdefg"), domains, ("x", "y"), np.arange(7) // 4, factors)


def scores(problem, z, v):
    """Violations and utility of v's factors for each of its values."""
    factors_of_v = tuple(factor for factor in problem.factors if v in factor.scope)
    part = replace(problem, factors=factors_of_v)
    found = [part.evaluate([*z[:v], d, *z[v + 1 :]]) for d in range(problem.domains[v])]
    return np.array([e.violation for e in found]), np.array([float(e.objective) for e in found])


def score_of(problem, z):
    found = problem.evaluate(z[:7])
    return -found.violation, float(found.objective)


def twin(problem, order, z, chain, temperatures, penalty):
    """A naive chain that draws one variable after the other; returns the last state and the best after any sweep."""
    z, widest, seen = list(z), int(problem.domains.max()), []
    for sweep, temperature in enumerate(temperatures, 1):
        for v in order.tolist():
            hard, total = scores(problem, z, v)
            eased = total - penalty * hard
            if temperature > 0:
                shares = weights_twin((eased - eased.max()).astype(np.float32), np.float64(temperature), widest)
                word = philox_twin((3, 5), (chain, 6, sweep, v))[0]
                left = (word * int(shares.sum()) >> 32) - int(shares[z[v]])
                if left >= 0:
                    shares[z[v]] = 0
                    z[v] = min(int(np.searchsorted(np.cumsum(shares), left, side="right")), shares.size - 1)
            elif eased[z[v]] < eased.max():
                z[v] = int(eased.argmax())
        seen.append((score_of(problem, z), [*z]))
    return z, max(seen, key=lambda one: one[0])


def device_chains(problem, chains, **layout):
    graph = build_graph(problem)
    return DeviceAnnealingChains(graph, KEY, lay_out(graph, **layout), lambda layout: chains)


def started(chains, problem, states, spans, sweeps, spread=8.0):
    schedule = AnnealingSchedule(spans, np.arange(len(states)) % len(spans), spread, sweeps)
    chains.begin(np.array(states), np.array([score_of(problem, z) for z in states], dtype=np.float64), schedule)
    return schedule


@pytest.mark.parametrize(("seed", "lanes", "groups"), [(1, 2, 2), (2, 4, 1), (3, 1, 4), (4, 2, 1)])
def test_chains_equal_those_of_the_naive_twin(seed, lanes, groups):
    problem, rng = mixed_problem(seed), np.random.default_rng(seed)
    chains = device_chains(problem, 2, lanes=lanes, groups=groups)
    states = rng.integers(0, problem.domains, (2, 7)).tolist()
    spans = [TemperatureRange(1.0, 0.1), TemperatureRange(0.3, 0.05, 16.0)]
    for number in range(2):
        schedule = started(chains, problem, states, spans, 3)
        while not chains.finished:
            chains.advance()
        ends, worths = chains.ends()
        for c, span in enumerate(spans):
            temperatures = [*(np.geomspace(span.first, span.last, 3) * 8.0), *[0.0] * GRAPH_DESCENT_SWEEPS]
            penalty = schedule.penalties(True)[c]
            last, (top, best) = twin(problem, chains.layout.order, states[c], 2 * number + c, temperatures, penalty)
            assert ends[c].tolist() == last and tuple(worths[c]) == score_of(problem, last)
            assert chains.best(c).tolist() == best and tuple(chains.bests()[c]) == top


def test_parts_share_no_factor_and_contain_every_variable(monkeypatch):
    monkeypatch.setattr("dmcmc.samplers.contract.tuning.READS_PER_LAUNCH", 20)
    problem = mixed_problem(5)
    layout = lay_out(build_graph(problem), groups=1)
    assert sorted(layout.order.tolist()) == list(range(7))
    parts = [set(layout.order[a:b].tolist()) for a, b in pairwise(layout.part_start.tolist())]
    assert all(parts) and all(len(part & set(f.scope)) <= 1 for part in parts for f in problem.factors)


def test_float_utilities_are_tracked_up_to_rounding():
    problem = mixed_problem(3, floats=True)
    chains = device_chains(problem, 1, lanes=2, groups=2)
    started(chains, problem, [[0] * 7], [TemperatureRange(1.0, 0.2)], 3)
    while not chains.finished:
        chains.advance()
    states, worths = chains.ends()
    assert tuple(worths[0]) == pytest.approx(score_of(problem, states[0].tolist()))
    assert tuple(chains.bests()[0]) == pytest.approx(score_of(problem, chains.best(0)))


def test_a_background_search_finds_the_optimum_and_ends_on_request(monkeypatch):
    problem, known, reported = mixed_problem(2), [np.zeros(7, dtype=np.int64)], []
    best = max(score_of(problem, z) for z in product(*map(range, problem.domains.tolist())))

    def found(values):
        reported.append(score_of(problem, values))
        known[0] = values

    def make():
        return device_chains(problem, 2, lanes=2, groups=2)

    search = BackgroundChains(make, IncumbentObserver(lambda: known[0], found), Deadline(time.perf_counter() + 600))
    time.sleep(0.1)
    assert search.seconds == 0.0 and search.on
    with GPU_CLAIMS.claim():  # the search waits
        search.set_device_time(600)
        time.sleep(0.1)
        assert search.seconds == 0.0 and search.on
    until = time.perf_counter() + 500
    while (not reported or reported[-1] != best) and time.perf_counter() < until and search.on:
        time.sleep(0.01)
    search.end()
    assert reported == sorted(reported) and reported[-1] == best and not search.failed and not search.on


def test_a_background_search_ends_at_the_deadline(clock):
    problem = mixed_problem(1)
    stop = Deadline(time.perf_counter() + 600)
    search = BackgroundChains(
        lambda: device_chains(problem, 2, lanes=1, groups=1),
        IncumbentObserver(lambda: np.zeros(7, dtype=np.int64), list),
        stop,
    )
    search.set_device_time(60)
    until = time.monotonic() + 300
    while not search.seconds and search.on and time.monotonic() < until:
        time.sleep(0.01)
    assert search.on
    clock.skip(600)
    search._thread.join(300)
    assert not search.on and not search.failed and search.seconds > 0


@pytest.mark.parametrize("floats", [False, True])
def test_all_kernels_of_the_search_are_loaded_in_advance(floats, launches):
    problem = mixed_problem(1, floats)
    loaded, launched = launches
    load_kernels(build_graph(problem))
    chains = device_chains(problem, 2, lanes=1, groups=1)
    started(chains, problem, [[0] * 7] * 2, [TemperatureRange(1.0, 0.2)], 1)
    chains.advance()
    assert launched and launched <= loaded


def test_the_background_search_of_a_run_improves_the_incumbent_and_reports_its_gain():
    problem = mixed_problem(2)
    stop, taken = Deadline(time.perf_counter() + 600), [np.zeros(7, dtype=np.int64)]
    dense = densify(problem, 1 << 20).problem
    search = LocalSearch(problem, dense, 0, 1, stop)

    incumbent = SimpleNamespace(values=taken[0], utility=0)

    def update(values, by):
        if score_of(problem, values[:7]) > score_of(problem, taken[-1]):
            taken.append(values)
            incumbent.values, incumbent.utility = values, incumbent.utility + 1

    incumbent.update = update
    on_gpu = BackgroundGpuChains(search, incumbent, False, stop)
    best = max(score_of(problem, z) for z in product(*map(range, problem.domains.tolist())))
    until = time.perf_counter() + 500
    while score_of(problem, taken[-1][:7]) < best and time.perf_counter() < until and on_gpu.running:
        time.sleep(0.01)
    on_gpu.end()
    (gain,) = on_gpu.take_gains()
    assert score_of(problem, taken[-1][:7]) == best and not on_gpu.running
    assert gain.improver == "gpu chains" and gain.seconds > 0 and gain.objective_gain == len(taken) - 1
