"""The passes of dual ascent equal their definition entry by entry, and never change the utility of an assignment."""

import numpy as np
import pytest
from support.naive import INFINITY
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.dual import ascent_kernels as rows
from dmcmc.inference.bounds.dual import pair_kernels as kernels
from dmcmc.inference.bounds.dual import smoothed_triangle_kernels
from dmcmc.inference.bounds.dual.ascent_kernels import higher_order_pass, recentre, triangle_pass
from dmcmc.inference.bounds.dual.graph import lay_out
from dmcmc.inference.bounds.dual.integer_scaling import (
    FORBIDDEN,
    FORBIDDEN_BELOW,
    MAX_MAGNITUDE,
    MINUS_INFINITY,
    quantise,
)
from dmcmc.inference.bounds.dual.message_kernels import max_plus, plus_times
from dmcmc.inference.dpop.division import LocalProblem

RUNNING = np.zeros(1, dtype=np.uint8)
EXACT = np.float32(0)


def plain(table):
    """Return entries as Python numbers, with minus infinity for forbidden ones."""
    out = np.array(table, dtype=object)
    out[np.asarray(table) < FORBIDDEN_BELOW] = -INFINITY
    return out


def instance(seed, hard=0.15):
    """Return a layout with triangles and a higher-order factor, over domains of 2 to 9 values."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, 10, 5)
    scopes = [(0, 1), (2, 0), (1, 2), (2, 3), (1, 3), (3, 4), (4,), (0, 2, 4)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 99, hard)) for s in scopes]
    return lay_out(LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64)), True)


def total(layout, values):
    """Return the sum of all entries that an assignment selects."""
    graph, shares = layout.whole, layout.potentials
    found = [plain(shares.unary[v, x]).item() for v, x in enumerate(values)]
    found += [plain(shares.pair[e, values[a], values[b]]).item() for e, (a, b) in enumerate(graph.pairs)]
    for t, (a, b, c) in enumerate(graph.corners):
        for k, (u, v) in enumerate(((a, b), (a, c), (b, c))):
            found.append(plain(shares.triangle[t, k, values[u], values[v]]).item())
    for s in range(graph.entry_start.size - 1):
        scope = graph.scope_variables[graph.scope_start[s] : graph.scope_start[s + 1]]
        entries = shares.higher_order[graph.entry_start[s] : graph.entry_start[s + 1]].reshape(graph.domains[scope])
        found.append(plain(entries[tuple(values[v] for v in scope)]).item())
    return sum(found)


def scratch_of(layout):
    """Return workspace for sweeps."""
    width = layout.potentials.unary.shape[1]
    return np.zeros((smoothed_triangle_kernels.SCRATCH_TABLES, width, width), dtype=np.int32)


SIZES = pytest.mark.parametrize("rows_, inner, columns", [(8, 8, 8), (16, 8, 24), (24, 24, 16), (8, 5, 40), (8, 1, 8)])


@SIZES
def test_max_plus_is_the_product_of_tropical_matrices(rows_, inner, columns):
    rng = np.random.default_rng(rows_)
    left, right = (rng.integers(-99, 99, (48, 48), dtype=np.int32) for _ in range(2))
    left[rng.random(left.shape) < 0.2], right[rng.random(right.shape) < 0.2] = FORBIDDEN, FORBIDDEN
    left[0] = right[:, 0] = FORBIDDEN
    out = np.full((48, 48), 7, dtype=np.int32)
    max_plus(left, right, out, rows_, inner, columns)
    expected = (left[:rows_, :inner, None].astype(np.int64) + right[None, :inner, :columns]).max(axis=1)
    assert (out[:rows_, :columns] == np.maximum(expected, FORBIDDEN)).all()
    out[:rows_, :columns] = 7
    assert (out == 7).all()


@SIZES
def test_plus_times_is_the_product_of_matrices_summed_in_order(rows_, inner, columns):
    rng = np.random.default_rng(rows_)
    left, right = (rng.random((48, 48), dtype=np.float32) for _ in range(2))
    out = np.zeros((48, 48), dtype=np.float32)
    plus_times(left, right, out, rows_, inner, columns)
    expected = np.zeros((rows_, columns), dtype=np.float32)
    for k in range(inner):
        expected += left[:rows_, k, None] * right[None, k, :columns]
    assert (out[:rows_, :columns] == expected).all() and not out[rows_:].any() and not out[:, columns:].any()


@pytest.mark.parametrize("seed", range(5))
def test_a_triangle_sends_a_third_half_and_all_of_its_max_marginals(seed):
    layout = instance(seed)
    graph, shares = layout.whole, layout.potentials
    pairs = [plain(t) for t in shares.pair]
    triangles = [[plain(t) for t in three] for three in shares.triangle]
    assert triangle_pass(graph, shares, EXACT, scratch_of(layout), RUNNING)
    for t, three in enumerate(graph.triangles):
        for k in range(3):
            triangles[t][k] = triangles[t][k] + pairs[three[k]]
        for k, weight in enumerate((1 / 3, 1 / 2, 1)):
            ab, ac, bc = triangles[t]
            joint = ab[:, :, None] + ac[:, None, :] + bc[None]
            marginal = joint.max(axis=2 - k)
            is_forbidden = marginal == -INFINITY
            message = np.where(is_forbidden, 0, marginal)
            message = (
                message if weight == 1 else (message.astype(np.float32) * np.float32(weight)).astype(int).astype(object)
            )
            triangles[t][k] = np.where(is_forbidden, -INFINITY, triangles[t][k] - message)
            pairs[three[k]] = np.where(is_forbidden, -INFINITY, message)
    for e, expected in enumerate(pairs):
        assert (plain(shares.pair[e]) == expected).all()
    for t, three in enumerate(triangles):
        for k in range(3):
            assert (plain(shares.triangle[t, k]) == three[k]).all()


@pytest.mark.parametrize("temperature", [EXACT, np.float32(3e3), np.float32(1e6)])
@pytest.mark.parametrize("seed", range(8))
def test_no_pass_changes_the_utility_of_an_allowed_assignment(seed, temperature):
    layout = instance(seed)
    rng = np.random.default_rng(seed)
    picks = [tuple(int(rng.integers(0, d)) for d in layout.whole.domains) for _ in range(60)]
    before = [total(layout, values) for values in picks]
    scratch, message = scratch_of(layout), np.zeros(layout.potentials.unary.shape[1], dtype=np.int32)
    bound = kernels.bound(layout.whole, layout.potentials)
    for step in range(6):
        assert rows.sweep(layout.whole, layout.potentials, step % 2 == 0, temperature, scratch, RUNNING)
        recentre(layout.whole, layout.potentials)
        assert higher_order_pass(layout.whole, layout.potentials, message, RUNNING)
        assert [total(layout, values) for values in picks] == before
        after = kernels.bound(layout.whole, layout.potentials)
        assert max(before) <= after
        bound = min(bound, after)
    assert bound < 1 << 24


def test_a_forbidden_entry_stays_forbidden():
    layout = instance(3, hard=0.6)
    scratch = scratch_of(layout)
    before = layout.potentials.pair < FORBIDDEN_BELOW
    for step in range(20):
        rows.sweep(layout.whole, layout.potentials, step % 2 == 0, EXACT, scratch, RUNNING)
        after = layout.potentials.pair < FORBIDDEN_BELOW
        assert (after | ~before).all()
        before = after


def test_a_pass_that_leaves_the_range_ends_and_changes_no_utility():
    layout = instance(1, hard=0.0)
    picks = [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1)]
    layout.potentials.triangle[0, 0, :2, :2] = MAX_MAGNITUDE - 1  # as a long drift could make it
    layout.potentials.triangle[0, 1, :2, :2] = MAX_MAGNITUDE - 1
    before = [total(layout, values) for values in picks]
    assert not rows.sweep(layout.whole, layout.potentials, True, EXACT, scratch_of(layout), RUNNING)
    assert [total(layout, values) for values in picks] == before


def test_conditioning_on_the_interface_keeps_all_utilities():
    layout = instance(2)
    hidden, shares = layout.hidden, layout.potentials
    rows.ascend(layout.whole, shares, 0, 3, np.float32(50), 0, 3, scratch_of(layout), RUNNING)
    conditioned = type(shares)(
        np.empty_like(shares.unary[:4]),
        np.empty_like(shares.pair[: hidden.pairs.shape[0]]),
        np.empty_like(shares.triangle[: hidden.triangles.shape[0]]),
        np.empty(int(hidden.entry_start[-1]), dtype=np.int32),
    )
    graphs = layout.row_graphs
    remaining = layout.__class__(hidden, hidden, conditioned, 4, layout.scale, layout.sliced_factors)
    rng = np.random.default_rng(0)
    for b in range(layout.whole.domains[4]):
        constant, fits = rows.condition(graphs, shares, conditioned, np.array([b]))
        assert fits
        for _ in range(20):
            values = tuple(int(rng.integers(0, d)) for d in hidden.domains)
            whole = total(layout, (*values, b))
            assert whole == -INFINITY if constant == MINUS_INFINITY else whole == total(remaining, values) + constant


@pytest.mark.parametrize("entries", [[1, 2, -3], [2**60, -(2**60)], [0.1, -2.5e9], [1e-300, 3e-300], [0, 0]])
def test_scaling_rounds_up_and_converts_back_to_an_upper_bound(entries):
    table = Factor.of((0,), [*entries, -INFINITY])
    scale, (scaled,) = quantise([table])
    assert scaled[-1] == FORBIDDEN
    for given, coded in zip(entries, scaled.tolist(), strict=False):
        assert given <= scale.decode(coded) <= max(scale.ceiling, given)
        assert coded >= scale.encode(given)
        assert scale.decode(scale.encode_up(given)) >= given
    assert scale.decode(MINUS_INFINITY) == -INFINITY
