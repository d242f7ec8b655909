"""Test row lists in place of interfaces, and outside bounds, against fully enumerated tables."""

from itertools import product

import numpy as np
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from support import naive
from support.problem_strategies import random_problem

from dmcmc.inference.dpop.agent_step import UtilNode, outside_steps, util_step
from dmcmc.inference.dpop.division import InterfaceCompression, divide
from dmcmc.inference.dpop.pseudotree import build_pseudotree
from dmcmc.inference.execution.exact_or_mini_buckets import Relaxation, Resources
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.errors import ResourceError

seeds = st.integers(0, 10**6)


def compressed(seed):
    """Return a random problem, its division, and row lists for some of its agents, with the rows in any order."""
    problem = random_problem(seed, variables=7, agents=3, domain=3, factors=10, hard=0.2, floats=seed % 3 == 0)
    division, rng = divide(problem), np.random.default_rng(seed)
    interfaces, rows = {}, {}
    for local in division.locals:
        if local.interface and rng.random() < 0.7:
            all_rows = np.array(list(product(*map(range, local.interface_shape))), dtype=np.int64)
            keep = rng.permutation(len(all_rows))[: rng.integers(1, len(all_rows) + 1)]
            interfaces[local.agent], rows[local.agent] = local.interface, all_rows[keep]
    return problem, division, InterfaceCompression(problem.domains, problem.owner, interfaces, rows)


def assignments(variables, sizes):
    """Yield all assignments of some variables, as dictionaries."""
    for values in product(*(range(int(sizes[v])) for v in variables)):
        yield dict(zip(variables, values, strict=True))


@settings(max_examples=60)
@given(seeds)
def test_a_table_at_rows_has_the_entries_of_the_expanded_values(seed):
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
def test_a_local_problem_over_a_row_list_has_the_values_of_its_rows(seed):
    _, division, compression = compressed(seed)
    for local in division.locals:
        listed = compression.local(local)
        if local.agent not in compression.rows:
            assert listed is local
            continue
        rows = compression.rows[local.agent]
        assert listed.interface == (compression.row_variable(local.agent),) and listed.hidden == local.hidden
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
            row = compression.rows[agent][chosen[compression.row_variable(agent)]]
            assert [expanded[v] for v in interface] == row.tolist()


def both_passes(problem, relaxation, memory=None):
    """Compute UTIL bottom-up and outside bounds top-down; return the local tables and the outside tables per agent."""
    division, arithmetic = divide(problem), choose_arithmetic(problem.factors)
    tree = build_pseudotree(problem, division)

    def encoded(numbers):
        finite = np.where(np.asarray(numbers == -naive.INFINITY, dtype=bool), arithmetic.lowest, numbers)
        return finite.astype(arithmetic.dtype)

    local_tables = [(EncodedTable(local.interface, encoded(naive.row_values(local))),) for local in division.locals]
    crossing = [[arithmetic.encode(division.crossing[i]) for i in tree.placed[a]] for a in range(problem.n_agents)]
    nodes, steps, outside_tables, outside = {}, {}, {}, {}
    for a in tree.bottom_up:
        children = [steps[c].message for c in tree.children[a]]
        interface, separator = division.locals[a].interface, tree.separators[a]
        nodes[a] = UtilNode(local_tables[a], crossing[a], children, interface, separator, problem.domains, arithmetic)
        steps[a] = util_step(nodes[a], [(relaxation, memory)])
    for a in reversed(tree.bottom_up):
        separators = [tree.separators[c] for c in tree.children[a]]
        outside_tables[a], child_outside = outside_steps(
            nodes[a], outside.get(a, ()), separators, relaxation, Resources(memory)
        )
        outside |= dict(zip(tree.children[a], child_outside, strict=True))
    return division, tree, arithmetic, local_tables, outside_tables


def component(tree, agent):
    """Return the agents of one tree."""
    root = list(range(len(tree.parent)))
    for a in reversed(tree.bottom_up):
        root[a] = a if tree.parent[a] < 0 else root[tree.parent[a]]
    return [a for a in range(len(root)) if root[a] == root[agent]]


def best_with_rows(problem, division, agents, agent):
    """Return the best utility of a component for each row of one of its agents, by brute force."""
    inside = [v for v in range(problem.n_variables) if problem.owner[v] in agents]
    tables = [
        (f.scope, naive.utilities(f.table)) for f in problem.factors if f.scope and problem.owner[f.scope[0]] in agents
    ]
    interface = division.locals[agent].interface
    return naive.marginal(tables, [v for v in inside if v not in interface], list(interface), problem.domains)


@settings(max_examples=60)
@given(seeds)
def test_local_and_outside_tables_add_up_to_the_best_utility_per_row(seed):
    floats = seed % 4 == 0
    problem = random_problem(seed, variables=7, agents=4, domain=3, factors=9, hard=0.15, floats=floats)
    division, tree, arithmetic, local_tables, outside_tables = both_passes(problem, Relaxation("exact"))
    for a, local in enumerate(division.locals):
        tables = naive.plain_tables([*local_tables[a], *outside_tables[a]], arithmetic)
        total = naive.join(tables, list(local.interface), problem.domains)
        best = best_with_rows(problem, division, component(tree, a), a)
        assert naive.same_numbers(total, best, 1e-9 if floats else 0)


@settings(max_examples=60)
@given(seeds)
def test_a_relaxed_outside_bound_is_an_upper_bound(seed):
    problem = random_problem(seed, variables=8, agents=4, domain=3, factors=14, hard=0.1)
    try:
        division, tree, arithmetic, local_tables, outside_tables = both_passes(
            problem, Relaxation("auto", None, "scope", False), memory=600
        )
    except ResourceError:  # a single table is larger
        reject()
    for a, local in enumerate(division.locals):
        tables = naive.plain_tables([*local_tables[a], *outside_tables[a]], arithmetic)
        total = naive.join(tables, list(local.interface), problem.domains)
        best = best_with_rows(problem, division, component(tree, a), a)
        assert all(x >= y for x, y in zip(total.ravel(), best.ravel(), strict=True))


def test_sizes_have_an_entry_per_agent_even_without_variables():
    compression = InterfaceCompression(np.array([2, 3]), np.array([0, 2]), {2: (1,)}, {2: np.array([[2], [0]])})
    assert compression.sizes.tolist() == [2, 3, 1, 1, 2]
    assert compression.expand({0: 1, compression.row_variable(2): 0}) == {0: 1, 1: 2}
