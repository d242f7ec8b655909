"""Baseline algorithms with one variable per agent: known properties, both senses, and any number of ranks."""

import re
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imports import ROOT
from support import soundness
from support.clock import CountingClock
from support.local_optima import better_by_one, better_by_two, value_of
from support.problem_strategies import mixed_problems, random_problem, random_table
from support.ranks import on_thread_ranks

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.algorithms import registry
from dmcmc.algorithms.agent import AllRandom
from dmcmc.algorithms.contract import Algorithm, Parameter, checked
from dmcmc.algorithms.duct import DuctSearch
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.inference.runtime.errors import ConfigError, ResourceError

CYCLE_ALGORITHMS = ("mgm", "mgm2", "dsa", "dgls", "max-sum", "distributed-gibbs", "duct")
few_examples = settings(max_examples=25)


def compiled(name):
    """Return an algorithm as it runs for all variables at once."""
    algorithm = registry.get(name)
    return algorithm.compiled if isinstance(algorithm, type) else algorithm


def cycles(name, problem, seed=0, max_cycles=100, world=None, **parameters):
    """Return the network and the assignments after each cycle."""
    algorithm, network = compiled(name), AgentNetwork(problem, world)
    drawn = AllRandom(seed, problem.n_variables) if isinstance(registry.get(name), type) else None
    rng = drawn or np.random.Generator(np.random.Philox(seed))
    found = []
    for values in algorithm.steps(network, rng, checked(algorithm, parameters, "parameters")):
        found.append(values.copy())
        if len(found) > max_cycles:
            break
    return network, found


@few_examples
@given(mixed_problems(), st.integers(0, 99), st.sampled_from(["mgm", "mgm2"]))
def test_mgm_and_mgm2_never_get_worse(problem, seed, name):
    network, found = cycles(name, problem, seed)
    total_scores = [network.total_score(values) for values in found]
    assert total_scores == sorted(total_scores)


@few_examples
@given(mixed_problems(), st.integers(0, 99))
def test_mgm_ends_1_optimal(problem, seed):
    assert better_by_one(problem, cycles("mgm", problem, seed)[1][-1]) == []


@few_examples
@given(mixed_problems(), st.integers(0, 99))
def test_mgm2_ends_2_optimal(problem, seed):
    assert better_by_two(problem, cycles("mgm2", problem, seed, max_cycles=1000)[1][-1]) == []


def test_a_joint_move_of_two_variables_is_found_by_mgm2_only():
    table = Factor.of((0, 1), [[2, 0], [0, 3]])
    problem = Problem(("a", "b"), [2, 2], ("one", "two"), [0, 1], (table,))
    seeds = range(8)
    assert {cycles("mgm2", problem, seed)[1][-1].tolist() == [1, 1] for seed in seeds} == {True}
    assert {cycles("mgm", problem, seed)[1][-1].tolist() == [1, 1] for seed in seeds} == {True, False}


