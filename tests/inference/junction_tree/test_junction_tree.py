"""Marginals and max-marginals against all assignments, whatever the density; evidence given, changed and taken back."""

import math
from dataclasses import replace
from itertools import islice, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc.inference.junction_tree import passes
from dmcmc.inference.junction_tree.cliques import clique_tree
from dmcmc.inference.junction_tree.message_kernels import DOWN, UP
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.automaton import automaton_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

SEEDS = st.integers(0, 10**6)
SHARES = st.sampled_from([0.0, 0.1, 0.4, 0.8])


def worth(problem, evidence):
    """Every assignment that agrees with the evidence, with its utility."""
    for values in product(*map(range, problem.domains.tolist())):
        if all(values[problem.variables.index(name)] == value for name, value in evidence.items()):
            yield values, naive.utility(problem, values)


def table(problem, evidence, put_together):
    """What each value of each variable is worth, put together from the utilities of all assignments with it."""
    found = {
        name: {value: [] for value in range(d)} for name, d in zip(problem.variables, problem.domains, strict=True)
    }
    for values, utility in worth(problem, evidence):
        for name, value in zip(problem.variables, values, strict=True):
            found[name][value].append(utility)
    return {name: {value: put_together(all_) for value, all_ in one.items()} for name, one in found.items()}


def probabilities(problem, evidence):
    sums = table(problem, evidence, lambda utilities: math.fsum(math.exp(u) for u in utilities))
    return {name: {value: one / math.fsum(row.values()) for value, one in row.items()} for name, row in sums.items()}


def maxima(problem, evidence):
    def best(utilities):
        top = max(utilities, default=-math.inf)
        return None if top == -math.inf else problem.to_own_sense(top)

    return table(problem, evidence, best)


