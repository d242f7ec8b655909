"""Explain an infeasible problem: a minimal set of hard constraints in conflict, and what relaxing each one brings."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from dmcmc.algorithms.choice import choose_algorithm
from dmcmc.config.settings import Settings
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.presolve.minimal_conflict import minimal_conflict
from dmcmc.mpi.world import World
from dmcmc.questions.one_agent import undivided, undivided_settings
from dmcmc.results.questions import ConstraintConflict, RelaxedConstraint
from dmcmc.results.result import Result
from dmcmc.results.stored_result import provenance
from dmcmc.samplers.contract import tuning
from dmcmc.solving.planning.divided_problem import with_memory_limit


def find_conflict(problem: Problem, settings: Settings) -> ConstraintConflict:
    """Return a minimal set of hard constraints that cannot hold together; each test is a run with a time limit.

    Parameters
    ----------
    problem : Problem
        The problem; its agents do not matter.
    settings : Settings
        How to solve it. ``budget.time`` limits all runs together; without it, each run ends with a proof.
    """
    start, limit = time.perf_counter(), settings.budget.time
    settings = undivided_settings(with_memory_limit(settings, World()))
    whole = undivided(problem, settings)
    hard = [i for i, factor in enumerate(problem.factors) if factor.forbidden_entries()]

    def solve_part(factors: Sequence[Factor], share: float) -> Result:
        """Solve the problem with other factors within a share of the time that is left."""
        seconds = (
            None if limit is None else max(tuning.CHECK_SECONDS / 2, share * (start + limit - time.perf_counter()))
        )
        limited = replace(settings, budget=replace(settings.budget, time=seconds))
        return choose_algorithm.solve_alone(dataclasses.replace(whole, factors=tuple(factors)), limited)

    def is_infeasible(items: list[int]) -> bool | None:
        """Return whether some hard constraints cannot hold together; None if this is not known in time."""
        if limit is not None and time.perf_counter() >= start + limit:
            return None
        result = solve_part([_without_utilities(problem.factors[hard[i]]) for i in items], tuning.UNTRIED_SHARE)
        return True if result.status == "infeasible" else False if result.violation == 0 else None

    first = solve_part(problem.factors, tuning.FIRST_SHARE)
    facts = provenance(settings, 1, 1)
    if first.status != "infeasible":
        elapsed = time.perf_counter() - start
        return ConstraintConflict(
            status="feasible" if first.violation == 0 else "unknown", time=elapsed, provenance=facts
        )
    found = minimal_conflict(len(hard), is_infeasible)
    relaxations = []
    for number, item in enumerate(found.items):
        factors = [_relaxed(f) if i == hard[item] else f for i, f in enumerate(problem.factors)]
        result = solve_part(factors, 1 / (len(found.items) - number))
        relaxations.append(
            RelaxedConstraint(constraint=_name(problem, hard[item]), objective=result.objective, status=result.status)
        )
    return ConstraintConflict(
        status="infeasible",
        constraints=tuple(_name(problem, hard[item]) for item in found.items),
        minimal=found.is_minimal,
        relaxations=tuple(relaxations),
        time=time.perf_counter() - start,
        provenance=facts,
    )


def _without_utilities(factor: Factor) -> Factor:
    """Return a factor that forbids the same entries, and whose other entries are zero if it is a table."""
    if type(factor) is not Factor:
        return factor
    return Factor.of(factor.scope, np.where(forbidden(factor.table), -np.inf, 0.0), name=factor.name)


def _relaxed(factor: Factor) -> Factor:
    """Return a factor with the utility 0 for the entries that it forbids."""
    table = np.where(forbidden(factor.table), 0, factor.table)
    return Factor.of(factor.scope, table, name=factor.name)


def _name(problem: Problem, i: int) -> str:
    """Return the name of a factor; its position and its variables if it has none."""
    factor = problem.factors[i]
    return factor.name or f"factor {i} ({', '.join(problem.variables[v] for v in factor.scope)})"
