"""Marginals and max-marginals equal those over all assignments; evidence is set, changed and removed."""

import math
from dataclasses import replace
from itertools import islice, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc.inference import tuning
from dmcmc.inference.junction_tree.cliques import clique_tree
from dmcmc.inference.junction_tree.message_kernels import DOWN, UP
from dmcmc.inference.junction_tree.passes import CliqueTreePasses
from dmcmc.inference.marginals.junction_tree import JunctionTree
from dmcmc.inference.model.automaton import automaton_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

SEEDS = st.integers(0, 10**6)
SHARES = st.sampled_from([0.0, 0.1, 0.4, 0.8])


def assignments(problem, evidence):
    """Yield every assignment that agrees with the evidence, with its utility."""
    for values in product(*map(range, problem.domains.tolist())):
        if all(values[problem.variables.index(name)] == value for name, value in evidence.items()):
            yield values, naive.utility(problem, values)


def table(problem, evidence, reduce):
    """Return for each value of each variable a reduction of the utilities of all assignments with it."""
    found = {
        name: {value: [] for value in range(d)} for name, d in zip(problem.variables, problem.domains, strict=True)
    }
    for values, utility in assignments(problem, evidence):
        for name, value in zip(problem.variables, values, strict=True):
            found[name][value].append(utility)
    return {name: {value: reduce(all_) for value, all_ in one.items()} for name, one in found.items()}


def probabilities(problem, evidence):
    sums = table(problem, evidence, lambda utilities: math.fsum(math.exp(u) for u in utilities))
    return {name: {value: one / math.fsum(row.values()) for value, one in row.items()} for name, row in sums.items()}


def maxima(problem, evidence):
    def best(utilities):
        top = max(utilities, default=-math.inf)
        return None if top == -math.inf else problem.to_own_sense(top)

    return table(problem, evidence, best)


def drawn_evidence(problem, seed):
    """Yield a sequence of observations of a few variables: some are changed, some removed."""
    rng = np.random.default_rng(seed)
    for _ in range(4):
        some = rng.permutation(problem.n_variables)[: rng.integers(0, 4)].tolist()
        yield {problem.variables[v]: int(rng.integers(0, problem.domains[v])) for v in some}


@settings(max_examples=60)
@given(seed=SEEDS, hard=SHARES, maximise=st.booleans())
def test_sparse_cliques_have_the_same_tables(seed, hard, maximise):
    problem = random_problem(seed, variables=6, domain=3, factors=7, magnitude=3, hard=hard, floats=not maximise)
    dense, sparse = (JunctionTree(problem, maximise, tables=kind) for kind in ("dense", "incomplete"))
    assert sparse.incomplete and not dense.incomplete
    for evidence in drawn_evidence(problem, seed):
        dense.set_evidence(evidence)
        sparse.set_evidence(evidence)
        if maximise:
            assert (sparse.total(), sparse.marginals()) == (dense.total(), dense.marginals())
            continue
        assert sparse.total() == pytest.approx(dense.total(), abs=1e-9)
        if dense.total() > -math.inf:
            expected = dense.marginals()
            assert sparse.marginals() == {name: pytest.approx(row, abs=1e-9) for name, row in expected.items()}
        else:
            with pytest.raises(ProblemError, match="agrees with the evidence"):
                sparse.marginals()


def sparse_problem(count, size, scopes, tuples):
    """Return a problem with factors that list their allowed tuples."""
    builder, rng = Problem.build(), np.random.default_rng(0)
    for i in range(count):
        builder.variable(f"v{i}", size)
    factors = [
        tabulate(s, (size,) * len(s), t, rng.random(len(t)), -np.inf) for s, t in zip(scopes, tuples, strict=True)
    ]
    return replace(builder.problem(), factors=tuple(factors))


def test_mostly_forbidden_factors_take_less_memory_than_dense_tables():
    rng, size = np.random.default_rng(0), 30
    scopes = [(i, i + 1, i + 2, i + 3) for i in range(0, 12, 2)]
    base = rng.integers(0, size, (300, 14))  # each row is a solution in which all scopes agree
    problem = sparse_problem(14, size, scopes, [base[:, list(scope)] for scope in scopes])
    tree, dense = JunctionTree(problem, tables="incomplete"), JunctionTree(problem, tables="dense")
    assert tree.cells < 10_000
    assert 100 * tree._tables.rows.bytes < dense._tables._arena.nbytes
    assert tree.total() == pytest.approx(dense.total())
    assert tree.marginal("v5") == pytest.approx(dense.marginal("v5"))


