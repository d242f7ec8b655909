"""Bounds are never below a row's utility, never rise, and become exact where the relaxation is tight."""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from support import naive
from support.problem_strategies import problems, random_problem, random_table

from dmcmc import Factor
from dmcmc.formats import native
from dmcmc.generators.registry import generate
from dmcmc.inference.bounds import mini_bucket, registry
from dmcmc.inference.bounds import mini_bucket as mini_bucket_steps
from dmcmc.inference.bounds.contract.protocol import BoundRequest, PruningState
from dmcmc.inference.bounds.dual import dual_bound as dual
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import tables_of
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.elimination.eliminate import Elimination, eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ConfigError

PROVIDERS = ("dual", "triangles", "mini-bucket", "dual+mini-bucket", "triangles+mini-bucket", "semidefinite")
NUMBERS = {"small": (9, False), "2^27": (2**27, False), "2^57": (2**57, False), "floats": (1e3, True)}


def bound_of(tables: Sequence[EncodedTable], domains: NDArray[np.int64], arithmetic: Arithmetic) -> int | float:
    """Return the maximum of the sum of encoded tables, rounded up for floats; -inf if every assignment is forbidden."""
    total = eliminated(tables, (), domains, arithmetic).total()
    return -math.inf if arithmetic.is_lowest(total) else arithmetic.outward(total, len(tables))


def row_thresholds(
    tables: Sequence[EncodedTable],
    interface: Sequence[int],
    domains: NDArray[np.int64],
    arithmetic: Arithmetic,
    target: int | float,
) -> NDArray[np.object_]:
    """Return, for each row of an agent, the utility that the agent must add for the whole problem to reach ``target``.

    Parameters
    ----------
    tables : sequence of EncodedTable
        Crossing factors (those that join several agents) and the bounds of all other agents, encoded.
    interface : sequence of int
        The agent's boundary variables. Rows are numbered in C order over them.
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The number type and encoding of the tables.
    target : int or float
        A utility. With the best known utility plus 1 (for integers), assignments below the thresholds cannot improve
        on it.

    Returns
    -------
    (rows,) object
        Python numbers; inf for rows that the other agents forbid.
    """
    outside_tables = eliminated(tables, interface, domains, arithmetic).remaining()
    shape = tuple(int(domains[v]) for v in interface)
    outside = np.zeros(shape, dtype=object)
    for scope, values in outside_tables:
        is_forbidden = (values < arithmetic.forbidden_below) | (values == arithmetic.lowest)
        numbers = np.array(values, dtype=object)
        numbers[is_forbidden] = -math.inf
        axes = sorted(range(len(scope)), key=lambda axis, scope=scope: interface.index(scope[axis]))  # type: ignore[misc]
        outside = np.asarray(
            outside + numbers.transpose(axes).reshape([int(domains[v]) if v in scope else 1 for v in interface]),
            dtype=object,
        )
    thresholds = np.empty(outside.size, dtype=object)
    for i, value in enumerate(outside.ravel().tolist()):
        thresholds[i] = math.inf if value == -math.inf else target - arithmetic.outward(value, len(tables))
    return thresholds


def eliminated(
    tables: Sequence[EncodedTable], keep: Sequence[int], domains: NDArray[np.int64], arithmetic: Arithmetic
) -> Elimination:
    """Eliminate all variables except ``keep`` from the sum of the tables by maximisation."""
    scopes = [t.scope for t in tables]
    others = sorted({v for scope in scopes for v in scope}.difference(keep))
    order = best_order(scopes, domains, others, keep, budget=1_000_000).variables
    return eliminate(tables, plan_elimination(scopes, domains, order, keep), arithmetic)


def dense(state, local, arithmetic):
    """Return a bound over all rows as Python numbers."""
    tables = naive.plain_tables(state.tables(arithmetic), arithmetic)
    return naive.join(tables, list(local.interface), local.domains)


