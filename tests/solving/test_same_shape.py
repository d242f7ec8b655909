"""A later problem of the same shape in one process reuses the plan, and has the same answer as without it."""

from dataclasses import replace

import numpy as np
import pytest

import dmcmc
from dmcmc.inference.dpop import agent_step, pseudotree
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.factor_graph import build_graph
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders import best_order
from dmcmc.inference.runtime.memo import clear_memos
from dmcmc.mpi.world import World
from dmcmc.solving.planning.plan import prepare

SIZES = {"agents": 4, "variables_per_agent": 6, "domain_size": 4}


def solve_generated(seed):
    result = dmcmc.solve(dmcmc.generate("meeting-scheduling", seed=seed, **SIZES), device="cpu", seed=7)
    return result.objective, result.bound, result.assignment


def test_a_second_problem_of_the_same_shape_reuses_the_plan(monkeypatch):
    clear_memos()
    solve_generated(0)

    def planning(*_):
        pytest.fail("planned again")

    monkeypatch.setattr(best_order, "exact_order", planning)
    monkeypatch.setattr(best_order, "search", planning)
    monkeypatch.setattr(pseudotree.PseudoTree, "compact", planning)
    monkeypatch.setattr(agent_step, "plan_elimination", planning)
    solve_generated(0)


def test_the_utility_steps_of_many_agents_are_planned_once(monkeypatch):
    asked = dmcmc.generate("random", agents=600, variables_per_agent=1, domain_size=2, global_density=0.002, seed=1)
    first = dmcmc.solve(asked, device="cpu", method="exact", seed=7)
    monkeypatch.setattr(agent_step, "plan_elimination", lambda *_: pytest.fail("planned again"))
    second = dmcmc.solve(asked, device="cpu", method="exact", seed=7)
    assert (second.objective, second.bound, second.assignment) == (first.objective, first.bound, first.assignment)


def test_cached_plans_do_not_change_answers():
    answers = []
    for seed in (1, 2):
        clear_memos()
        answers.append(solve_generated(seed))
    assert [solve_generated(seed) for seed in (1, 2)] == answers


def random_factors(asked, seed):
    rng = np.random.default_rng(seed)
    return tuple(Factor.of(factor.scope, rng.integers(0, 9, factor.shape)) for factor in asked.factors)


def test_factor_graphs_of_equal_shape_share_their_index_arrays():
    first = dmcmc.generate("meeting-scheduling", seed=1, **SIZES)
    second, again = (replace(first, factors=random_factors(first, seed)) for seed in (2, 2))
    one, other = build_graph(first), build_graph(second)
    assert one.factor is other.factor and one.data is first.flat.data and other.data is second.flat.data
    clear_memos()
    for cached, recomputed in zip(other, build_graph(again), strict=True):
        assert np.array_equal(cached, recomputed) and np.asarray(cached).dtype == np.asarray(recomputed).dtype


def test_equal_local_graphs_share_an_order(monkeypatch):
    clear_memos()
    searched, search = [], best_order.exact_order
    monkeypatch.setattr(best_order, "exact_order", lambda *rest: searched.append(1) or search(*rest))
    chain = [(v, v + 1) for v in range(4)]
    shifted = [(v + 7, v + 8) for v in range(4)]
    sizes = dmcmc.generate("random", agents=1, variables_per_agent=12, domain_size=3).domains
    first = best_order.best_order(chain, sizes, range(4), [4])
    second = best_order.best_order(shifted, sizes, range(7, 11), [11])
    assert second.variables == tuple(v + 7 for v in first.variables)
    assert len(searched) == 1


def test_facts_about_table_entries_are_not_shared_between_problems():
    first = dmcmc.generate("meeting-scheduling", seed=1, **SIZES)
    problems = [
        replace(first, factors=tuple(Factor(f.scope, change(f.table)) for f in first.factors))
        for change in (np.asarray, lambda table: 3 - table, lambda table: 0.5 * table)
    ]
    assert len({id(one.shape_facts) for one in problems}) == 1
    assert len({id(one.facts) for one in problems}) == len(problems)
    for one in problems:
        setup = prepare(one, dmcmc.Settings(device="cpu"), World())
        weights = [sum(magnitude(factor.table) for factor in local.factors) for local in setup.divided.division.locals]
        assert setup.weights == weights
        assert {id(factor) for local in setup.divided.division.locals for factor in local.factors} <= set(
            map(id, one.factors)
        )
    found = [dmcmc.solve(one, device="cpu").objective for one in problems]
    clear_memos()
    assert [dmcmc.solve(one, device="cpu").objective for one in reversed(problems)] == found[::-1]
    assert found[2] == 0.5 * found[0]


def test_plans_of_other_settings_are_not_reused():
    one = dmcmc.generate("meeting-scheduling", seed=1, **SIZES)
    for method in ("auto", "gibbs", "exact", "gibbs"):
        setup = prepare(one, dmcmc.Settings(local=dmcmc.Local(method=method), device="cpu"), World())
        assert set(setup.methods) == {"exact" if method == "auto" else method}
