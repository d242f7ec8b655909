"""Change small problems at random in a session, and compare every answer with enumeration.

    python -m benchmarks.sessions.random_changes [--sequences 1000] [--changes 6] [--kinds all] [--output FILE]
    mpirun -n 2 python -m benchmarks.sessions.random_changes

Each sequence begins with a random problem of two to six agents. A change replaces tables, or it is of any other kind:
factors, variables, domains and agents are added, removed, replaced and moved, one or up to four before the next solve.
After each one the objective, the bound and the status of the session must be those of an enumeration of all
assignments. ``--kinds structure`` makes no changes of tables alone.

With ``--timeout`` each solve has that time budget, and agents are sampled and bounded. Objectives must then be at most
the optimum and bounds at least. ``DMCMC_COMPILE=first`` waits for compiled kernels, which may take longer.
"""

import collections
import itertools
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.mpi.world import connect
from dmcmc.session.changes import Changes

_FORBIDDEN = 0.04  # share of the entries of a table that are forbidden
_LARGEST = 30  # largest utility
_MAX_VARIABLES = 8  # of which all assignments are enumerated
_SINGLE = 0.7  # share of the solves after one change of structure, not several
# Tables are sampled and bounded; without presolve the agents stay as they are.
TIMED: dict[str, Any] = {"presolve": "none", "method": "annealing", "bound": "triangles", "runs": 1, "samples": 1}


