"""Check the answers of random problems, with all methods, bounds and budgets, against the true optimum.

A problem and a configuration are drawn from each seed. The optimum comes from :func:`optimum`, an elimination in plain
NumPy that shares no code with the solver. Every answer and every point of its trace has to satisfy

    objective <= optimum <= bound        (reversed for costs).

The objective has to be that of the assignment. ``optimal``, ``infeasible`` and a gap of 0 have to be true, the trace
has to be monotone, and a target gap or time has to be kept.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc import Factor, Problem
from dmcmc.anytime.solve import solve
from dmcmc.config.make_settings import settings_from
from dmcmc.config.settings import Settings
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.results.result import Result

METHODS = ("auto", "annealing", "gibbs", "tempering", "metropolis-hastings", "exact")
BOUNDS = (
    "auto",
    "none",
    "dual",
    "triangles",
    "mini-bucket",
    "dual+mini-bucket",
    "triangles+mini-bucket",
    "semidefinite",
)
TIMES = (None, None, 0.001, 0.05, 0.3)
_MAX_CELLS = 3e6  # largest table of the reference, in cells


@dataclass(frozen=True)
class SoundnessCase:
    """The problem and the configuration of a seed.

    Attributes
    ----------
    problem : Problem
        The problem.
    config : Settings
        The settings of the run.
    exact : bool
        Whether all utilities are integers, so that no rounding is allowed.
    """

    problem: Problem
    config: Settings
    exact: bool


def draw(seed: int, tiny: bool = False, device: str = "cpu", most_seconds: float = math.inf) -> SoundnessCase:
    """Return the problem and the configuration of a seed."""
    rng = np.random.default_rng([seed, 7])
    kind = str(rng.choice(["small", "wide", "mixed", "large"], p=[0.35, 0.05, 0.3, 0.3])) if not tiny else "small"
    exact = kind != "mixed" and bool(rng.random() < 0.6)
    problem = _draw_problem(rng, tiny, kind, exact)
    return SoundnessCase(problem, _draw_config(rng, tiny, device, most_seconds), exact)


def _draw_problem(rng: np.random.Generator, tiny: bool, kind: str, exact: bool) -> Problem:
    """Draw agents with interfaces of 0 to 4 variables, with unary, binary and ternary factors.

    ``kind`` is the magnitude of the entries; in ``mixed`` problems some factors are integers and some are not.
    """
    agents = int(rng.integers(1, 4 if tiny else 6))
    dense = not tiny and rng.random() < 0.4  # agents whose bounds take longer
    sizes = rng.integers(*((0, 4) if tiny else (3, 9) if dense else (0, 7)), agents)
    n = int(sizes.sum())
    owner = np.repeat(np.arange(agents), sizes)
    max_domain = int(rng.integers(1, 4 if tiny else 6))
    domains = rng.integers(1, max_domain + 1, n)
    mine = [np.flatnonzero(owner == a) for a in range(agents)]
    shared = [rng.permutation(own)[: rng.integers(0, 5)] for own in mine]
    hard = float(rng.choice([0.0, 0.0, 0.05, 0.15, 0.4]))
    scopes: list[list[int]] = []
    for own in mine:
        for _ in range(
            int(rng.integers(2 * own.size, 4 * own.size + 1) if dense else rng.integers(0, 2 * own.size + 2))
        ):
            scopes.append(rng.permutation(own)[: rng.integers(1, 4)].tolist())
    groups = rng.integers(0, rng.integers(1, 3), agents)  # agents of different groups share no factor
    for _ in range(int(rng.integers(0, (8 if rng.random() < 0.3 else 2) * agents + 1))):
        group = int(rng.integers(0, 2))
        pool = [v for a in range(agents) if groups[a] == group for v in shared[a].tolist()]
        scopes.append(rng.permutation(pool)[: rng.integers(2, 4)].tolist() if pool else [])
    sense = str(rng.choice(["max", "min"]))
    factors = []
    for scope in scopes:
        if not scope and rng.random() < 0.7:
            continue
        shape = tuple(int(domains[v]) for v in scope)
        table = _draw_table(rng, shape, kind, exact, hard if scope else hard / 20)
        factors.append(Factor.of(scope, -table if sense == "min" else table, sense))
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=owner,
        factors=tuple(factors),
        sense=sense,
    )


def _draw_table(
    rng: np.random.Generator, shape: tuple[int, ...], kind: str, exact: bool, hard: float
) -> NDArray[np.float64]:
    size = {"small": 3.0, "wide": 2.0**40, "mixed": 4.0, "large": 1000.0}[kind]
    low = -size if rng.random() < 0.7 else 0.0
    integer = exact or (kind == "mixed" and rng.random() < 0.6)
    values = np.rint(rng.uniform(low, size, shape)) if integer else rng.uniform(low, size, shape)
    return np.asarray(np.where(rng.random(shape) < hard, -np.inf, values))


def _draw_config(rng: np.random.Generator, tiny: bool, device: str, most_seconds: float) -> Settings:
    method = str(rng.choice(METHODS))
    local: dict[str, Any] = {
        "method": method,
        "bound": str(rng.choice(BOUNDS)),
        "runs": int(rng.integers(1, 4)),
        "samples": int(rng.choice([1, 5] if tiny else [1, 5, 20])),
        "rows": ["auto", "auto", 1, 3, 10][int(rng.integers(0, 5))],
        "cells": int(rng.choice([1, 60, 4_000_000_000])),
    }
    combine: dict[str, Any] = {"method": str(rng.choice(["auto", "auto", "exact", "mini-bucket"]))}
    if combine["method"] != "exact":
        combine["z"] = ["auto", 2, 3, 4][int(rng.integers(0, 4))]
        combine["partition"] = str(rng.choice(["scope", "content"]))
        combine["moment_matching"] = bool(rng.integers(0, 2))
    seconds = TIMES[int(rng.integers(0, len(TIMES)))]
    budget: dict[str, Any] = {"gap": float(rng.choice([0.0, 0.0, 0.05, 0.5]))}
    if seconds is not None:
        budget["time"] = min(seconds, most_seconds)
    if rng.random() < 0.2:
        budget["memory"] = int(rng.choice([2000, 10_000, 100_000]))
    sections = {"local": local, "combine": combine, "budget": budget}
    return settings_from(None, {**sections, "device": device, "seed": int(rng.integers(0, 1000))})


def optimum(problem: Problem) -> float | None:
    """Return the best utility (to be maximised), −inf if there is none; None if the elimination is too large.

    The variable with the fewest joined entries is eliminated next; integers below 2^53 are exact.
    """
    tables = []
    for factor in problem.factors:
        values = factor.table.astype(np.float64)
        values[forbidden(factor.table)] = -np.inf
        tables.append((factor.scope, values))
    domains, left = problem.domains, set(range(problem.n_variables))
    while left:
        neighbours = {v: {u for scope, _ in tables if v in scope for u in scope} | {v} for v in left}
        v = min(left, key=lambda v: (math.prod(int(domains[u]) for u in neighbours[v]), v))
        if math.prod(int(domains[u]) for u in neighbours[v]) > _MAX_CELLS:
            return None
        names = sorted(neighbours[v])
        joined = np.zeros([int(domains[u]) for u in names])
        for scope, values in (t for t in tables if v in t[0]):
            axes = np.argsort(scope)
            joined = joined + values.transpose(axes).reshape([int(domains[u]) if u in scope else 1 for u in names])
        tables = [t for t in tables if v not in t[0]]
        tables.append((tuple(u for u in names if u != v), joined.max(axis=names.index(v))))
        left.remove(v)
    return float(sum(values.item() for _, values in tables))


def utility_of(problem: Problem, values: list[int]) -> float:
    """Return an assignment's utility, −inf if it is infeasible."""
    total = []
    for factor in problem.factors:
        entry = factor.table[tuple(values[v] for v in factor.scope)]
        total.append(-math.inf if forbidden(entry) else entry.item())
    return -math.inf if -math.inf in total else math.fsum(total)


