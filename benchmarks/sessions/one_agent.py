"""Change one agent's table after the other in a session, and compare solving again with solving anew.

    python -m benchmarks.sessions.one_agent [--agents 10] [--variables 10] [--slots 24] [--changes 10] [--output FILE]

Each change scales one table that belongs to a single agent. ``anew`` is the wall-clock time of ``dmcmc.solve`` on a
copy of the changed problem, ``session`` that of ``Session.solve``. Both are medians over the changes, after one warm
solve. Objectives and bounds must be equal.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.session.changes import Changes


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds that some work takes, and its result."""
    start = time.perf_counter()
    found = work()
    return time.perf_counter() - start, found


def local_factors(problem: dmcmc.Problem) -> dict[int, int]:
    """Return the position of one factor of each agent that has one over its own variables only."""
    found: dict[int, int] = {}
    for position, factor in enumerate(problem.factors):
        owners = {int(problem.owner[v]) for v in factor.scope}
        if len(owners) == 1 and len(factor.scope) > 1:
            found.setdefault(owners.pop(), position)
    return found


def main() -> None:
    """Run the benchmark and print one line per quantity."""
    parser = options(__file__, __doc__)
    for name, default in (("agents", 10), ("variables", 10), ("slots", 24), ("changes", 10)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    report = Report(__file__, given)
    parameters = {"agents": given.agents, "variables_per_agent": given.variables, "domain_size": given.slots}
    problem = dmcmc.generate("meeting-scheduling", **parameters)
    session, rng = dmcmc.Session(problem), np.random.default_rng(1)
    positions = list(local_factors(problem).values())
    dmcmc.solve(problem)
    session.solve()
    session.solve()
    anew, again, reused = [], [], []
    for number in range(given.changes):
        position = positions[number * len(positions) // given.changes % len(positions)]
        table = session.problem.factors[position].table
        session.set_table(position, np.where(table < -(2**30), -np.inf, table + rng.integers(0, 3, table.shape)))
        seconds, result = timed(session.solve)
        fresh_seconds, fresh = timed(partial(dmcmc.solve, Changes(session.problem).problem()))
        assert (result.status, result.objective, result.bound) == (fresh.status, fresh.objective, fresh.bound)
        again.append(seconds)
        anew.append(fresh_seconds)
        assert session.reused is not None
        reused.append(tuple(session.reused))
    report(f"A={given.agents} X={given.variables} D={given.slots}, {given.changes} changes, status {result.status}")
    report(f"anew     {1e3 * statistics.median(anew):9.2f} ms")
    report(f"session  {1e3 * statistics.median(again):9.2f} ms")
    report(f"reused tables and messages, first changes: {reused[:5]}")
    report.keep()


if __name__ == "__main__":
    main()
