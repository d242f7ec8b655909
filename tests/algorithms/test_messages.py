"""Messages of all algorithms, per kind and agent: those of an independent recorder that follows their definitions.

The recorder knows the problem, the assignments after each cycle and the random numbers. It sends every message itself,
one at a time, and counts it for the agent of the sender. Messages within an agent are free of charge.
"""

from collections import Counter
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem, random_table

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.algorithms import registry
from dmcmc.algorithms.contract import checked
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.algorithms.tree import VariableTree

NUMBER = 8  # bytes of a value, a gain, a utility, an index or a flag
CYCLES = 12
some_examples = settings(max_examples=40)


class Recorder:
    """Counts messages by kind and agent, and knows the neighbours of each variable."""

    def __init__(self, problem):
        self.problem, self.owner = problem, problem.owner.tolist()
        self.factors = [factor for factor in problem.factors if factor.scope]
        scopes = [factor.scope for factor in self.factors]
        n = problem.n_variables
        self.neighbours = [sorted({u for s in scopes if v in s for u in s} - {v}) for v in range(n)]
        self.count, self.size = Counter(), Counter()

    def send(self, kind, sender, receiver, size=NUMBER):
        """Send a message from a variable to another one."""
        self.send_to_agent(kind, sender, self.owner[receiver], size)

    def send_to_agent(self, kind, sender, agent, size=NUMBER):
        """Send a message from a variable to an agent."""
        if self.owner[sender] != agent:
            self.count[kind, self.owner[sender]] += 1
            self.size[kind, self.owner[sender]] += size

    def tell_neighbours(self, kind, size=NUMBER):
        """Let every variable send one number, or more, to each agent that has a neighbour."""
        for v, neighbours in enumerate(self.neighbours):
            for agent in {self.owner[u] for u in neighbours}:
                self.send_to_agent(kind, v, agent, size)

    def utility(self, values):
        """Return the utility of an assignment to all variables; the factors have no forbidden entries."""
        return sum(int(factor.table[tuple(values[v] for v in factor.scope)]) for factor in self.factors)

    def gain(self, values, variables):
        """Return by how much other values of some variables can raise the utility."""
        best = utility = self.utility(values)
        for new in product(*(range(int(self.problem.domains[v])) for v in variables)):
            changed = list(values)
            for v, d in zip(variables, new, strict=True):
                changed[v] = d
            best = max(best, self.utility(changed))
        return best - utility


def shared_problem(seed, variables):
    """Return a random problem of up to four agents with several variables, and factors of arity 1 to 3."""
    rng = np.random.default_rng(seed)
    domains, names = rng.integers(2, 4, variables), [f"x{v}" for v in range(variables)]
    scopes = [tuple(rng.permutation(variables)[: rng.integers(1, 4)].tolist()) for _ in range(variables + 2)]
    factors = tuple(Factor(s, random_table(rng, tuple(domains[list(s)])).astype(np.int64)) for s in scopes)
    return Problem(tuple(names), domains, ("a", "b", "c", "d"), rng.integers(0, 4, variables), factors)


def values_and_gains(recorder, states, ended, rng):
    for _ in range(len(states) - 1 + ended):
        recorder.tell_neighbours("VALUE")
        recorder.tell_neighbours("GAIN")


def values_only(recorder, states, ended, rng):
    for _ in states[1:]:
        recorder.tell_neighbours("VALUE")


