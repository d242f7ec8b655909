"""Compare global constraints with brute force on random problems, for each constraint and each method.

    python -m benchmarks.constraints.random_problems [--problems 1000] [--solved 10] [--used 10] [--output FILE]

On every problem: degrees against their definition, the decomposition, the relaxation, propagation (no solution is
removed), presolve, exact elimination, the bound of the relaxed problem, branch and bound, the first answer without
kernels, and the local search by a fixed number of moves. All of that works in this process, with the same kernels. On
``--solved`` problems: whole runs of ``dmcmc.solve``, and toulbar2 if it is installed. On ``--used`` problems:
``expected``, a session with changes, alternatives and private inputs. The exit code is 1 if anything is wrong.
"""

import collections
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray
from support.constraints.naive_degrees import naive_degree
from support.constraints.random_constraints import KINDS, best_objective, random_problem

import dmcmc
from benchmarks.harness import Report, options
from dmcmc.formats.agent_files import write
from dmcmc.inference.constraints.global_constraint import GlobalConstraint
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import Factor, choose_arithmetic
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.presolve.presolve import presolve
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.samplers.branch_and_bound.engine import BranchAndBound
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch
from dmcmc.samplers.constraint_search.search_model import search_model
from dmcmc.samplers.constraint_search.uncompiled_search import UncompiledSearch
from dmcmc.samplers.toulbar2.background_search import available
from dmcmc.samplers.toulbar2.compact_problem import CompactProblem, costs_of_compact

_MOVES = 4000  # of the local search; one solution of 1,000 may need more
_MAX_REPAIRS = 10  # repairs of the search for the first answer, each from a new construction
_SEARCH_SECONDS = 20.0  # time limit of branch and bound; it takes a millisecond
_CHANGES, _ALTERNATIVES = 4, 3  # changes of a session, and assignments that are asked for
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
    """Yield a text if the first answer violates a constraint for no reason, or the local search misses the optimum."""
    if best is not None:
        ends = partial(next, iter([False] * _MAX_REPAIRS + [True]))
        _, degree = UncompiledSearch(search_model(problem), 0).search(Deadline(), ends, lambda values: None)
        if degree:
            yield "first answer"
    start = np.zeros(problem.n_variables, dtype=np.int64)
    evaluation = problem.evaluate(ConstraintSearch(problem, 0).improve_by_moves(start, _MOVES, Deadline()))
    found = None if evaluation.violation else evaluation.objective
    if found != best:
        yield "local search"


def wrong_exact_methods(problem: Problem, best: float | None) -> Iterator[str]:
    """Yield the exact methods that do not find the optimum, and "bound" if that of the relaxed problem is none."""
    reduced = presolve(problem, 2**30)
    if (None if reduced.infeasible else best_objective(reduced.problem)) != best:
        yield "presolve"
    dense = densify(problem, 2**30).problem
    if answer(problem, eliminated(dense)[1]) != best:
        yield "elimination"
    bound, _ = eliminated(densify(relaxed(problem), 2**30).problem)
    utility = None if best is None else problem.to_own_sense(best)
    if utility is not None and (bound is None or bound < utility):
        yield "bound"
    progress = BranchAndBound().search(costs_of_compact(CompactProblem(dense)), None, _SEARCH_SECONDS)
    if not progress.complete or answer(problem, progress.values) != best:
        yield "branch and bound"


def relaxed(problem: Problem) -> Problem:
    """Return a problem with the relaxation of each constraint in its place."""
    factors = [
        part for f in problem.factors for part in (f.relaxed_parts() if isinstance(f, GlobalConstraint) else [f])
    ]
    return replace(problem, factors=tuple(factors))


def eliminated(dense: Problem) -> tuple[float | None, NDArray[np.int64]]:
    """Return the largest utility of a problem of dense tables by exact elimination, and an assignment that has it."""
    tables = [factor for factor in dense.factors if factor.scope]
    values, total = np.zeros(dense.n_variables, dtype=np.int64), 0.0
    if tables:
        arithmetic = choose_arithmetic(tables)
        plan = plan_elimination([f.scope for f in tables], dense.domains, range(dense.n_variables), ())
        done = eliminate([arithmetic.encode(factor) for factor in tables], plan, arithmetic)
        done.choose(values)
        total = -np.inf if arithmetic.is_lowest(done.total()) else done.total()
    constants = [factor.entry(()) for factor in dense.factors if not factor.scope]
    total += sum(-np.inf if constant is None else constant for constant in constants)
    return (total if np.isfinite(total) else None), values


