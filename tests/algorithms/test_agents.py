"""Algorithms as agents: complete ones against enumeration, local ones by their properties, and what agents can see."""

import re
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from imports import ROOT
from support.local_optima import better_by_one, better_by_two
from support.problem_strategies import mixed_problems, random_problem
from support.ranks import on_thread_ranks

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.algorithms import registry
from dmcmc.algorithms.agent import AllRandom, DcopAgent, SynchronousAgent
from dmcmc.algorithms.contract import checked
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.algorithms.population import AlgorithmError, Delays, Population
from dmcmc.algorithms.simulator import run_agents
from dmcmc.inference.runtime.errors import ConfigError

COMPLETE = ("syncbb", "afb", "conc-fb", "pt-fb", "ncbb", "adopt", "bnb-adopt", "mb-dpop", "o-dpop")
VARIANTS = (*((name, {}) for name in COMPLETE), ("adopt", {"bounds": "dp0"}), ("adopt", {"bounds": "dp2", "k": 20}))
VARIANTS += (("bnb-adopt", {"bounds": "dp2"}), ("mb-dpop", {"k": 1}))
LOCAL = ("mgm", "mgm2", "kopt", "dsa", "a-dsa", "mixed-dsa", "dgls", "dsa-sdp", "dba", "gdba", "cocoa")
LOCAL += ("max-sum", "max-sum-ad", "max-sum-ad-vp", "a-max-sum")
DELAYS = ("none", "fixed(2)", "uniform(0,3)", "exponential(1)", "per-link(0,2)")


def run(name, problem, seed=0, delays=None, world=None, cycles=50, **parameters):
    """Return the network and the snapshots of a run as agents, up to a number of cycles for local algorithms."""
    algorithm = registry.get(name) if isinstance(name, str) else name
    network, found = AgentNetwork(problem, world), []
    for state in run_agents(algorithm, network, checked(algorithm, parameters, "parameters"), seed, delays):
        values = None if state.values is None else state.values.copy()
        found.append(state._replace(values=values))
        if not algorithm.proves and state.cycle >= cycles:
            break
    return network, found


def best_score(problem):
    """Return the largest total score of all assignments, by enumeration."""
    network = AgentNetwork(problem)
    return max(network.total_score(np.array(values)) for values in product(*map(range, problem.domains)))


