"""Read the best assignment back from the inputs of all buckets."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.query import EliminationQuery
from dmcmc.inference.runtime.types import Number
from dmcmc.inference.sparse.join_steps import BucketInput
from dmcmc.inference.sparse.sparse_table import SparseTable


def read_back(query: EliminationQuery, inputs: Sequence[Sequence[BucketInput]]) -> NDArray[np.int64]:
    """Return the best values, last bucket first; ties go to the lowest value."""
    values: dict[int, int] = {}
    for b in reversed(range(len(query.order))):
        variable, best = query.order[b], None
        for x in range(int(query.domains[variable])):
            values[variable] = x
            utility = _utility(query, inputs[b], values)
            if utility is not None and (best is None or utility > best[0]):
                best = utility, x
        values[variable] = 0 if best is None else best[1]
    assignment = np.zeros(query.domains.size, dtype=np.int64)
    assignment[list(values)] = list(values.values())
    return assignment


def _utility(query: EliminationQuery, inputs: Sequence[BucketInput], values: Mapping[int, int]) -> Number | None:
    """Return the sum of a bucket's tables for an assignment; None for −∞."""
    total: Number = 0
    for bucket_input in inputs:
        if isinstance(bucket_input.table, SparseTable):
            entry = bucket_input.table.entry(values, query.domains)
        else:
            entry = bucket_input.table.values[tuple(values[v] for v in bucket_input.scope)].item()
        if entry is None or query.arithmetic.is_lowest(entry):
            return None
        total += entry
    return total
