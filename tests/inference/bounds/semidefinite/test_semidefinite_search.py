"""Searches with semidefinite bounds of single rows: what is specific to them."""

import numpy as np
import pytest
from support import naive
from support.semidefinite.dense_agents import dense_agent
from support.semidefinite.row_searches import decoded, relaxation_of, relaxations, start_searches, tasks_of

from dmcmc.inference.bounds.branch_and_bound.bounder import JOB_SOURCE, JOB_WORK, UNFINISHED, run_batches
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite import bounder as bounder_module
from dmcmc.inference.bounds.semidefinite.bounder import choose_branches
from dmcmc.inference.bounds.semidefinite.relaxation import bound_single_rows
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline


@pytest.mark.parametrize("hard", [0.0, 0.1])
@pytest.mark.parametrize("floats", [False, True])
def test_per_row_bounds_are_sound_and_never_worse(hard, floats):
    found, exact = relaxations(hard, floats)
    before = [decoded(relaxation) for relaxation in found]
    active = tasks_of(found)
    runner = start_searches(active)
    for batches in (1, 3, 8):
        bound_single_rows([one for one in active if not one.relaxation.exhausted], batches=batches)
        for relaxation, values, bounds_before in zip(found, exact, before, strict=True):
            assert (decoded(relaxation) <= bounds_before).all()
            assert (decoded(relaxation) >= values - 1e-9 * floats).all()
    assert runner.exact and any(
        (decoded(relaxation) < bounds_before).any() for relaxation, bounds_before in zip(found, before, strict=True)
    )


def test_an_ended_search_exhausts_the_relaxation_and_is_dropped():
    local = dense_agent(5, hidden=2, max_domain=4)
    relaxation = relaxation_of(local)
    active = tasks_of([relaxation])
    start_searches(active)
    bound_single_rows(active, batches=1)
    assert not relaxation.per_row.has_branched and relaxation.work_done > 5
    bound_single_rows(active)
    assert relaxation.exhausted and relaxation.per_row.search is None and relaxation.per_row.has_branched
    assert naive.same_numbers(decoded(relaxation), naive.row_values(local).ravel())


def test_rows_are_closed_once_they_do_not_exceed_their_cutoffs():
    found, exact = relaxations()
    cutoffs = np.asarray(exact[0], dtype=float)
    (active,) = tasks_of(found[:1], cutoffs=cutoffs)
    start_searches([active])
    bound_single_rows([active])
    assert found[0].exhausted and (decoded(found[0]) == cutoffs).all()


def test_a_past_deadline_ends_the_search_and_a_later_call_continues_it():
    found, _ = relaxations()
    active, before = tasks_of(found), [relaxation.state.bounds.copy() for relaxation in found]
    start_searches(active)
    for relaxation in found:
        relaxation.state.backend = relaxation.state.backend.__class__(stop=Deadline(until=0.0))
    bound_single_rows(active)
    assert all(
        (one.state.bounds == bounds).all() and not one.exhausted for one, bounds in zip(found, before, strict=True)
    )
    for relaxation in found:
        relaxation.state.backend = relaxation.state.backend.__class__()
    bound_single_rows(active, batches=2)
    assert any(relaxation.per_row.nodes for relaxation in found)


def test_irrelevant_rows_are_unchanged():
    found, _ = relaxations()
    before = found[0].state.bounds.copy()
    active = tasks_of(found[:1], rows=np.array([1]))
    start_searches(active)
    bound_single_rows(active, batches=3)
    assert (np.delete(found[0].state.bounds, 1) == np.delete(before, 1)).all()


def test_branches_that_are_no_lower_than_their_parent_make_more_steps_first():
    found, _ = relaxations()
    active = tasks_of(found[:1], rows=np.array([1]))
    runner = start_searches(active)
    bound_single_rows(active, batches=1)
    runner._bounds[:] = MINUS_INFINITY + 5  # below anything that a branch can prove
    search = found[0].per_row.search
    chosen, batch = search.next_batch(1)
    (results,) = run_batches([(search.bounder, batch)], NO_DEADLINE)
    assert len(results.variables) >= 2 and set(results.variables.tolist()) == {UNFINISHED}
    search.record(chosen, batch, results)
    chosen, batch = search.next_batch(9)
    assert (np.diff(batch.groups) == 1).all() and (batch.jobs[:, JOB_WORK] == runner.schedules.root.steps).all()
    assert (batch.jobs[:, JOB_SOURCE] >= 0).all()  # they continue from their own entries
    (results,) = run_batches([(search.bounder, batch)], NO_DEADLINE)
    assert (results.variables >= 0).all()


def test_wrong_certificates_of_the_device_are_replaced_by_those_of_the_cpu(monkeypatch, caplog):
    (found, exact), right = relaxations(), bounder_module.certificates

    def wrong(batch, on_host=False):
        certified = right(batch)
        if on_host:
            return certified
        return certified._replace(bounds=np.full_like(certified.bounds, MINUS_INFINITY + 9))

    monkeypatch.setattr(bounder_module, "certificates", wrong)
    active = tasks_of(found)
    runner = start_searches(active)
    bound_single_rows(active, batches=3)
    assert runner.exact is False and "differ from the CPU's" in caplog.text
    for relaxation, values in zip(found, exact, strict=True):
        assert (decoded(relaxation) >= values).all()


def test_a_failure_ends_the_search_for_good():
    found, _ = relaxations()
    found[0].per_row.expected = True
    assert found[0].per_row.undecided
    start_searches(tasks_of(found))
    found[0].per_row.fail()
    assert found[0].per_row.search is None and not found[0].per_row.undecided


def test_bounds_that_were_proven_before_a_failure_hold(monkeypatch):
    found, exact = relaxations()
    active, before, make_batch = tasks_of(found[:1]), decoded(found[0]), bounder_module.RowNodeBatch
    made = []

    def fail_later(*given):
        made.append(given)
        if len(made) > 12:
            raise RuntimeError("broken")
        return make_batch(*given)

    start_searches(active)
    monkeypatch.setattr(bounder_module, "RowNodeBatch", fail_later)
    with pytest.raises(RuntimeError, match="broken"):
        bound_single_rows(active)
    assert (decoded(found[0]) <= before).all() and (decoded(found[0]) < before).any()
    assert (decoded(found[0]) >= exact[0]).all()


def test_branches_split_the_variable_with_the_most_tables_whose_values_differ_least():
    allowed = np.ones((2, 3, 10), dtype=bool)
    allowed[0, :, 3:] = False
    gaps = np.tile(np.arange(10.0), (2, 3, 1))
    gaps[:, 1] *= 0.5
    degrees = np.array([[2, 2, 1], [1, 2, 3]])
    variables, parts = choose_branches(gaps, allowed, degrees)
    assert variables.tolist() == [1, 2]  # of two variables with two tables, the one with smaller gaps
    assert parts[0].tolist() == [0, 1, 2] + [0] * 7  # three values, one branch each
    assert parts[1].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]  # ten values, distributed by rank
