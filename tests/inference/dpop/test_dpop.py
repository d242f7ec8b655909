"""Test DPOP's steps: the worked example of the DMCMC paper, and UTIL as the maximum over a whole subtree."""

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_problem

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference import tuning
from dmcmc.inference.dpop import agent_step
from dmcmc.inference.dpop.agent_step import UtilNode, util_step, value_step
from dmcmc.inference.dpop.division import divide, shared_variables
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.elimination.eliminate import Elimination
from dmcmc.inference.execution.exact_or_mini_buckets import EXACT, Resources
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.sparse.sparse_table import SparseBackedTable, SparseElimination, SparseTable
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import Sampling


def paper_example():
    """Return the problem of Figures 1 and 2: three agents with two variables each, all tables as in Figure 1c."""
    constraints = ["12", "24", "26", "34", "46", "56"]
    return Problem(
        variables=tuple(f"x{v}" for v in range(1, 7)),
        domains=np.full(6, 2),
        agents=("a1", "a2", "a3"),
        owner=np.array([0, 0, 1, 1, 2, 2]),
        factors=tuple(Factor.of([int(v) - 1 for v in c], [[20, 8], [10, 3]], name=c) for c in constraints),
    )


@pytest.mark.parametrize("seed", range(5))
def test_agents_own_the_factors_inside_them_and_share_the_variables_of_all_others(seed):
    rng = np.random.default_rng(seed)
    domains, owner = rng.integers(1, 4, 8), rng.integers(0, 3, 8)
    scopes = [tuple(rng.permutation(8)[: rng.integers(0, 4)].tolist()) for _ in range(9)]
    factors = tuple(Factor.of(scope, rng.integers(0, 9, domains[list(scope)])) for scope in scopes)
    problem = Problem(tuple("abcdefgh"), domains, ("a0", "a1", "a2"), owner, factors)
    agents_of = [{int(owner[v]) for v in scope} for scope in scopes]
    shared = {v for scope, agents in zip(scopes, agents_of, strict=True) if len(agents) > 1 for v in scope}
    for flat in (False, True):
        if flat:
            assert problem.flat.tables == len(factors)  # the same from flat tables
        division = divide(problem)
        assert shared_variables(problem).tolist() == sorted(shared)
        for local in division.locals:
            inside = [f for f, agents in zip(factors, agents_of, strict=True) if agents == {local.agent}]
            assert list(local.factors) == inside
            assert set(local.interface) == {v for v in shared if owner[v] == local.agent}


class Solved:
    """A problem solved step by step in one process, with exact local tables."""

    def __init__(self, problem):
        self.problem, self.division = problem, divide(problem)
        self.arithmetic = choose_arithmetic(problem.factors)
        self.tree = build_pseudotree(problem, self.division)
        settings = Sampling(arithmetic=self.arithmetic)
        self.local = registry.get("exact").solve(self.division.locals, settings)
        self.steps, self.messages = {}, {}
        for agent in self.tree.bottom_up:
            self.steps[agent] = self.step(agent)
            self.messages[agent] = self.steps[agent].message
        self.values = {}
        for agent in reversed(self.tree.bottom_up):
            context = {v: self.values[v] for v in self.tree.separators[agent]}
            known = value_step(self.steps[agent], self.tree.separators[agent], context)
            self.values |= known
            self.values |= self.local[agent].witness({v: known[v] for v in self.division.locals[agent].interface})

    def crossing(self, agent):
        return [self.arithmetic.encode(self.division.crossing[i]) for i in self.tree.placed[agent]]

    def tables(self, agent):
        return [*self.local[agent].lower, *self.crossing(agent)]

    def step(self, agent, interface=None, separator=None):
        node = UtilNode(
            self.local[agent].lower,
            self.crossing(agent),
            [self.messages[child] for child in self.tree.children[agent]],
            self.division.locals[agent].interface if interface is None else interface,
            self.tree.separators[agent] if separator is None else separator,
            self.problem.domains,
            self.arithmetic,
        )
        return util_step(node)

    def dense(self, message, scope):
        """Return a UTIL message as one table over a scope."""
        return naive.join(naive.plain_tables(message, self.arithmetic), list(scope), self.problem.domains)


def test_the_tables_of_the_paper():
    done = Solved(paper_example())
    x2, x4 = 1, 3
    assert tuple(done.tree.parent) == (-1, 0, 1)
    assert done.tree.separators == ((), (x2,), (x2, x4))
    assert done.dense(done.messages[2], (x2, x4)).tolist() == [[60, 50], [50, 40]]
    assert done.dense(done.messages[1], (x2,)).tolist() == [100, 80]
    assert done.steps[0].total == 120
    root = done.step(0, interface=(), separator=(x2,))
    assert done.dense(root.message, (x2,)).tolist() == [120, 88]
    assert done.values == dict.fromkeys(range(6), 0)


@pytest.mark.parametrize("method", ["exact", "auto", "gibbs"])
def test_solving_the_example_of_the_paper(method):
    result = dmcmc.solve(paper_example(), method=method)
    assert result.objective == 120
    assert result.assignment == {f"x{v}": 0 for v in range(1, 7)}
    assert result.msg_count == 4
    assert (result.status, result.bound) == ("optimal", 120)  # a sampled table is proven by its bound