def random_table(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return random utilities, some of them forbidden."""
    return np.where(rng.random(shape) < _FORBIDDEN, -np.inf, rng.integers(0, _LARGEST, shape))


def first_problem(rng: np.random.Generator) -> dmcmc.Problem:
    """Return a random problem of a few agents with one or two variables each."""
    builder, names, sizes = dmcmc.Problem.build(), list[str](), list[int]()
    for a in range(int(rng.integers(2, 7))):
        for v in range(int(rng.integers(1, 3)) if len(names) < _MAX_VARIABLES - 4 else 1):
            sizes.append(int(rng.integers(1, 4)))
            names.append(builder.variable(f"x{a}.{v}", sizes[-1], agent=f"a{a}"))
    for _ in range(int(rng.integers(1, 3)) * len(names)):
        chosen = rng.choice(len(names), min(len(names), int(rng.integers(1, 4))), replace=False).tolist()
        builder.factor([names[i] for i in chosen], random_table(rng, tuple(sizes[i] for i in chosen)))
    return builder.problem()


def change_tables(rng: np.random.Generator, changes: Changes, problem: dmcmc.Problem) -> None:
    """Replace the tables of one to three factors."""
    for position in rng.choice(len(problem.factors), min(len(problem.factors), int(rng.integers(1, 4))), replace=False):
        changes.set_table(int(position), random_table(rng, problem.factors[position].shape))


def change_anything(rng: np.random.Generator, changes: Changes, problem: dmcmc.Problem, name: str) -> str:
    """Make one change of a random kind; return the kind."""
    variables, sizes, kind = list(problem.variables), problem.domains.tolist(), int(rng.integers(8))
    if kind == 0 and variables:
        chosen = rng.choice(len(variables), min(len(variables), 2), replace=False).tolist()
        changes.add_factor([variables[i] for i in chosen], random_table(rng, tuple(sizes[i] for i in chosen)))
    elif kind == 1 and problem.factors:
        changes.remove_factor(int(rng.integers(len(problem.factors))))
    elif kind == 2 and len(variables) < _MAX_VARIABLES and problem.agents:
        changes.add_variable(f"new{name}", int(rng.integers(1, 4)), str(rng.choice(list(problem.agents))))
    elif kind == 3 and len(variables) > 1:
        changes.remove_variable(variables[int(rng.integers(len(variables)))])
    elif kind == 4 and variables:
        v = int(rng.integers(len(variables)))
        labels = problem.labels[v] or tuple(range(sizes[v]))
        changes.set_domain(variables[v], list(labels)[: max(1, sizes[v] - 1)])
    elif kind == 5 and len(problem.agents) > 1:
        changes.remove_agent(str(rng.choice(list(problem.agents))))
    elif kind == 6 and variables:
        changes.move_variable(str(rng.choice(variables)), str(rng.choice(list(problem.agents))))
    else:
        changes.add_agent(f"agent{name}")
        return "add agent"
    kinds = (
        "add factor",
        "remove factor",
        "add variable",
        "remove variable",
        "set domain",
        "remove agent",
        "move variable",
    )
    return kinds[kind]


def change_structure(rng: np.random.Generator, session: dmcmc.Session, number: int) -> str:
    """Make one change of another kind than new tables, or up to four before the next solve; return the kind."""
    parts = 1 if rng.random() < _SINGLE else int(rng.integers(2, 5))
    for part in range(parts):
        with session.changes() as changes:
            kind = change_anything(rng, changes, session.problem, f"{number}.{part}")
    return kind if parts == 1 else "several"


def optimum(problem: dmcmc.Problem) -> float | None:
    """Return the best objective, by enumeration; None if every assignment breaks a hard constraint."""
    ranges = [range(size) for size in problem.domains.tolist()]
    found = [problem.evaluate(list(values)) for values in itertools.product(*ranges)]
    return max((one.objective for one in found if one.violation == 0), default=None)


def check_bounds(result: dmcmc.Result, best: float | None, place: tuple[int, int]) -> None:
    """Check the result of a run with a time budget: its objective is not above the optimum, and its bound not below."""
    if best is None:
        assert result.objective is None and result.status in ("infeasible", "timeout"), place
        return
    assert result.status != "infeasible", place
    assert result.objective is None or result.objective <= best, place
    assert result.bound is None or result.bound >= best, place
    assert result.status != "optimal" or result.objective == best, place


def main() -> None:
    """Run the sequences, and print what was checked."""
    parser = options(__file__, __doc__)
    parser.add_argument("--sequences", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=6)
    parser.add_argument("--kinds", choices=("all", "structure"), default="all")
    parser.add_argument("--timeout", type=float, default=None, help="seconds of each solve; bounds must be sound then")
    given, world = parser.parse_args(), connect()
    report = Report(__file__, given) if world.rank == 0 else None
    reused = np.zeros(3, dtype=np.int64)
    kinds, statuses, start = collections.Counter[str](), collections.Counter[str](), time.process_time()
    for seed in range(given.sequences):
        rng = np.random.default_rng(seed)
        settings = {} if given.timeout is None else TIMED
        session = dmcmc.Session(first_problem(rng), world=world, **settings)
        for number in range(given.changes):
            if number:
                kind = "tables"
                if given.kinds == "all" and rng.random() < 0.6:
                    with session.changes() as changes:
                        change_tables(rng, changes, session.problem)
                else:
                    kind = change_structure(rng, session, number)
                kinds[kind] += 1
            result, best = session.solve(given.timeout), optimum(session.problem)
            statuses[result.status] += 1
            assert session.reused is not None
            reused += np.array(session.reused)
            if given.timeout is not None:
                check_bounds(result, best, (seed, number))
                continue
            assert result.status == ("infeasible" if best is None else "optimal"), (seed, number)
            assert result.objective == best and (best is None or result.bound == best), (seed, number)
            if best is not None:
                assert session.problem.evaluate(dict(result.assignment or {})).objective == best, (seed, number)
    if report is None:
        return
    agree = "equal those of an enumeration" if given.timeout is None else "have sound bounds"
    report(f"{given.sequences} sequences of {given.changes} solves on {world.size} ranks: all answers {agree}")
    report("kept in all: {} tables, {} messages, {} bounds".format(*reused))
    report(f"answers by status: {dict(statuses)}; changes by kind: {dict(kinds)}")
    report(f"{time.process_time() - start:.0f} processor seconds")
    report.keep()


if __name__ == "__main__":
    main()
