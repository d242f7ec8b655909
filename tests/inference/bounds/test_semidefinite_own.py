"""Squares of rows' own, and with a variable fixed: sound, never worse, the same steps and certificates as alone."""

import math

import numpy as np
import pytest
from support import naive
from support.lifts.dense_agents import dense_agent
from support.lifts.naive_batch import NaiveArrays

from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.bounds.semidefinite import progress
from dmcmc.inference.bounds.semidefinite.descent import Point
from dmcmc.inference.bounds.semidefinite.lift import Lift, Turn
from dmcmc.inference.bounds.semidefinite.own import turn as own_turn
from dmcmc.inference.bounds.semidefinite.own.batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.own.cases import (
    LONG,
    NODE,
    ROW,
    Case,
    Plan,
    alone,
    busiest,
    certified_alone,
    fixed_start,
    shared_start,
    utilities_of,
)
from dmcmc.inference.bounds.semidefinite.own.certificates import certificates
from dmcmc.inference.bounds.semidefinite.own.ground import Ground, case_shape
from dmcmc.inference.bounds.semidefinite.own.turn import OwnTurn, Stage, cases_at_once
from dmcmc.inference.bounds.semidefinite.pace import as_long_as


@pytest.fixture(autouse=True)
def made_in_runs(monkeypatch):
    """Rows have squares of their own in these tests."""
    monkeypatch.setattr(progress, "IN_RUNS", True)


def agents(hard=0.0, floats=False):
    """Agents of unlike sizes."""
    return [
        dense_agent(1, hidden=5, most=9, hard=hard, floats=floats),
        dense_agent(2, hidden=3, most=5, interface=2, hard=hard, floats=floats),
        dense_agent(3, hidden=4, most=6, interface=0, hard=hard, floats=floats),
    ]


def lifts(hard=0.0, floats=False, steps=5):
    """Lifts of agents that have made some steps together, and what their rows are worth."""
    locals_ = agents(hard, floats)
    found = [Lift(DualState(local, triangles=False)) for local in locals_]
    for lift in found:
        lift._ascends = False
        lift.improve(steps=steps)
    return found, [naive.row_values(local).ravel() for local in locals_]


def turns_of(found, rows=None):
    opened = [(lift, lift.open(rows)) for lift in found]
    return [Turn(*one) for one in opened if one[1] is not None]  # others are proven infeasible


def decoded(lift):
    return np.array([lift.state.layout.scale.decode(int(bound)) for bound in lift.state.bounds])


def forever():
    return math.inf


@pytest.fixture
def short(monkeypatch):
    """Schedules of few steps: the naive twin is slow."""
    monkeypatch.setattr(own_turn, "ROW", ROW._replace(steps=12))
    monkeypatch.setattr(own_turn, "NODE", NODE._replace(steps=5))
    monkeypatch.setattr(own_turn, "LONG", LONG._replace(steps=7))


@pytest.mark.parametrize("hard", [0.0, 0.1])
@pytest.mark.parametrize("floats", [False, True])
def test_squares_of_rows_own_are_sound_and_never_worse(short, hard, floats):
    found, worth = lifts(hard, floats)
    before = [decoded(lift) for lift in found]
    turns = turns_of(found)
    one = OwnTurn(turns, NaiveArrays(), 9, forever)
    one.run()
    assert one.rows and one.nodes
    for lift, values, above in zip(found, worth, before, strict=True):
        assert (decoded(lift) <= above).all() and (decoded(lift) >= values - 1e-9 * floats).all()
        assert not lift.own.points and not lift.own.nodes and lift.own.split <= lift.own.done
    assert all(turn.lift.exhausted and turn.lift.own.split for turn in turns)
    assert any((decoded(lift) < above).any() for lift, above in zip(found, before, strict=True))
    assert found[0].own.exact


def cases_of(descents):
    """Rows, and rows with a variable fixed, of all agents; the shared points they begin at."""
    starts, points = [], []
    for agent, descent in enumerate(descents):
        network = descent.network
        for row in range(min(2, math.prod(network.shape))):
            around, n = shared_start(descent, row), network.owner.size
            points.append(Point(np.concatenate([descent.point.vectors[:n], around[None]]), descent.point.shifts))
            starts.append(Start(agent, Case(row), len(points) - 1, around))
            u = busiest(network)
            for value in range(int(np.diff(network.starts)[u])):
                case = Case(row, u, value)
                starts.append(Start(agent, case, len(points) - 1, fixed_start(network, points[-1], case)))
    return starts, points