def check(local, arithmetic, provider, steps=(0, 1, 3)):
    """Check that bounds are valid and never rise; return the state, its last bound and the utilities."""
    expected = naive.row_values(local)
    slack = 0 if arithmetic.exact else 1e-9 * max(1.0, float(arithmetic.total))
    state = registry.get(provider).start(local)
    before = None
    for sweeps in steps:
        state.improve(sweeps=sweeps)
        found = dense(state, local, arithmetic)
        assert found.shape == expected.shape
        assert all(w >= u - slack for w, u in zip(found.ravel(), expected.ravel(), strict=True))
        if before is not None and len(local.interface) < 2:
            assert all(w <= v for w, v in zip(found.ravel(), before.ravel(), strict=True))
        before = found
    return state, before, expected


@pytest.mark.parametrize("provider", PROVIDERS)
@settings(max_examples=40)
@given(problem=problems())
def test_a_bound_is_valid_for_any_problem(provider, problem):
    arithmetic = choose_arithmetic(problem.factors)
    for local in divide(problem).locals:
        check(local, arithmetic, provider)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("hard", [0.0, 0.5])
@pytest.mark.parametrize("numbers", NUMBERS)
def test_a_bound_is_valid_for_any_magnitude(provider, numbers, hard):
    magnitude, floats = NUMBERS[numbers]
    for seed in range(12):
        problem = random_problem(seed, 8, 2, 4, 14, 3, magnitude, hard, floats)
        arithmetic = choose_arithmetic(problem.factors)
        for local in divide(problem).locals:
            check(local, arithmetic, provider)


def single_agent(factors, domains, interface=()):
    """Return the local problem of a single agent."""
    hidden = tuple(v for v in range(len(domains)) if v not in interface)
    return LocalProblem(0, tuple(interface), hidden, tuple(factors), np.array(domains, dtype=np.int64))


def random_pairs(seed, pairs, domains, magnitude=50, hard=0.0):
    """Return one random factor per pair of variables."""
    rng = np.random.default_rng(seed)
    return [Factor.of(p, random_table(rng, tuple(domains[v] for v in p), magnitude, hard)) for p in pairs]


@pytest.mark.parametrize("hard", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(8))
def test_dual_ascent_is_exact_on_trees(seed, hard):
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 6, 8).tolist()
    factors = random_pairs(seed, [(int(rng.integers(0, v)), v) for v in range(1, 8)], domains, hard=hard)
    local = single_agent(factors, domains, (3, 6))
    state = registry.get("dual").start(local)
    state.improve(sweeps=40)
    arithmetic = choose_arithmetic(factors)
    assert naive.same_numbers(dense(state, local, arithmetic), naive.row_values(local))


@pytest.mark.parametrize("seed", range(6))
def test_triangles_are_exact_on_a_triangle_and_no_worse_than_pairs_on_other_graphs(seed):
    domains = [5, 6, 7, 4]
    factors = random_pairs(seed, [(0, 1), (0, 2), (1, 2), (2, 3)], domains)
    local = single_agent(factors, domains, (3,))
    arithmetic = choose_arithmetic(factors)
    bounds = {}
    for provider in ("dual", "triangles"):
        state = registry.get(provider).start(local)
        state.improve(sweeps=60)
        bounds[provider] = dense(state, local, arithmetic)
    assert naive.same_numbers(bounds["triangles"], naive.row_values(local))
    assert all(t <= d for t, d in zip(bounds["triangles"], bounds["dual"], strict=True))


def test_a_row_without_a_feasible_assignment_is_found_infeasible():
    apart = np.where(np.eye(2), -math.inf, 0.0)
    factors = [Factor.of(p, apart) for p in ((0, 1), (1, 2), (0, 2))]
    factors.append(Factor.of((2, 3), [[0.0, 1.0], [0.0, 1.0]]))
    local = single_agent(factors, [2, 2, 2, 2], (3,))
    arithmetic = choose_arithmetic(factors)
    for provider in ("triangles", "mini-bucket"):
        state = registry.get(provider).start(local)
        state.improve(sweeps=10)
        assert (dense(state, local, arithmetic) == -math.inf).all()


