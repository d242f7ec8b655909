"""Exact bounds of many nodes at once in integers, for any array library; they equal those of ``certificate``.

A node is a row of an agent (an assignment of its boundary variables) with the values that each hidden variable may
take. Its bound is a constant, plus the squared norm of the row's factor vector, plus the maxima of its unary and
pairwise tables. Vectors and messages are rounded to integers with ``bits`` and 2 ``bits`` fraction bits. Sums of
products of integer vectors stay below 2^50 in any order of addition, so float64 holds them exactly on any device. All
other numbers are int64.
"""

from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.branch_and_bound.bounder import OUT_OF_RANGE
from dmcmc.inference.bounds.dual.integer_scaling import FORBIDDEN_BELOW, MINUS_INFINITY
from dmcmc.inference.bounds.semidefinite.agent_buffers import CpuArrays, distinct_pairs
from dmcmc.inference.bounds.semidefinite.certificate import fraction_bits_for
from dmcmc.inference.bounds.semidefinite.node_batch import RowNodeBatch
from dmcmc.inference.bounds.semidefinite.node_steps import NodeArrays, NodeShape
from dmcmc.inference.runtime.types import Floats, Ints
from dmcmc.inference.tuning import MAX_WORKSPACE_BYTES

_PAIR_ARRAYS = 6  # such arrays of 8 bytes an entry at a time: products, entries, messages and temporary ones


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


class ExactNodes(NamedTuple):
    """Nodes of a batch with their best points; arrays are on the device unless stated otherwise.

    Attributes
    ----------
    arrays : NodeArrays
        The array library.
    shape : NodeShape
        Array sizes.
    pairs : (agents, n, n) int32
        Pairwise utilities in the scale.
    agents : (nodes,) int64, on the host
        Agent of each node.
    units : (nodes,) float64, on the host
        Unit of each node's agent.
    sizes : (nodes, h) int32, on the host
        Domain sizes; 0 for a fixed or padded variable.
    constants : (nodes,) int64, on the host
        Utilities without free variables, in the scale.
    values : (nodes, n) int64
        Unary utilities in the scale.
    vectors : (nodes, m, r) float32
        Factor vectors.
    messages : (nodes, h, n) float32
        Messages.
    """

    arrays: NodeArrays
    shape: NodeShape
    pairs: Any
    agents: Ints
    units: Floats
    sizes: NDArray[np.int32]
    constants: Ints
    values: Any
    vectors: Any
    messages: Any

    @classmethod
    def of(cls, batch: RowNodeBatch, part: slice) -> "ExactNodes":
        """Return some nodes of a batch."""
        buffers, agents = batch.buffers, batch.starts.agents[part]
        parts = batch.sizes[part], batch.constants[part], batch.values[part], *(best[part] for best in batch.steps.best)
        shape = batch.shape._replace(nodes=agents.size)
        return cls(buffers.arrays, shape, buffers.pairs, agents, buffers.units[agents], *parts)

    def on_host(self) -> "ExactNodes":
        """Return a copy in host memory."""
        get = self.arrays.get
        return self._replace(
            arrays=CpuArrays(), pairs=get(self.pairs), values=get(self.values), vectors=get(self.vectors),
            messages=get(self.messages),
        )  # fmt: skip


