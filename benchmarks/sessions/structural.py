"""Make one change of each kind in a session, and compare solving again with solving anew.

    python -m benchmarks.sessions.structural [--agents 10] [--variables 10] [--slots 24] [--repeats 5] [--output FILE]
    mpirun -n 2 python -m benchmarks.sessions.structural

The kinds: a factor is added within one agent or between two agents that share none, and removed again; a variable is
added and removed; a domain loses its last value; an agent without variables is added; an agent is added as a
neighbour of two others, in one batch; an agent leaves with its variables. Each is repeated for other agents. ``change``
is the processor time of the change, ``session`` that of ``Session.solve``, and ``anew`` that of a solve of a copy of
the changed problem on the same ranks; ``tables`` and ``messages`` are the numbers that were made again. All are medians
over the repetitions, of the first rank. Objectives and bounds must be equal.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.mpi.world import World, connect


class Change(NamedTuple):
    """A change of a session: its kind, and what makes it."""

    kind: str
    make: Callable[[], None]


def own_variables(problem: dmcmc.Problem, agent: int) -> list[int]:
    """Return the variables of an agent."""
    return [v for v, owner in enumerate(problem.owner.tolist()) if owner == agent]


def changes_of(session: dmcmc.Session, number: int, repeats: int) -> list[Change]:
    """Return one change of each kind, around one agent."""
    rng, problem = np.random.default_rng(number), session.problem
    agent = number * problem.n_agents // repeats
    other = (agent + problem.n_agents // 2) % problem.n_agents
    mine, others = own_variables(problem, agent), own_variables(problem, other)
    names, sizes = problem.variables, problem.domains.tolist()

    def add(one: int, two: int, name: str) -> None:
        session.add_factor([names[one], names[two]], rng.integers(0, 9, (sizes[one], sizes[two])), name)

    def join() -> None:
        with session.changes() as batch:
            batch.add_agent(f"guest {number}")
            batch.add_variable(f"visit {number}", 4, f"guest {number}")
            for v in (mine[0], others[0]):
                batch.add_factor([f"visit {number}", names[v]], rng.integers(0, 9, (4, sizes[v])))

    def shorten() -> None:
        labels = problem.labels[mine[-1]] or range(sizes[mine[-1]])
        session.set_domain(names[mine[-1]], list(labels)[:-1])

    return [
        Change("add own factor", lambda: add(mine[0], mine[1], "own")),
        Change("remove own factor", lambda: session.remove_factor("own")),
        Change("add factor between", lambda: add(mine[0], others[0], "between")),
        Change("remove factor between", lambda: session.remove_factor("between")),
        Change("add variable", lambda: session.add_variable("more", 3, problem.agents[agent])),
        Change("remove variable", lambda: session.remove_variable("more")),
        Change("set domain", shorten),
        Change("add agent", lambda: session.add_agent(f"new {number}")),
        Change("add neighbour", join),
        Change("remove neighbour", lambda: session.remove_agent(f"guest {number}")),
        Change("remove agent", lambda: session.remove_agent(problem.agents[agent])),
    ]


def processor(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor milliseconds of some work, and its result."""
    start = time.process_time()
    found = work()
    return 1e3 * (time.process_time() - start), found


def main() -> None:
    """Run the benchmark, and print one line per kind of change."""
    parser = options(__file__, __doc__)
    for name, default in (("agents", 10), ("variables", 10), ("slots", 24), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given, world = parser.parse_args(), connect()
    report = Report(__file__, given) if world.rank == 0 else None
    parameters = {"agents": given.agents, "variables_per_agent": given.variables, "domain_size": given.slots}
    problem = dmcmc.generate("meeting-scheduling", **parameters)
    dmcmc.solve_on(world, problem)
    rows: dict[str, list[tuple[float, ...]]] = {}
    for number in range(given.repeats):
        session = dmcmc.Session(problem, world=world)
        session.solve()
        for kind, make in changes_of(session, number, given.repeats):
            rows.setdefault(kind, []).append(measured(session, make, world))
    if report is not None:
        report(f"A={given.agents} X={given.variables} D={given.slots}, {world.size} ranks, medians of {given.repeats}")
        report("change                  change ms  session ms    anew ms  tables  messages")
        for kind, found in rows.items():
            median = [statistics.median(column) for column in zip(*found, strict=True)]
            report(f"{kind:22} {median[0]:10.1f} {median[1]:11.1f} {median[2]:10.1f} {median[3]:7.0f} {median[4]:9.0f}")
        report.keep()


def measured(session: dmcmc.Session, make: Callable[[], None], world: World) -> tuple[float, ...]:
    """Make a change and solve again and anew: milliseconds of all three, tables and messages that were made again."""
    change, _ = processor(make)
    again, result = processor(session.solve)
    problem = session.problem
    copy = dmcmc.Problem(
        problem.variables, problem.domains, problem.agents, problem.owner, problem.factors, problem.labels
    )
    anew, fresh = processor(lambda: dmcmc.solve_on(world, copy))
    assert (result.status, result.objective, result.bound) == (fresh.status, fresh.objective, fresh.bound)
    assert session.reused is not None
    return change, again, anew, problem.n_agents - session.reused.tables, problem.n_agents - session.reused.messages


if __name__ == "__main__":
    main()
