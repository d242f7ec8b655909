"""Change one agent's table after the other in a session, and compare solving again with solving anew.

    python -m benchmarks.sessions.one_agent [--agents 10] [--variables 10] [--slots 24] [--changes 20]
        [--device auto|cpu|cuda] [--output FILE]
    mpirun -n 2 python -m benchmarks.sessions.one_agent

Each change adds random numbers to one table that belongs to a single agent. ``anew`` is the wall-clock time of a solve
of a copy of the changed problem on the same ranks, ``session`` that of ``Session.solve``, and ``change`` that of
``Session.set_table``. ``own table`` is the time of the changed agent's elimination, and ``path`` the simulated time of
the messages along its path; ``other`` is the rest of ``session``. All are medians over the changes, after one warm
solve and one warm change. Objectives and bounds must be equal. On several ranks, the time of ten bare ``Allreduce``
calls of one number says what the machine takes to let all ranks talk.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.mpi.world import World, connect
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


def ten_bare_calls(world: World, repeats: int = 50) -> list[float]:
    """Return the seconds of ten ``Allreduce`` calls of one number, repeated; empty on one rank."""
    if world.size == 1:
        return []
    one, total = np.ones(1), np.ones(1)

    def calls() -> None:
        for _ in range(10):
            world.comm.Allreduce(one, total)

    return [timed(calls)[0] for _ in range(repeats)]


def main() -> None:
    """Run the benchmark and print one line per quantity."""
    parser = options(__file__, __doc__, device="auto")
    for name, default in (("agents", 10), ("variables", 10), ("slots", 24), ("changes", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    world = connect()
    report = Report(__file__, given) if world.rank == 0 else None
    parameters = {"agents": given.agents, "variables_per_agent": given.variables, "domain_size": given.slots}
    problem = dmcmc.generate("meeting-scheduling", **parameters)
    session, rng = dmcmc.Session(problem, world=world, device=given.device), np.random.default_rng(1)
    positions = list(local_factors(problem).values())
    dmcmc.solve_on(world, problem, device=given.device)
    session.solve()
    session.set_table(positions[-1], problem.factors[positions[-1]].table.copy())
    session.solve()
    times: dict[str, list[float]] = {}
    reused, messages = [], []
    for number in range(given.changes):
        position = positions[number * len(positions) // given.changes % len(positions)]
        table = session.problem.factors[position].table
        new = np.where(table < -(2**30), -np.inf, table + rng.integers(0, 3, table.shape))
        change, _ = timed(partial(session.set_table, position, new))
        seconds, result = timed(session.solve)
        anew = partial(dmcmc.solve_on, world, Changes(session.problem).problem(), device=given.device)
        fresh_seconds, fresh = timed(anew)
        assert (result.status, result.objective, result.bound) == (fresh.status, fresh.objective, fresh.bound)
        own = max(agent.time for agent in result.agents)
        path = (result.simulated_time or own) - own
        parts = {"anew": fresh_seconds, "session": seconds, "change": change, "own table": own, "path": path}
        for name, value in (parts | {"other": seconds - own - path}).items():
            times.setdefault(name, []).append(value)
        assert session.reused is not None
        reused.append(tuple(session.reused))
        messages.append(result.msg_count)
    calls = ten_bare_calls(world)
    if report is None:
        return
    sizes = f"A={given.agents} X={given.variables} D={given.slots}"
    report(f"{sizes}, {given.changes} changes, {world.size} ranks, status {result.status}")
    for name, values in times.items():
        report(f"{name:10}{1e3 * statistics.median(values):9.2f} ms")
    if calls:
        report(f"ten bare Allreduce calls of {world.size} ranks: {1e3 * statistics.median(calls):.2f} ms")
    report(f"messages anew {fresh.msg_count}, session {messages}")
    report(f"reused tables and messages, first changes: {reused[:5]}")
    report.keep()


if __name__ == "__main__":
    main()
