"""Squares of rows' own on a GPU: passes of a step, and bounds over time.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.own_squares [--only NAME] [--seconds S] [--turn T]

FOLDER holds meetings/. All agents are lifted as in a run, in turns of T seconds: first by the square that an agent's
rows share, then by squares of rows' own, of rows with further variables fixed; rows' limits are then a tenth below the
largest bound of their agent. After each turn: the sum of agents'
largest bounds of a row, and of their means; how many leaves rows' trees have, by variables fixed. At the end, what a
case takes of each pass of a step, with as many cases as a batch may have.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.integer_scaling import NEVER
from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import SHARED, lift_on_gpu, load_lifts
from dmcmc.inference.bounds.semidefinite.cuda.device_arrays import lift_problem
from dmcmc.inference.bounds.semidefinite.cuda.node_arrays import DeviceCases
from dmcmc.inference.bounds.semidefinite.per_row.certificates import certificates
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground
from dmcmc.inference.bounds.semidefinite.per_row.node_batch import CaseBatch, Start
from dmcmc.inference.bounds.semidefinite.per_row.nodes import NODE, Case
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, LiftRequest
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.threads import cores

NAMES = ("ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24")
MOST, FEW = 1 << 29, 10  # entries of products in a batch; times that a pass is timed
BELOW, LAST = 0.9, 0.5  # of the largest bound is a row's limit; seconds that are left at the end


def largest(lift: Lift) -> float:
    """Return the largest bound of an agent's rows."""
    return float(lift.state.bounds.max()) * 2.0**-lift.state.layout.scale.shift


def report(lifts: Sequence[Lift], seconds: float, say: Report) -> None:
    """Say how far lifts are."""
    mean = 0.0
    for lift in lifts:
        unit, bounds = 2.0**-lift.state.layout.scale.shift, lift.state.bounds
        found = bounds[bounds > NEVER]
        mean += unit * float(found.mean())
    owns = [lift.own for lift in lifts]
    leaves = Counter(len(leaf.fixed) for own in owns for tree in own.trees.values() for leaf in tree.leaves)
    pace = ", ".join(f"{1e6 * taken:.1f} us of {steps}" for steps, taken in owns[0].pace.items())
    top = sum(map(largest, lifts))
    say(
        f"  {seconds:6.2f} s  {lifts[0].steps} steps, leaves {dict(sorted(leaves.items()))}; largest {top:.1f},"
        f" mean {mean:.1f}; a case and step {pace or '-'}; given up {sum(own.failed for own in owns)},"
        f" certificates alike {all(own.exact is not False for own in owns)}"
    )


def measure(name: str, seconds: float, turn: float, say: Report) -> None:
    """Lift the agents of a problem."""
    say(name)
    locals_, backend = divide(dmcmc.load(meeting(name))).locals, Backend("cuda", cores())
    start = time.perf_counter()
    load_lifts(locals_, backend)
    say(f"  kernels and libraries {time.perf_counter() - start:.1f} s")
    lifts = [Lift(DualState(local, triangles=False)) for local in locals_]
    start, first = time.perf_counter(), [LiftRequest(lift, None, None) for lift in lifts]
    lift_on_gpu(first, backend, steps=SHARED)
    report(lifts, time.perf_counter() - start, say)
    limits = [np.full(lift.state.bounds.size, BELOW * largest(lift)) for lift in lifts]
    while (left := seconds + start - time.perf_counter()) > LAST:
        requests = [LiftRequest(lift, None, own) for lift, own in zip(lifts, limits, strict=True) if not lift.exhausted]
        if not requests or not lift_on_gpu(requests, backend, seconds=min(turn, left)):
            break
        report(lifts, time.perf_counter() - start, say)
    say("  passes, microseconds of a case: " + passes(lifts))


def passes(lifts: Sequence[Lift]) -> str:
    """Time each pass of a step, and what comes before and after the steps."""
    arrays, descents = DeviceCases(), [lift._descent for lift in lifts if lift._descent is not None]
    ground = Ground(descents, arrays, 0)
    count = min(512, MOST // ground.shape.m**2)
    starts = [Start(b * len(descents) // count, Case(0), b * len(descents) // count) for b in range(count)]
    CaseBatch(ground, starts)
    begun = time.perf_counter()
    batch = CaseBatch(ground, starts)
    arrays.get(batch.steps.least)
    found = {"to lay out": time.perf_counter() - begun}
    words = np.array([NODE.at(step) for step in range(NODE.steps)], dtype=np.float32)
    launches = batch.steps.passes(words)
    for name, one in launches._asdict().items():
        one(0)
        arrays.get(batch.steps.least)
        begun = time.perf_counter()
        for _ in range(FEW):
            one(0)
        arrays.get(batch.steps.least)
        found[name] = (time.perf_counter() - begun) / FEW
    begun = time.perf_counter()
    batch.run(NODE, lambda made: NODE.steps)
    arrays.get(batch.steps.least)
    found["a step of a schedule"] = (time.perf_counter() - begun) / NODE.steps
    certificates(batch)
    begun = time.perf_counter()
    certificates(batch)
    found["certificate"] = time.perf_counter() - begun
    return f"{count} cases; " + ", ".join(f"{name} {1e6 * taken / count:.2f}" for name, taken in found.items())


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--turn", type=float, default=5.0)
    given = parser.parse_args()
    problem = lift_problem()
    if problem is not None:
        sys.exit(f"own squares take a GPU: {problem}")
    say = Report(__file__, given, device="cuda")
    for name in NAMES:
        if given.only in name:
            measure(name, given.seconds, given.turn, say)
    say.keep()


if __name__ == "__main__":
    main()