def drawn_evidence(problem, seed):
    """A sequence of observations of a few variables: some are changed, some taken back."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        some = rng.permutation(problem.n_variables)[: rng.integers(0, 4)].tolist()
        yield {problem.variables[v]: int(rng.integers(0, problem.domains[v])) for v in some}


@settings(max_examples=60)
@given(seed=SEEDS, hard=SHARES, maximise=st.booleans())
def test_listed_cliques_have_the_same_tables(seed, hard, maximise):
    problem = random_problem(seed, variables=6, domain=3, factors=7, magnitude=3, hard=hard, floats=not maximise)
    dense, listed = (JunctionTree(problem, maximise, tables=kind) for kind in ("dense", "incomplete"))
    assert listed.incomplete and not dense.incomplete
    for evidence in drawn_evidence(problem, seed):
        dense.set_evidence(evidence)
        listed.set_evidence(evidence)
        if maximise:
            assert (listed.total(), listed.marginals()) == (dense.total(), dense.marginals())
            continue
        assert listed.total() == pytest.approx(dense.total(), abs=1e-9)
        if dense.total() > -math.inf:
            expected = dense.marginals()
            assert listed.marginals() == {name: pytest.approx(row, abs=1e-9) for name, row in expected.items()}
        else:
            with pytest.raises(ProblemError, match="agrees with the evidence"):
                listed.marginals()


def listed_problem(count, size, scopes, tuples):
    """Variables in factors that list the possible tuples of some scopes."""
    builder, rng = Problem.build(), np.random.default_rng(0)
    for i in range(count):
        builder.variable(f"v{i}", size)
    factors = [
        tabulate(s, (size,) * len(s), t, rng.random(len(t)), -np.inf) for s, t in zip(scopes, tuples, strict=True)
    ]
    return replace(builder.problem(), factors=tuple(factors))


def test_what_is_mostly_impossible_takes_less_memory_than_dense_tables_would():
    rng, size = np.random.default_rng(0), 30
    scopes = [(i, i + 1, i + 2, i + 3) for i in range(0, 12, 2)]
    base = rng.integers(0, size, (300, 14))  # each a solution in which all scopes agree
    problem = listed_problem(14, size, scopes, [base[:, list(scope)] for scope in scopes])
    tree, dense = JunctionTree(problem, tables="incomplete"), JunctionTree(problem, tables="dense")
    assert tree.cells < 10_000
    assert 100 * tree._tables.rows.bytes < dense._tables._arena.nbytes
    assert tree.total() == pytest.approx(dense.total())
    assert tree.marginal("v5") == pytest.approx(dense.marginal("v5"))


def test_a_factor_that_lists_what_is_possible_is_never_made_dense():
    rng, size = np.random.default_rng(3), 20
    base = rng.integers(0, size, (3000, 10))
    problem = listed_problem(10, size, [tuple(range(7)), tuple(range(3, 10))], [base[:, :7], base[:, 3:]])
    tree = JunctionTree(problem, memory=1 << 22, maximise=True)
    assert tree.incomplete
    first, second = problem.factors
    assert tree.total() == max(first.entry(row[:7]) + second.entry(row[3:]) for row in base.tolist())
    words = replace(problem, factors=(automaton_of(first), second))  # few enough to be listed
    other = JunctionTree(words, memory=1 << 22, maximise=True, tables="incomplete")
    assert (other.total(), other.cells) == (tree.total(), tree.cells)


@settings(max_examples=80)
@given(seed=SEEDS, hard=SHARES, magnitude=st.sampled_from([3, 80]))  # of which products would underflow, or not
def test_probabilities_are_those_of_all_assignments_whatever_was_asked_before(seed, hard, magnitude):
    problem = random_problem(seed, variables=6, domain=3, factors=8, magnitude=magnitude, hard=hard, floats=True)
    tree = JunctionTree(problem)
    for evidence in drawn_evidence(problem, seed):
        tree.set_evidence(evidence)
        utilities = [u for _, u in worth(problem, evidence)]
        total = math.fsum(math.exp(u) for u in utilities)
        if total == 0:
            assert tree.total() == -math.inf
            with pytest.raises(ProblemError, match="agrees with the evidence"):
                tree.marginals()
            continue
        assert tree.total() == pytest.approx(math.log(total), abs=1e-9)
        expected = probabilities(problem, evidence)
        for name in list(expected)[-2:]:  # alone, before all are made
            assert tree.marginal(name) == pytest.approx(expected[name], abs=1e-9)
        assert tree.marginals() == {name: pytest.approx(row, abs=1e-9) for name, row in expected.items()}


@settings(max_examples=200)
@given(seed=SEEDS, hard=SHARES, sense=st.sampled_from(["max", "min"]))
def test_max_marginals_are_the_best_of_all_assignments_with_a_value(seed, hard, sense):
    problem = random_problem(seed, variables=6, domain=3, factors=8, hard=hard, sense=sense)
    tree = JunctionTree(problem, maximise=True)
    for evidence in islice(drawn_evidence(problem, seed), 2):
        tree.set_evidence(evidence)
        top = max(u for _, u in worth(problem, evidence))
        assert tree.total() == problem.to_own_sense(top)
        assert tree.marginals() == maxima(problem, evidence)


@settings(max_examples=25)
@given(seed=SEEDS, maximise=st.booleans())
def test_cliques_in_pieces_give_the_same(seed, maximise):
    problem = random_problem(seed, variables=7, domain=3, factors=6, magnitude=3, hard=0.2, floats=True)
    look = passes._LOOK
    try:
        whole = JunctionTree(problem, maximise).marginals()
        passes._LOOK = 1
        assert JunctionTree(problem, maximise).marginals() == whole
    except ProblemError:
        pass
    finally:
        passes._LOOK = look


@settings(max_examples=100)
@given(seed=SEEDS)
def test_a_clique_tree_has_every_scope_at_home_and_every_variable_connected(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 12))
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, 4)].tolist()) for _ in range(int(rng.integers(1, 15)))]
    scopes += [(v,) for v in range(n)]
    tree = clique_tree(scopes, np.full(n, 2), rng.permutation(n).tolist())
    cliques = [set(scope) for scope in tree.scopes]
    assert all(set(scope) <= cliques[home] for scope, home in zip(scopes, tree.home, strict=True))
    assert not any(a < b or (a == b and i != j) for i, a in enumerate(cliques) for j, b in enumerate(cliques))
    for i, parent in enumerate(tree.parent):
        assert parent == -1 or i < parent
        assert set(tree.separators[i]) == (cliques[i] & cliques[parent] if parent >= 0 else set())
    for v in range(n):  # those that hold a variable: one tree, so one edge less than there are cliques
        inside = sum(v in clique for clique in cliques)
        assert inside - 1 == sum(v in separator for separator in tree.separators)


def test_new_evidence_makes_only_what_depends_on_it_again(monkeypatch):
    rng, builder = np.random.default_rng(0), Problem.build()
    names = [builder.variable(f"v{i}", 3) for i in range(12)]
    for one, other in pairwise(names):
        builder.factor((one, other), rng.random((3, 3)))
    tree, made = JunctionTree(builder.problem()), []
    tree.propagate()
    run = tree._tables.passes.run
    monkeypatch.setattr(type(tree._tables.passes), "run", lambda self, *what: made.append(what) or run(*what))
    tree.set_evidence({"v0": 1})
    tree.propagate()
    count = {what: sum(c.size for w, c in made if w == what) for what in (UP, DOWN)}
    cliques, above = len(tree.tree.scopes), len(tree._path(tree._inside[0][0]))
    assert count == {UP: above, DOWN: cliques - above}  # towards the root on the way there, away from it elsewhere
    made.clear()
    tree.set_evidence({"v0": 1})
    tree.propagate()
    assert not sum(c.size for _, c in made)


def test_rare_evidence_does_not_underflow():
    builder, likely = Problem.build(), np.log([[0.999, 0.001], [0.001, 0.999]])
    builder.variable("cause", 2)
    for i in range(400):
        builder.factor(("cause", builder.variable(f"sign{i}", 2)), likely)
    tree = JunctionTree(builder.problem())
    tree.set_evidence({f"sign{i}": i % 2 for i in range(400)})
    assert tree.marginal("cause") == pytest.approx({0: 0.5, 1: 0.5})
    assert tree.total() == pytest.approx(200 * math.log(0.999 * 0.001) + math.log(2))
    tree.set_evidence({f"sign{i}": 0 for i in range(400)})
    assert tree.marginal("cause")[1] == 0.0  # smaller than any float


def test_what_does_not_fit_or_exist_is_said():
    problem = random_problem(4, variables=6, domain=3, factors=9)
    with pytest.raises(ResourceError, match=r"the junction tree needs .* bytes"):
        JunctionTree(problem, memory=10)
    tree = JunctionTree(problem)
    with pytest.raises(ProblemError, match="variable 'nobody' does not exist"):
        tree.set_evidence({"nobody": 0})
    with pytest.raises(ProblemError, match="has no value 7"):
        tree.set_evidence({problem.variables[0]: 7})
    with pytest.raises(ProblemError, match="variable 'nobody' does not exist"):
        tree.marginal("nobody")