def small_problem(seed):
    """Return a random problem of one to six variables, with factors of one to three of them, some entries forbidden."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7))
    domains, factors = rng.integers(1, 4, n), []
    for _ in range(int(rng.integers(0, 9))):
        scope = tuple(sorted(rng.choice(n, min(n, int(rng.integers(1, 4))), replace=False).tolist()))
        table = rng.integers(0, 10, domains[list(scope)]).astype(np.float64)
        if seed % 3 == 0:
            table[rng.random(table.shape) < 0.1] = np.inf
        factors.append(Factor.of(scope, table.tolist(), "min"))
    names = tuple(f"x{v}" for v in range(n))
    return Problem(names, domains, names, np.arange(n), tuple(factors), sense=("min", "max")[seed % 2])


def check_complete(name, parameters, seeds):
    """Check that a complete algorithm ends with the optimum of small problems, with and without delays."""
    for seed in seeds:
        problem = small_problem(seed)
        delays = Delays(DELAYS[seed % len(DELAYS)], seed=seed)
        network, found = run(name, problem, seed, delays, **parameters)
        assert network.ended and network.total_score(found[-1].values) == best_score(problem), seed


@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
def test_complete_algorithms_find_the_optimum_with_and_without_delays(name, parameters):
    check_complete(name, parameters, range(500))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), VARIANTS)
def test_complete_algorithms_find_the_optimum_of_many_problems(name, parameters):
    check_complete(name, parameters, range(500, 2000))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_first_bounds_save_adopt_two_of_three_messages_with_ten_variables_of_four_values(seed):
    problem = dmcmc.generate("random-network", nodes=10, domain_size=4, density=0.3, tightness=0.0, seed=seed)
    messages, optimum = [], -dmcmc.solve(problem).objective
    for bounds in ("none", "dp2"):
        network, found = run("adopt", problem, seed, k=1, bounds=bounds)
        assert network.ended and network.total_score(found[-1].values) == optimum
        messages.append(network.total_messages)
    assert 3 * messages[1] < messages[0]


@pytest.mark.parametrize("name", COMPLETE)
def test_a_complete_algorithm_proves_its_answer(name):
    problem = random_problem(4, variables=5, agents=5, factors=7)
    result = dmcmc.solve(problem, algorithm=name)
    optimum = dmcmc.solve(problem)
    assert (result.status, result.objective, result.bound) == ("optimal", optimum.objective, optimum.objective)
    assert result.ncccs > 0 and result.course[-1].messages == result.msg_count


def test_a_complete_algorithm_proves_that_a_problem_is_infeasible():
    forbidden = Factor.of((0, 1), [[np.inf, np.inf], [np.inf, np.inf]], "min")
    problem = Problem(("a", "b"), [2, 2], ("a", "b"), [0, 1], (forbidden,), sense="min")
    assert dmcmc.solve(problem, algorithm="bnb-adopt").status == "infeasible"


def test_float_costs_get_a_bound_within_their_rounding():
    problem = Problem(("a", "b"), [2, 2], ("a", "b"), [0, 1], (Factor.of((0, 1), [[0.1, 0.7], [0.3, 0.2]]),))
    result = dmcmc.solve(problem, algorithm="syncbb")
    assert result.objective == 0.7 and 0.7 < result.bound < 0.7 + 1e-9


@pytest.mark.parametrize("name", LOCAL)
def test_the_same_seed_gives_the_same_run(name):
    problem = random_problem(6, variables=9, agents=9, factors=14)
    delays = [Delays("uniform(0,1)", 0.1, seed=3) for _ in range(2)]
    first, second = (run(name, problem, 3, d, cycles=20)[1] for d in delays)
    assert [(s.cycle, str(s.values)) for s in first] == [(s.cycle, str(s.values)) for s in second]


@settings(max_examples=15)
@given(mixed_problems(), st.integers(0, 99), st.sampled_from(["mgm", "mgm2", "kopt"]))
def test_monotone_algorithms_as_agents_never_get_worse_and_end_1_optimal(problem, seed, name):
    network, found = run(name, problem, seed, cycles=1000)
    totals = [network.total_score(state.values) for state in found]
    assert totals == sorted(totals) and better_by_one(problem, found[-1].values) == []


@pytest.mark.parametrize(("name", "parameters"), [("mgm2", {}), ("kopt", {"k": 2}), ("kopt", {"k": 3})])
def test_runs_end_2_optimal(name, parameters):
    for seed in range(40):
        problem = small_problem(seed)
        assert better_by_two(problem, run(name, problem, seed, cycles=1000, **parameters)[1][-1].values) == []


def test_kopt_ends_3_optimal():
    for seed in range(60):
        problem = small_problem(seed)
        network, found = run("kopt", problem, seed, cycles=1000, k=3)
        best = network.total_score(found[-1].values)
        scopes = [set(factor.scope) for factor in problem.factors]
        for group in combinations(range(problem.n_variables), 3):
            near = [{u for s in scopes if v in s for u in s} & set(group) - {v} for v in group]
            if sum(map(bool, near)) == 3:  # a group of three in which each has a neighbour is connected
                for new in product(*(range(problem.domains[v]) for v in group)):
                    values = found[-1].values.copy()
                    values[list(group)] = new
                    assert network.total_score(values) <= best


def test_kopt_with_groups_of_one_gives_the_run_of_mgm():
    problem = dmcmc.generate("random-network", nodes=10, domain_size=4, density=0.4, seed=4)
    runs = [run(name, problem, 3, cycles=20, **p)[1] for name, p in (("mgm", {}), ("kopt", {"k": 1}))]
    assert len({tuple(str(state.values) for state in found) for found in runs}) == 1


def test_mixed_dsa_moves_by_the_probability_of_its_constraints():
    # One variable whose first value is worse, or forbidden: it moves with the one probability or with the other one.
    for cost, expected in ((5.0, 0.2), (np.inf, 0.8)):
        problem = Problem(("a",), [2], ("a",), [0], (Factor.of((0,), [cost, 0.0], "min"),), sense="min")
        moved = []
        for seed in range(600):
            _, found = run("mixed-dsa", problem, seed, cycles=1, hard=0.8, probability=0.2)
            if found[0].values[0] == 0:
                moved.append(found[1].values[0] == 1)
        assert abs(np.mean(moved) - expected) < 0.08


def _counts(network):
    """Return the messages and bytes of each kind."""
    sent = network.sent_by_kind()
    return {kind: (int(n.sum()), int(size.sum())) for kind, (n, size) in sent.items() if n.any()}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mgm", {}),
        ("mgm2", {}),
        ("dgls", {}),
        ("dgls", {"weight": 2.0, "evaporation": 0.5}),
        *(("dsa", {"variant": letter}) for letter in ("A", "B", "C", "D", "E")),
        *(("max-sum", {"damping": damping, "split": split}) for damping in (0.0, 0.6) for split in (0.0, 0.4)),
    ],
)
def test_compiled_algorithms_give_the_run_of_their_agents(name, parameters):
    for seed in range(6):
        problem = dmcmc.generate("random-network", nodes=10, domain_size=4, density=0.4, seed=seed)
        problem = small_problem(seed) if seed % 2 else problem
        network, found = run(name, problem, seed, cycles=20, **parameters)
        algorithm = registry.get(name).compiled
        other, drawn = AgentNetwork(problem), AllRandom(seed, problem.n_variables)
        steps = algorithm.steps(other, drawn, checked(algorithm, parameters, "p"))
        expected = [values.copy() for _, values in zip(range(len(found)), steps, strict=False)]
        assert [s.values.tolist() for s in found[: len(expected)]] == [values.tolist() for values in expected]
        assert len(found) == 21 or next(steps, None) is None
        assert _counts(network) == _counts(other)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        *((name, {}) for name in ("mgm", "mgm2", "kopt", "dsa", "dgls", "gdba", "dsa-sdp", "max-sum", "max-sum-ad-vp")),
        ("dsa", {"anytime": True}),
    ],
)
def test_synchronous_agents_are_invariant_under_the_number_of_ranks(name, parameters):
    problem = random_problem(3, variables=9, agents=5, factors=16)
    alone, found = run(name, problem, 2, cycles=8, **parameters)
    expected = [state.values.tolist() for state in found]

    def work(world):
        network, states = run(name, problem, 2, world=world, cycles=8, **parameters)
        return [state.values.tolist() for state in states], network.all_messages

    assert on_thread_ranks(3, work) == [(expected, alone.total_messages)] * 3


@pytest.mark.parametrize("name", COMPLETE)
def test_asynchronous_agents_find_the_optimum_on_ranks(name):
    problem = random_problem(3, variables=6, agents=6, factors=9)

    def work(world):
        network, states = run(name, problem, 2, world=world)
        return network.ended, network.total_score(states[-1].values)

    assert on_thread_ranks(3, work) == [(True, best_score(problem))] * 3


def random_tree(seed):
    """Return a tree of seven variables with random tables."""
    rng = np.random.default_rng(seed)
    scopes = [(int(rng.integers(v)), v) for v in range(1, 7)]
    factors = tuple(Factor.of(scope, rng.integers(0, 100, (3, 3)).tolist()) for scope in scopes)
    names = tuple(f"x{v}" for v in range(7))
    return Problem(names, [3] * 7, names, np.arange(7), factors)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("max-sum", {"damping": 0.0}),
        ("max-sum", {"damping": 0.5, "split": 0.3}),
        ("max-sum-ad", {"phase": 7}),
        ("max-sum-ad-vp", {"phase": 7}),
        ("a-max-sum", {"damping": 0.0}),
    ],
)
def test_max_sum_is_exact_on_trees_and_stays_there(name, parameters):
    for seed in range(10):
        problem = random_tree(seed)
        network, found = run(name, problem, seed, cycles=1000 if name == "a-max-sum" else 200, **parameters)
        for state in found[-20:] if name != "a-max-sum" else found[-1:]:
            assert network.total_score(state.values) == best_score(problem)


def test_messages_of_alternating_max_sum_flow_in_one_direction_at_a_time():
    problem = random_tree(1)  # six factors of two variables: one message for each factor and cycle
    network, _ = run("max-sum-ad", problem, cycles=10, phase=10)
    assert {kind: int(sent.messages.sum()) for kind, sent in network.sent_by_kind().items()} == {"FROM_FACTOR": 60}


def test_value_propagation_reaches_a_consistent_assignment_that_max_sum_may_not():
    totals = {}
    for name in ("max-sum-ad", "max-sum-ad-vp"):
        totals[name] = 0
        for seed in range(8):
            problem = dmcmc.generate("random-network", nodes=12, domain_size=4, density=0.4, seed=seed)
            network, found = run(name, problem, seed, cycles=120, phase=12)
            totals[name] += network.total_score(found[-1].values)
    assert totals["max-sum-ad-vp"] > totals["max-sum-ad"]


def test_nccc_and_messages_of_a_problem_computed_by_hand():
    # Two variables of two values: SyncBB reads no entry at the first agent, and a row of two for each of its values.
    problem = Problem(
        ("a", "b"), [2, 2], ("a", "b"), [0, 1], (Factor.of((0, 1), [[1, 2], [3, 0]], "min"),), sense="min"
    )
    network, _ = run("syncbb", problem)
    assert network.checks == 4
    assert {kind: int(sent.messages.sum()) for kind, sent in network.sent_by_kind().items()} == {
        "FORWARD": 2, "BACK": 2, "SOLUTION": 1,
    }  # fmt: skip
    # MGM from (1, 0): both read their row of two; b gains 3 and moves; then both read again and nobody gains.
    network, found = run(
        "mgm", problem, next(s for s in range(99) if AllRandom(s, 2).integers(np.array([2, 2])).tolist() == [1, 0])
    )
    assert found[-1].values.tolist() == [1, 1] and network.total_messages == 2 * 2 * len(found)


def test_an_agent_sees_only_its_own_part():
    problem = random_problem(2, variables=6, agents=6, factors=6)
    network = AgentNetwork(problem)
    population = Population(registry.get("mgm"), network, {})
    ours = (Problem, AgentNetwork, Population, SynchronousAgent, Factor)
    for v, agent in population.agents.items():
        around = {u for factor in problem.factors if v in factor.scope for u in factor.scope}
        seen, waiting = set(), [value for name, value in vars(agent).items() if name != "me"]
        while waiting:
            value = waiting.pop()
            if id(value) in seen or isinstance(value, str | int | float | type(None)):
                continue
            seen.add(id(value))
            assert not isinstance(value, ours), f"agent {v} can reach {type(value).__name__}"
            waiting += list(value.values()) if isinstance(value, dict) else []
            waiting += list(value) if isinstance(value, tuple | list) else []
            waiting += [getattr(value, name) for name in getattr(type(value), "__slots__", ())]
        assert {u for c in agent.constraints for u in c.scope} <= around | {v}
        assert set(agent.neighbours) == around - {v} and set(agent.domains) == around | {v}


class Wrong(SynchronousAgent):
    """An agent that takes a value beyond its domain, or sends to an agent that it does not know."""

    name = "wrong"

    def run(self):
        """Fail as the seed says."""
        self.value = 0
        if self.random() < 0.5:
            self.value = 99
        else:
            self.send(self.me + 2, "HELLO")
        yield


def test_faults_of_an_algorithm_are_one_line():
    names = ("a", "b", "c")  # a does not know c
    chain = tuple(Factor.of((v, v + 1), [[1, 2], [3, 0]]) for v in range(2))
    problem = Problem(names, [2, 2, 2], names, [0, 1, 2], chain)
    texts = set()
    for seed in range(20):
        with pytest.raises(AlgorithmError) as caught:
            run(Wrong, problem, seed)
        texts.add(str(caught.value).partition(": ")[2])
    wrong = {f"'{name}' took the value 99; expected a whole number from 0 to 1" for name in names}
    unknown = {f"agent {v} sent HELLO to agent {v + 2}, which it does not know" for v in range(3)}
    assert texts & wrong and texts & unknown and texts <= wrong | unknown


@pytest.mark.parametrize("text", ["soon", "fixed(-1)", "uniform(2,1)", "uniform(1)", "fixed(x)"])
def test_a_wrong_delay_is_refused(text):
    with pytest.raises(ConfigError, match="expected none, fixed"):
        dmcmc.solve(random_problem(1), algorithm={"name": "mgm", "delay": text})


def test_a_compiled_algorithm_without_agents_takes_no_delay():
    with pytest.raises(ConfigError, match="duct does not run as agents"):
        dmcmc.solve(random_problem(1), algorithm={"name": "duct", "loss": 0.1})


def test_lost_messages_are_lost_and_prove_nothing():
    problem = random_problem(4, variables=6, agents=6, factors=9)
    result = dmcmc.solve(problem, algorithm={"name": "syncbb", "loss": 1.0})
    assert result.status != "optimal" and result.bound is None


@pytest.mark.parametrize("name", COMPLETE)
def test_complete_algorithms_wait_for_lost_messages_or_end(name):
    for seed in range(30):
        run(name, small_problem(seed), seed, Delays("uniform(0,2)", 0.2, seed=seed))


def test_delays_take_simulated_time_only():
    problem = dmcmc.generate("random-network", nodes=10, domain_size=4, density=0.4)
    result = dmcmc.solve(problem, algorithm={"name": "dsa", "delay": "fixed(100)", "cycles": 5})
    assert result.simulated_time > 500 > result.time


class Silent(DcopAgent):
    """An agent that sends nothing."""

    name = "silent"

    def start(self):
        """Take the first value."""
        self.value = 0


def test_a_run_without_messages_ends():
    network, found = run(Silent, random_problem(4))
    assert not found[-1].values.any() and not network.ended


def test_the_class_in_the_documentation_runs(capsys):
    registry._PLUGINS.added.pop("patient", None)  # of another test that runs the page
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    exec(re.search(r"```python\n(import dmcmc\n.*?)```", page, re.DOTALL)[1], {"__name__": "page"})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["patient", "mgm", "dsa"]
    with pytest.raises(ConfigError, match="there is an algorithm 'patient' already"):
        registry.register(type("Other", (Silent,), {"name": "patient"}))
    registry._PLUGINS.added.pop("patient")


class Boastful(SynchronousAgent):
    """An agent that calls its last value optimal, whatever it had before."""

    name, kind, proves = "boastful", "complete", True

    def run(self):
        """Take all values in turn, the worst one last."""
        costs = self.costs({})
        for value in sorted(range(self.domain), key=costs.__getitem__):
            self.value = value
            yield


def test_a_false_proof_of_an_algorithm_is_an_error():
    problem = Problem(("a",), [3], ("a",), [0], (Factor.of((0,), [5, 1, 9], "min"),), sense="min")
    registry.register(Boastful)
    try:
        with pytest.raises(AlgorithmError, match="boastful: ended with values that it calls optimal"):
            dmcmc.solve(problem, algorithm="boastful")
    finally:
        registry._PLUGINS.added.pop("boastful")


def test_bounded_max_sum_proves_a_bound_and_is_optimal_on_trees():
    for seed in range(300):
        problem = small_problem(seed)
        result = dmcmc.solve(problem, algorithm="bounded-max-sum")
        network = AgentNetwork(problem)
        best = best_score(problem)
        for _ in registry.get("bounded-max-sum").steps(network, None, {}):
            assert network.bound >= best
        if result.bound is not None:
            optimum = dmcmc.solve(problem, algorithm="syncbb").objective
            assert result.bound >= optimum if problem.sense == "max" else result.bound <= optimum
    for seed in range(10):
        assert dmcmc.solve(random_tree(seed), algorithm="bounded-max-sum").status == "optimal"


def test_the_bound_of_bounded_max_sum_on_a_triangle_computed_by_hand():
    # Weights: ab 9, bc 5, ac 2; the edge of c and the factor ac has the weight 2 and closes the only cycle.
    tables = [[9, 0], [0, 0]], [[5, 0], [0, 1]], [[0, 2], [0, 0]]
    factors = tuple(Factor.of(scope, table) for scope, table in zip([(0, 1), (1, 2), (0, 2)], tables, strict=True))
    names = ("a", "b", "c")
    result = dmcmc.solve(Problem(names, [2, 2, 2], names, [0, 1, 2], factors), algorithm="bounded-max-sum")
    # The tree takes 0 of the factor ac: 9 + 5 = 14 at (0, 0, 0), and the bound is 14 + 2.
    assert (result.objective, result.bound, result.msg_count) == (14, 16, 4)


@pytest.mark.parametrize("name", ["mgm", "mgm2", "dsa", "mixed-dsa", "dsa-sdp", "dba", "gdba", "dgls"])
def test_agents_of_an_anytime_run_keep_their_values_of_the_best_step(name):
    agents = {}

    def run_and_remember(self):
        agents[self.me] = self
        yield from registry.get(name).run(self)

    remembering, checks = type("Remembering", (registry.get(name),), {"run": run_and_remember}), 0
    for seed in range(10):
        problem = dmcmc.generate("random-network", nodes=9, domain_size=4, density=0.4, seed=seed)
        network, found = run(remembering, problem, seed, cycles=30, anytime=True)
        plain, expected = run(name, problem, seed, cycles=30)
        assert [str(state.values) for state in found] == [str(state.values) for state in expected]
        assert network.total_messages == plain.total_messages and network.total_bytes > plain.total_bytes
        totals = [network.total_score(state.values) for state in found]
        if sum(agent.parent is None for agent in agents.values()) == 1:
            for v, agent in agents.items():
                last, best = agent.compared
                if last >= 0:
                    assert agent.best == found[best].values[v] and totals[best] == max(totals[: last + 1])
                    checks += 1
    assert checks > 20


def test_messages_of_an_anytime_run_on_a_chain_computed_by_hand():
    # a - b - c with the root a. Step s: c reports in step s + 1, b in s + 2, and a compares at the end of step s + 2.
    chain = tuple(Factor.of((v, v + 1), [[1, 2], [3, 0]], "min") for v in range(2))
    problem = Problem(("a", "b", "c"), [2, 2, 2], ("a", "b", "c"), [0, 1, 2], chain, sense="min")
    network, _ = run("dsa", problem, cycles=4, anytime=True)
    # Four rounds of four values. c reports in three of them, b in two; parents name two steps in each message.
    assert network.total_messages == 16 and network.total_bytes == 8 * (16 + 2 * (3 + 2) + 2 * 4 * 2)


def chain_of_three():
    """Return a, b and c with two values each; neighbours pay 1 for different values."""
    chain = tuple(Factor.of((v, v + 1), [[0, 1], [1, 0]], "min") for v in range(2))
    return Problem(("a", "b", "c"), [2, 2, 2], ("a", "b", "c"), [0, 1, 2], chain, sense="min")


def test_syncbb_on_a_chain_computed_by_hand():
    # a = 0 and b = 0 go forward, with cost and bound; b and c read a row of two each. c = 0 costs nothing, and nothing
    # else is below that. The best values come back with a cost and the bound.
    network, _ = run("syncbb", chain_of_three())
    assert _counts(network) == {"FORWARD": (2, 8 * (3 + 4)), "BACK": (2, 8 * 2 * 5), "SOLUTION": (2, 8 * 2 * 3)}
    assert network.checks == 4


def test_dsa_and_max_sum_on_a_chain_computed_by_hand():
    # DSA: in each of five cycles four values are sent, and b reads a row of two in each of its two constraints.
    network, _ = run("dsa", chain_of_three(), cycles=5)
    assert _counts(network) == {"VALUE": (20, 160)} and network.checks == 5 * 4
    # Max-Sum: a and b compute a factor each, and read its four entries once. A message has two utilities.
    network, _ = run("max-sum", chain_of_three(), cycles=5)
    assert _counts(network) == {"TO_FACTOR": (10, 160), "FROM_FACTOR": (10, 160)} and network.checks == 4


@pytest.mark.parametrize("best", [0, 1])
def test_cycle_cuts_of_a_triangle_computed_by_hand(best):
    # The pseudo-tree of a triangle is a path: root, middle, leaf. All three take the value `best`.
    same = [[float(a != b or a != best) for b in range(2)] for a in range(2)]
    factors = tuple(Factor.of(scope, same, "min") for scope in ((0, 1), (1, 2), (0, 2)))
    problem = Problem(("a", "b", "c"), [2, 2, 2], ("a", "b", "c"), [0, 1, 2], factors, sense="min")
    network, _ = run("mb-dpop", problem, k=2)
    # Tables of four and two entries, with the request's number. The leaf reads 2 * 4 entries, then the middle 4.
    assert _counts(network)["UTIL"] == (2, 5 * 8 + 3 * 8) and _counts(network)["ASK"][0] == 2
    assert network.checks == 8 + 4
    network, _ = run("mb-dpop", problem, k=1)
    # The middle asks for both values of the root; the leaf reads its constraints for each, and once more if the root
    # does not take the last one.
    assert _counts(network)["UTIL"] == (3, 3 * 3 * 8) and _counts(network)["ASK"][0] == 3
    assert network.checks == 2 * 8 + 4 + 8 * (best == 0)


def test_no_message_of_mb_dpop_has_more_entries_than_its_limit_allows():
    problem = dmcmc.generate("random-network", nodes=8, domain_size=3, density=0.6, tightness=0.0, seed=2)
    sizes = []
    for k in (1, 2, 8):
        network, found = run("mb-dpop", problem, k=k)
        assert network.total_score(found[-1].values) == best_score(problem)
        messages, size = _counts(network)["UTIL"]
        assert size <= messages * 8 * (1 + 3**k)
        sizes.append((messages, size))
    assert sizes[0][0] > sizes[1][0] > sizes[2][0] == 7


def test_messages_of_o_dpop_have_few_numbers():
    problem = dmcmc.generate("random-network", nodes=8, domain_size=3, density=0.6, tightness=0.0, seed=2)
    counts = _counts(run("o-dpop", problem)[0])
    assert counts["GOOD"][1] <= 8 * counts["GOOD"][0] * 7 and counts["GOOD"][0] == counts["ASK"][0]


def test_an_anytime_run_goes_on_when_messages_are_lost():
    problem = dmcmc.generate("random-network", nodes=9, domain_size=4, density=0.4, seed=1)
    given = {"name": "dsa", "loss": 0.2, "cycles": 40, "parameters": {"anytime": True}}
    assert dmcmc.solve(problem, algorithm=given).cycle == 40


@pytest.mark.parametrize("value", ["yes", 1])
def test_anytime_is_true_or_false(value):
    with pytest.raises(ConfigError, match="anytime: expected true or false"):
        dmcmc.solve(random_problem(1), algorithm={"name": "dsa", "parameters": {"anytime": value}})
