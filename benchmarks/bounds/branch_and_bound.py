"""Measure branch and bound over boundary assignments: nodes and sweeps per second, and the gap with and without it.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.branch_and_bound [--only NAME] [--seconds S] [--output FILE]

FOLDER holds meetings/. ``nodes/s`` and ``sweeps/s`` are those of all agents together (8 sweeps per node, 24 for the
root node of a row; two thirds of them are smoothed). ``batch`` is the mean time of a batch of nodes. The next lines
compare the rate of sweeps with its limits. On a GPU: the bytes of tables (none stays in a cache until the next sweep)
with those of a copy; sums with maxima; and the part of a batch's time outside of its kernel. On the CPU: the sums of
packed tables with those of the max-plus product alone. The line of a run has the gap to its best utility after some
times, and the seconds of each improver. ``--rates`` makes no runs.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import dmcmc
from benchmarks.bounds.hardware_limits import (
    H200_MAX_PLUS,
    cpu_max_plus_rate,
    gpu_copy_rate,
    gpu_launch_seconds,
    packed_operations,
    sweep_of,
)
from benchmarks.harness import Report, meeting, options
from dmcmc.anytime.improvers.branch_and_bound import BranchAndBoundImprover
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    run_boundary_searches,
)
from dmcmc.inference.bounds.branch_and_bound_rows import create_boundary_search
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDualAscent
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.graph import DualGraph
from dmcmc.inference.bounds.tuning.search import NODE_SWEEPS
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.threads import cores

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n10_D96")
TIMES = (0.5, 1, 2, 5, 10, 20, 30, 60)


class KernelTimer:
    """Measure the seconds of kernels on a GPU and count their launches.

    Attributes
    ----------
    seconds : float
        Total time of the kernels.
    launches : int
        Number of launches.
    """

    def __init__(self) -> None:
        self.seconds, self.launches = 0.0, 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Time all launches in the body."""
        from numba import cuda

        launch = DeviceDualAscent.launch

        def timed(group: DeviceDualAscent, *arguments: Any) -> None:
            start, end = cuda.event(), cuda.event()
            start.record()
            launch(group, *arguments)
            end.record()
            end.synchronize()
            self.seconds += start.elapsed_time(end) / 1e3
            self.launches += 1

        with patch.object(DeviceDualAscent, "launch", timed):
            yield


