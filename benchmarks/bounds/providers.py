"""Measure bounds over time: tables of all agents from one provider, combined exactly, and the gap to the best.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.providers [--seconds 1 4 16] [--provider triangles] [--only NAME]

FOLDER holds meetings/. A line is one run from the start: its time budget is divided among the agents (each gets seconds
× threads / agents on one thread), and ``s`` is the wall time with set-up, combination and cutoffs. ``--close`` then
tightens the rows with values left out that cannot be part of an assignment better than the best utility known.
"""

import time
from functools import partial

import dmcmc
from benchmarks.bounds.row_thresholds import bound_of, row_thresholds
from benchmarks.harness import Columns, Report, meeting, options
from dmcmc import Problem
from dmcmc.inference.bounds import registry
from dmcmc.inference.bounds.contract.protocol import BoundRequest, BoundState
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.model.problem import choose_arithmetic
from dmcmc.inference.runtime.threads import run_parallel

# best known utilities, of dmcmc and of toulbar2
BEST = {
    "ms_A10_n10_D24": 4020,
    "ms_A50_n10_D24": 20731,
    "ms_A10_n25_D24": 24153,
    "ms_A10_n50_D24": 92526,
    "ms_A10_n10_D96": 18510,
    "mu_A10_n10_D24": 205017,
    "mu_A10_n25_D24": 1156515,
    "mu_A10_n50_D24": 4259492,
    "mu_A10_n10_D96": 215436,
}


class ProviderBounds:
    """A problem divided among its agents, with the state of a bound provider for each.

    Attributes
    ----------
    arithmetic : Arithmetic
        Encoding of the tables.
    crossing : list of Table
        The factors between agents.
    states : list of BoundState
        One per agent.
    """

    def __init__(self, problem: Problem, provider: str) -> None:
        self.problem = problem
        self.division = divide(problem)
        self.arithmetic: Arithmetic = choose_arithmetic(problem.factors)
        self.crossing = [self.arithmetic.encode(f) for f in self.division.crossing]
        start = registry.get(provider).start
        self.states: list[BoundState] = [start(local) for local in self.division.locals]

    def tables(self) -> list[list[EncodedTable]]:
        """Return the tables of every agent."""
        return [list(state.tables(self.arithmetic)) for state in self.states]

    def bound(self) -> int | float:
        """Return the exact combination of all tables and the factors between agents."""
        all_tables = [t for tables in self.tables() for t in tables]
        return bound_of([*all_tables, *self.crossing], self.problem.domains, self.arithmetic)

    def improve(self, seconds: float, threads: int) -> None:
        """Divide seconds of ``threads`` cores among the agents."""
        each = seconds * threads / len(self.states)
        run_parallel([partial(state.improve, seconds=each) for state in self.states], threads)

    def close(self, best: int, seconds: float, threads: int) -> None:
        """Tighten all rows without the values that cannot beat ``best``."""
        tables = self.tables()
        for agent, local in enumerate(self.division.locals):
            state = self.states[agent]
            others = [t for a, found in enumerate(tables) if a != agent for t in found]
            cutoffs = row_thresholds(
                [*others, *self.crossing], local.interface, self.problem.domains, self.arithmetic, best + 1
            )
            state.backend = Backend(threads=threads)
            BoundRequest(state, None, cutoffs).carry_out(seconds / len(self.states))
            tables[agent] = list(state.tables(self.arithmetic))


TABLE = Columns(
    ("instance", "<18"), ("budget", ">7.2f"), ("s", ">7.2f"), ("bound", ">9d"), ("gap %", ">7.3f"),
    ("closed at s", ">12.2f"), ("bound", ">9d"),
)  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1, 4, 8])
    parser.add_argument("--provider", default="triangles")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--close", type=float, default=0.0, help="seconds of value removal (0: none)")
    given = parser.parse_args()
    small = ProviderBounds(dmcmc.load(meeting("ms_A10_n5_D24")), given.provider)
    report = Report(__file__, given, threads=given.threads, provider=given.provider)
    report(TABLE.head)
    small.improve(0.1, given.threads)  # compiles
    if given.close:
        small.close(0, 0.1, given.threads)
    for name, best in ((name, best) for name, best in BEST.items() if given.only in name):
        problem = dmcmc.load(meeting(name))
        for seconds in given.seconds:
            start = time.perf_counter()
            combined = ProviderBounds(problem, given.provider)
            combined.improve(seconds, given.threads)
            bound = combined.bound()
            cells = [name, seconds, time.perf_counter() - start, bound, 100 * (bound / best - 1)]
            if given.close:
                combined.close(best, given.close, given.threads)
                cells += [time.perf_counter() - start, max(combined.bound(), best)]
            report(TABLE.line(*cells))
    report.keep()


if __name__ == "__main__":
    main()
