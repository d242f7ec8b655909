"""Load the code of GPU eliminations: the GPU kernels and the CPU kernels that write their descriptors.

Which kernels a plan uses is known only when its buckets are described. All kernels are therefore compiled or read from
the disk cache; the CPU kernels are loaded by tiny eliminations.
"""

from typing import Any

import numpy as np

from dmcmc.inference.elimination.cuda.bucket_group_kernels import best_threshold
from dmcmc.inference.elimination.cuda.eliminate import divide_work
from dmcmc.inference.elimination.eliminate import merge_plans
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.execution.cost_model import COSTS
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic
from dmcmc.inference.model.cuda import device_table
from dmcmc.inference.model.flat_tables import flatten

_SCOPES = [(0, 1), (0, 2), (1, 2)]
_DOMAINS = np.full(3, 2)


def load_joins(dtype: np.dtype[Any]) -> None:
    """Load the code of exact eliminations on a GPU for a number type."""
    from dmcmc.inference.elimination.cuda.eliminate import eliminate_batch
    from dmcmc.inference.elimination.cuda.waves import load_kernels

    load_kernels(dtype, MAX_PLUS.operation)
    device_table.load_kernels(dtype)
    arithmetic, plan = _arithmetic(dtype), plan_elimination(_SCOPES, _DOMAINS, [0, 1], [2])
    plans, program = [plan, plan], plan.program
    merged = merge_plans(plans)
    best_threshold(
        program.variable, program.input_start, program.inputs, program.cells, plan.tables - plan.buckets,
        np.zeros(1, dtype=np.int64), COSTS.seconds_per_cell, COSTS.seconds_per_wave,
    )  # fmt: skip
    flat = flatten(2 * _SCOPES, 2 * _tables(dtype), dtype)
    for done in eliminate_batch(flat, plans, merged, divide_work(merged.plan, 1), arithmetic):
        done.remaining()
        done.choose(np.zeros(_DOMAINS.size, dtype=np.int64))


def load_matched(dtype: np.dtype[Any]) -> None:
    """Load the code of mini-bucket eliminations with moment matching on a GPU for a number type."""
    from dmcmc.inference.minibuckets.cuda.moment_matching import eliminate_matched_hybrid, load_kernels

    load_joins(dtype)
    load_kernels(dtype)
    plan = plan_mini_buckets(_SCOPES, _DOMAINS, [0, 1, 2], [], 1, True)
    flat = flatten(_SCOPES, _tables(dtype), dtype)
    eliminate_matched_hybrid(flat, plan, divide_work(plan, 1), _arithmetic(dtype))


def _tables(dtype: np.dtype[Any]) -> list[Any]:
    """Return tables of ones over the example scopes."""
    return [np.ones((2, 2), dtype=dtype)] * len(_SCOPES)


def _arithmetic(dtype: np.dtype[Any]) -> Arithmetic:
    """Return an arithmetic with this dtype."""
    lowest = int(np.iinfo(dtype).min) // ADDENDS if dtype.kind == "i" else -np.inf
    # 8: an upper bound on every sum of the example tables, which hold ones
    return Arithmetic(dtype, lowest, 8)
