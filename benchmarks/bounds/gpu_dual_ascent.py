"""Measure dual ascent of all agents on a GPU: milliseconds per sweep compared with CPU cores, and equality.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.gpu_dual_ascent [--only NAME] [--output FILE]

FOLDER holds meetings/. ``free`` is a sweep over the graphs of all agents with free boundary variables, ``rows`` one
for each of their rows. Both are slopes between few and many sweeps, so that launches and copies do not count.
``first`` is the time to a first bound: set-up, upload, 30 sweeps with a free boundary and 3 of every row. ``T/s`` are
10^12 additions and maxima per second in the triangles' max-plus products (an H200 can issue about 16.7 T/s).
``differ`` counts bounds and table entries that differ from those of the CPU after the same sweeps. Bounds are sums
over agents of their best rows: estimates, not proofs.
"""

import sys
from collections.abc import Callable

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options, timed
from dmcmc.inference.bounds.dual.cuda.device_ascent import fits_gpu, place_on_device
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.threads import cores

NAMES = (
    "ms_A10_n10_D24", "ms_A50_n10_D24", "ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24",
    "ms_A10_n10_D96", "mu_A10_n10_D96",
)  # fmt: skip
# sweeps of the two measurements whose difference is reported
FEW_SWEEPS = 2
MANY_SWEEPS = 12
FIRST_SWEEPS = 30  # sweeps with a free boundary before the first sweep of rows


def products(states: list[DualState], rows: bool) -> float:
    """Return the number of additions and maxima in the max-plus products of one sweep."""
    total = 0.0
    for state in states:
        graph = state.layout.hidden if rows else state.layout.whole
        corners = graph.widths[graph.corners].astype(float)
        total += 3 * corners.prod(axis=1).sum() * (state.bounds.size if rows else 1)
    return total


class GpuAscent:
    """The states of all agents on the device.

    Attributes
    ----------
    states : list of DualState
        One per agent.
    batch : DeviceDualAscent
        Their arrays on the device.
    rows : list of ndarray of int64, shape (rows,)
        The numbers of all rows of each agent.
    """

    def __init__(self, local_problems: tuple[LocalProblem, ...]) -> None:
        self.states = [DualState(local, triangles=True) for local in local_problems]
        self.batch = place_on_device(self.states)[0].group
        self.rows = [np.arange(state.bounds.size) for state in self.states]

    def shift(self, sweeps: int) -> None:
        """Make some sweeps with a free boundary."""
        before = [state.sweeps_done for state in self.states]
        totals = self.batch.sweep_whole(range(len(before)), before, [x + sweeps for x in before])
        for state, last in zip(self.states, totals, strict=True):
            state.record_device_sweeps(last, True)

    def run(self, sweeps: int) -> None:
        """Make some sweeps of every row."""
        found = self.batch.bound_rows(range(len(self.rows)), self.rows, sweeps, [None] * len(self.rows))
        for state, bounds in zip(self.states, found, strict=True):
            state.bounds[:] = np.minimum(state.bounds, bounds)


def once(work: Callable[[], object], times: int = 1) -> float:
    """Return the least seconds of some calls, the first one included."""
    return timed(work, times, untimed=0)[1].least


def measure(name: str, report: Callable[[str], None]) -> None:
    """Measure one problem."""
    local_problems = tuple(divide(dmcmc.load(meeting(name))).locals)
    gpu = GpuAscent(local_problems)
    if not all(map(fits_gpu, gpu.states)):
        report(f"{name}: does not fit the GPU")
        return
    gpu.shift(FIRST_SWEEPS - 1)
    gpu.run(FEW_SWEEPS)
    threads = cores()
    cpu = [DualState(local, True, Backend(threads=threads)) for local in local_problems]

    def shift() -> None:
        for state in cpu:
            state._sweep_whole(FIRST_SWEEPS - 1)

    cpu_free = once(shift) / (FIRST_SWEEPS - 1)
    pairs = list(zip(cpu, gpu.rows, strict=True))

    def bound_rows() -> None:
        for state, rows in pairs:
            state._bound_rows(rows, FEW_SWEEPS, None)

    cpu_rows = once(bound_rows) / (FEW_SWEEPS + 0.5)
    differ = sum(int((a.bounds != b.bounds).sum()) for a, b in zip(cpu, gpu.states, strict=True))
    differ += sum(int((x != y).sum()) for a, b in zip(cpu, gpu.states, strict=True)
                  for x, y in zip(a.potentials, b.potentials, strict=True))  # fmt: skip
    entries = sum(part.size for state in cpu for part in state.potentials)
    shared_device().synchronize()
    rows = (once(lambda: gpu.run(MANY_SWEEPS), 3) - once(lambda: gpu.run(FEW_SWEEPS), 3)) / (MANY_SWEEPS - FEW_SWEEPS)
    few_free = once(lambda: gpu.shift(FEW_SWEEPS))
    free = (once(lambda: gpu.shift(MANY_SWEEPS)) - few_free) / (MANY_SWEEPS - FEW_SWEEPS)

    def first() -> None:
        fresh = GpuAscent(local_problems)
        fresh.shift(FIRST_SWEEPS - 1)
        fresh.run(3)

    first_seconds = once(first, 2)
    row_rate = products(gpu.states, True) / rows / 1e12
    free_rate = products(gpu.states, False) / free / 1e12
    bound = sum(state.layout.scale.decode(int(state.bounds.max())) for state in gpu.states)
    report(
        f"{name:<15} free {1e3 * free:8.3f} ms ({free_rate:5.2f} T/s; {cpu_free / free:6.1f} x one core)"
        f"  rows {1e3 * rows:8.3f} ms ({row_rate:5.2f} T/s; {cpu_rows / rows:6.1f} x {threads} threads)"
        f"  first {1e3 * first_seconds:7.1f} ms  differ {differ} of {entries:,}  Σ bounds {bound:g}"
    )


def main() -> None:
    """Measure and print."""
    given = options(__file__, __doc__, only=True).parse_args()
    if gpu_problem() is not None:
        sys.exit(f"no GPU: {gpu_problem()}")
    report = Report(__file__, given, device="cuda")
    for name in NAMES:
        if given.only in name:
            measure(name, report)
            shared_device().release()
    report.keep()


if __name__ == "__main__":
    main()
