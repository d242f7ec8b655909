"""Compare global constraints with brute force on random problems, for each constraint and each method.

    python -m benchmarks.constraints.random_problems [--problems 1000] [--solved 100] [--output FILE]

On every problem: degrees against their definition, the decomposition, the relaxation, propagation (no solution is
removed), and the local search by a fixed number of moves. On ``--solved`` of them: exact elimination, presolve,
branch and bound, and toulbar2 if it is installed. The exit code is 1 if anything is wrong.
"""

import collections
import sys
import time
from collections.abc import Iterator
from itertools import product

import numpy as np
from support.constraints.naive_degrees import naive_degree
from support.constraints.random_constraints import KINDS, best_objective, random_problem

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.toulbar2 import process

_MOVES = 4000  # of the local search; one solution of 1,000 may need more
_ENGINES = ("branch-and-bound", "toulbar2")


def wrong_constraint(constraint: GlobalConstraint, rng: np.random.Generator) -> Iterator[str]:
    """Yield what is wrong with the degree, the decomposition, the relaxation or the propagation of a constraint."""
    parts, relaxed = constraint.parts(), constraint.relaxed_parts()
    domains = [rng.random(size) < 0.8 for size in constraint.shape]
    kept = constraint.propagate(domains) if constraint.cost is None else domains
    for values in product(*map(range, constraint.shape)):
        degree, entry = constraint.degree(values), constraint.entry(values)
        if degree != naive_degree(constraint, values):
            yield "degree"
        if parts is not None and _sum(parts, constraint, values) != entry:
            yield "decomposition"
        bound = _sum(relaxed, constraint, values)
        if entry is not None and (bound is None or bound < entry):
            yield "relaxation"
        inside = all(domain[x] for domain, x in zip(domains, values, strict=True))
        if inside and not degree and (kept is None or not all(m[x] for m, x in zip(kept, values, strict=True))):
            yield "propagation"


def _sum(parts: list[Factor], constraint: GlobalConstraint, values: tuple[int, ...]) -> float | None:
    """Return the sum of parts at a combination of values of a constraint's scope; None if one is forbidden."""
    value_of = dict(zip(constraint.scope, values, strict=True))
    total = 0.0
    for part in parts:
        entry = part.entry([value_of[v] for v in part.scope])
        if entry is None:
            return None
        total += entry
    return total


def wrong_search(problem: Problem, best: float | None) -> Iterator[str]:
    """Yield a text if the local search misses the optimum."""
    start = np.zeros(problem.n_variables, dtype=np.int64)
    evaluation = problem.evaluate(ConstraintSearch(problem, 0).improve_by_moves(start, _MOVES, Deadline()))
    found = None if evaluation.violation else evaluation.objective
    if found != best:
        yield "local search"


def wrong_answers(problem: Problem, best: float | None, engines: tuple[str, ...]) -> Iterator[str]:
    """Yield the methods that do not find the optimum."""
    if dmcmc.solve(problem).objective != best:
        yield "elimination"
    reduced = presolve(problem, 2**30)
    if (None if reduced.infeasible else best_objective(reduced.problem)) != best:
        yield "presolve"
    for engine in engines:
        if dmcmc.solve(problem, timeout=20, search=engine).objective != best:
            yield engine


def main() -> int:
    """Check all problems, and print what is wrong for each constraint."""
    parser = options(__file__, __doc__ or "", only=True)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--solved", type=int, default=100)
    given = parser.parse_args()
    engines = _ENGINES if process.available() else _ENGINES[:1]
    report, total = Report(__file__, given, engines=", ".join(engines)), 0
    for number, kind in enumerate(KINDS):
        if given.only not in kind:
            continue
        wrong: collections.Counter[str] = collections.Counter()
        start, infeasible = time.process_time(), 0
        for seed in range(given.problems):
            rng = np.random.default_rng([seed, number])
            problem = random_problem(rng, [kind, KINDS[int(rng.integers(len(KINDS)))]], 4, 3, 1 + seed % 2)
            best = best_objective(problem)
            infeasible += best is None
            for factor in problem.factors:
                wrong.update(set(wrong_constraint(factor, rng)) if isinstance(factor, GlobalConstraint) else ())
            wrong.update(wrong_search(problem, best))
            if seed < given.solved:
                wrong.update(wrong_answers(problem, best, engines))
        total += wrong.total()
        what = ", ".join(f"{name} {count}" for name, count in wrong.items()) or "none"
        report(
            f"{kind:20s} {given.problems} problems ({infeasible} infeasible), wrong: {what};"
            f" {time.process_time() - start:.0f} s"
        )
    report.keep()
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
