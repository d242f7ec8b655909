"""Lists of rows in place of interfaces, and UTIL's way down: against tables written out in full."""

from itertools import product

import numpy as np
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.dpop.interface_rows import Compression
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.dpop.util_and_value import Node, outside_steps, util_step
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources
from dmcmc.inference.model.arithmetic import Table, choose_arithmetic
from dmcmc.inference.runtime.errors import ResourceError

seeds = st.integers(0, 10**6)


def compressed(seed):
    """A random problem, its division, and a compression of some of its agents, rows in any order."""
    problem = random_problem(seed, variables=7, agents=3, domain=3, factors=10, hard=0.2, floats=seed % 3 == 0)
    division, rng = divide(problem), np.random.default_rng(seed)
    interfaces, rows = {}, {}
    for local in division.locals:
        if local.interface and rng.random() < 0.7:
            everything = np.array(list(product(*map(range, local.interface_shape))), dtype=np.int64)
            keep = rng.permutation(len(everything))[: rng.integers(1, len(everything) + 1)]
            interfaces[local.agent], rows[local.agent] = local.interface, everything[keep]
    return problem, division, Compression(problem.domains, problem.owner, interfaces, rows)


def assignments(variables, sizes):
    """All assignments of some variables, as dictionaries."""
    for values in product(*(range(int(sizes[v])) for v in variables)):
        yield dict(zip(variables, values, strict=True))


@settings(max_examples=60)
@given(seeds)
def test_a_table_at_listed_rows_is_read_off_at_the_values_that_expand_gives(seed):
    problem, _, compression = compressed(seed)
    for factor in problem.factors:
        scope, values = compression.table(factor.scope, factor.table)
        assert scope == compression.scope(factor.scope) and values.flags.c_contiguous
        assert values.shape == tuple(compression.sizes[list(scope)])
        for chosen in assignments(scope, compression.sizes):
            expanded = compression.expand(chosen)
            entry = factor.table[tuple(expanded[v] for v in factor.scope)]
            assert values[tuple(chosen[v] for v in scope)] == entry


@settings(max_examples=60)
@given(seeds)
def test_a_local_problem_over_a_list_has_the_values_of_its_rows(seed):
    _, division, compression = compressed(seed)
    for local in division.locals:
        listed = compression.local(local)
        if local.agent not in compression.rows:
            assert listed is local
            continue
        rows = compression.rows[local.agent]
        assert listed.interface == (compression.variable(local.agent),) and listed.hidden == local.hidden
        assert listed.rows == len(rows)
        assert naive.same_numbers(naive.row_values(listed), naive.row_values(local)[tuple(rows.T)], 1e-9)


@settings(max_examples=60)
@given(seeds)
def test_expand_gives_all_interface_values_and_leaves_the_others(seed):
    problem, _, compression = compressed(seed)
    whole = compression.scope(range(problem.n_variables))
    for chosen in list(assignments(whole, compression.sizes))[:50]:
        expanded = compression.expand(chosen)
        assert sorted(expanded) == list(range(problem.n_variables))
        assert all(expanded[v] == value for v, value in chosen.items() if v < problem.n_variables)
        for agent, interface in compression.interfaces.items():
            row = compression.rows[agent][chosen[compression.variable(agent)]]
            assert [expanded[v] for v in interface] == row.tolist()


def swept(problem, relaxation, memory=None):
    """UTIL up and outside down with exact tables of all agents: per agent (its tables, rest, UTIL), and the numbers."""
    division, arithmetic = divide(problem), choose_arithmetic(problem.factors)
    tree = build_pseudotree(problem, division)

    def encoded(numbers):
        finite = np.where(np.asarray(numbers == -naive.INFINITY, dtype=bool), arithmetic.lowest, numbers)
        return finite.astype(arithmetic.dtype)

    own = [(Table(local.interface, encoded(naive.row_values(local))),) for local in division.locals]
    crossing = [[arithmetic.encode(division.crossing[i]) for i in tree.placed[a]] for a in range(problem.n_agents)]
    nodes, steps, rests, outside = {}, {}, {}, {}
    for a in tree.bottom_up:
        children = [steps[c].message for c in tree.children[a]]
        interface, separator = division.locals[a].interface, tree.separators[a]
        nodes[a] = Node(own[a], crossing[a], children, interface, separator, problem.domains, arithmetic)
        steps[a] = util_step(nodes[a], [(relaxation, memory)])
    for a in reversed(tree.bottom_up):
        separators = [tree.separators[c] for c in tree.children[a]]
        rests[a], downs = outside_steps(nodes[a], outside.get(a, ()), separators, relaxation, Resources(memory))
        outside |= dict(zip(tree.children[a], downs, strict=True))
    return division, tree, arithmetic, own, rests


def component(tree, agent):
    """The agents of one tree."""
    root = list(range(len(tree.parent)))
    for a in reversed(tree.bottom_up):
        root[a] = a if tree.parent[a] < 0 else root[tree.parent[a]]
    return [a for a in range(len(root)) if root[a] == root[agent]]


def best_with_rows(problem, division, agents, agent):
    """The best utility of a component for each row of one of its agents, by brute force."""
    inside = [v for v in range(problem.n_variables) if problem.owner[v] in agents]
    tables = [
        (f.scope, naive.utilities(f.table)) for f in problem.factors if f.scope and problem.owner[f.scope[0]] in agents
    ]
    interface = division.locals[agent].interface
    return naive.marginal(tables, [v for v in inside if v not in interface], list(interface), problem.domains)


@settings(max_examples=60)
@given(seeds)
def test_a_row_and_the_rest_make_the_best_of_the_whole(seed):
    floats = seed % 4 == 0
    problem = random_problem(seed, variables=7, agents=4, domain=3, factors=9, hard=0.15, floats=floats)
    division, tree, arithmetic, own, rests = swept(problem, Relaxation("exact"))
    for a, local in enumerate(division.locals):
        tables = naive.plain_tables([*own[a], *rests[a]], arithmetic)
        total = naive.join(tables, list(local.interface), problem.domains)
        best = best_with_rows(problem, division, component(tree, a), a)
        assert naive.same_numbers(total, best, 1e-9 if floats else 0)


@settings(max_examples=60)
@given(seeds)
def test_a_relaxed_rest_is_never_too_little(seed):
    problem = random_problem(seed, variables=8, agents=4, domain=3, factors=14, hard=0.1)
    try:
        division, tree, arithmetic, own, rests = swept(problem, Relaxation("auto", None, "scope", False), memory=600)
    except ResourceError:  # a single table is larger
        reject()
    for a, local in enumerate(division.locals):
        tables = naive.plain_tables([*own[a], *rests[a]], arithmetic)
        total = naive.join(tables, list(local.interface), problem.domains)
        best = best_with_rows(problem, division, component(tree, a), a)
        assert all(x >= y for x, y in zip(total.ravel(), best.ravel(), strict=True))


def test_sizes_name_every_list_even_of_agents_without_variables():
    compression = Compression(np.array([2, 3]), np.array([0, 2]), {2: (1,)}, {2: np.array([[2], [0]])})
    assert compression.sizes.tolist() == [2, 3, 1, 1, 2]
    assert compression.expand({0: 1, compression.variable(2): 0}) == {0: 1, 1: 2}
