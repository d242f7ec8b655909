"""A process's second problem of the same shape plans nothing, and has the answer of the first one there is."""

import pytest

import dmcmc
from dmcmc.inference.dpop import division, planned, pseudotree
from dmcmc.inference.orders import best_order
from dmcmc.inference.reductions import glance
from dmcmc.samplers.auto import survey

SIZES = {"agents": 4, "variables_per_agent": 6, "domain_size": 4}
MEMOS = [division._ORDERS, planned._PLANS, pseudotree._TREES, best_order._ORDERS, glance._PAYING, survey._COUNTED]


def forget():
    for memo in MEMOS:
        memo.clear()


def solved(seed):
    result = dmcmc.solve(dmcmc.generate("meeting-scheduling", seed=seed, **SIZES), device="cpu", seed=7)
    return result.objective, result.bound, result.assignment


def test_a_second_problem_of_the_same_shape_plans_nothing(monkeypatch):
    forget()
    solved(0)

    def planning(*_):
        pytest.fail("planned again")

    monkeypatch.setattr(best_order, "_searched_order", planning)
    monkeypatch.setattr(pseudotree, "_cheapest", planning)
    monkeypatch.setattr(planned, "plan_elimination", planning)
    solved(0)


def test_what_was_planned_before_changes_no_answer():
    answers = []
    for seed in (1, 2):
        forget()
        answers.append(solved(seed))
    assert [solved(seed) for seed in (1, 2)] == answers


def test_equal_local_graphs_share_an_order(monkeypatch):
    forget()
    searched, search = [], best_order._searched_order
    monkeypatch.setattr(best_order, "_searched_order", lambda *rest: searched.append(1) or search(*rest))
    chain = [(v, v + 1) for v in range(4)]
    shifted = [(v + 7, v + 8) for v in range(4)]
    sizes = dmcmc.generate("random", agents=1, variables_per_agent=12, domain_size=3).domains
    first = best_order.best_order(chain, sizes, range(4), [4])
    second = best_order.best_order(shifted, sizes, range(7, 11), [11])
    assert second.variables == tuple(v + 7 for v in first.variables)
    assert len(searched) == 1
