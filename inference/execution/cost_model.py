"""Estimated costs of work, used to decide where it runs and how much fits the time; one constant per operation."""

from dataclasses import dataclass


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
    seconds_per_matched_bucket : float
        Seconds per mini-bucket with moment matching on the GPU: launches, and copies to the host and back.
    seconds_per_bound_cell : float
        Seconds per joined cell of the mini-bucket bound on one core: with moment matching, in 64 bits.
    joined_cells_per_second : float
        Joined cells per second of one thread in UTIL steps.
    """

    seconds_per_cell: float = 0.7e-9
    seconds_per_draw: float = 5e-8
    gpu_round_trip: float = 9e-4
    seconds_per_wave: float = 7e-5
    gpu_start: float = 1.0
    seconds_per_matched_bucket: float = 2.5e-4
    seconds_per_bound_cell: float = 1.2e-9
    joined_cells_per_second: float = 3e8


COSTS = CostModel()
