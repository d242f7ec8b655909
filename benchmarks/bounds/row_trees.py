"""Trees of squares of rows' own on the CPU: how low rows end by how many cases, whatever a GPU makes of them a second.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.row_trees [--only NAME] [--agents 0,4] [--cases N]
                                                                 [--slots N] [--shared STEPS]

FOLDER holds meetings/. Of each agent the row with the highest bound, after some steps of the square that all of its
rows share, has a tree, by the project's own code, of so many cases or a few more. Said are the row's proven bound after
the first case, and then each time that half as many more have been made; leaves by variables fixed; how many squares
were the row's own, for longer and of branches. To try other schedules, change them where they are (`own/cases.py`).
"""

import math
import time
from collections import Counter

import numpy as np

import dmcmc
from benchmarks.bounds.numba_cases import NumbaCases
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import OwnTurn
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import Ground
from dmcmc.inference.bounds.semidefinite.relaxation import Lift, Turn
from dmcmc.inference.dpop.division import LocalProblem, divide

NAMES = ("ms_A10_n10_D24", "ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24")
MOST, MORE = 24, 1.5  # cases at a time; times the cases at which a bound is said


def measure(local: LocalProblem, cases: int, slots: int, shared: int, say: Report) -> None:
    """Grow the tree of an agent's first row."""
    lift = Lift(DualState(local, triangles=False))
    start = time.perf_counter()
    lift.improve(steps=shared)
    unit, row = 2.0**-lift.state.layout.scale.shift, int(lift.state.bounds.argmax())
    opened = lift.open(np.array([row]))
    assert opened is not None, "it has no row that may be in anything"
    turns = [Turn(lift, opened)]
    ground = Ground([opened.descent], NumbaCases(), slots)
    lift.own.ground, lift.own.agent = ground, 0
    until, said = 1, list[str]()
    own = OwnTurn(turns, ground, MOST, lambda: math.inf if lift.own.made < until else 0.0)
    first = unit * int(lift.state.bounds[row])
    took = time.perf_counter() - start
    say(f"  agent {local.agent}, row {row}: {first:.10g} after {shared} shared steps, {took:.0f} s")
    start = time.perf_counter()
    while lift.own.made < cases and not lift.exhausted:
        own.run()
        said.append(f"{lift.own.made}: {unit * int(lift.state.bounds[row]):.10g}")
        until = min(cases, math.ceil(MORE * lift.own.made))
    leaves = Counter(len(leaf.fixed) for leaf in lift.own.trees[row].leaves)
    say(f"    {', '.join(said)}")
    say(f"    leaves {dict(sorted(leaves.items()))}, squares {own.made}; {time.perf_counter() - start:.0f} s")


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--agents", default="0", metavar="NUMBERS", help="with commas between")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--slots", type=int, default=1000, help="points that are kept")
    parser.add_argument("--shared", type=int, default=600, metavar="STEPS")
    given = parser.parse_args()
    say = Report(__file__, given)
    for name in NAMES:
        if given.only in name:
            say(name)
            locals_ = divide(dmcmc.load(meeting(name))).locals
            for agent in map(int, given.agents.split(",")):
                measure(locals_[agent], given.cases, given.slots, given.shared, say)
    say.keep()


if __name__ == "__main__":
    main()