def offers_and_answers(recorder, states, ended, rng):
    """MGM2: an offer goes to one neighbour, its answer back, and partners tell each other whether they may move."""
    n, domains = recorder.problem.n_variables, recorder.problem.domains.tolist()
    rng.integers(domains)
    for values in states if ended else states[:-1]:
        recorder.tell_neighbours("VALUE")
        offers, chosen = rng.random(n) < 0.5, rng.random(n)
        to = {v: near[int(chosen[v] * len(near))] for v, near in enumerate(recorder.neighbours) if near and offers[v]}
        accepted, best = {}, {v: recorder.gain(values, [v]) for v in range(n)}
        for u, v in to.items():
            recorder.send("OFFER", u, v, NUMBER * domains[u] * domains[v])
            if v not in to and (joint := recorder.gain(values, [u, v])) > best[v]:
                accepted[v], best[v] = u, joint
        for u, v in to.items():
            recorder.send("ANSWER", v, u, 2 * NUMBER if accepted.get(v) == u else NUMBER)
        recorder.tell_neighbours("GAIN", 2 * NUMBER)
        for v, u in accepted.items():
            recorder.send("GO", v, u)
            recorder.send("GO", u, v)


def penalties(recorder, states, ended, rng):
    """DGLS: a variable that is stuck tells the agents of the factors that it penalises which ones these are."""
    given = registry.get("dgls").parameters
    kept = round(1024 * (1 - given["evaporation"].default))
    tables = [factor.table.astype(np.int64) for factor in recorder.factors]
    penalty = [np.zeros_like(table) for table in tables]

    def score(v, d, values):
        at = [*values[:v], d, *values[v + 1 :]]
        entries = [tuple(at[u] for u in factor.scope) for factor in recorder.factors]
        return sum(
            int(t[i] - p[i])
            for t, p, i, f in zip(tables, penalty, entries, recorder.factors, strict=True)
            if v in f.scope
        )

    for before, after in pairwise(states):
        recorder.tell_neighbours("VALUE")
        recorder.tell_neighbours("GAIN")
        gains = [
            max(score(v, d, before) for d in range(size)) > score(v, before[v], before)
            for v, size in enumerate(recorder.problem.domains.tolist())
        ]
        stuck = [v for v, near in enumerate(recorder.neighbours) if not any(gains[u] for u in [v, *near])]
        at = [tuple(after[u] for u in factor.scope) for factor in recorder.factors]
        losses = [int(table.max() - table[i]) for table, i in zip(tables, at, strict=True)]
        penalised = set()
        for v in stuck:
            own = [f for f, factor in enumerate(recorder.factors) if v in factor.scope]
            found = [f for f in own if losses[f] > 0 and losses[f] >= sum(losses[g] for g in own) / len(own)]
            agents = Counter(a for f in found for a in {recorder.owner[u] for u in recorder.factors[f].scope})
            for agent, factors in agents.items():
                recorder.send_to_agent("PENALTY", v, agent, NUMBER * factors)
            penalised.update(found)
        for f, i in enumerate(at):
            penalty[f] = penalty[f] * kept // 1024
            if f in penalised:
                penalty[f][i] += max(1, int(given["weight"].default * losses[f]))


def to_factors_and_back(recorder, states, ended, rng):
    """Max-Sum: the agent of a factor's lowest variable computes it; both variables of a pair exchange one message."""
    shared = Counter((v, min(scope)) for scope in {tuple(sorted(f.scope)) for f in recorder.factors} for v in scope)
    for _, ((v, first), factors) in product(states[1:], shared.items()):
        size = NUMBER * int(recorder.problem.domains[v]) * factors
        recorder.send("TO_FACTOR", v, first, size)
        recorder.send("FROM_FACTOR", first, v, size)


def parents_of(problem):
    """Return the parents in the pseudo-tree over variables, and the separators by their definition."""
    parent = [VariableTree.of(problem).pseudotree.parent[v] for v in range(problem.n_variables)]

    def path(v):
        return [v, *path(parent[v])] if v >= 0 else []

    subtree = [{u for u in range(len(parent)) if v in path(u)} for v in range(len(parent))]
    scopes = [set(factor.scope) for factor in problem.factors]
    separator = [{u for s in scopes if s & subtree[v] for u in s} - subtree[v] for v in range(len(parent))]
    return parent, separator


