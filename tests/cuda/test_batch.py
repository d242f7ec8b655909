"""A batch of eliminations on a GPU gives the tables of single eliminations on the CPU; runs under Numba's simulator."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoded_problems import batches, same_tables

from dmcmc import generate
from dmcmc.inference import tuning
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.elimination.cuda.eliminate import divide_work, eliminate_batch
from dmcmc.inference.elimination.eliminate import EliminationWitness, eliminate, maximise_together, merge_plans
from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MIN_PLUS
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.methods.exact import ExactSolver

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

FEW = settings(max_examples=4, derandomize=True)


def one_by_one(plans, flat, arithmetic, **options):
    start = np.cumsum([0, *(plan.tables - plan.buckets for plan in plans)])
    return [eliminate(flat.table_range(a, b), p, arithmetic, **options) for p, a, b in zip(plans, start, start[1:])]  # noqa: B905


def all_at_once(plans, flat, arithmetic, threshold, **options):
    merged = merge_plans(plans)
    return eliminate_batch(flat, plans, merged, divide_work(merged.plan, threshold), arithmetic, **options)


def same_maximisers(left, right):
    """Return whether two eliminations choose the same values for every assignment of the kept variables."""
    domains = left.plan.program.domains
    kept = sorted({v for t in left.remaining() for v in t.scope})
    every = np.zeros((2, int(np.prod(domains[kept])), domains.size), dtype=np.int64)
    every[:, :, kept] = list(product(*(range(domains[v]) for v in kept)))
    left.choose_all(every[0])
    right.choose_all(every[1])
    if not np.array_equal(*every):
        return False
    for assignment in product(*(range(domains[v]) for v in kept)):
        values = np.zeros((2, domains.size), dtype=np.int64)
        values[:, kept] = assignment
        left.choose(values[0])
        right.choose(values[1])
        if not np.array_equal(*values):
            return False
    return True


@given(batches(), st.integers(1, 60), st.booleans())
@FEW
def test_a_batch_gives_the_tables_of_single_eliminations(batch, threshold, at_once):
    max_values = tuning.SMALL_STEP_CELLS
    tuning.SMALL_STEP_CELLS = max_values if at_once else 0  # look up all rows at once, or each row on demand
    try:
        for one, other in zip(one_by_one(*batch), all_at_once(*batch, threshold), strict=True):
            assert same_tables(one, other)
            assert same_maximisers(one, other)
    finally:
        tuning.SMALL_STEP_CELLS = max_values


@given(batches(scale=2**40), st.integers(1, 20))
@FEW
def test_a_batch_gives_the_same_in_64_bits_and_for_minima(batch, threshold):
    done = all_at_once(*batch, threshold, semiring=MIN_PLUS)
    for one, other in zip(one_by_one(*batch, semiring=MIN_PLUS), done, strict=True):
        assert same_tables(one, other)
        assert same_maximisers(one, other)


@given(batches(whole=False), st.integers(1, 20))
@FEW
def test_sums_of_exponentials_agree_to_rounding(batch, threshold):
    done = all_at_once(*batch, threshold, semiring=LOG_SUM_EXP)
    for one, other in zip(one_by_one(*batch, semiring=LOG_SUM_EXP), done, strict=True):
        assert same_tables(one, other, 1e-9)


@given(batches(), st.sampled_from([None, 3000, 1]))
@FEW
def test_the_backend_batches_as_many_plans_as_fit(batch, limit):
    plans, flat, arithmetic = batch
    backend = Backend.of("cuda", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([2]))
        patch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))
        if limit is not None:
            patch.setattr(Backend, "limit", lambda _: limit)
            patch.setattr(Backend, "eliminate", lambda self, *work: eliminate(*work[:3]))
        groups = list(backend.eliminate_all(flat, plans, arithmetic))
    if limit is None and max(int(plan.program.cells.max(initial=0)) for plan in plans) >= 2:
        assert len(groups) == 1
    done = [one for group in groups for one in group]
    for one, other in zip(one_by_one(*batch), done, strict=True):
        assert same_tables(one, other)


@given(batches())
@FEW
def test_equal_plans_are_merged_and_divided_once(batch):
    plans, flat, arithmetic = batch
    other = flat._replace(data=flat.data[::-1].copy())
    copies = [plan.program._replace(domains=plan.program.domains.copy()) for plan in plans]
    again = [replace(plan, program=program) for plan, program in zip(plans, copies, strict=True)]
    backend = Backend.of("cuda", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([2]))
        patch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))
        first = [one for group in backend.eliminate_all(flat, plans, arithmetic) for one in group]
        patch.setattr("dmcmc.inference.elimination.cuda.eliminate.group_buckets", None)
        second = [one for group in backend.eliminate_all(other, again, arithmetic) for one in group]
    for expected, found in zip(one_by_one(plans, other, arithmetic), second, strict=True):
        assert same_tables(expected, found)
        assert same_maximisers(expected, found)
    for expected, found in zip(one_by_one(*batch), first, strict=True):
        assert same_maximisers(expected, found)


@given(batches(), st.integers(1, 60))
@FEW
def test_the_values_of_a_batch_are_looked_up_together(batch, threshold):
    singles, together = one_by_one(*batch), all_at_once(*batch, threshold)
    kept = [
        {v: single.plan.program.domains[v] - 1 for table in single.remaining() for v in table.scope}
        for single in singles
    ]
    values = [[dict(row) for row in kept] for _ in range(2)]
    for single, row in zip(singles, values[0], strict=True):
        single.maximise(row)
    maximise_together(together, values[1])
    assert values[0] == values[1]


@given(batches(), st.integers(1, 60), st.booleans())
@FEW
def test_the_values_of_all_rows_equal_those_of_single_eliminations(batch, threshold, in_one_look_up):
    most = tuning.MAX_EXPANDED_ENTRIES if in_one_look_up else 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "MAX_EXPANDED_ENTRIES", most)
        for single, other in zip(one_by_one(*batch), all_at_once(*batch, threshold), strict=True):
            kept = sorted({v for table in single.remaining() for v in table.scope}, reverse=True)
            wanted = single.plan.program.variable.tolist()
            assert np.array_equal(single.values_of_rows(kept, wanted), other.values_of_rows(kept, wanted))


@pytest.mark.parametrize("limit", [1 << 30, 512])
def test_agents_that_do_not_fit_the_device_together_store_values_in_place_of_tables(limit, monkeypatch):
    problem = generate("meeting-scheduling", agents=4, variables_per_agent=4, domain_size=4)
    monkeypatch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([2]))
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))
    monkeypatch.setattr(Backend, "limit", lambda _: limit)
    found, expected = (
        ExactSolver().solve(
            divide(problem).locals, Sampling(choose_arithmetic(problem.factors), backend=Backend.of(device, 1))
        )
        for device in ("cuda", "cpu")
    )
    assert {isinstance(table.witness, EliminationWitness) for table in found} == {limit > 512}
    for local, one, other in zip(divide(problem).locals, found, expected, strict=True):
        for left, right in zip(one.lower, other.lower, strict=True):
            assert left.scope == right.scope
            assert np.array_equal(left.values, right.values)
        for row in product(*(range(local.domains[v]) for v in local.interface)):
            values = dict(zip(local.interface, row, strict=True))
            assert one.witness(values) == other.witness(values)
