"""The term that rows share: where it starts, what its descent lowers, and sound bounds of all rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.row_searches import decoded

from dmcmc import Factor
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.agent_buffers import CpuArrays
from dmcmc.inference.bounds.semidefinite.certificate import bounds_with_term, round_psd_term
from dmcmc.inference.bounds.semidefinite.node_steps import BRANCH_SCHEDULE, ROOT_SCHEDULE
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation, lower_terms
from dmcmc.inference.bounds.semidefinite.utility_matrix import FORBIDDEN_UTILITY, SharedTerm, build_utility_matrix
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.subproblem import Subproblem
from dmcmc.inference.runtime.deadline import Deadline


def relaxation_of(local):
    return SemidefiniteRelaxation(DualState(local, triangles=False))


def row_bounds(term, local):
    """Return the certified bounds of all rows, as utilities."""
    rounded = round_psd_term(term.matrix, *term.scaled(term.point))
    bounds = bounds_with_term(term.matrix, rounded, np.arange(local.rows))
    return np.array([term.matrix.scale.decode(int(bound)) for bound in bounds])


@settings(max_examples=15)
@given(st.integers(0, 9999), st.sampled_from([0.0, 0.2]), st.sampled_from([0, 1, 2, 3]), st.integers(1, 25))
def test_any_number_of_steps_gives_sound_bounds_of_all_rows(seed, hard, interface, steps):
    local = dense_agent(seed, hidden=3, interface=interface, hard=hard, max_domain=4)
    relaxation = relaxation_of(local)
    task = relaxation.prepare()
    if task is None:  # constant tables, or proven infeasible
        return
    (lowered,) = lower_terms([task], CpuArrays(), ROOT_SCHEDULE._replace(steps=steps))
    task.term.take(lowered.point)
    assert lowered.steps == steps
    assert (row_bounds(task.term, local) >= naive.row_values(local).ravel()).all()


@pytest.mark.parametrize("interface", [0, 1, 2])
def test_a_descent_lowers_the_bounds_of_its_start(interface):
    local = dense_agent(6, hidden=6, interface=interface, max_domain=6, density=1.0)
    task = relaxation_of(local).prepare()
    before = row_bounds(task.term, local)
    (lowered,) = lower_terms([task], CpuArrays(), ROOT_SCHEDULE)
    task.term.take(lowered.point)
    assert row_bounds(task.term, local).max() < before.max()


def test_agents_that_are_lowered_together_end_where_single_ones_end():
    locals_ = [dense_agent(1, hidden=5, max_domain=6), dense_agent(2, hidden=4, max_domain=5, interface=2)]
    schedule = BRANCH_SCHEDULE._replace(steps=12)
    together = [relaxation_of(local).prepare() for local in locals_]
    found = lower_terms(together, CpuArrays(), schedule)
    for task, lowered, local in zip(together, found, locals_, strict=True):
        alone = relaxation_of(local).prepare()
        (single,) = lower_terms([alone], CpuArrays(), schedule)
        task.term.take(lowered.point)
        alone.term.take(single.point)
        assert np.allclose(row_bounds(task.term, local), row_bounds(alone.term, local), rtol=0.02)


def test_tables_of_variables_with_one_value_are_moved_to_the_other_variable():
    domains, rng = np.array([1, 4, 4, 3]), np.random.default_rng(0)
    scopes = [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (0, 3)]
    factors = [Factor.of(s, rng.integers(0, 99, tuple(domains[list(s)]))) for s in scopes]
    local = Subproblem(0, (3,), (0, 1, 2), tuple(factors), domains)
    relaxation = relaxation_of(local)
    relaxation.improve(steps=60)
    assert 0 <= decoded(relaxation).max() - naive.row_values(local).max() <= 2


def test_an_agent_with_constant_tables_has_no_term():
    factors = [Factor.of((0, 1), np.ones((2, 2), dtype=np.int64)), Factor.of((1,), np.arange(2))]
    local = Subproblem(0, (), (0, 1), tuple(factors), np.full(2, 2))
    assert SharedTerm.initial(build_utility_matrix(local)) is None
    relaxation = relaxation_of(local)
    relaxation.improve(steps=5)
    assert relaxation.exhausted and relaxation.steps == 0


def test_forbidden_entries_have_one_number_in_units():
    term = SharedTerm.initial(build_utility_matrix(dense_agent(5, hidden=4, hard=0.3)))
    units = term.in_units(term.matrix.pairs)
    assert units.dtype == np.float32 and (units[term.matrix.pairs < -(1 << 28)] == FORBIDDEN_UTILITY).all()
    assert np.isfinite(units).all()


def test_short_times_and_past_deadlines_make_no_step():
    local = dense_agent(1, hidden=5, max_domain=6)
    relaxation = relaxation_of(local)
    relaxation.improve(seconds=relaxation.min_seconds / 2)
    assert relaxation.steps == 0 and relaxation.untested
    relaxation.state.backend = Backend(stop=Deadline(until=0.0))
    relaxation.improve(steps=5)
    assert relaxation.steps == 0


def test_a_time_budget_gives_a_whole_schedule_and_a_measured_step():
    relaxation = relaxation_of(dense_agent(1, hidden=5, max_domain=6))
    estimated = relaxation.step_seconds
    relaxation.improve(seconds=60.0)
    assert relaxation.steps == ROOT_SCHEDULE.steps and not relaxation.untested
    assert relaxation.step_seconds != estimated and relaxation.schedule is BRANCH_SCHEDULE


def test_only_the_given_rows_are_lowered():
    local = dense_agent(11, hidden=6, max_domain=9, density=1.0)
    relaxation = relaxation_of(local)
    before = relaxation.state.bounds.copy()
    relaxation.improve(steps=30, rows=np.array([1]))
    assert relaxation.state.bounds[1] < before[1]
    assert (np.delete(relaxation.state.bounds, 1) == np.delete(before, 1)).all()