def values_and_utilities(recorder, states, ended, rng):
    """Distributed Gibbs: values to neighbours, the utility of each subtree to its parent."""
    parent, _ = parents_of(recorder.problem)
    for _ in states[1:]:
        recorder.tell_neighbours("VALUE")
        for v, above in enumerate(parent):
            if above >= 0:
                recorder.send("UTILITY", v, above)


def contexts_and_costs(recorder, states, ended, rng):
    """DUCT: the values of a child's separator down, a cost and a bound up."""
    parent, separator = parents_of(recorder.problem)
    for _, (v, above) in product(states, enumerate(parent)):
        if above >= 0:
            recorder.send("CONTEXT", above, v, NUMBER * len(separator[v]))
            recorder.send("COST", v, above, 2 * NUMBER)


DEFINITIONS = {
    "mgm": values_and_gains,
    "mgm2": offers_and_answers,
    "dsa": values_only,
    "dgls": penalties,
    "max-sum": to_factors_and_back,
    "distributed-gibbs": values_and_utilities,
    "duct": contexts_and_costs,
}


def run(name, problem, seed):
    """Return the messages of a run by kind and agent, its assignments, and whether it ended by itself."""
    algorithm, network = registry.get(name), AgentNetwork(problem)
    rng, states = np.random.Generator(np.random.Philox(seed)), []
    for values in getattr(algorithm, "compiled", algorithm).steps(network, rng, checked(algorithm, {}, "parameters")):
        states.append(values.tolist())
        if len(states) > CYCLES:
            return network, states, False
    return network, states, True


@pytest.mark.parametrize("name", DEFINITIONS)
@some_examples
@given(seed=st.integers(0, 10**6), size=st.integers(3, 6))
def test_messages_and_bytes_per_agent_are_those_of_the_recorder(name, seed, size):
    problem = shared_problem(seed, size)
    network, states, ended = run(name, problem, seed)
    recorder = Recorder(problem)
    DEFINITIONS[name](recorder, states, ended, np.random.Generator(np.random.Philox(seed)))
    sent = network.sent_by_kind()
    agents = range(problem.n_agents)
    found = {(kind, a): (int(n[a]), int(size[a])) for kind, (n, size) in sent.items() for a in agents if n[a]}
    assert found == {key: (recorder.count[key], recorder.size[key]) for key in recorder.count}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_results_have_the_messages_by_kind(name):
    problem = shared_problem(11, 8)
    result = dmcmc.solve(problem, algorithm={"name": name, "cycles": 6}, seed=3)
    assert result.msg_count and result.messages
    for record in (result, *result.agents):
        assert sum(one.count for one in record.messages.values()) == record.msg_count
        assert sum(one.size for one in record.messages.values()) == record.msg_size
        assert all(one.count for one in record.messages.values())


@some_examples
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["dpop", "adpop"]))
def test_dpop_sends_one_table_up_and_the_separators_values_down_each_edge(seed, name):
    problem = random_problem(seed, variables=7, domain=3, factors=9, hard=0.0)
    parameters = {"z": 7} if name == "adpop" else {}
    result = dmcmc.solve(problem, algorithm={"name": name, "parameters": parameters})
    names, plan = list(problem.variables), result.provenance["plan"]
    entry = np.dtype(plan["arithmetic"]).itemsize
    expected = {agent.name: {} for agent in result.agents}
    for child, above in plan["pseudo_tree"].items():
        if above is None:
            continue
        variables = [names.index(v) for v in plan["separators"][child]]
        cells = int(np.prod(problem.domains[variables]))
        expected[child]["UTIL"] = (1, entry * cells + NUMBER * len(variables))
        count, size = expected[above].get("VALUE", (0, 0))
        expected[above]["VALUE"] = (count + 1, size + 2 * NUMBER * len(variables))
    assert {a.name: {k: (m.count, m.size) for k, m in a.messages.items()} for a in result.agents} == expected
