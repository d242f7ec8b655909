"""Search in rows: the gap over time of runs with and without it, nodes and sweeps a second.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.search [--only NAME] [--seconds S] [--output FILE]

FOLDER holds meetings/. `nodes/s` and `sweeps/s` are those of all agents together (sweeps: 8 a node, 24 where a node
begins at its row); `wave` is what a wave takes on average, `outside launches` which part of that a GPU waits. A run's
line has the gap to its best utility after times, and the seconds that each kind of work took.
"""

import sys
import time
from typing import Any
from unittest.mock import patch

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.branching.search import SWEEPS, Request, search_rows
from dmcmc.inference.bounds.contract.protocol import BoundRequest
from dmcmc.inference.bounds.dual import provider as dual
from dmcmc.inference.bounds.dual.cuda.together import improve_on_gpu
from dmcmc.inference.bounds.search_rows import row_search
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.threads import cores
from dmcmc.run.kinds.branch import Branch

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n10_D96")
TIMES = (0.5, 1, 2, 5, 10, 20, 30, 60)


def rates(name: str, device: str, say: Report) -> None:
    """Measure nodes and sweeps a second of all agents together."""
    locals_ = divide(dmcmc.load(meeting(name))).locals
    states = [dual.TRIANGLES.start(local, Backend(threads=cores(), device=device)) for local in locals_]
    improve_on_gpu([BoundRequest(state) for state in states], states[0].backend, sweeps=2) if device != "cpu" else None
    work, requests = [row_search(state, (1 << 32) // len(states), 1e6) for state in states], list[Request]()
    for search, state in zip(work, states, strict=True):
        low = np.full(state.local.rows, -np.inf)
        requests.append(Request(search, low, low))
    search_rows(requests, waves=3)
    before, begun, waves = sum(one.nodes for one in work), time.perf_counter(), 0
    workers: Any = work[0].engine.workers
    busy = getattr(workers, "busy", 0.0)
    while time.perf_counter() - begun < 3:
        search_rows(requests, waves=4)
        waves += 4
    took = time.perf_counter() - begun
    pace, room = (sum(one.nodes for one in work) - before) / took, sum(one.engine.slots for one in work)
    host = f"  outside launches {100 - 100 * (workers.busy - busy) / took:.0f} %" if device != "cpu" else ""
    say(
        f"{name:<15} {type(work[0].engine).__name__}: {pace:9.1f} nodes/s  {SWEEPS * pace:9.1f} sweeps/s"
        f"  wave {1e3 * took / waves:7.1f} ms of {work[0].engine.width}  slots {room}{host}"
    )


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
    parser.add_argument("--device", default="cpu" if gpu_problem() is not None else "cuda")
    given = parser.parse_args()
    say = Report(__file__, given, device=given.device)
    for name in NAMES:
        if given.only in name:
            rates(name, given.device, say)
            gaps(name, given.device, given.seconds, say)
            sys.stdout.flush()
    say.keep()


if __name__ == "__main__":
    main()