def test_only_the_requested_rows_are_tightened_and_threads_change_nothing():
    domains = [9, 8, 7, 6, 5]
    pairs = [(a, b) for a in range(5) for b in range(a + 1, 5)]
    local = single_agent(random_pairs(1, pairs, domains), domains, (4,))
    state, other = (registry.get("triangles").start(local, Backend(threads=threads)) for threads in (3, 1))
    before = state.bounds.copy()
    state.improve(sweeps=5, rows=[1, 3])
    other.improve(sweeps=5, rows=[1, 3])
    assert (state.bounds == other.bounds).all()
    assert (state.bounds[[0, 2, 4]] == before[[0, 2, 4]]).all()
    assert (state.bounds[[1, 3]] < before[[1, 3]]).any()
    state.improve(seconds=0.01)
    assert (state.bounds <= other.bounds).all()


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("floats", [False, True])
def test_a_bound_with_too_many_rows_is_a_sum_of_small_tables(provider, floats, monkeypatch):
    monkeypatch.setattr("dmcmc.inference.tuning.MAX_ENUMERATED_ENTRIES", 1)
    for seed in range(15):
        problem = random_problem(seed, 7, 1, 4, 12, 3, 50, 0.2, floats)
        n = problem.n_variables
        local = single_agent([f for f in problem.factors if f.scope], problem.domains, tuple(range(0, n, 2)))
        check(local, choose_arithmetic(problem.factors), provider)


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_pruning_keeps_the_bounds_of_rows_at_the_threshold_sound_and_raises_none(seed, floats):
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, 6, 6).tolist()
    pairs = [(a, b) for a in range(6) for b in range(a + 1, 6) if rng.random() < 0.8]
    factors = [Factor.of(p, random_table(rng, tuple(domains[v] for v in p), 50, 0.1, floats)) for p in pairs]
    factors.append(Factor.of((0, 2, 4), random_table(rng, (domains[0], domains[2], domains[4]), 50, 0.1, floats)))
    local = single_agent(factors, domains, (5,))
    arithmetic = choose_arithmetic(factors)
    exact = naive.row_values(local)
    finite = [u for u in exact.tolist() if u > -math.inf]
    limit = float(np.median(finite)) if floats else int(np.median(finite))
    thresholds = np.array([limit] * exact.size, dtype=object)
    state = registry.get("triangles").start(local)
    state.prune(thresholds, sweeps=12)
    found, plain = dense(state, local, arithmetic), registry.get("triangles").start(local)
    plain.improve(sweeps=12)
    # a row below the threshold is only known to be below it
    highest = [max(w, limit) + (1e-3 if floats else 0) for w in dense(plain, local, arithmetic)]
    for w, u, most in zip(found, exact, highest, strict=True):
        assert u - (1e-9 if floats else 0) <= w <= most


def exact_table(local, arithmetic):
    """Return the utility of every row as an encoded table."""
    values = naive.row_values(local)
    coded = [arithmetic.lowest if u == -math.inf else u for u in values.ravel()]
    return EncodedTable(local.interface, np.array(coded, dtype=arithmetic.dtype).reshape(values.shape))


def test_thresholds_are_the_target_minus_the_best_of_all_other_agents():
    for seed in range(20):
        problem = random_problem(seed, 7, 3, 3, 10, 3)
        arithmetic, division = choose_arithmetic(problem.factors), divide(problem)
        constant = sum(naive.utilities(f.table).item() for f in division.constants)
        exact = [exact_table(local, arithmetic) for local in division.locals]
        crossing = [arithmetic.encode(f) for f in division.crossing]
        best = naive.optimum(problem)
        assert bound_of([*exact, *crossing], problem.domains, arithmetic) + constant == best
        if best == -math.inf:
            continue
        for agent, local in enumerate(division.locals):
            others = [*(t for a, t in enumerate(exact) if a != agent), *crossing]
            limits = row_thresholds(others, local.interface, problem.domains, arithmetic, best - constant)
            reach = [u - t for u, t in zip(naive.row_values(local).ravel(), limits, strict=True)]
            assert max(reach) == 0