@pytest.mark.parametrize("seed", range(60))
def test_a_util_message_is_the_maximum_over_everything_below(seed):
    done = Solved(random_problem(seed, 8, 5, 3, 12))
    tree, problem = done.tree, done.problem
    below = [{a} for a in range(problem.n_agents)]
    for agent in tree.bottom_up:
        for child in tree.children[agent]:
            below[agent] |= below[child]
        factors = [f for a in below[agent] for f in done.division.locals[a].factors]
        factors += [done.division.crossing[i] for a in below[agent] for i in tree.placed[a]]
        inside = [v for v in range(problem.n_variables) if int(problem.owner[v]) in below[agent]]
        tables = [(f.scope, naive.utilities(f.table)) for f in factors]
        expected = naive.marginal(tables, inside, tree.separators[agent], problem.domains)
        assert naive.same_numbers(done.dense(done.messages[agent], tree.separators[agent]), expected)


@pytest.mark.parametrize("seed", range(60))
def test_value_attains_the_sum_of_the_roots(seed):
    done = Solved(random_problem(seed, 8, 5, 3, 12))
    roots = [done.steps[a].total for a, parent in enumerate(done.tree.parent) if parent < 0]
    assert sorted(done.values) == list(range(done.problem.n_variables))
    best = naive.optimum(done.problem)
    if best > -naive.INFINITY:
        constants = sum(f.table.item() for f in done.division.constants)
        assert sum(roots) + constants == best == naive.utility(done.problem, done.values)


def test_a_util_step_that_does_not_fit_names_the_agent():
    table = Factor.of((0, 1), np.zeros((50, 50)))
    arithmetic = choose_arithmetic([table])
    with pytest.raises(ResourceError, match=r"agent me: .*2,500"):
        util_step(
            UtilNode([arithmetic.encode(table)], [], [], [0], [1], np.array([50, 50]), arithmetic),
            [(EXACT, 9999)],
            Resources(owner="me"),
        )


@pytest.mark.parametrize("seed", range(20))
def test_sparse_and_dense_joins_give_the_same_messages_and_values(seed, monkeypatch):
    problem = random_problem(seed, 8, 5, 3, 12, hard=0.4)
    dense = Solved(problem)
    monkeypatch.setattr(tuning, "SMALL_STEP_CELLS", 0)
    agent_step._PLANS.clear()
    monkeypatch.setattr("dmcmc.inference.tuning.CELLS_PER_ROW", 1e-9)
    found = Solved(problem)
    assert any(isinstance(step.elimination, SparseElimination) for step in found.steps.values())
    assert found.values == dense.values
    for agent, message in dense.messages.items():
        for one, other in zip(message, found.messages[agent], strict=True):
            assert one.scope == other.scope
            assert np.array_equal(one.values, other.values)


@pytest.mark.parametrize("seed", range(20))
def test_small_and_large_util_steps_give_the_same_messages_and_values(seed, monkeypatch):
    problem = random_problem(seed, 8, 5, 3, 12, hard=0.2)
    small = Solved(problem)
    monkeypatch.setattr(tuning, "SMALL_STEP_CELLS", 0)
    agent_step._PLANS.clear()
    large = Solved(problem)
    agent_step._PLANS.clear()
    assert small.values == large.values
    for agent, message in large.messages.items():
        for one, other in zip(message, small.messages[agent], strict=True):
            assert one.scope == other.scope and one.values.dtype == other.values.dtype
            assert np.array_equal(one.values, other.values)


def test_a_util_step_with_few_allowed_entries_is_exact_if_dense_tables_do_not_fit():
    rng, size, domains = np.random.default_rng(0), 40, np.full(5, 40)
    same = np.where(np.eye(size, dtype=np.bool_), rng.integers(0, 9, (size, size)), -np.inf)
    factors = [Factor.of((a, b), same) for b in range(5) for a in range(b)]
    arithmetic = choose_arithmetic(factors)
    node = UtilNode([arithmetic.encode(f) for f in factors], [], [], [0, 1, 2, 3], [4], domains, arithmetic)
    step = util_step(node, [(EXACT, 1 << 20)])  # dense tables take 10 MB
    assert isinstance(step.elimination, SparseElimination)
    expected = sum(np.diagonal(factor.table) for factor in factors)
    assert np.array_equal(sum(table.values for table in step.message), expected)
    assert value_step(step, [4], {4: 7}) == dict.fromkeys(range(5), 7)


def test_a_sparse_message_is_joined_sparsely_and_can_be_converted_to_dense(monkeypatch):
    rng, size, domains = np.random.default_rng(0), 40, np.full(4, 40)
    keys = np.unique(rng.integers(0, size, (100, 3)) @ [1 << 12, 1 << 6, 1])
    rows = SparseTable((0, 1, 2), keys, rng.integers(0, 9, keys.size).astype(np.int32))
    arithmetic = Arithmetic(np.dtype(np.int32), -(2**29), 1000, True)
    received = SparseBackedTable(rows, (size,) * 3, arithmetic.lowest)
    crossing = [EncodedTable((1, 3), rng.integers(0, 9, (size, size)).astype(np.int32))]
    node = UtilNode([], crossing, [(received,)], [1], [0, 2, 3], domains, arithmetic)
    step = util_step(node, [(EXACT, 1 << 20)])  # dense tables take 10 MB
    monkeypatch.setattr(tuning, "SMALL_STEP_CELLS", 1 << 40)
    dense = util_step(node)
    assert isinstance(step.elimination, SparseElimination) and isinstance(dense.elimination, Elimination)
    (found,), (expected,) = step.message, dense.message
    possible = expected.values > arithmetic.forbidden_below
    assert isinstance(found, SparseBackedTable) and found.nbytes < expected.values.nbytes / 4
    assert np.array_equal(found.values > arithmetic.forbidden_below, possible)
    assert np.array_equal(found.values[possible], expected.values[possible])
