"""Messages of a junction tree are marginals of the tables on either side; calibrated cliques agree on separators."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.junction_tree.beliefs import evidence, tree_cases

from dmcmc.inference import tuning
from dmcmc.inference.junction_tree.message_kernels import (
    DOWN,
    MARGINAL,
    SEPARATOR_MARGINAL,
    UP,
    describe_tables,
    inputs_and_targets,
    is_message,
    nothing_to_make,
    row_axes,
)
from dmcmc.inference.junction_tree.sum_product_kernels import linearise, products_are_safe, to_logarithms, total_of


def propagate(case, observed):
    """Compute all messages and tables of a case, with some evidence."""
    tree_passes = case.passes
    tree_passes.layout.program.observed[:] = [observed.get(v, -1) for v in range(case.domains.size)]
    cliques = np.arange(len(case.tree.scopes))
    tree_passes.run(UP, cliques)
    tree_passes.run(DOWN, cliques[::-1].copy())
    tree_passes.run(SEPARATOR_MARGINAL, cliques)
    tree_passes.run(MARGINAL, cliques)
    if not case.maximise:
        layout = tree_passes.layout
        messages = np.arange(len(layout.factors), layout.marginal(0))
        to_logarithms(layout.program, tree_passes.arena, tree_passes.linear_tables, messages)


def message(case, table, scope, observed):
    """Return a message's entries that agree with the evidence as floats, with one axis per unobserved variable."""
    at = case.passes.layout.program.at[table]
    shape = [case.domains[v] for v in scope if v not in observed]
    entries = case.passes.arena[at : at + int(np.prod(shape, dtype=int))].reshape(shape)
    return naive.decoded(entries, case.arithmetic).astype(float)


