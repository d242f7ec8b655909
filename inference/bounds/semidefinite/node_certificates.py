"""Exact bounds of many nodes at once in integers, for any array library; they equal those of ``certificate``.

A node is a row of an agent (an assignment of its boundary variables) with the values that each hidden variable may
take. Its bound is a constant, plus the squared norm of the row's factor vector, plus the maxima of its unary and
pairwise tables. Vectors and messages are rounded to integers with ``bits`` and 2 ``bits`` fraction bits. Sums of
products of integer vectors stay below 2^50 in any order of addition, so float64 holds them exactly on any device. All
other numbers are int64.
"""

from typing import Any, NamedTuple

import numpy as np

from dmcmc.inference.bounds.branch_and_bound.bounder import OUT_OF_RANGE
from dmcmc.inference.bounds.dual.integer_scaling import MINUS_INFINITY
from dmcmc.inference.bounds.dual.tables.entry_values import FORBIDDEN_BELOW
from dmcmc.inference.bounds.semidefinite.certificate import fraction_bits_for
from dmcmc.inference.bounds.semidefinite.node_batch import RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_steps import ExactInputs, NodeShape
from dmcmc.inference.runtime.types import Floats, Ints

_PAIR_TABLE_BYTES = 1 << 28  # pairwise products of the nodes certified together, about; 256 MiB
_PARTS_PER_BATCH = 2  # parts in which a batch is certified, at most


class Certificates(NamedTuple):
    """Exact bounds of nodes, and how far their values lie below the best ones.

    Attributes
    ----------
    bounds : (k,) int64
        Upper bounds in the agents' scales, rounded up; ``MINUS_INFINITY`` for a node that is proven infeasible, and
        ``OUT_OF_RANGE`` for a node whose numbers are too large.
    gaps : (k, h, d) float64
        Maximum of each variable's unary table minus the entry of each value, in the scale; infinite for forbidden
        values.
    """

    bounds: Ints
    gaps: Floats


