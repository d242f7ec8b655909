"""What work costs, by which it is placed and cut to the time: one table of prices, each with its unit."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Prices; those of a GPU are an H200's, those of a core an x86-64 server's (``benchmarks/solving/gpu_rates.py``).

    Attributes
    ----------
    cell : float
        Seconds of a joined cell on one core.
    update : float
        Seconds of a draw on one core.
    trip : float
        Seconds of the copies to the GPU and back.
    wave : float
        Seconds of a wave's launches.
    opening : float
        Seconds to open a GPU and load the kernels.
    matched : float
        Seconds of a mini-bucket with moment matching on the GPU: launches, and copies to the host and back.
    bound_cell : float
        Seconds of a joined cell of the provider mini-bucket on one core: with moment matching, in 64 bits.
    settled : float
        Cells a second that a thread eliminates of what pruning has left of rows.
    joined : float
        Cells a second that a thread joins in UTIL steps.
    """

    cell: float = 0.7e-9
    update: float = 5e-8
    trip: float = 9e-4
    wave: float = 7e-5
    opening: float = 1.0
    matched: float = 2.5e-4
    bound_cell: float = 1.2e-9
    settled: float = 5e8
    joined: float = 3e8


COSTS = Costs()
