"""Passes of dual ascent: they are what they say, entry by entry, and never change a sum."""

import numpy as np
import pytest
from support.naive import INFINITY
from support.problem_strategies import random_table

from dmcmc import Factor
from dmcmc.inference.bounds.dual import higher_order_kernels, smoothed_triangle_kernels, triangle_kernels
from dmcmc.inference.bounds.dual import pair_kernels as kernels
from dmcmc.inference.bounds.dual import row_kernels as rows
from dmcmc.inference.bounds.dual.graph import lay_out
from dmcmc.inference.bounds.dual.integer_scaling import NEVER, quantise
from dmcmc.inference.bounds.dual.tables import product_kernels
from dmcmc.inference.bounds.dual.tables.entry_values import DEAD, LIMIT, THRESHOLD
from dmcmc.inference.dpop.division import LocalProblem

RUNNING = np.zeros(1, dtype=np.uint8)
COLD = np.float32(0)


def plain(table):
    """Entries as Python numbers."""
    out = np.array(table, dtype=object)
    out[np.asarray(table) < THRESHOLD] = -INFINITY
    return out


def instance(seed, hard=0.15):
    """A layout with triangles and a star, over domains of 2 to 9."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(2, 10, 5)
    scopes = [(0, 1), (2, 0), (1, 2), (2, 3), (1, 3), (3, 4), (4,), (0, 2, 4)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[list(s)]), 99, hard)) for s in scopes]
    return lay_out(LocalProblem(0, (4,), (0, 1, 2, 3), tuple(factors), domains.astype(np.int64)), True)


def total(layout, values):
    """The sum of all entries that an assignment picks."""
    graph, shares = layout.whole, layout.shares
    found = [plain(shares.unary[v, x]).item() for v, x in enumerate(values)]
    found += [plain(shares.pair[e, values[a], values[b]]).item() for e, (a, b) in enumerate(graph.pairs)]
    for t, (a, b, c) in enumerate(graph.corners):
        for k, (u, v) in enumerate(((a, b), (a, c), (b, c))):
            found.append(plain(shares.cluster[t, k, values[u], values[v]]).item())
    for s in range(graph.star_at.size - 1):
        scope = graph.star_scope[graph.star_start[s] : graph.star_start[s + 1]]
        entries = shares.star[graph.star_at[s] : graph.star_at[s + 1]].reshape(graph.domains[scope])
        found.append(plain(entries[tuple(values[v] for v in scope)]).item())
    return sum(found)


def scratch_of(layout):
    width = layout.shares.unary.shape[1]
    return np.zeros((smoothed_triangle_kernels.SCRATCH, width, width), dtype=np.int32)


SIZES = pytest.mark.parametrize("rows_, inner, columns", [(8, 8, 8), (16, 8, 24), (24, 24, 16), (8, 5, 40), (8, 1, 8)])


@SIZES
def test_max_plus_is_the_product_of_tropical_matrices(rows_, inner, columns):
    rng = np.random.default_rng(rows_)
    left, right = (rng.integers(-99, 99, (48, 48), dtype=np.int32) for _ in range(2))
    left[rng.random(left.shape) < 0.2], right[rng.random(right.shape) < 0.2] = DEAD, DEAD
    left[0] = right[:, 0] = DEAD
    out = np.full((48, 48), 7, dtype=np.int32)
    product_kernels.max_plus(left, right, out, rows_, inner, columns)
    expected = (left[:rows_, :inner, None].astype(np.int64) + right[None, :inner, :columns]).max(axis=1)
    assert (out[:rows_, :columns] == np.maximum(expected, DEAD)).all()
    out[:rows_, :columns] = 7
    assert (out == 7).all()


@SIZES
def test_plus_times_is_the_product_of_matrices_summed_in_order(rows_, inner, columns):
    rng = np.random.default_rng(rows_)
    left, right = (rng.random((48, 48), dtype=np.float32) for _ in range(2))
    out = np.zeros((48, 48), dtype=np.float32)
    product_kernels.plus_times(left, right, out, rows_, inner, columns)
    expected = np.zeros((rows_, columns), dtype=np.float32)
    for k in range(inner):
        expected += left[:rows_, k, None] * right[None, k, :columns]
    assert (out[:rows_, :columns] == expected).all() and not out[rows_:].any() and not out[:, columns:].any()


@pytest.mark.parametrize("seed", range(5))
def test_a_triangle_hands_back_a_third_half_and_all_of_its_max_marginals(seed):
    layout = instance(seed)
    graph, shares = layout.whole, layout.shares
    pairs = [plain(t) for t in shares.pair]
    clusters = [[plain(t) for t in three] for three in shares.cluster]
    assert triangle_kernels.triangle_pass(graph, shares, COLD, scratch_of(layout), RUNNING)
    for t, three in enumerate(graph.triangles):
        for k in range(3):
            clusters[t][k] = clusters[t][k] + pairs[three[k]]
        for k, weight in enumerate((1 / 3, 1 / 2, 1)):
            ab, ac, bc = clusters[t]
            joint = ab[:, :, None] + ac[:, None, :] + bc[None]
            marginal = joint.max(axis=2 - k)
            dead = marginal == -INFINITY
            share = np.where(dead, 0, marginal)
            share = share if weight == 1 else (share.astype(np.float32) * np.float32(weight)).astype(int).astype(object)
            clusters[t][k] = np.where(dead, -INFINITY, clusters[t][k] - share)
            pairs[three[k]] = np.where(dead, -INFINITY, share)
    for e, expected in enumerate(pairs):
        assert (plain(shares.pair[e]) == expected).all()
    for t, three in enumerate(clusters):
        for k in range(3):
            assert (plain(shares.cluster[t, k]) == three[k]).all()


@pytest.mark.parametrize("temperature", [COLD, np.float32(3e3), np.float32(1e6)])
@pytest.mark.parametrize("seed", range(8))
def test_no_pass_changes_the_sum_of_an_assignment_that_is_alive(seed, temperature):
    layout = instance(seed)
    rng = np.random.default_rng(seed)
    picks = [tuple(int(rng.integers(0, d)) for d in layout.whole.domains) for _ in range(60)]
    before = [total(layout, values) for values in picks]
    scratch, message = scratch_of(layout), np.zeros(layout.shares.unary.shape[1], dtype=np.int32)
    bound = kernels.bound(layout.whole, layout.shares)
    for step in range(6):
        assert rows.sweep(layout.whole, layout.shares, step % 2 == 0, temperature, scratch, RUNNING)
        triangle_kernels.recentre(layout.whole, layout.shares)
        assert higher_order_kernels.star_pass(layout.whole, layout.shares, message, RUNNING)
        assert [total(layout, values) for values in picks] == before
        after = kernels.bound(layout.whole, layout.shares)
        assert max(before) <= after
        bound = min(bound, after)
    assert bound < 1 << 24


def test_a_dead_entry_never_comes_back():
    layout = instance(3, hard=0.6)
    scratch = scratch_of(layout)
    dead = layout.shares.pair < THRESHOLD
    for step in range(20):
        rows.sweep(layout.whole, layout.shares, step % 2 == 0, COLD, scratch, RUNNING)
        now = layout.shares.pair < THRESHOLD
        assert (now | ~dead).all()
        dead = now


def test_a_pass_that_leaves_the_limits_ends_and_changes_no_sum():
    layout = instance(1, hard=0.0)
    picks = [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1)]
    layout.shares.cluster[0, 0, :2, :2] = LIMIT - 1  # what a long drift might have made of it
    layout.shares.cluster[0, 1, :2, :2] = LIMIT - 1
    before = [total(layout, values) for values in picks]
    assert not rows.sweep(layout.whole, layout.shares, True, COLD, scratch_of(layout), RUNNING)
    assert [total(layout, values) for values in picks] == before


def test_fixing_the_interface_leaves_what_belongs_to_it():
    layout = instance(2)
    hidden, shares = layout.hidden, layout.shares
    rows.ascend(layout.whole, shares, 0, 3, np.float32(50), 0, 3, scratch_of(layout), RUNNING)
    part = type(shares)(
        np.empty_like(shares.unary[:4]),
        np.empty_like(shares.pair[: hidden.pairs.shape[0]]),
        np.empty_like(shares.cluster[: hidden.triangles.shape[0]]),
        np.empty(int(hidden.star_at[-1]), dtype=np.int32),
    )
    rest = layout.__class__(hidden, hidden, part, 4, layout.scale, layout.slices)
    rng = np.random.default_rng(0)
    for b in range(layout.whole.domains[4]):
        constant, fits = rows.fix(layout.whole, shares, hidden, part, layout.slices, np.array([b]))
        assert fits
        for _ in range(20):
            values = tuple(int(rng.integers(0, d)) for d in hidden.domains)
            whole = total(layout, (*values, b))
            assert whole == -INFINITY if constant == NEVER else whole == total(rest, values) + constant


@pytest.mark.parametrize("entries", [[1, 2, -3], [2**60, -(2**60)], [0.1, -2.5e9], [1e-300, 3e-300], [0, 0]])
def test_scaling_rounds_up_and_back_to_no_less(entries):
    table = Factor.of((0,), [*entries, -INFINITY])
    scale, (scaled,) = quantise([table])
    assert scaled[-1] == DEAD
    for given, coded in zip(entries, scaled.tolist(), strict=False):
        assert given <= scale.decode(coded) <= max(scale.ceiling, given)
        assert coded >= scale.encode(given)
        assert scale.decode(scale.encode_up(given)) >= given
    assert scale.decode(NEVER) == -INFINITY