@pytest.mark.parametrize("hard", [0.0, 0.1])
def test_a_fixed_variable_alone_makes_no_bound_higher(hard):
    found, _ = lifts(hard)
    descents = [lift._descent for lift in found if lift._descent is not None]
    starts, points = cases_of(descents)
    bounds = certificates(CaseBatch(Ground(descents, NaiveArrays()), starts, points))
    row = None
    for start, bound in zip(starts, bounds, strict=True):
        assert bound is not None
        row = bound if start.case.variable is None else row
        assert bound <= row + 1  # whole numbers are rounded each for itself


@pytest.mark.parametrize("hard", [0.0, 0.3])
def test_certificates_of_many_cases_are_those_of_each(hard):
    found, _ = lifts(hard)
    descents = [lift._descent for lift in found if lift._descent is not None]
    starts, points = cases_of(descents)
    batch = CaseBatch(Ground(descents, NaiveArrays()), starts, points)
    batch.run(NODE._replace(steps=3), lambda made: 2)
    bounds = certificates(batch)
    for b, start in enumerate(starts):
        assert bounds[b] == certified_alone(descents[start.agent], start.case, batch.point(b))
    assert NEVER not in bounds or hard


def test_numbers_that_are_too_large_are_certified_neither_here_nor_there():
    found, _ = lifts()
    descents = [lift._descent for lift in found if lift._descent is not None]
    starts, points = cases_of(descents)
    batch = CaseBatch(Ground(descents, NaiveArrays()), starts[:3], points)
    batch.steps.best[0][1] *= 1e20
    batch.steps.best[2][2, 0, 9] = np.nan
    bounds = certificates(batch)
    assert bounds[1] is None and bounds[2] is None and bounds[0] is not None
    assert certified_alone(descents[starts[1].agent], starts[1].case, batch.point(1)) is None


def test_gathered_cases_make_the_steps_that_each_makes_alone():
    found, _ = lifts()
    descents = [lift._descent for lift in found if lift._descent is not None]
    starts, points = cases_of(descents)
    together = CaseBatch(Ground(descents, NaiveArrays()), starts, points)
    assert together.run(ROW._replace(steps=6), lambda made: 4) == 6
    for b in (0, 1, len(starts) - 1):
        start = starts[b]
        ground = Ground([descents[start.agent]], NaiveArrays())
        one = CaseBatch(ground, [start._replace(agent=0, point=0)], [points[start.point]])
        one.run(ROW._replace(steps=6), lambda made: 4)
        assert all(np.allclose(x, y, atol=1e-3) for x, y in zip(one.point(0), together.point(b), strict=True))
        assert float(one.steps.least[0]) == pytest.approx(float(together.steps.least[b]), rel=1e-4)


def test_what_is_left_of_a_case_is_its_bound():
    found, _ = lifts()
    descents = [lift._descent for lift in found if lift._descent is not None]
    starts, points = cases_of(descents)
    batch = CaseBatch(Ground(descents, NaiveArrays()), starts, points)
    batch.run(NODE._replace(steps=4), lambda made: 4)
    for start, bound, least in zip(starts, certificates(batch), batch.steps.least.tolist(), strict=True):
        assert bound / descents[start.agent].unit == pytest.approx(least, rel=1e-3)


def test_the_network_of_a_case_is_worth_what_the_agent_is_there():
    local = dense_agent(2, hidden=4, most=5, interface=2)
    network = Lift(DualState(local, triangles=False)).lay_out()
    u = busiest(network)
    values, constant = utilities_of(network, Case(1))
    at = network.starts[u]
    reduced = alone(network, Case(1, u, 0))
    assert reduced.owner.size == network.owner.size - np.diff(network.starts)[u] and reduced.shape == (1,)
    assert int(reduced.constants(np.zeros((1, 1), dtype=np.int64))[0]) == constant + values[at]
    kept = network.owner != u
    assert (reduced.values(np.zeros((1, 1), dtype=np.int64))[0] == (values + network.pairs[at])[kept]).all()