def test_a_factor_that_lists_its_allowed_tuples_is_never_made_dense():
    rng, size = np.random.default_rng(3), 20
    base = rng.integers(0, size, (3000, 10))
    problem = sparse_problem(10, size, [tuple(range(7)), tuple(range(3, 10))], [base[:, :7], base[:, 3:]])
    tree = JunctionTree(problem, memory=1 << 22, maximise=True)
    assert tree.incomplete
    first, second = problem.factors
    assert tree.total() == max(first.entry(row[:7]) + second.entry(row[3:]) for row in base.tolist())
    words = replace(problem, factors=(automaton_of(first), second))  # few enough to be sparse
    other = JunctionTree(words, memory=1 << 22, maximise=True, tables="incomplete")
    assert (other.total(), other.cells) == (tree.total(), tree.cells)


@settings(max_examples=80)
@given(seed=SEEDS, hard=SHARES, magnitude=st.sampled_from([3, 80]))  # products underflow for the second
def test_probabilities_are_those_of_all_assignments_whatever_the_earlier_evidence(seed, hard, magnitude):
    problem = random_problem(seed, variables=6, domain=3, factors=8, magnitude=magnitude, hard=hard, floats=True)
    tree = JunctionTree(problem)
    for evidence in drawn_evidence(problem, seed):
        tree.set_evidence(evidence)
        utilities = [u for _, u in assignments(problem, evidence)]
        total = math.fsum(math.exp(u) for u in utilities)
        if total == 0:
            assert tree.total() == -math.inf
            with pytest.raises(ProblemError, match="agrees with the evidence"):
                tree.marginals()
            continue
        assert tree.total() == pytest.approx(math.log(total), abs=1e-9)
        expected = probabilities(problem, evidence)
        for name in list(expected)[-2:]:  # single marginals before all are computed
            assert tree.marginal(name) == pytest.approx(expected[name], abs=1e-9)
        assert tree.marginals() == {name: pytest.approx(row, abs=1e-9) for name, row in expected.items()}


@settings(max_examples=200)
@given(seed=SEEDS, hard=SHARES, sense=st.sampled_from(["max", "min"]))
def test_max_marginals_are_the_best_of_all_assignments_with_a_value(seed, hard, sense):
    problem = random_problem(seed, variables=6, domain=3, factors=8, hard=hard, sense=sense)
    tree = JunctionTree(problem, maximise=True)
    for evidence in islice(drawn_evidence(problem, seed), 2):
        tree.set_evidence(evidence)
        top = max(u for _, u in assignments(problem, evidence))
        assert tree.total() == problem.to_own_sense(top)
        assert tree.marginals() == maxima(problem, evidence)


@settings(max_examples=25)
@given(seed=SEEDS, maximise=st.booleans())
def test_cliques_in_parts_give_the_same_tables(seed, maximise):
    problem = random_problem(seed, variables=7, domain=3, factors=6, magnitude=3, hard=0.2, floats=True)
    entries_per_check = tuning.CELLS_PER_CHECK
    try:
        expected = JunctionTree(problem, maximise).marginals()
        tuning.CELLS_PER_CHECK = 1
        assert JunctionTree(problem, maximise).marginals() == expected
    except ProblemError:
        pass
    finally:
        tuning.CELLS_PER_CHECK = entries_per_check


@settings(max_examples=100)
@given(seed=SEEDS)
def test_every_scope_is_in_a_clique_and_every_variable_is_connected(seed):
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
    for v in range(n):  # the cliques with a variable form one tree: one edge less than cliques
        inside = sum(v in clique for clique in cliques)
        assert inside - 1 == sum(v in separator for separator in tree.separators)


def test_new_evidence_recomputes_only_dependent_messages(monkeypatch):
    rng, builder = np.random.default_rng(0), Problem.build()
    names = [builder.variable(f"v{i}", 3) for i in range(12)]
    for one, other in pairwise(names):
        builder.factor((one, other), rng.random((3, 3)))
    tree, computed = JunctionTree(builder.problem()), []
    tree.propagate()
    run = CliqueTreePasses.run
    monkeypatch.setattr(CliqueTreePasses, "run", lambda self, *what: computed.append(what) or run(self, *what))
    tree.set_evidence({"v0": 1})
    tree.propagate()
    count = {what: sum(c.size for w, c in computed if w == what) for what in (UP, DOWN)}
    path = [next(clique for clique, scope in enumerate(tree.tree.scopes) if 0 in scope)]
    while tree.tree.parent[path[-1]] >= 0:
        path.append(tree.tree.parent[path[-1]])
    cliques, on_path = len(tree.tree.scopes), len(path)
    # towards the root on the path from the evidence, away from it in the other cliques
    assert count == {UP: on_path, DOWN: cliques - on_path}
    computed.clear()
    tree.set_evidence({"v0": 1})
    tree.propagate()
    assert not sum(c.size for _, c in computed)


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


def test_errors_name_what_does_not_fit_or_exist():
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