class NodeCounter:
    """Count the nodes of batches, and the operations of a sweep over each with packed tables.

    Attributes
    ----------
    graphs : dict of int to DualGraph
        The graph of each search, by ``id(search)``.
    operations : float
        Sum over nodes of the operations of one sweep.
    nodes : int
        Number of nodes.
    """

    def __init__(self, graphs: dict[int, DualGraph]) -> None:
        self.graphs, self.operations, self.nodes = graphs, 0.0, 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Record the results of all batches in the body."""
        record = BoundarySearch.record

        def counted(search: BoundarySearch, chosen: Any, batch: Any, found: Any) -> None:
            self.operations += len(found.bounds) * packed_operations(self.graphs[id(search)], found.masks)
            self.nodes += len(found.bounds)
            record(search, chosen, batch, found)

        with patch.object(BoundarySearch, "record", counted):
            yield


def rates(name: str, device: str, report: Report) -> None:
    """Measure the nodes and sweeps per second of all agents together, and compare them with their limits."""
    local_problems = divide(dmcmc.load(meeting(name))).locals
    deadline = Deadline(until=1e12)  # sweeps are only smoothed with a deadline
    backend = Backend(threads=cores(), device=device, stop=deadline)
    states = [DualState(local, True, backend) for local in local_problems]
    gpu = device != "cpu"
    improve_on_gpu([BoundRequest(state) for state in states], states[0].backend, sweeps=2) if gpu else None
    searches = [create_boundary_search(state, (1 << 32) // len(states), 1e6) for state in states]
    requests = list[BoundarySearchRequest]()
    for search, state in zip(searches, states, strict=True):
        cutoffs = np.full(state.local.rows, -np.inf)
        requests.append(BoundarySearchRequest(search, cutoffs, cutoffs))
    run_boundary_searches(requests, batches=3)
    before, start, batches = sum(one.nodes for one in searches), time.perf_counter(), 0
    timer, counter = KernelTimer(), NodeCounter({id(s): t.layout.hidden for s, t in zip(searches, states, strict=True)})
    with timer.active() if gpu else counter.active():
        while time.perf_counter() - start < 3:
            run_boundary_searches(requests, batches=4)
            batches += 4
    seconds = time.perf_counter() - start
    nodes, capacity = sum(one.nodes for one in searches) - before, sum(one.bounder.capacity for one in searches)
    sweep_rate, width = NODE_SWEEPS * nodes / seconds, states[0].width
    report(
        f"{name:<15} {type(searches[0].bounder).__name__}: {nodes / seconds:9.1f} nodes/s  {sweep_rate:9.1f} sweeps/s"
        f"  batch {1e3 * seconds / batches:7.1f} ms of {searches[0].bounder.batch_size}  capacity {capacity}"
    )
    each = [sweep_of(state.layout.hidden, width) for state in states]
    byte_rate, operation_rate = (sweep_rate * sum(column) / len(each) for column in zip(*each, strict=True))
    if gpu:
        copy_rate, empty_launch = gpu_copy_rate(), gpu_launch_seconds()
        report(_limit("bytes of triangles and pairs", byte_rate, copy_rate, "a copy on this card"))
        report(_limit("sums and maxima", operation_rate, H200_MAX_PLUS, "highest measured rate, H200, CUDA C++"))
        outside_share = 1 - timer.seconds / seconds
        report(
            f"  {'a batch outside its kernel':<30} {100 * outside_share:5.1f} % of {1e3 * seconds / batches:.1f} ms;"
            f" {timer.launches / batches:.1f} launches of {1e6 * empty_launch:.0f} us:"
            f" {100 * timer.launches * empty_launch / seconds:.2f} %"
        )
    else:
        packed_rate = sweep_rate * counter.operations / counter.nodes
        report(_limit("sums and maxima", packed_rate, cpu_max_plus_rate(width), "products alone, all cores"))


def _limit(what: str, rate: float, limit: float, source: str) -> str:
    """Return a line of the table: a rate, and its part of a limit."""
    return f"  {what:<30} {rate / 1e9:9.1f} G/s  {100 * rate / limit:5.1f} % of {limit / 1e9:9.1f} G/s ({source})"


def gaps(name: str, device: str, seconds: float, report: Report) -> None:
    """Solve a problem with and without branch and bound, and print the gaps over time."""
    problem = dmcmc.load(meeting(name))
    found = {}
    for variant in ("with", "without"):
        if variant == "with":
            found[variant] = dmcmc.solve(problem, timeout=seconds, device=device, seed=1)
        else:
            with patch.object(BranchAndBoundImprover, "propose", lambda self, state: []):
                found[variant] = dmcmc.solve(problem, timeout=seconds, device=device, seed=1)
    best = max(result.objective or 0 for result in found.values())
    for variant, result in found.items():
        shown = []
        for limit in TIMES:
            bounds = [p.bound for p in result.trace if p.time <= limit and p.bound is not None]
            if limit <= seconds and bounds:
                shown.append(f"{limit:g} s {100 * (bounds[-1] - best) / best:.3g} %")
        seconds_of_improvers = ", ".join(f"{one.improver} {one.seconds:.1f}" for one in result.work)
        end = f"{result.status} after {result.time:.1f} s, {result.objective} of {result.bound}"
        report(f"{name:<15} {variant:<8} {'  '.join(shown)}  ({end}; {seconds_of_improvers})")


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rates", action="store_true", help="measure rates only, make no runs")
    parser.add_argument("--device", default="cpu" if gpu_problem() is not None else "cuda")
    given = parser.parse_args()
    report = Report(__file__, given, device=given.device)
    for name in NAMES:
        if given.only in name:
            rates(name, given.device, report)
            if not given.rates:
                gaps(name, given.device, given.seconds, report)
            sys.stdout.flush()
    report.keep()


if __name__ == "__main__":
    main()