def answer(problem: Problem, values: NDArray[np.int64] | None) -> float | None:
    """Return the objective of an assignment; None if there is none, or it violates a constraint."""
    if values is None:
        return None
    evaluation = problem.evaluate(values[: problem.n_variables])
    return None if evaluation.violation else evaluation.objective


def wrong_answers(problem: Problem, best: float | None, engines: tuple[str, ...]) -> Iterator[str]:
    """Yield the methods that do not find the optimum."""
    if dmcmc.solve(problem).objective != best:
        yield "whole run"
    for engine in engines:
        if dmcmc.solve(problem, timeout=20, search=engine).objective != best:
            yield engine


def wrong_uses(problem: Problem, best: float | None, rng: np.random.Generator) -> Iterator[str]:
    """Yield which of ``expected``, a session, alternatives and private inputs differs from an enumeration."""
    chance = Factor.of((0, problem.n_variables), rng.integers(-9, 9, (problem.domains[0], 2)))
    uncertain = replace(
        problem,
        variables=(*problem.variables, "chance"),
        domains=np.append(problem.domains, 2),
        owner=np.append(problem.owner, 0),
        labels=(*problem.labels, None),
        factors=(*problem.factors, chance),
    )
    certain = replace(problem, factors=(*problem.factors, Factor.of((0,), chance.table @ np.array([0.25, 0.75]))))
    if dmcmc.solve(dmcmc.expected(uncertain, {"chance": [0.25, 0.75]})).objective != best_objective(certain):
        yield "expected"
    session = dmcmc.Session(problem)
    for _ in range(_CHANGES):
        change(session, rng)
        if session.solve().objective != best_objective(session.problem):
            yield "session"
    if best is not None:
        found = [problem.evaluate(values) for values in product(*map(range, problem.domains.tolist()))]
        ranked = sorted((one.objective for one in found if not one.violation), reverse=problem.sense == "max")
        others = dmcmc.alternatives(problem, _ALTERNATIVES).alternatives
        if [one.objective for one in others] != ranked[:_ALTERNATIVES]:
            yield "alternatives"
    with tempfile.TemporaryDirectory() as folder:
        write(problem, f"{folder}/parts", 1 << 30)
        result = dmcmc.PrivateSession(f"{folder}/parts").solve()
        if result is None or result.objective != best:
            yield "private"


def change(session: dmcmc.Session, rng: np.random.Generator) -> None:
    """Change a problem at random; constraints stay of their kinds."""
    problem, kinds = session.problem, [type(factor) for factor in session.problem.factors]
    v, which = int(rng.integers(problem.n_variables)), int(rng.integers(6))
    labels = list(problem.labels[v] or range(int(problem.domains[v])))
    if which == 0:
        session.add_factor([problem.variables[v]], rng.integers(-5, 6, len(labels)))
    elif which == 1:
        tables = [i for i, kind in enumerate(kinds) if kind is Factor and problem.factors[i].scope]
        for position in tables[:1]:
            session.set_table(position, rng.integers(-5, 6, problem.factors[position].shape))
    elif which == 2 and kinds:
        session.remove_factor(int(rng.integers(len(kinds))))
    elif which == 3:
        session.move_variable(problem.variables[v], str(rng.choice(list(problem.agents))))
    elif which == 4 and problem.n_variables > 2:
        session.remove_variable(problem.variables[v])
    else:
        session.set_domain(problem.variables[v], rng.permutation(labels)[: rng.integers(1, len(labels) + 1)])
        assert [type(factor) for factor in session.problem.factors] == kinds


def main() -> int:
    """Check all problems, and print what is wrong for each constraint."""
    parser = options(__file__, __doc__ or "", only=True)
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--solved", type=int, default=10)
    parser.add_argument("--used", type=int, default=10)
    given = parser.parse_args()
    engines = _ENGINES if available() else _ENGINES[:1]
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
            wrong.update(wrong_exact_methods(problem, best))
            if seed < given.solved:
                wrong.update(wrong_answers(problem, best, engines))
            if seed < given.used:
                wrong.update(set(wrong_uses(problem, best, rng)))
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