def certificates(batch: RowNodeBatch, on_host: bool = False) -> Certificates:
    """Return the exact bounds of a batch's best points, computed where the batch lies or on the host."""
    count, nodes_at_once = batch.starts.rows.size, _nodes_at_once(batch.shape)
    chosen = (ExactNodes.of(batch, slice(first, first + nodes_at_once)) for first in range(0, count, nodes_at_once))
    parts = [certify(nodes.on_host() if on_host else nodes) for nodes in chosen]
    return Certificates(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def certificate_bytes(shape: NodeShape) -> int:
    """Return the estimated bytes of workspace of the certificates of a batch.

    Per node: ``_PAIR_ARRAYS``, two float64 copies of the vectors, and four arrays of the size of the messages.
    """
    return _nodes_at_once(shape) * (8 * _PAIR_ARRAYS * shape.m**2 + 16 * shape.m * shape.r + 32 * shape.h * shape.n)


def _nodes_at_once(shape: NodeShape) -> int:
    """Return the number of nodes that are certified together."""
    return max(1, MAX_WORKSPACE_BYTES // (8 * shape.m**2))


def certify(nodes: ExactNodes) -> Certificates:
    """Return the certificates of some nodes."""
    arrays, put, units, exists = nodes.arrays, nodes.arrays.put, nodes.units, nodes.sizes > 0
    xp, n, points, float_messages = arrays.module, nodes.shape.n, nodes.vectors, nodes.messages
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
    products = xp.matmul(vectors, vectors.transpose(0, 2, 1))
    pair_sums = arrays.get(_pair_maxima_sums(nodes, products, messages, bits))
    unary_maxima, gaps = map(arrays.get, _unary_maxima(nodes, products, messages, bits))
    row_norms, constants = arrays.get(products[:, n, n]).astype(np.int64), nodes.constants
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


def _pair_maxima_sums(nodes: ExactNodes, products: Any, messages: Any, bits: Ints) -> Any:
    """Return the sums of the maxima of the pairwise tables, (nodes,) int64, in multiples of 4^-bits of a utility.

    The table of the pair (u, v) has the entries utilities · 4^bits + 2 products - messages of both values. The sum is
    ``MINUS_INFINITY`` if a table has no allowed entry. The parameters are those of ``_unary_maxima``.
    """
    xp, put, (count, h, d, _), n = nodes.arrays.module, nodes.arrays.put, nodes.shape, nodes.shape.n
    utilities = xp.take(nodes.pairs, put(nodes.agents), axis=0)
    entries = products[:, :n, :n].astype(np.int64)
    entries *= 2
    entries += xp.left_shift(utilities.astype(np.int64), put(2 * bits)[:, None, None])
    moved = xp.repeat(messages.transpose(0, 2, 1), d, axis=2)  # from each row's value, in the table with the column's
    entries -= moved
    entries -= moved.transpose(0, 2, 1)
    entries = xp.where(utilities < FORBIDDEN_BELOW, np.int64(MINUS_INFINITY), entries)
    by_variable = entries.reshape(count, h, d, n)
    # slice by slice: array libraries are slow at reductions over an inner axis
    maxima = reduce(xp.maximum, (by_variable[:, :, i] for i in range(d))).reshape(count, h, h, d).max(axis=3)
    is_pair = put(np.triu(distinct_pairs(nodes.sizes > 0)))
    sums = xp.where(is_pair, maxima, np.int64(0)).sum(axis=(1, 2))
    return xp.where((is_pair & (maxima == MINUS_INFINITY)).any(axis=(1, 2)), np.int64(MINUS_INFINITY), sums)


def _unary_maxima(nodes: ExactNodes, products: Any, messages: Any, bits: Ints) -> tuple[Any, Any]:
    """Return the maxima of the unary tables, (nodes, h) int64, in multiples of 4^-bits of a utility, and the gaps.

    The maximum is ``MINUS_INFINITY`` for a variable without an allowed value. The gaps, (nodes, h, d) float64, are the
    maxima minus the entries.

    Parameters
    ----------
    nodes : ExactNodes
    products : (nodes, m, m) float64
        Gram matrices of the rounded vectors: integers in multiples of 4^-bits.
    messages : (nodes, h, n) int64
        Rounded messages in multiples of 4^-bits.
    bits : (nodes,) int64
        Fraction bits of a vector component.
    """
    xp, put, values = nodes.arrays.module, nodes.arrays.put, nodes.values
    (n_nodes, h, d, _), n, m = nodes.shape, nodes.shape.n, nodes.shape.m
    entries = values * put(np.left_shift(np.int64(1), 2 * bits))[:, None] + messages.sum(axis=1)
    # squared norms (the diagonal), and twice the products with the row's vector, which is number n
    term_values = products.reshape(n_nodes, -1)[:, :: m + 1][:, :n] + 2 * products[:, n, :n]
    entries += term_values.astype(np.int64)
    forbidden, entries = (values < FORBIDDEN_BELOW).reshape(n_nodes, h, d), entries.reshape(n_nodes, h, d)
    maxima = xp.where(forbidden, np.int64(MINUS_INFINITY), entries).max(axis=2)
    return maxima, xp.where(forbidden, np.inf, (maxima[:, :, None] - entries).astype(np.float64))
