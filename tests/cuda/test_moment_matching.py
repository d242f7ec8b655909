"""Moment matching gives the same tables with a GPU as without; runs under Numba's simulator."""

import numpy as np
import pytest
from support.problem_strategies import random_table

import dmcmc.inference.elimination.cuda.waves as gpu_waves
import dmcmc.inference.execution.gpu_eliminations as gpu_eliminations
from dmcmc import Factor
from dmcmc.inference.elimination.cuda.eliminate import GpuElimination, divide_work, eliminate_hybrid
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources, eliminate_within
from dmcmc.inference.minibuckets.cuda.moment_matching import eliminate_matched_hybrid, variables_in_order
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.model.flat_tables import flatten
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


def problem(seed, magnitude=50, floats=False, hard=0.1, n=5, count=8):
    """Return encoded tables over a few variables, some entries −∞, a plan with cost shifts, and their arithmetic."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 4, n)
    scopes = [rng.permutation(n)[: rng.integers(1, 4)].tolist() for _ in range(count)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[s]), magnitude, hard, floats)) for s in scopes]
    arithmetic = choose_arithmetic(factors)
    encoded = [arithmetic.encode(f) for f in factors]
    order, keep = range(n - seed % 2), range(n - seed % 2, n)
    plan = plan_mini_buckets(scopes, domains, order, keep, least_z(scopes, order), True)
    return flatten([t.scope for t in encoded], [t.values for t in encoded], arithmetic.dtype), plan, arithmetic


def tables_of(matched):
    """Return every table with its magnitude: inputs by number, messages by variable and mini-bucket."""
    done, plan = matched.elimination, matched.elimination.plan
    given = plan.tables - plan.buckets
    found = {t: (done.table(t).values, matched.magnitudes[t]) for t in range(given)}
    variable = plan.program.variable.tolist()
    for b, v in enumerate(variable):
        found[v, b - variable.index(v), "message"] = (done.table(given + b).values, matched.magnitudes[given + b])
    return found


def chosen(matched):
    values = np.zeros(matched.elimination.plan.program.domains.size, dtype=np.int64)
    matched.elimination.choose(values)
    return values.tolist()


def assert_equal(here, there):
    left, right = tables_of(here), tables_of(there)
    assert left.keys() == right.keys()
    for name, (values, bound) in left.items():
        assert np.array_equal(values, right[name][0]) and bound == right[name][1], name
    assert (here.peak_magnitude, here.margin) == (there.peak_magnitude, there.margin)
    assert (here.shifts, here.skipped) == (there.shifts, there.skipped)


def both_ways(flat, plan, arithmetic, threshold, magnitude_limit=None):
    hybrid = divide_work(plan, threshold)
    there = eliminate_matched_hybrid(flat, plan, hybrid, arithmetic, magnitude_limit)
    return eliminate_matched(flat, plan, arithmetic, magnitude_limit=magnitude_limit), there


@pytest.mark.parametrize(("seed", "threshold"), [(114, 2), (19, 10)])
def test_integers_are_the_same_to_the_bit_however_the_work_is_divided(seed, threshold):
    assert_equal(*both_ways(*problem(seed), threshold))


def test_64_bit_integers_are_the_same_too():
    flat, plan, arithmetic = problem(13, 2**40, n=4, count=6)
    assert arithmetic.dtype == np.int64
    assert_equal(*both_ways(flat, plan, arithmetic, 4))  # everything runs on the GPU


def test_shifts_are_omitted_exactly_where_the_cpu_omits_them():
    flat, plan, arithmetic = problem(8, 30, hard=0.0, n=4, count=6)
    free = eliminate_matched(flat, plan, arithmetic)
    here, there = both_ways(flat, plan, arithmetic, 4, magnitude_limit=free.peak_magnitude - 1)
    assert here.skipped > 0
    assert_equal(here, there)
    assert chosen(here) == chosen(there)


def test_floats_agree_within_the_margin_and_their_shifts_add_up_to_zero():
    flat, plan, arithmetic = problem(10, 1e3, floats=True, n=4, count=6)
    here, there = both_ways(flat, plan, arithmetic, 4)
    assert here.shifts == there.shifts > 0
    assert there.margin == pytest.approx(here.margin) and there.margin > 0
    left, right = tables_of(here), tables_of(there)
    for name, (values, bound) in left.items():
        assert np.allclose(values, right[name][0], rtol=0, atol=1e-9 * float(here.peak_magnitude)), name
        assert bound == pytest.approx(right[name][1])
    program = there.elimination.plan.program
    for v in set(program.variable.tolist()):
        buckets = np.flatnonzero(program.variable == v)
        if buckets.size > 1:
            last = [program.inputs[program.input_start[b + 1] - 1] for b in buckets]
            shifts = np.stack([there.elimination.table(t).values for t in last])
            possible = np.isfinite(shifts).all(axis=0)
            assert (shifts.sum(axis=0)[possible] == 0).all()


@pytest.mark.parametrize(("both", "max_sums"), [(0, 99999), (1, 99999), (2, 0), (3, 99999)])
def test_marginals_over_several_tiles_with_any_number_of_tables_on_both_sides(both, max_sums, monkeypatch):
    """A mini-bucket over x = 0 with h = (1, 2) and l = 3, several tiles wide, in a separate wave or not."""
    monkeypatch.setattr(gpu_waves, "choose_lows", lambda program, first, last: program.row_axes[first:last].fill(1))
    monkeypatch.setattr("dmcmc.inference.tuning.MAX_WAVE_SUMS", max_sums)
    domains = np.array([2, 3, 3, 130, 2, 2])
    scopes = [(0, 1, 2), (0, 3), (0, 1, 3), (0, 2, 3), (0, 1, 2, 3)][: 2 + both]
    rng = np.random.default_rng(both)
    tables = [rng.integers(-99, 99, domains[list(s)], dtype=np.int32) for s in scopes]
    for table in tables:
        table[rng.random(table.shape) < 0.2] = -(2**29)
    scopes.append((0, 4, 5))
    tables.append(rng.integers(-9, 9, (2, 2, 2), dtype=np.int32))
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000)
    plan = plan_mini_buckets(scopes, domains, [0], range(1, 6), z=3, shifts=True)
    here, there = both_ways(flatten(scopes, tables, arithmetic.dtype), plan, arithmetic, 1)
    assert here.shifts == plan.buckets == 2
    assert_equal(here, there)


def test_the_same_value_is_chosen_if_every_value_is_forbidden():
    """Sums with −∞ in them depend on their order: here −5 − ∞ + 5 is 5 above −∞, and −∞ + 5 − 5 is not."""
    domains, lowest = np.array([2, 2, 2]), -(2**29)
    scopes = [(0, 1), (0, 1), (0, 2)]
    tables = [np.array([t, t], dtype=np.int32).T for t in ([lowest, lowest], [5, 3], [-5, 0])]
    arithmetic = Arithmetic(np.dtype(np.int32), lowest, 1000)
    flat, plan = flatten(scopes, tables, arithmetic.dtype), plan_mini_buckets(scopes, domains, [0], [1, 2], z=1)
    assert plan.buckets == 2
    values = np.zeros((2, 3), dtype=np.int64)
    eliminate(flat, plan, arithmetic).choose(values[0])
    eliminate_hybrid(flat, divide_work(plan, 1), arithmetic).choose(values[1])
    assert np.array_equal(*values)


@pytest.mark.parametrize("seed", range(20))
def test_a_divided_plan_is_processed_in_the_order_of_the_plan(seed):
    _, plan, _ = problem(seed, n=9, count=14)
    hybrid = divide_work(plan, 3 + seed)
    ranges = variables_in_order(plan, hybrid)
    walked = [b for first, last in ranges for b in range(first, last)]
    assert sorted(walked) == list(range(plan.buckets))
    assert [hybrid.plan.program.variable[b] for b in walked] == plan.program.variable.tolist()
    for first, last in ranges:
        groups = {hybrid.first <= b < hybrid.last for b in range(first, last)}
        assert len(groups) == 1
        assert groups == {False} or len(set(hybrid.plan.program.variable[first:last].tolist())) == 1


@pytest.fixture
def small_work_runs_on_the_gpu(monkeypatch):
    monkeypatch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([6]))
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))


def relaxed(backend, seed=2):
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, 4, 5)
    scopes = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 50, 0.1, False)) for s in scopes]
    arithmetic = choose_arithmetic(factors)
    tables = [arithmetic.encode(f) for f in factors]
    relaxation = Relaxation("mini-bucket", 1, "scope", True)
    return eliminate_within(
        EliminationQuery(tables, domains, range(5), (), arithmetic), relaxation, Resources(backend=backend)
    )


def test_a_relaxed_elimination_uses_the_gpu_of_its_backend(small_work_runs_on_the_gpu):
    here, there = relaxed(Backend()), relaxed(Backend.of("cuda", 1))
    assert isinstance(there.elimination, GpuElimination)
    assert there.elimination.hybrid.first < there.elimination.hybrid.last
    assert (here.elimination.total(), here.z, here.margin) == (there.elimination.total(), there.z, there.margin)


def test_a_plan_that_exceeds_the_device_runs_on_the_cpu(small_work_runs_on_the_gpu, monkeypatch):
    here = relaxed(Backend())
    there = relaxed(Backend("cuda", processes_per_gpu=1 << 62))
    assert not isinstance(there.elimination, GpuElimination)
    assert here.elimination.total() == there.elimination.total()

    def full(*_, **__):
        raise MemoryError("CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(gpu_eliminations, "eliminate_matched_hybrid", full)
    assert relaxed(Backend.of("cuda", 1)).elimination.total() == here.elimination.total()