def random_tree(seed, sense, n=7):
    """Return a tree of random float tables, unary ones included, so that no two assignments have the same utility."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 4, n)
    scopes = [(int(rng.integers(v)), v) for v in range(1, n)] + [(v,) for v in range(n)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 9, floats=True), sense) for s in scopes]
    names = tuple(f"x{v}" for v in range(n))
    return Problem(names, domains, names, np.arange(n), tuple(factors), sense=sense)


@few_examples
@given(st.integers(0, 10**6), st.sampled_from(["max", "min"]), st.sampled_from([0.0, 0.5]))
def test_max_sum_is_exact_on_trees(seed, sense, damping):
    problem = random_tree(seed, sense)
    last = cycles("max-sum", problem, seed, max_cycles=8 if damping == 0 else 200, damping=damping)[1][-1]
    sign = 1 if sense == "max" else -1
    assert sign * problem.evaluate(last).objective == pytest.approx(soundness.optimum(problem))


def test_dpop_is_exact_and_adpop_proves_an_upper_bound():
    for seed in range(3):
        problem = random_problem(seed + 40, variables=7, agents=3, hard=0.0, arity=2, sense=("max", "min")[seed % 2])
        sign = 1 if problem.sense == "max" else -1
        exact = dmcmc.solve(problem, algorithm="dpop", seed=1)
        bounded = dmcmc.solve(problem, algorithm={"name": "adpop", "parameters": {"z": 2}})
        assert exact.status == "optimal" and sign * exact.objective == soundness.optimum(problem)
        assert sign * bounded.objective <= sign * exact.objective <= sign * bounded.bound
        assert len(exact.agents) == (problem.n_variables or problem.n_agents)
        assert exact.provenance["config"]["algorithm"] == "dpop"


@few_examples
@given(st.integers(0, 10**6), st.sampled_from(["max", "min"]))
def test_duct_bounds_are_valid_with_very_wide_confidence_intervals(seed, sense):
    problem = random_problem(seed, variables=5, domain=3, hard=0.0, sense=sense)
    network, rng = AgentNetwork(problem), np.random.default_rng(seed)
    search, values = DuctSearch(network, 1e6), np.zeros(problem.n_variables, dtype=np.int64)
    least_cost = np.inf
    roots = [v for v in range(problem.n_variables) if search.parent[v] < 0]
    for _ in range(60 if problem.n_variables else 0):
        search.sample(values, rng)
        root_statistics = [search.statistics_of(v, values) for v in roots]
        found = sum(float(m.least.min()) for m in root_statistics)
        assert sum(float(m.bound.min()) for m in root_statistics) <= found <= least_cost + 1e-12
        least_cost = found
    bound = sum(float(search.statistics_of(v, values).bound.min()) for v in roots)
    sign = 1 if sense == "max" else -1
    constant = sign * problem.evaluate(values).objective - network.total_score(values) / network.layout.scale
    max_utility = sum(float(max(t.max() for t in [f.table])) for f in problem.factors if f.scope)
    optimum_cost = (max_utility + constant - soundness.optimum(problem)) * network.layout.scale * search.scale
    assert bound <= optimum_cost + 1e-9 <= least_cost + 2e-9


def test_duct_terminates_with_the_optimum():
    problem = random_problem(12, variables=5, domain=3, hard=0.0, factors=6)
    result = dmcmc.solve(problem, algorithm={"name": "duct", "cycles": 5000, "parameters": {"widths": 1e6}})
    assert result.objective == soundness.optimum(problem) and result.cycle < 5000


def test_distributed_gibbs_samples_the_boltzmann_distribution():
    table = np.array([[0.0, 1.0], [1.5, -0.5]])
    problem = Problem(("a", "b"), [2, 2], ("one", "two"), [0, 1], (Factor.of((0, 1), table),))
    states = np.array(cycles("distributed-gibbs", problem, 3, max_cycles=6000, temperature=0.8)[1][100:])
    seen = np.bincount(2 * states[:, 0] + states[:, 1], minlength=4) / len(states)
    expected = np.exp(table.reshape(-1) / 0.8)
    assert np.abs(seen - expected / expected.sum()).max() < 0.03


@pytest.mark.parametrize("name", CYCLE_ALGORITHMS)
@few_examples
@given(problem=mixed_problems(), seed=st.integers(0, 99))
def test_results_report_the_evaluation_of_their_assignments(name, problem, seed):
    result = dmcmc.solve(problem, algorithm={"name": name, "cycles": 5}, seed=seed)
    if result.status == "infeasible":
        return
    evaluation = problem.evaluate(result.assignment)
    assert (result.violation, result.status) == (
        evaluation.violation,
        "unsatisfied" if evaluation.violation else "feasible",
    )
    assert result.objective == (None if evaluation.violation else evaluation.objective)
    objectives = [point.objective for point in result.trace]
    assert objectives == sorted(objectives, reverse=problem.sense == "min")
    assert result.bound is None and (not objectives or objectives[-1] == result.objective)


@pytest.mark.parametrize("name", CYCLE_ALGORITHMS)
def test_the_result_is_the_best_assignment_of_all_cycles(name):
    problem = random_problem(8, variables=8, factors=14)
    _, found = cycles(name, problem, 5, max_cycles=20)
    result = dmcmc.solve(problem, algorithm={"name": name, "cycles": 20}, seed=5)
    best = max(value_of(problem, values) for values in found)
    assert value_of(problem, problem.values_of(result.assignment)) == best


@pytest.mark.parametrize("name", CYCLE_ALGORITHMS)
def test_messages_are_counted_between_agents_only(name):
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=3, domain_size=4)
    one = replace(problem, agents=("all",), owner=np.zeros(problem.n_variables, dtype=np.int64))
    sent = dmcmc.solve(problem, algorithm={"name": name, "cycles": 3})
    assert sent.msg_count > 0 and sent.msg_size >= 8 * sent.msg_count
    assert sent.msg_count == sum(agent.msg_count for agent in sent.agents)
    assert dmcmc.solve(one, algorithm={"name": name, "cycles": 3}).msg_count == 0
    assert 0 < sent.simulated_time < sent.time


@pytest.mark.parametrize("name", CYCLE_ALGORITHMS)
def test_all_cycles_are_invariant_under_the_number_of_ranks(name):
    problem = random_problem(3, variables=9, agents=5, factors=16)
    alone = dmcmc.solve(problem, algorithm={"name": name, "cycles": 8}, seed=2)

    def work(world):
        _, states = cycles(name, problem, 2, max_cycles=8, world=world)
        return [values.tolist() for values in states]

    found = on_thread_ranks(3, work)
    _, states = cycles(name, problem, 2, max_cycles=8)
    assert found == [[values.tolist() for values in states]] * 3
    assert max(value_of(problem, values) for values in states) == value_of(problem, problem.values_of(alone.assignment))


def test_the_time_budget_ends_the_run(monkeypatch):
    problem = dmcmc.generate("random-network", nodes=20, domain_size=5, tightness=0.0)
    dmcmc.solve(problem, algorithm={"name": "dsa", "cycles": 1})  # compiled
    monkeypatch.setattr(time, "perf_counter", CountingClock(0.001))
    points = []
    result = dmcmc.solve(problem, algorithm="dsa", timeout=0.1, trace=points.append)
    assert result.status == "timeout" and result.cycle > 1 and result.time < 1
    assert tuple(points) == result.trace and result.trace[0].found_by == "dsa"


def test_tables_larger_than_the_memory_budget_are_rejected():
    problem = dmcmc.generate("random-network", nodes=20, domain_size=10, tightness=0.0)
    with pytest.raises(ResourceError, match="dsa: its tables would take"):
        dmcmc.solve(problem, algorithm="dsa", memory=10_000)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("mgm3", "algorithm: unknown algorithm 'mgm3'; did you mean 'mgm"),
        ({"name": "dsa", "parameters": {"p": 1}}, "algorithm.parameters.p: unknown parameter of dsa"),
        ({"name": "dsa", "parameters": {"probability": 2}}, "probability: expected a number from 0.01 to 1, got 2"),
        ({"name": "dsa", "parameters": {"variant": "F"}}, "variant: expected one of A, B, C, D, E, got 'F'"),
        ({"name": "adpop", "parameters": {"z": 2.5}}, "z: expected a whole number, got 2.5"),
        ({"name": "dpop", "cycles": 3}, "algorithm.cycles: dpop has none; leave it out"),
        ({"name": "dmcmc", "cycles": 3}, "the algorithm dmcmc has no cycles, parameters"),
        ({"name": "mgm", "cycles": 0}, "algorithm.cycles: expected auto or a whole number >= 1, got 0"),
    ],
)
def test_invalid_algorithm_settings_raise_a_one_line_error(algorithm, message):
    problem = random_problem(1)
    with pytest.raises(ConfigError) as caught:
        dmcmc.solve(problem, algorithm=algorithm)
    assert message in str(caught.value)


def first_values(network, rng, given):
    """Yield assignments that raise every value by ``step`` per cycle, up to the last one (a third-party algorithm)."""
    values = np.zeros(network.problem.n_variables, dtype=np.int64)
    while True:
        yield values
        values = np.minimum(values + given["step"], network.problem.domains - 1)
        network.sends(1)


def test_the_example_in_the_documentation_runs(monkeypatch):
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    found = {}
    exec(re.search(r"```python\n(import numpy.*?)```", page, re.DOTALL)[1], found)
    group = "dmcmc.inference.runtime.plugins.entry_points"
    entry = SimpleNamespace(name="hesitant", value="", load=lambda: found["HESITANT"])
    monkeypatch.setattr(group, lambda group: [entry] if group == registry.GROUP else [])
    problem = random_problem(3, variables=9, agents=5, factors=16)
    assert dmcmc.solve(problem, algorithm="hesitant").cycle == 200


class ThirdPartyEntry:
    """An entry point of another distribution."""

    name, value = "climb", "elsewhere:CLIMB"

    @staticmethod
    def load():
        return Algorithm("climb", "one value and the next", first_values, {"step": Parameter(1, 1, 9)}, cycles=3)


def test_third_party_algorithms_are_found_by_their_entry_points(monkeypatch):
    group = "dmcmc.inference.runtime.plugins.entry_points"
    monkeypatch.setattr(group, lambda group: [ThirdPartyEntry] if group == registry.GROUP else [])
    problem = Problem(("a", "b"), [5, 5], ("one", "two"), [0, 1], (Factor.of((0, 1), np.arange(25).reshape(5, 5)),))
    assert registry.names()["climb"] == "one value and the next"
    result = dmcmc.solve(problem, algorithm="climb")
    assert (result.cycle, result.objective, result.agents[0].method) == (3, 18, "climb")
    assert dmcmc.solve(problem, algorithm={"name": "climb", "parameters": {"step": 2}}).objective == 24


@pytest.mark.parametrize("name", sorted(registry.names().keys() - {registry.OWN}))
@pytest.mark.parametrize("largest", [3, 10**15], ids=["weighted", "one after the other"])
def test_results_have_the_objectives_of_all_levels(name, largest):
    build = Problem.build(sense="min", levels=("first", "second"))
    for variable in "abc":
        build.variable(variable, 3, agent=variable)
    build.factor(("a", "b"), [[0, 3 * largest, 1], [2, 2, 2], [0, largest, 5]])
    build.factor(("b", "c"), [[1, 2, 3], [0, 0, 1], [3, 3, 0]]).level("second").factor("a", [3 * largest, 0, 1])
    problem = build.factor("c", [0, 5, 2]).problem()
    result = dmcmc.solve(problem, algorithm={"name": name})
    a, b, c = (result.assignment[variable] for variable in "abc")
    first = [[0, 3 * largest, 1], [2, 2, 2], [0, largest, 5]][a][b] + [[1, 2, 3], [0, 0, 1], [3, 3, 0]][b][c]
    second = [3 * largest, 0, 1][a] + [0, 5, 2][c]
    assert [(level.name, level.objective) for level in result.levels] == [("first", first), ("second", second)]
