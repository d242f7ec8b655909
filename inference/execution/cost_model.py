"""What work costs on a CPU and on a GPU, and loading the code of a GPU.

Estimated costs of work, used to decide where it runs and how much fits the time; one constant per operation.

Load the code of GPU eliminations: the GPU kernels and the CPU kernels that write their descriptors.

Which kernels a plan uses is known only when its buckets are described. All kernels are therefore compiled or read from
the disk cache; the CPU kernels are loaded by tiny eliminations.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dmcmc.inference import tuning
from dmcmc.inference.elimination.cuda import waves
from dmcmc.inference.elimination.cuda.eliminate import divide_work, eliminate_batch
from dmcmc.inference.elimination.cuda.join_kernels import best_threshold
from dmcmc.inference.elimination.eliminate import merge_plans
from dmcmc.inference.elimination.plan import EliminationPlan, plan_elimination
from dmcmc.inference.elimination.semirings import MAX_PLUS
from dmcmc.inference.minibuckets.cuda import moment_matching
from dmcmc.inference.minibuckets.plan import plan_mini_buckets
from dmcmc.inference.model import device_table
from dmcmc.inference.model.arithmetic import ADDENDS, Arithmetic
from dmcmc.inference.model.flat_tables import flatten


@dataclass(frozen=True)
class CostModel:
    """Cost constants of an H200 GPU and of one core of an x86-64 server (``benchmarks/solving/gpu_rates.py``).

    A joined cell is one entry of the joined table of a bucket; elimination adds up all tables of the bucket for it.

    Attributes
    ----------
    seconds_per_cell : float
        Seconds per joined cell on one core.
    seconds_per_draw : float
        Seconds per draw of a sampler on one core.
    gpu_round_trip : float
        Seconds for the copies to the GPU and back.
    seconds_per_wave : float
        Seconds for the launches of one wave: the buckets of an elimination that do not depend on each other.
    gpu_start : float
        Seconds to open a GPU and load the kernels.
    min_bound_starts, min_bound_round_trips : float
        Multiples of ``gpu_start`` and ``gpu_round_trip`` from which bounds of one core are computed on the GPU.
    seconds_per_matched_bucket : float
        Seconds per mini-bucket with moment matching on the GPU: launches, and copies to the host and back.
    seconds_per_bound_cell : float
        Seconds per joined cell of the mini-bucket bound on one core: with moment matching, in 64 bits.
    joined_cells_per_second : float
        Joined cells per second of one thread in UTIL steps.
    """

    seconds_per_cell: float = tuning.SECONDS_PER_CELL
    seconds_per_draw: float = tuning.SECONDS_PER_DRAW
    gpu_round_trip: float = tuning.GPU_ROUND_TRIP
    seconds_per_wave: float = tuning.SECONDS_PER_WAVE
    gpu_start: float = tuning.GPU_START
    min_bound_starts: float = tuning.MIN_BOUND_STARTS
    min_bound_round_trips: float = tuning.MIN_BOUND_ROUND_TRIPS
    seconds_per_matched_bucket: float = tuning.SECONDS_PER_MATCHED_BUCKET
    seconds_per_bound_cell: float = tuning.SECONDS_PER_BOUND_CELL
    joined_cells_per_second: float = tuning.CELLS_PER_SECOND


COSTS = CostModel()


def best_division(plan: EliminationPlan) -> tuple[int, float]:
    """Return the joined cells from which buckets should run on a GPU, and the estimated seconds of the elimination.

    Parameters
    ----------
    plan : EliminationPlan
        The plan of the elimination.
    """
    program = plan.program
    threshold, seconds = best_threshold(
        program.variable, program.input_start, program.inputs, program.cells, plan.tables - plan.buckets,
        tuning.GPU_THRESHOLDS, COSTS.seconds_per_cell, COSTS.seconds_per_wave,
    )  # fmt: skip
    return int(threshold), float(seconds)


_SCOPES = [(0, 1), (0, 2), (1, 2)]
_DOMAINS = np.full(3, 2)


def load_joins(dtype: np.dtype[Any]) -> None:
    """Load the code of exact eliminations on a GPU for a number type."""
    waves.load_kernels(dtype, MAX_PLUS.operation)
    device_table.load_kernels(dtype)
    arithmetic, plan = _arithmetic(dtype), plan_elimination(_SCOPES, _DOMAINS, [0, 1], [2])
    best_division(plan)
    plans = [plan, plan]
    merged = merge_plans(plans)
    flat = flatten(2 * _SCOPES, 2 * _tables(dtype), dtype)
    for done in eliminate_batch(flat, plans, merged, divide_work(merged.plan, 1), arithmetic):
        done.remaining()
        done.choose(np.zeros(_DOMAINS.size, dtype=np.int64))


def load_matched(dtype: np.dtype[Any]) -> None:
    """Load the code of mini-bucket eliminations with moment matching on a GPU for a number type."""
    load_joins(dtype)
    moment_matching.load_kernels(dtype)
    plan = plan_mini_buckets(_SCOPES, _DOMAINS, [0, 1, 2], [], 1, True)
    flat = flatten(_SCOPES, _tables(dtype), dtype)
    moment_matching.eliminate_matched_hybrid(flat, plan, divide_work(plan, 1), _arithmetic(dtype))


def _tables(dtype: np.dtype[Any]) -> list[Any]:
    """Return tables of ones over the example scopes."""
    return [np.ones((2, 2), dtype=dtype)] * len(_SCOPES)


def _arithmetic(dtype: np.dtype[Any]) -> Arithmetic:
    """Return an arithmetic with this dtype."""
    lowest = int(np.iinfo(dtype).min) // ADDENDS if dtype.kind == "i" else -np.inf
    # 8: an upper bound on every sum of the example tables, which hold ones
    return Arithmetic(dtype, lowest, 8)