def errors_of(case: SoundnessCase, result: Result, best: float) -> list[str]:
    """Return the errors of an answer, given the optimum (as a utility)."""
    problem, sign = case.problem, 1 if case.problem.sense == "max" else -1
    scale = sum(float(np.abs(f.table[~forbidden(f.table)]).max(initial=0)) for f in problem.factors)
    tolerance = 0.0 if case.exact else 1e-12 * max(1.0, scale)
    found: list[str] = []

    def expect(holds: bool, what: str) -> None:
        if not holds:
            found.append(what)

    points = [(p.objective, p.bound) for p in result.trace] + [(result.objective, result.bound)]
    for objective, bound in points:
        expect(objective is None or sign * objective <= best + tolerance, f"objective {objective} beyond {sign * best}")
        expect(bound is None or sign * bound >= best - tolerance, f"bound {bound} cuts {sign * best} off")
    for (before, above), (after, below) in itertools.pairwise(points):
        expect(
            before is None or (after is not None and sign * after >= sign * before), f"objective {before} -> {after}"
        )
        tighter = above is None or (below is not None and sign * below <= sign * above + tolerance)
        lower = tighter or result.status == "infeasible"
        expect(lower, f"bound {above} -> {below}")
    times = [p.time for p in result.trace]
    expect(times == sorted(times), "the trace goes back in time")
    if result.assignment is not None:
        values = [int(result.assignment[name]) for name in problem.variables]  # type: ignore[call-overload]
        value = utility_of(problem, values)
        expect((value > -math.inf) == (result.objective is not None), "objective and feasibility differ")
        if result.objective is not None:
            expect(abs(sign * result.objective - value) <= tolerance, f"worth {sign * value}, not {result.objective}")
    expect((result.status == "infeasible") <= (best == -math.inf), "infeasible, but it is not")
    if result.status == "optimal" or result.gap == 0:
        close = best - sign * (result.objective if result.objective is not None else math.inf) <= 1e-9 * max(
            1.0, abs(best)
        )
        expect(
            close if not case.exact else result.objective == sign * best, f"claims the optimum, which is {sign * best}"
        )
    expect(result.status != "timeout" or case.config.budget.time is not None, "timed out without a budget of time")
    gap = case.config.budget.gap
    expect(not (result.status == "timeout" and result.gap is not None and result.gap <= gap), "timed out at its gap")
    return found


def check(seed: int, **how: Any) -> tuple[str, list[str]]:
    """Solve a seed's problem; return its outcome in words, and the errors of the answer."""
    case = draw(seed, **how)
    best = optimum(case.problem)
    if best is None:
        return "no reference", []
    try:
        result = solve(case.problem, case.config)
    except ResourceError:
        return "refused (memory or z)", []
    assert result is not None
    outcome = result.status
    if result.status in ("feasible", "timeout") and result.bound is not None:
        outcome += ", bounded"
    return outcome, errors_of(case, result, best)
