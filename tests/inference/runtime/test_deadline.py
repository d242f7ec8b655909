"""Interrupted work leaves sound results, and uninterrupted work is not changed by its deadline."""

import time
from dataclasses import replace

import numpy as np
import pytest
from support import naive
from support.clock import ExpiresAfterChecks
from support.problem_strategies import random_problem

from dmcmc import Factor
from dmcmc.inference import tuning
from dmcmc.inference.bounds import registry as bounds
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import EliminationQuery, plan_elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.minibuckets import content_partition as content_partition
from dmcmc.inference.minibuckets import moment_matching as moment_matching
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.inference.runtime.threads import run_parallel
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import Sampling

FAR = 1e9  # seconds
OVER = Deadline(until=0.0)


def clique(variables=7, domain=5, seed=0, interface=2):
    """Return an agent with a factor on every pair of variables."""
    rng = np.random.default_rng(seed)
    pairs = [(a, b) for b in range(variables) for a in range(b)]
    factors = tuple(Factor.of(pair, rng.integers(0, 100, (domain, domain))) for pair in pairs)
    names = tuple(range(variables))
    return LocalProblem(0, names[:interface], names[interface:], factors, np.full(variables, domain))


def exact_rows(local):
    """Return the maximum utility of every row."""
    arithmetic = choose_arithmetic(local.factors)
    done = eliminate([arithmetic.encode(f) for f in local.factors], local.plan, arithmetic)
    (table,) = done.remaining()
    return table.values.ravel()


def test_a_deadline_expires_at_its_time_or_on_cancellation():
    now = time.perf_counter()
    stop = Deadline(now + FAR)
    sooner, later = stop.by(now - 1), Deadline(now - 1).later(FAR)
    assert not stop.over and sooner.over and not later.over and not NO_DEADLINE.over
    assert stop.by(now + 2 * FAR).until == stop.until
    waiting = stop.later(FAR)
    stop.cancellation.request()
    assert stop.is_cancelled and waiting.is_cancelled and stop.over and not waiting.over
    with pytest.raises(OutOfTime):
        stop.check()
    assert stop.later(-1.0, extension=FAR).over


@pytest.mark.parametrize("threads", [1, 2])
def test_an_elimination_checks_the_deadline_between_buckets_and_ranges_of_rows(threads, monkeypatch):
    local = clique(9, 4)
    arithmetic = choose_arithmetic(local.factors)
    tables = [arithmetic.encode(f) for f in local.factors]
    expected = eliminate(tables, local.plan, arithmetic)
    for name in ("MIN_PARALLEL_CELLS", "CELLS_PER_CHECK", "MIN_TASK_CELLS"):
        monkeypatch.setattr(tuning, name, 64)
    found = eliminate(tables, local.plan, arithmetic, threads, stop=Deadline(time.perf_counter() + FAR))
    np.testing.assert_array_equal(found.arena, expected.arena)
    for checks in (0, 1, 3, 20):
        with pytest.raises(OutOfTime):
            eliminate(tables, local.plan, arithmetic, threads, stop=ExpiresAfterChecks(checks))
    with pytest.raises(OutOfTime):
        Backend(threads=threads, stop=OVER).eliminate(tables, local.plan, arithmetic)


def test_mini_buckets_check_the_deadline_too(monkeypatch):
    local = clique(9, 4)
    arithmetic = choose_arithmetic(local.factors)
    tables = [arithmetic.encode(f) for f in local.factors]
    scopes, order, keep = [t.scope for t in tables], local.order.variables, local.interface
    plan = plan_mini_buckets(scopes, local.domains, order, keep, 3, shifts=True)
    expected = moment_matching.eliminate_matched(tables, plan, arithmetic)
    monkeypatch.setattr(tuning, "CELLS_PER_CHECK", 64)
    far = Deadline(time.perf_counter() + FAR)
    found = moment_matching.eliminate_matched(tables, plan, arithmetic, stop=far)
    np.testing.assert_array_equal(found.elimination.arena, expected.elimination.arena)
    with pytest.raises(OutOfTime):
        moment_matching.eliminate_matched(tables, plan, arithmetic, stop=ExpiresAfterChecks(2))
    with pytest.raises(OutOfTime):
        content_partition.eliminate_by_content(
            EliminationQuery(tables, local.domains, order, keep, arithmetic), 3, stop=ExpiresAfterChecks(2)
        )


@pytest.mark.parametrize("threads", [1, 2])
def test_tasks_that_have_not_started_are_skipped(threads):
    done = []
    assert run_parallel([lambda i=i: done.append(i) for i in range(5)], threads) and len(done) == 5
    assert not run_parallel([lambda: done.append(9)] * 5, threads, OVER) and len(done) == 5


@pytest.mark.parametrize("method", ["annealing", "tempering", "gibbs"])
@pytest.mark.parametrize("checks", [0, 1, 4, 30])
def test_interrupted_chains_have_a_state_for_every_row_that_attains_its_value(method, checks):
    problem = random_problem(8, variables=8, agents=2, domain=3, factors=14, hard=0.1)
    for local in divide(problem).locals:
        arithmetic = choose_arithmetic(problem.factors)
        backend = Backend(threads=2, stop=ExpiresAfterChecks(checks))
        (chains,) = registry.get(method).start([local], Sampling(arithmetic, runs=2, samples=10, backend=backend))
        chains.improve(np.arange(local.rows), 0.01, 2)
        table = chains.table()
        (values,) = (t.values for t in table.lower)
        for row in np.ndindex(*local.interface_shape):
            state = dict(zip(local.interface, row, strict=True))
            state |= table.witness(state)
            utilities = [naive.utilities(f.table)[tuple(state[v] for v in f.scope)] for f in local.factors]
            assert arithmetic.is_lowest(values[row].item()) if -np.inf in utilities else values[row] == sum(utilities)


