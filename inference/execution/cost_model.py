"""Estimated costs of work, used to decide where it runs and how much fits the time; one constant per operation."""

from dataclasses import dataclass

from dmcmc.inference.elimination.cuda.bucket_group_kernels import best_threshold
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.execution import tuning


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