def test_the_error_for_an_unknown_provider_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"did you mean 'triangles'.*known: auto, none, dual, triangles, mini-bucket"):
        registry.get("triangle")
    assert set(PROVIDERS) <= set(registry.names())


def test_another_package_can_register_a_provider(monkeypatch):
    ours = registry.get("dual")
    entries = [
        SimpleNamespace(name="theirs", value="somewhere:PROVIDER", load=lambda: ours),
        SimpleNamespace(name="broken", value="somewhere:NOTHING", load=lambda: object()),
    ]
    monkeypatch.setattr("dmcmc.inference.runtime.plugins.entry_points", lambda group: entries)
    assert registry.get("theirs") is ours
    assert "is not a BoundProvider" in registry.names()["broken"]


@pytest.mark.skipif("DMCMC_INSTANCES" not in os.environ, reason="needs the instances in DMCMC_INSTANCES")
def test_pruning_nearly_solves_the_meeting_problem_of_the_paper():
    problem = native.load(Path(os.environ["DMCMC_INSTANCES"]) / "meetings" / "ms_A10_n10_D24_pl0.5_s0.npz")
    arithmetic, division = choose_arithmetic(problem.factors), divide(problem)
    crossing = [arithmetic.encode(f) for f in division.crossing]
    states = [registry.get("triangles").start(local) for local in division.locals]
    for state in states:
        state.improve(sweeps=3)

    def tables(but=-1):
        return [t for a, state in enumerate(states) if a != but for t in state.tables(arithmetic)] + crossing

    assert 4020 <= bound_of(tables(), problem.domains, arithmetic) <= 4100
    for agent, local in enumerate(division.locals):
        limits = row_thresholds(tables(agent), local.interface, problem.domains, arithmetic, 4020)
        states[agent].prune(limits, sweeps=8)
    assert 4020 <= bound_of(tables(), problem.domains, arithmetic) <= 4040


def test_mini_buckets_run_on_the_given_device(monkeypatch):
    (local, *_) = divide(random_problem(3, 8, 2, 3, 14, 2, 50, 0.0)).locals
    taken = []
    real = mini_bucket_steps.eliminate_within
    monkeypatch.setattr(
        mini_bucket_steps, "eliminate_within", lambda *args: taken.append(args[-1].backend) or real(*args)
    )
    state = registry.get("mini-bucket").start(local)
    state.backend = Backend("cuda", 3, 2)
    state.improve(sweeps=1)
    assert taken == [Backend("cuda", 3, 2)]


def test_mini_buckets_of_reparametrised_tables_are_tighter_than_either_method():
    domains, rng = [3] * 12, np.random.default_rng(4)
    near = [(v, v + 1) for v in range(12) if v % 4 < 3] + [(v, v + 4) for v in range(8)]
    factors = [Factor.of(scope, rng.integers(0, 100, (3, 3))) for scope in near]
    local, arithmetic = single_agent(factors, domains, ()), choose_arithmetic(factors)
    bounds = {}
    for provider in ("dual", "mini-bucket", "dual+mini-bucket"):
        state = registry.get(provider).start(local)
        state.improve(sweeps=1)
        bounds[provider] = dense(state, local, arithmetic).item()
    assert naive.row_values(local).item() <= bounds["dual+mini-bucket"] <= min(bounds.values())


def colouring(variables, colours=3):
    """Return a colouring problem with many triangles: a cost of 1 for each pair of neighbours of the same colour."""
    near = [(v, (v + d) % variables) for v in range(variables) for d in (1, 2, 3)]
    return [Factor.of(scope, -np.eye(colours, dtype=np.int64)) for scope in near], [colours] * variables


