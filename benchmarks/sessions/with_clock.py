"""Change one agent's table after the other in a session with a time budget, and compare the bounds with those anew.

    python -m benchmarks.sessions.with_clock ms_A10_n25_D24 [--first 10] [--again 1] [--anew 1 10] [--changes 3]

The problem is solved for ``--first`` seconds. Each change then adds 0, 1 or 2 to the entries of one table that belongs
to a single agent, and the session solves again for ``--again`` seconds. A copy of the changed problem is solved anew
for each time of ``--anew``. One line per solve: objective, bound and gap, and what the session has used again.
"""

import time

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options
from benchmarks.sessions.one_agent import local_factors
from dmcmc.session.changes import Changes


def main() -> None:
    """Run the benchmark."""
    parser = options(__file__, __doc__)
    parser.add_argument("problem", metavar="NAME")
    parser.add_argument("--first", type=float, default=10.0)
    parser.add_argument("--again", type=float, default=1.0)
    parser.add_argument("--anew", type=float, nargs="*", default=[1.0, 10.0])
    parser.add_argument("--changes", type=int, default=3)
    given = parser.parse_args()
    report = Report(__file__, given)
    problem = dmcmc.load(str(meeting(given.problem)))
    dmcmc.solve(problem, timeout=given.again)  # loads the compiled kernels
    session, rng = dmcmc.Session(problem), np.random.default_rng(1)
    positions = list(local_factors(problem).values())

    def show(name: str, seconds: float, result: dmcmc.Result, used: object = "") -> None:
        gap = "" if result.gap is None else f"{100 * result.gap:.3f} %"
        report(f"{name:14} {seconds:5.1f} s {result.status:9} {result.objective:>9} {result.bound:>9} {gap:>9} {used}")

    def timed(name: str, limit: float, solve: object, used: object = "") -> None:
        start = time.perf_counter()
        result = solve(limit)  # type: ignore[operator]
        show(name, time.perf_counter() - start, result, used() if callable(used) else used)

    report("solve          seconds status    objective     bound       gap used again")
    timed("first", given.first, session.solve)
    for number in range(given.changes):
        position = positions[number % len(positions)]
        table = session.problem.factors[position].table
        session.set_table(position, np.where(table < -(2**30), -np.inf, table + rng.integers(0, 3, table.shape)))
        timed(f"session {number}", given.again, session.solve, lambda: session.reused)
        copy = Changes(session.problem).problem()
        for seconds in given.anew:
            timed(f"anew {number}", seconds, lambda limit, copy=copy: dmcmc.solve(copy, timeout=limit))
    report.keep()


if __name__ == "__main__":
    main()