def consistent(belief, scope, observed):
    """Return the entries of a belief that agree with the evidence."""
    return belief[tuple(observed.get(v, slice(None)) for v in scope)]


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_messages_are_the_marginals_of_the_tables_on_their_side_whatever_the_evidence(data, in_parts):
    case = data.draw(tree_cases(wide=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "CELLS_PER_CHECK", 1 if in_parts else 1 << 23)
        for observed in (data.draw(evidence(case)), {}, data.draw(evidence(case))):
            propagate(case, observed)
            layout, component = case.passes.layout, components(case.tree)
            for c, scope in enumerate(case.tree.separators):
                below = case.subtree(c)
                up = message(case, layout.up_message(c), scope, observed)
                expected = consistent(case.belief(scope, observed, below), scope, observed)
                np.testing.assert_allclose(up, expected, atol=1e-9)
                if case.tree.parent[c] < 0:
                    continue
                down = message(case, layout.down_message(c), scope, observed)
                above = component[scope[0]] - below if scope else set()
                expected = consistent(case.belief(scope, observed, above), scope, observed)
                np.testing.assert_allclose(down, expected, atol=1e-9)


@settings(max_examples=60)
@given(st.data(), st.booleans())
def test_tables_of_variables_are_normalised_marginals_or_maxima_whatever_the_evidence(data, in_parts):
    case = data.draw(tree_cases(wide=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "CELLS_PER_CHECK", 1 if in_parts else 1 << 23)
        for observed in (data.draw(evidence(case)), {}):
            propagate(case, observed)
            program, component = case.passes.layout.program, components(case.tree)
            for v in range(case.domains.size):
                t = case.passes.layout.marginal(v)
                found = case.passes.arena[program.at[t] : program.at[t + 1]]
                belief = case.belief((v,), observed, component[v])
                if case.maximise:
                    np.testing.assert_array_equal(naive.decoded(found, case.arithmetic).astype(float), belief)
                elif belief.max() == -np.inf:
                    assert np.isnan(found).all()
                else:
                    np.testing.assert_allclose(found, np.exp(belief - np.logaddexp.reduce(belief)), atol=1e-9)


def components(tree):
    """Return for each variable the cliques of its connected component."""
    root = [0] * len(tree.scopes)
    for c in reversed(range(len(tree.scopes))):
        root[c] = c if tree.parent[c] < 0 else root[tree.parent[c]]
    return {v: {d for d, r in enumerate(root) if r == root[c]} for c, scope in enumerate(tree.scopes) for v in scope}


@settings(max_examples=60)
@given(st.data())
def test_calibrated_cliques_agree_on_their_separator(data):
    case = data.draw(tree_cases())
    observed = data.draw(evidence(case))
    propagate(case, observed)
    layout, component = case.passes.layout, components(case.tree)
    for c, scope in enumerate(case.tree.separators):
        if case.tree.parent[c] >= 0:
            both = sum(message(case, t, scope, observed) for t in (layout.up_message(c), layout.down_message(c)))
            belief = case.belief(scope, observed, component[case.tree.scopes[c][0]])
            np.testing.assert_allclose(both, consistent(belief, scope, observed), atol=1e-9)


@settings(max_examples=60)
@given(tree_cases())
def test_the_layout_holds_the_sum_of_all_tables_in_disjoint_places(case):
    layout = case.passes.layout
    program = layout.program
    given = [(t.scope, naive.decoded(t.values, case.arithmetic)) for t in case.tables]
    stored = [(t.scope, naive.decoded(t.values, case.arithmetic)) for t in layout.factors]
    variables = list(range(case.domains.size))
    left, right = (naive.join(tables, variables, case.domains) for tables in (given, stored))
    assert naive.same_numbers(left, right)
    scopes = [program.scope[a:b].tolist() for a, b in zip(program.scope_start, program.scope_start[1:], strict=False)]
    sizes = [int(np.prod(case.domains[s], dtype=int)) for s in scopes]
    assert np.diff(program.at).tolist() == sizes and program.at[0] == 0 and layout.entries == sum(sizes)
    assert layout.cells.tolist() == [int(np.prod(case.domains[list(s)])) for s in case.tree.scopes]
    for c, clique in enumerate(case.tree.scopes):
        inside = [set(scopes[t]) for t in range(program.factor_start[c], program.factor_start[c + 1])]
        assert all(scope <= set(clique) for scope in inside)
        assert not any(a <= b for i, a in enumerate(inside) for j, b in enumerate(inside) if i != j)


@settings(max_examples=60)
@given(tree_cases())
def test_each_table_of_a_variable_is_made_from_the_smallest_table_with_that_variable(case):
    layout = case.passes.layout
    program, made = layout.program, {}
    for kind in ("marginals", "separator_marginals"):
        start, variables = getattr(program, f"{kind}_start"), getattr(program, kind)
        for c, scope in enumerate(case.tree.scopes if kind == "marginals" else case.tree.separators):
            for v in variables[start[c] : start[c + 1]].tolist():
                assert v in scope and v not in made and layout.home[v] == c
                made[v] = int(np.prod(case.domains[list(scope)]))
    for v, entries in made.items():
        with_v = [s for s in (*case.tree.scopes, *case.tree.separators) if v in s]
        assert entries == min(int(np.prod(case.domains[list(s)])) for s in with_v)
    assert sorted(made) == list(range(case.domains.size))


def address(program, t, values):
    """Return the place of a table's entry; a message stores only the entries that agree with the evidence."""
    at = 0
    for v in program.scope[program.scope_start[t] : program.scope_start[t + 1]].tolist():
        if not (is_message(program, t) and program.observed[v] >= 0):
            at = at * int(program.domains[v]) + values[v]
    return int(program.at[t]) + at


@settings(max_examples=60)
@given(st.data(), st.sampled_from([UP, DOWN, MARGINAL, SEPARATOR_MARGINAL]))
def test_every_assignment_of_a_clique_is_read_and_written_at_its_address(data, kind):
    case = data.draw(tree_cases(wide=True))
    program = case.passes.layout.program
    observed = data.draw(evidence(case))
    program.observed[:] = [observed.get(v, -1) for v in range(case.domains.size)]
    clique = data.draw(st.integers(0, len(case.tree.scopes) - 1))
    if nothing_to_make(program, clique, kind):
        return
    tables, count, scope = inputs_and_targets(program, clique, kind)
    assert 0 <= count < tables.size
    high, width, at, strides, run, offsets = describe_tables(program, scope, tables)
    choices = [[observed[v]] if v in observed else range(case.domains[v]) for v in scope.tolist()]
    axes, entries = row_axes(np.array([len(c) for c in choices]))
    assert (len(choices) - axes, entries) == (high.size, width)
    assert [len(c) for c in choices[: high.size]] == high.tolist()
    shape = [len(c) for c in choices]
    for number in data.draw(st.lists(st.integers(0, int(np.prod(shape)) - 1), min_size=1, max_size=40)):
        index = np.unravel_index(number, shape)
        values = {v: int(c[i]) for v, c, i in zip(scope.tolist(), choices, index, strict=True)}
        row_entry = number % width
        for i, t in enumerate(tables.tolist()):
            found = at[i] + strides[i] @ np.array(index[: high.size], dtype=np.int64) + offsets[i, row_entry]
            assert found == address(program, t, values)
    for i in range(tables.size):
        if run[i] == 0:
            assert not offsets[i].any()
        elif run[i] > 1:
            starts = offsets[i].reshape(-1, run[i])
            assert (starts == starts[:, :1] + np.arange(run[i])).all()


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=5))
def test_a_row_has_as_many_trailing_axes_as_fit(sizes):
    axes, width = row_axes(np.array(sizes))
    assert axes >= 1 and width == np.prod(sizes[len(sizes) - axes :])
    assert axes == 1 or width <= 1 << 10
    assert axes == len(sizes) or width * sizes[len(sizes) - axes - 1] > 1 << 10


@given(st.lists(st.floats(-1e9, 1e9), max_size=40))
def test_the_sum_of_a_row_is_exact_up_to_rounding(entries):
    total = total_of(np.array(entries))
    assert total == pytest.approx(sum(entries), abs=1e-12 * sum(map(abs, entries)) * len(entries))


@settings(max_examples=60)
@given(tree_cases(maximise=False))
def test_linear_copies_hold_exponentials_relative_to_the_largest_entry(case):
    program, factors = case.passes.layout.program, np.arange(len(case.passes.layout.factors))
    numbers = np.zeros(case.passes.layout.entries)
    peak, low = np.full((2, program.at.size - 1), np.nan)
    linearise(program, case.passes.arena, numbers, peak, low, factors)
    for t, factor in enumerate(case.passes.layout.factors):
        finite = factor.values[np.isfinite(factor.values)]
        part = numbers[program.at[t] : program.at[t + 1]]
        assert peak[t] == finite.max(initial=-np.inf)
        assert low[t] == (finite.max() - finite.min() if finite.size else 0)
        expected = np.exp(factor.values - peak[t]) if finite.size else np.zeros(factor.values.shape)
        np.testing.assert_allclose(part, expected.reshape(-1), rtol=1e-12)
    least = np.exp(-low[factors].sum())  # the smallest product of entries that is not forbidden
    assert not products_are_safe(low, factors) or least > 0
