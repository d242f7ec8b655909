"""Search in rows: the gap over time of runs with and without it, nodes and sweeps a second.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.search [--only NAME] [--seconds S] [--output FILE]

FOLDER holds meetings/. `nodes/s` and `sweeps/s` are those of all agents together (sweeps: 8 a node, 24 where a node
begins at its row, two thirds of them warm); `wave` is what a wave takes on average. Under them is what sweeps do a
second beside what limits it: on a GPU the bytes of tables (none stays in a cache from one sweep to the next) beside a
copy, sums with their maxima, and which part of a wave its kernel does not work; on the CPU the sums of packed tables,
beside the same product by itself. A run's line has the gap to its best utility after times, and the seconds that each
kind of work took.
`--rates` makes no runs.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import dmcmc
from benchmarks.bounds.limits import (
    H200_MAX_PLUS,
    copied_on_gpu,
    launched_on_gpu,
    max_plus_on_cpu,
    packed_operations,
    sweep_of,
)
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.branch_and_bound.row_search import SWEEPS, Request, RowSearch, search_rows
from dmcmc.inference.bounds.branch_and_bound_rows import row_search
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.dual import provider as dual
from dmcmc.inference.bounds.dual.cuda.batched_ascent import improve_on_gpu
from dmcmc.inference.bounds.dual.cuda.device_ascent import DeviceDuals
from dmcmc.inference.bounds.dual.graph import Graph
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Stop
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.threads import cores
from dmcmc.run.improvers.branch_and_bound import Branch

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n10_D96")
TIMES = (0.5, 1, 2, 5, 10, 20, 30, 60)


class Kernels:
    """The seconds that kernels take on a GPU while this is entered, and how many launches there are."""

    def __init__(self) -> None:
        self.seconds, self.launches = 0.0, 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Take the time of launches."""
        from numba import cuda

        launch = DeviceDuals.launch

        def timed(group: DeviceDuals, *arguments: Any) -> None:
            begun, ended = cuda.event(), cuda.event()
            begun.record()
            launch(group, *arguments)
            ended.record()
            ended.synchronize()
            self.seconds += begun.elapsed_time(ended) / 1e3
            self.launches += 1

        with patch.object(DeviceDuals, "launch", timed):
            yield


class Seen:
    """The nodes of waves: what a sweep of theirs takes when tables are packed."""

    def __init__(self, graphs: dict[int, Graph]) -> None:
        self.graphs, self.operations, self.nodes = graphs, 0.0, 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at what comes of waves."""
        take = RowSearch.take

        def seen(search: RowSearch, chosen: Any, wave: Any, found: Any) -> None:
            self.operations += len(found.bounds) * packed_operations(self.graphs[id(search)], found.masks)
            self.nodes += len(found.bounds)
            take(search, chosen, wave, found)

        with patch.object(RowSearch, "take", seen):
            yield


def rates(name: str, device: str, say: Report) -> None:
    """Measure nodes and sweeps a second of all agents together, beside what limits them."""
    locals_ = divide(dmcmc.load(meeting(name))).locals
    timed = Backend(threads=cores(), device=device, stop=Stop(until=1e12))  # so that sweeps are warm, as in a run
    states = [dual.TRIANGLES.start(local, timed) for local in locals_]
    gpu = device != "cpu"
    improve_on_gpu([BoundRequest(state) for state in states], states[0].backend, sweeps=2) if gpu else None
    work, requests = [row_search(state, (1 << 32) // len(states), 1e6) for state in states], list[Request]()
    for search, state in zip(work, states, strict=True):
        low = np.full(state.local.rows, -np.inf)
        requests.append(Request(search, low, low))
    search_rows(requests, waves=3)
    before, begun, waves = sum(one.nodes for one in work), time.perf_counter(), 0
    kernels, seen = Kernels(), Seen({id(s): t.layout.hidden for s, t in zip(work, states, strict=True)})
    with kernels.watched() if gpu else seen.watched():
        while time.perf_counter() - begun < 3:
            search_rows(requests, waves=4)
            waves += 4
    took = time.perf_counter() - begun
    nodes, room = sum(one.nodes for one in work) - before, sum(one.engine.slots for one in work)
    pace, width = SWEEPS * nodes / took, states[0].width
    say(
        f"{name:<15} {type(work[0].engine).__name__}: {nodes / took:9.1f} nodes/s  {pace:9.1f} sweeps/s"
        f"  wave {1e3 * took / waves:7.1f} ms of {work[0].engine.width}  slots {room}"
    )
    each = [sweep_of(state.layout.hidden, width) for state in states]
    moved, done = (pace * sum(column) / len(each) for column in zip(*each, strict=True))
    if gpu:
        copied, empty = copied_on_gpu(), launched_on_gpu()
        say(_limit("bytes of triangles and pairs", moved, copied, "a copy on this card"))
        say(_limit("sums and maxima", done, H200_MAX_PLUS, "the most on an H200, CUDA C++"))
        outside = 1 - kernels.seconds / took
        say(
            f"  {'a wave outside its kernel':<30} {100 * outside:5.1f} % of {1e3 * took / waves:.1f} ms;"
            f" {kernels.launches / waves:.1f} launches of {1e6 * empty:.0f} us:"
            f" {100 * kernels.launches * empty / took:.2f} %"
        )
    else:
        packed = pace * seen.operations / seen.nodes
        say(_limit("sums and maxima", packed, max_plus_on_cpu(width), "products alone, all cores"))


def _limit(what: str, rate: float, limit: float, of: str) -> str:
    """Return a line of the table: a rate, and which part of a limit it is."""
    return f"  {what:<30} {rate / 1e9:9.1f} G/s  {100 * rate / limit:5.1f} % of {limit / 1e9:9.1f} G/s ({of})"


def gaps(name: str, device: str, seconds: float, say: Report) -> None:
    """Solve with and without search."""
    problem = dmcmc.load(meeting(name))
    found = {}
    for kind in ("with", "without"):
        if kind == "with":
            found[kind] = dmcmc.solve(problem, timeout=seconds, device=device, seed=1)
        else:
            with patch.object(Branch, "offers", lambda self, standing: []):
                found[kind] = dmcmc.solve(problem, timeout=seconds, device=device, seed=1)
    best = max(result.objective or 0 for result in found.values())
    for kind, result in found.items():
        known = []
        for limit in TIMES:
            bounds = [p.bound for p in result.trace if p.time <= limit and p.bound is not None]
            if limit <= seconds and bounds:
                known.append(f"{limit:g} s {100 * (bounds[-1] - best) / best:.3g} %")
        took = ", ".join(f"{one.kind} {one.seconds:.1f}" for one in result.work)
        end = f"{result.status} after {result.time:.1f} s, {result.objective} of {result.bound}"
        say(f"{name:<15} {kind:<8} {'  '.join(known)}  ({end}; {took})")


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rates", action="store_true", help="rates only, no runs")
    parser.add_argument("--device", default="cpu" if gpu_problem() is not None else "cuda")
    given = parser.parse_args()
    say = Report(__file__, given, device=given.device)
    for name in NAMES:
        if given.only in name:
            rates(name, given.device, say)
            if not given.rates:
                gaps(name, given.device, given.seconds, say)
            sys.stdout.flush()
    say.keep()


if __name__ == "__main__":
    main()
