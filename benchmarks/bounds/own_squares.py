"""Squares of rows' own on a GPU: bounds over time, rows and nodes done, the pace of their steps.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.own_squares [--only NAME] [--seconds S] [--turn T]

FOLDER holds meetings/. All agents are lifted as in a run, in turns of T seconds: first by the square that an agent's
rows share, then by squares of rows' own, then of rows with one more variable fixed. After each turn: the sum of agents'
largest bounds of a row, and of their means. Runs do without own squares until a card has shown what they bring.
"""

import sys
import time
from collections.abc import Sequence
from unittest.mock import patch

import dmcmc
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.dual.scale import NEVER
from dmcmc.inference.bounds.dual.state import DualState
from dmcmc.inference.bounds.semidefinite import progress
from dmcmc.inference.bounds.semidefinite.cuda.arrays import lift_problem
from dmcmc.inference.bounds.semidefinite.cuda.together import lift_on_gpu, load_lifts
from dmcmc.inference.bounds.semidefinite.lift import Lift, LiftRequest
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.threads import cores

NAMES = ("ms_A10_n50_D24", "mu_A10_n50_D24")


def report(lifts: Sequence[Lift], seconds: float, say: Report) -> None:
    """Say how far lifts are."""
    largest, mean = 0.0, 0.0
    for lift in lifts:
        unit, bounds = 2.0**-lift.state.layout.scale.shift, lift.state.bounds
        found = bounds[bounds > NEVER]
        largest, mean = largest + unit * float(found.max()), mean + unit * float(found.mean())
    owns = [lift.own for lift in lifts]
    pace = ", ".join(f"{1e6 * taken:.1f} us of {steps}" for steps, taken in owns[0].pace.items())
    say(
        f"  {seconds:6.2f} s  {lifts[0].steps} steps, {sum(len(own.done) for own in owns)} rows,"
        f" {sum(len(own.split) for own in owns)} with a variable fixed; largest {largest:.1f}, mean {mean:.1f};"
        f" a case and step {pace or '-'}; given up {sum(own.failed for own in owns)},"
        f" certificates alike {[own.exact for own in owns]}"
    )


def measure(name: str, seconds: float, turn: float, say: Report) -> None:
    """Lift the agents of a problem."""
    say(name)
    locals_, backend = divide(dmcmc.load(meeting(name))).locals, Backend("cuda", cores())
    start = time.perf_counter()
    load_lifts(locals_)
    say(f"  kernels and libraries {time.perf_counter() - start:.1f} s")
    lifts = [Lift(DualState(local, triangles=False)) for local in locals_]
    start = time.perf_counter()
    while (used := time.perf_counter() - start) < seconds:
        requests, granted = [LiftRequest(lift, None, None) for lift in lifts if not lift.exhausted], seconds - used
        if not requests or not lift_on_gpu(requests, backend, seconds=min(turn, max(0.5, granted))):
            break
        report(lifts, time.perf_counter() - start, say)


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
    with patch.object(progress, "IN_RUNS", True):
        for name in NAMES:
            if given.only in name:
                measure(name, given.seconds, given.turn, say)
    say.keep()


if __name__ == "__main__":
    main()
