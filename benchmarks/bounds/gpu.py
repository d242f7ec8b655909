"""Dual ascent of all agents on a GPU: milliseconds of a sweep, against one core and all cores, and equality.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.gpu [--only NAME] [--output FILE]

FOLDER holds meetings/. `free` is a sweep with the interface free of all agents' graphs, `rows` one of all their rows,
both as the slope between few and many sweeps, so that launches and copies do not count; `first` is what a first bound
takes with them (set-up, upload, 30 sweeps with the interface free and 3 of every row). `T/s` are additions and maxima
of the triangles' max-plus products, of which an H200 can issue about 16.7 T/s. `differ` counts bounds and entries that
are not the CPU's after the same sweeps. Bounds are the sums over agents of their best rows: a quick look, not a proof.
"""

import sys
from collections.abc import Callable

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options, timed
from dmcmc.inference.bounds.dual import provider as dual
from dmcmc.inference.bounds.dual.cuda.device_ascent import places, takes
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.threads import cores

NAMES = (
    "ms_A10_n10_D24", "ms_A50_n10_D24", "ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24",
    "ms_A10_n10_D96", "mu_A10_n10_D96",
)  # fmt: skip
FEW, MANY = 2, 12  # sweeps
START = 30  # sweeps with the interface free before rows are looked at


def products(states: list[DualState], rows: bool) -> float:
    """Return the additions and maxima of a sweep's max-plus products."""
    total = 0.0
    for state in states:
        graph = state.layout.hidden if rows else state.layout.whole
        corners = graph.widths[graph.corners].astype(float)
        total += 3 * corners.prod(axis=1).sum() * (state.bounds.size if rows else 1)
    return total


class OnGpu:
    """All agents' states on the device."""

    def __init__(self, locals_: tuple[LocalProblem, ...]) -> None:
        self.states = [dual.TRIANGLES.start(local) for local in locals_]
        self.batch = places(self.states)[0].group
        self.rows = [np.arange(state.bounds.size) for state in self.states]

    def shift(self, sweeps: int) -> None:
        """Make so many sweeps with the interface free."""
        done = [state.done for state in self.states]
        made = self.batch.shift(range(len(done)), done, [x + sweeps for x in done])
        for state, last in zip(self.states, made, strict=True):
            state.moved(last, True)

    def run(self, sweeps: int) -> None:
        """Make so many of every row."""
        found = self.batch.run(range(len(self.rows)), self.rows, sweeps, [None] * len(self.rows))
        for state, (bounds, _) in zip(self.states, found, strict=True):
            state.bounds[:] = np.minimum(state.bounds, bounds)


def once(work: Callable[[], object], times: int = 1) -> float:
    """Return the least seconds, without a call before."""
    return timed(work, times, warm=0)[1].least


def measure(name: str, out: Callable[[str], None]) -> None:
    """Measure one problem."""
    locals_ = tuple(divide(dmcmc.load(meeting(name))).locals)
    gpu = OnGpu(locals_)
    if not all(map(takes, gpu.states)):
        out(f"{name}: not for the GPU")
        return
    gpu.shift(START - 1)
    gpu.run(FEW)
    threads = cores()
    cpu = [dual.TRIANGLES.start(local, Backend(threads=threads)) for local in locals_]

    def shift() -> None:
        for state in cpu:
            state._shift(START - 1)

    cpu_free = once(shift) / (START - 1)
    pairs = list(zip(cpu, gpu.rows, strict=True))
    cpu_rows = once(lambda: [state._run(rows, FEW, None) for state, rows in pairs]) / (FEW + 0.5)
    differ = sum(int((a.bounds != b.bounds).sum()) for a, b in zip(cpu, gpu.states, strict=True))
    differ += sum(int((x != y).sum()) for a, b in zip(cpu, gpu.states, strict=True)
                  for x, y in zip(a.shares, b.shares, strict=True))  # fmt: skip
    entries = sum(part.size for state in cpu for part in state.shares)
    shared_device().synchronize()
    of_row = (once(lambda: gpu.run(MANY), 3) - once(lambda: gpu.run(FEW), 3)) / (MANY - FEW)
    base = once(lambda: gpu.shift(FEW))
    free = (once(lambda: gpu.shift(MANY)) - base) / (MANY - FEW)

    def first() -> None:
        fresh = OnGpu(locals_)
        fresh.shift(START - 1)
        fresh.run(3)

    whole = once(first, 2)
    of_rows, of_free = products(gpu.states, True) / of_row / 1e12, products(gpu.states, False) / free / 1e12
    bound = sum(state.layout.scale.decode(int(state.bounds.max())) for state in gpu.states)
    out(
        f"{name:<15} free {1e3 * free:8.3f} ms ({of_free:5.2f} T/s; {cpu_free / free:6.1f} x one core)"
        f"  rows {1e3 * of_row:8.3f} ms ({of_rows:5.2f} T/s; {cpu_rows / of_row:6.1f} x {threads} threads)"
        f"  first {1e3 * whole:7.1f} ms  differ {differ} of {entries:,}  Σ bounds {bound:g}"
    )


def main() -> None:
    """Measure and print."""
    given = options(__file__, __doc__, only=True).parse_args()
    if gpu_problem() is not None:
        sys.exit(f"no GPU: {gpu_problem()}")
    say = Report(__file__, given, device="cuda")
    for name in NAMES:
        if given.only in name:
            measure(name, say)
            shared_device().release()
    say.keep()


if __name__ == "__main__":
    main()