def test_time_ends_a_turn_and_what_is_not_done_is_done_later(short):
    found, _ = lifts()
    OwnTurn(turns_of(found), NaiveArrays(), 7, lambda: 0.0).run()
    assert not any(lift.own.done or lift.exhausted for lift in found)
    calls = iter([1e9, 1e9, 1e9, *[0.0] * 99])
    OwnTurn(turns_of(found), NaiveArrays(), 7, lambda: next(calls)).run()
    assert not any(lift.own.done for lift in found)  # its steps had not ended
    calls = iter([1e9] * 12 + [0.0] * 99)
    OwnTurn(turns_of(found), NaiveArrays(), 2, lambda: next(calls)).run()
    done = sum(len(lift.own.done) for lift in found)
    assert done > 0 and not all(lift.exhausted for lift in found)
    one = OwnTurn(turns_of(found), NaiveArrays(), 7, forever)
    one.run()
    assert one.rows + done == sum(lift.state.bounds.size for lift in found) and all(lift.exhausted for lift in found)


def test_values_that_bound_a_row_have_more_steps_and_others_keep_their_bounds(short):
    found, _ = lifts()
    lift, turns = found[0], turns_of(found[:1])
    one = OwnTurn(turns, NaiveArrays(), 9, forever)
    while not (items := one._next()) or items[0].stage < Stage.LONGER:
        one._carry_out(items)
    (row, nodes), own = max(lift.own.nodes.items(), key=lambda known: max(known[1].values())), lift.own
    assert max(nodes.values()) >= lift.state.bounds[row] and own.alone[row] >= lift.state.bounds[row]
    own.alone[row], lowest = max(nodes.values()), min(nodes, key=nodes.__getitem__)
    item = next(item for item in one._items() if item.row == row)
    cases = one._cases(item)
    assert cases == [Case(row, cases[0].variable, v) for v, bound in nodes.items() if bound == max(nodes.values())]
    one._lower(item, cases, [-999] * len(cases), whole=False)
    assert lift.state.bounds[row] == max(max(own.nodes[row].values()), -999) and own.nodes[row][lowest] == nodes[lowest]
    one._lower(item, cases, [None] * len(cases), whole=True)
    assert row not in own.points and row not in own.nodes and row in own.split


def test_rows_that_do_not_matter_are_left_as_they_are(short):
    found, _ = lifts()
    before = found[0].state.bounds.copy()
    OwnTurn(turns_of(found[:1], np.array([1])), NaiveArrays(), 7, forever).run()
    assert found[0].own.done == {1} and (np.delete(found[0].state.bounds, 1) == np.delete(before, 1)).all()


def test_certificates_that_are_not_those_of_the_cpu_are_not_used(short, monkeypatch):
    (found, worth), (other, _) = lifts(), lifts()
    OwnTurn(turns_of(other), NaiveArrays(), 7, forever).run()
    monkeypatch.setattr(own_turn, "certificates", lambda batch: [NEVER + 1] * len(batch.starts))
    OwnTurn(turns_of(found), NaiveArrays(), 7, forever).run()
    assert found[0].own.exact is False
    for lift, same, values in zip(found, other, worth, strict=True):
        assert (decoded(lift) >= values).all() and (lift.state.bounds == same.state.bounds).all()


def test_schedules_go_down_and_batches_fit_the_memory():
    for plan in (ROW, NODE, LONG):
        words = np.array([plan.at(step) for step in range(plan.steps)])
        assert words[0, 0] == pytest.approx(1 / plan.warm) and words[-1, 0] == pytest.approx(1 / plan.cold)
        assert (np.diff(words[:, 0]) > 0).all() and words[-1, 2] == pytest.approx(plan.short, rel=0.01)
    assert Plan(1, 0.1, 0.1, 1.0, 1.0).at(0).step == pytest.approx(10)
    found, _ = lifts(steps=1)
    shape = case_shape([lift._descent for lift in found])
    assert cases_at_once(shape, 3, 1 << 40) == 128 and cases_at_once(shape, 3, 1000) < 1


def test_steps_are_asked_for_as_long_as_there_is_time():
    left = iter([5.0, 5.0, math.inf, 0.0])
    more = as_long_as(lambda: next(left))
    assert more(0) == 1 and 1 <= more(1) <= 20 and 1 <= more(11) <= 20 and more(20) == 0