def certificates(batch: RowNodeBatch) -> Certificates:
    """Return the exact bounds of a batch's best points."""
    count, nodes_at_once = batch.starts.rows.size, _nodes_at_once(batch.shape)
    parts = [
        _certify_part(batch, slice(first, min(first + nodes_at_once, count)))
        for first in range(0, count, nodes_at_once)
    ]
    return Certificates(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def certificate_bytes(shape: NodeShape) -> int:
    """Return the estimated bytes of workspace of the certificates of a batch.

    Per node: products in float64, two float64 copies of the vectors, and four arrays of the size of the messages.
    """
    return _nodes_at_once(shape) * (8 * shape.m**2 + 16 * shape.m * shape.r + 32 * shape.h * shape.n)


def _nodes_at_once(shape: NodeShape) -> int:
    """Return the number of nodes that are certified together."""
    return max(1, _PAIR_TABLE_BYTES // (8 * shape.m**2), -(-shape.nodes // _PARTS_PER_BATCH))


def _certify_part(batch: RowNodeBatch, part: slice) -> Certificates:
    """Return the certificates of some nodes of a batch."""
    buffers, arrays, put = batch.buffers, batch.buffers.arrays, batch.buffers.arrays.put
    xp, n = arrays.module, batch.shape.n
    units, exists = buffers.units[batch.starts.agents[part]], batch.exists[part]
    points, float_messages = (best[part] for best in batch.steps.best)
    longest_norms = xp.sqrt((points * points).sum(axis=2, dtype=np.float64).max(axis=1) * put(units))
    largest_messages = xp.abs(float_messages).reshape(len(units), -1).max(axis=1).astype(np.float64) * put(units)
    sizes = zip(
        arrays.get(longest_norms).tolist(),
        arrays.get(largest_messages).tolist(),
        exists.sum(axis=1).tolist(),
        strict=True,
    )
    bits_or_none = [fraction_bits_for(*node_sizes) for node_sizes in sizes]
    bits = np.array([0 if node_bits is None else node_bits for node_bits in bits_or_none], dtype=np.int64)
    if any(node_bits is None for node_bits in bits_or_none):  # other numbers may be too large for an integer
        usable = put(np.array([node_bits is not None for node_bits in bits_or_none]))[:, None, None]
        points, float_messages = xp.where(usable, points, 0.0), xp.where(usable, float_messages, 0.0)

    vectors = points.astype(np.float64)
    vectors *= put(np.sqrt(units) * np.ldexp(1.0, bits))[:, None, None]
    xp.rint(vectors, out=vectors)
    messages = xp.rint(float_messages * put(units * np.ldexp(1.0, 2 * bits))[:, None, None]).astype(np.int64)
    products = arrays.exact_products(vectors)
    pair_sums = _pair_maxima_sums(batch, part, products, messages, bits)
    unary_maxima, gaps = map(arrays.get, _unary_maxima(batch, part, products, messages, bits))
    row_norms, constants = arrays.get(products[:, n, n]).astype(np.int64), batch.constants[part]
    infeasible = (
        (exists & (unary_maxima == MINUS_INFINITY)).any(axis=1)
        | (constants < FORBIDDEN_BELOW)
        | (pair_sums == MINUS_INFINITY)
    )
    scaled_bounds = (
        (np.where(infeasible, 0, constants) << 2 * bits)
        + row_norms
        + np.where(exists, unary_maxima, 0).sum(axis=1)
        + pair_sums
    )
    # division by 4^bits, rounded up
    bounds = np.where(infeasible, MINUS_INFINITY, -(-scaled_bounds >> 2 * bits))
    is_exact = np.array([node_bits is not None for node_bits in bits_or_none])
    return Certificates(np.where(is_exact, bounds, OUT_OF_RANGE), np.ldexp(gaps, -2 * bits[:, None, None]))


def _unary_maxima(batch: RowNodeBatch, part: slice, products: Any, messages: Any, bits: Ints) -> tuple[Any, Any]:
    """Return the maxima of the unary tables, (nodes, h) int64, in multiples of 4^-bits of a utility, and the gaps.

    The maximum is ``MINUS_INFINITY`` for a variable without an allowed value. The gaps, (nodes, h, d) float64, are the
    maxima minus the entries.

    Parameters
    ----------
    part : slice
        The nodes of the batch.
    products : (nodes, m, m) float64
        Gram matrices of the rounded vectors: integers in multiples of 4^-bits.
    messages : (nodes, h, n) int64
        Rounded messages in multiples of 4^-bits.
    bits : (nodes,) int64
        Fraction bits of a vector component.
    """
    xp, put, values = batch.buffers.arrays.module, batch.buffers.arrays.put, batch.values[part]
    (n_nodes, h, d, _), n, m = batch.shape._replace(nodes=len(bits)), batch.shape.n, batch.shape.m
    entries = values * put(np.left_shift(np.int64(1), 2 * bits))[:, None] + messages.sum(axis=1)
    # squared norms (the diagonal), and twice the products with the row's vector, which is number n
    term_values = products.reshape(n_nodes, -1)[:, :: m + 1][:, :n] + 2 * products[:, n, :n]
    entries += term_values.astype(np.int64)
    forbidden, entries = (values < FORBIDDEN_BELOW).reshape(n_nodes, h, d), entries.reshape(n_nodes, h, d)
    maxima = xp.where(forbidden, np.int64(MINUS_INFINITY), entries).max(axis=2)
    return maxima, xp.where(forbidden, np.inf, (maxima[:, :, None] - entries).astype(np.float64))


def _pair_maxima_sums(batch: RowNodeBatch, part: slice, products: Any, messages: Any, bits: Ints) -> Ints:
    """Return the sums of the maxima of the pairwise tables, (nodes,) int64, in multiples of 4^-bits of a utility.

    A sum is ``MINUS_INFINITY`` if a table has no allowed entry. Parameters are those of ``_unary_maxima``.
    """
    arrays, agents = batch.buffers.arrays, batch.starts.agents[part].astype(np.int32)
    put = arrays.put
    given = ExactInputs(batch.buffers.pairs, put(agents), products, messages, put(batch.sizes[part]), put(bits))
    return arrays.maxima_sums(given, batch.shape._replace(nodes=len(agents)))