def test_mini_buckets_after_triangles_bound_a_colouring_exactly():
    factors, domains = colouring(11)
    local, arithmetic = single_agent(factors, domains, ()), choose_arithmetic(factors)
    bounds = {}
    for provider in ("triangles", "dual+mini-bucket", "triangles+mini-bucket"):
        state = registry.get(provider).start(local)
        state.improve(sweeps=1)
        bounds[provider] = dense(state, local, arithmetic).item()
    assert bounds["triangles"] == 0 > bounds["triangles+mini-bucket"] == naive.row_values(local).item()


def test_reparametrised_tables_add_up_to_the_factors():
    factors, domains = colouring(7)
    local = single_agent(factors, domains, ())
    state = registry.get("triangles").start(local)
    state.improve(sweeps=5)
    graph, shares = state.layout.whole, state.potentials
    expected = naive.join([(f.scope, f.table) for f in factors], local.hidden, local.domains)
    for clusters in (False, True):
        tables = tables_of(graph, shares, local.hidden, clusters, -(2**40))
        assert any(len(table.scope) == 3 for table in tables) == clusters
        found = naive.join([tuple(table) for table in tables], local.hidden, local.domains)
        assert np.array_equal(found, expected * state.layout.scale.encode_up(1))


def test_dual_ascent_uses_the_time_if_mini_buckets_take_too_long(monkeypatch):
    factors, domains = colouring(14)
    state = registry.get("triangles+mini-bucket").start(single_agent(factors, domains, ()))
    monkeypatch.setattr(mini_bucket.MiniBucketState, "estimated_seconds", math.inf)
    sweeps = state.dual.sweeps_done
    state.improve(seconds=0.1)
    assert state.dual.sweeps_done > sweeps and not any(one.z for one in state.buckets)


@pytest.mark.parametrize(("provider", "prunes"), [(name, name != "mini-bucket") for name in PROVIDERS])
def test_only_a_state_that_can_prune_is_asked_to_prune(provider, prunes):
    (local, *_) = divide(random_problem(3, 8, 2, 3, 14, 2, 50, 0.0)).locals
    state = registry.get(provider).start(local, Backend(threads=2))
    best = naive.row_values(local).ravel()
    BoundRequest(state, None, best).carry_out(sweeps=3)
    assert isinstance(state, PruningState) == prunes
    assert state.backend == Backend(threads=2)
    (table,) = state.tables(choose_arithmetic(local.factors))
    assert (table.values.ravel() >= best).all()


@pytest.mark.parametrize("nodes, domain, density", [(10, 6, 0.9), (14, 4, 0.6)])
def test_annealing_again_after_ascent_has_stalled_lowers_the_bound_and_keeps_it_sound(nodes, domain, density):
    parameters = {"nodes": nodes, "domain_size": domain, "density": density, "tightness": 0, "seed": 3}
    problem = generate("random-network", parameters)
    local = single_agent(problem.factors, problem.domains, ())
    plain = DualState(local, triangles=True)
    plain.improve(sweeps=200)
    timed = DualState(local, True, Backend(stop=Deadline(time.perf_counter() + 60)))
    timed.improve(seconds=5.0)
    sweeps = timed.sweeps_done
    timed.improve(seconds=5.0)
    assert timed.sweeps_done - sweeps <= 2 * dual.RECENTRE_EVERY, "an ascent that has stalled ends early"
    assert timed.bounds[0] < plain.bounds[0]
    tables = tables_of(timed.layout.whole, timed.potentials, local.hidden, lowest=-(2**40))
    for x in np.random.default_rng(0).integers(0, domain, (20, nodes)):
        utility = sum(f.table[tuple(x[list(f.scope)])].item() for f in local.factors)
        assert timed.layout.scale.decode(int(timed.bounds[0])) >= utility
        total = sum(int(table.values[tuple(x[list(table.scope)])]) for table in tables)
        assert total == timed.layout.scale.encode_up(utility)