def test_an_interrupted_pass_never_makes_rows_worse():
    local, arithmetic = clique(), choose_arithmetic(clique().factors)
    backend = Backend(stop=Deadline(time.perf_counter() + FAR))
    (chains,) = registry.get("annealing").start([local], Sampling(arithmetic, runs=2, samples=16, backend=backend))
    before = chains.table().lower[0].values
    drawn = chains.updates
    chains.seconds = [drawn * 1e-7]  # the time of the first pass may include compilation
    chains.sampling = Sampling(arithmetic, runs=2, samples=16, backend=Backend(stop=ExpiresAfterChecks(9)))
    chains.improve(np.arange(local.rows), 0.2, 1)
    assert (chains.table().lower[0].values >= before).all() and chains.updates > drawn


@pytest.mark.parametrize("method", ["annealing", "tempering", "metropolis-hastings-single"])
def test_a_row_with_millions_of_samples_ends_at_the_deadline(method):
    local, seconds = clique(), 0.3
    solver, arithmetic = registry.get(method), choose_arithmetic(clique().factors)
    solver.solve([local], Sampling(arithmetic, runs=2, samples=2))  # compiled
    start = time.perf_counter()
    backend = Backend(stop=Deadline(start + seconds))
    solver.start([local], Sampling(arithmetic, runs=2, samples=10**7, backend=backend))
    assert time.perf_counter() - start < seconds + 100  # hours otherwise


def test_rows_that_are_not_sampled_take_the_hidden_values_of_the_incumbent():
    local, arithmetic = clique(), choose_arithmetic(clique().factors)
    incumbent = np.random.default_rng(1).integers(0, 5, 7)
    hidden = incumbent[list(local.hidden)]
    (interrupted,) = registry.get("annealing").start(
        [local], Sampling(arithmetic, backend=Backend(stop=OVER), incumbent=incumbent)
    )
    assert (interrupted.states == hidden).all() and interrupted.updates == 0
    incumbent_values = interrupted.table().lower[0].values
    for method in ("annealing", "gibbs"):
        backend = Backend(stop=Deadline(time.perf_counter() + FAR))
        settings = Sampling(arithmetic, runs=1, samples=1, backend=backend, incumbent=incumbent)
        (chains,) = registry.get(method).start([local], settings)
        assert (chains.table().lower[0].values >= incumbent_values).all()


def test_first_passes_are_shortened_only_if_the_time_is_too_short():
    local, arithmetic = clique(), choose_arithmetic(clique().factors)
    settings = Sampling(arithmetic, runs=4, samples=2000)
    solver = registry.get("annealing")
    (unlimited,), (ample,) = solver.start([local], settings), solver.start([local], replace(settings, seconds=FAR))
    (short,) = solver.start([local], replace(settings, seconds=1e-4))
    assert (unlimited.states == ample.states).all() and unlimited.updates == ample.updates
    assert 0 < short.updates < unlimited.updates / 10 and short.best.drawn.min() >= 8


@pytest.mark.parametrize("provider", ["dual", "triangles", "mini-bucket"])
@pytest.mark.parametrize("threads", [1, 2])
def test_interrupted_bounds_end_and_are_sound(provider, threads):
    local = clique()
    arithmetic, best = choose_arithmetic(local.factors), exact_rows(local)
    for stop in (OVER, Deadline(time.perf_counter() + 0.2)):
        state = bounds.get(provider).start(local)
        state.backend = Backend(threads=threads, stop=stop)
        state.improve(seconds=FAR)
        (table,) = state.tables(arithmetic)
        assert (table.values.ravel() >= best).all()


def test_interrupted_pruning_is_sound():
    local = clique()
    arithmetic, best = choose_arithmetic(local.factors), exact_rows(local)
    state = bounds.get("triangles").start(local)
    state.prune(best.astype(float), sweeps=1)
    state.backend = Backend(stop=OVER)
    state.prune(best.astype(float), seconds=FAR)
    (table,) = state.tables(arithmetic)
    assert (table.values.ravel() >= best).all()


@pytest.mark.parametrize("provider", ["dual", "triangles", "mini-bucket"])
@pytest.mark.parametrize("floats", [False, True])
def test_a_bound_without_hidden_variables_is_exhausted_and_tight(provider, floats):
    rng = np.random.default_rng(1)
    scopes = [(0,), (0, 1), (1, 2), (0, 1, 2)]
    factors = tuple(
        Factor.of(s, rng.random([4] * len(s)) if floats else rng.integers(0, 50, [4] * len(s))) for s in scopes
    )
    local = LocalProblem(0, (0, 1, 2), (), factors, np.full(3, 4))
    state, arithmetic = bounds.get(provider).start(local), choose_arithmetic(factors)
    assert state.exhausted
    (table,) = state.tables(arithmetic)
    rows = sum(f.table.reshape([4 if v in f.scope else 1 for v in range(3)]) for f in factors)
    np.testing.assert_allclose(table.values, rows, rtol=1e-5)
    assert (table.values >= rows).all()
    (chains,) = registry.get("gibbs").start([local], Sampling(arithmetic))
    assert chains.exhausted


def test_an_empty_plan_runs_under_a_deadline():
    arithmetic = choose_arithmetic([])
    plan = plan_elimination([], np.zeros(0, dtype=np.int64), [])
    assert eliminate([], plan, arithmetic, stop=Deadline(time.perf_counter() + FAR)).total() == 0
