"""Small and tiny problems whose solution compiles the kernels of a run.

Decide whether a problem is so small that its kernels are interpreted instead of compiled.

The work of a run is counted in steps of interpreted kernels (:mod:`dmcmc.inference.runtime.interpreted`). A problem
with few steps is solved before the first kernel would be compiled. The answers are the same either way.

Tiny problems and settings, whose solution compiles the same kernels as that of large ones.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from math import inf, prod
from typing import Any, NamedTuple

import numpy as np

from dmcmc.config.make_settings import settings_of
from dmcmc.config.settings import Settings
from dmcmc.files.document import Document
from dmcmc.inference.constraints.all_different import AllDifferentConstraint
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.orders.best_order import cells_upper_bound
from dmcmc.inference.runtime import interpreted
from dmcmc.inference.runtime.interpreted import interpreted_if_short, interpreted_kernels
from dmcmc.inference.tuning import MAX_EXACT_VARIABLES, MAX_INTERPRETED_STEPS, MAX_INTERPRETED_VARIABLES
from dmcmc.mpi.world import World

_COUNTED_SAMPLERS = {"gibbs", "metropolis-hastings", "annealing", "tempering"}  # samplers whose draws can be counted


class StepCounts(NamedTuple):
    """Steps of interpreted kernels (calls and inner loops), as counted in runs on small problems.

    Attributes
    ----------
    variable : int
        Per variable in any run; what a run does once takes as many steps as ten variables.
    entry : int
        Per entry of a factor in the first search.
    ordered_variable : int
        Per variable of the search for an elimination order.
    searched_variable : int
        Per variable of the local search that follows an answer without a proof.
    draw : int
        Per draw of one variable by a sampler.
    """

    variable: int
    entry: int
    ordered_variable: int
    searched_variable: int
    draw: int


STEPS = StepCounts(variable=500, entry=4, ordered_variable=6_000, searched_variable=60_000, draw=80)


@contextmanager
def interpreted_if_small(problem: Problem | None, settings: Settings, world: World | None = None) -> Iterator[None]:
    """Interpret all kernels in this block if the problem is small; called by all ranks."""
    with interpreted_kernels() if solves_interpreted(problem, settings, world or World()) else nullcontext():
        yield


def interpreted_tree_if_small(problem: Problem, settings: Settings) -> AbstractContextManager[None]:
    """Return a block that interprets all kernels if an elimination or a junction tree of the whole problem is small."""
    return interpreted_if_short(inf if settings.device == "cuda" else _elimination_steps(problem, tree=True))


def solves_interpreted(problem: Problem | None, settings: Settings, world: World) -> bool:
    """Return whether all ranks interpret the kernels of a run; the steps then count as interpreted by this process.

    Rank 0 decides for all ranks, by its count of steps and by what it has interpreted before.
    """
    interprets = False
    with world.together():
        if world.rank == 0 and problem is not None:
            interprets = interpreted.STEPS.take(count_steps(problem, settings))
    return world.decided(interprets)


def count_steps(problem: Problem, settings: Settings) -> float:
    """Return an estimate of the steps of a run; inf if it is large or cannot be counted.

    Runs that can be counted prove the optimum by exact tables, or have no time budget.
    """
    local, combine = settings.local, settings.combine
    if (
        interpreted.STEPS.left <= 0  # counting would be in vain
        or settings.device == "cuda"
        or settings.algorithm_settings.name != "dmcmc"
        or settings.search not in ("auto", "none")
        or settings.presolve == "merge"
        or local.order is not None
        or local.bound not in ("auto", "none")
    ):
        return inf
    steps = _elimination_steps(problem)
    if steps > interpreted.STEPS.left:
        return inf
    if local.method in ("auto", "exact") and local.cells == "auto" and combine.method != "mini-bucket":
        return steps
    if settings.budget.time is not None or local.method not in {"auto", "exact", *_COUNTED_SAMPLERS}:
        return inf
    if local.method in _COUNTED_SAMPLERS:
        steps += STEPS.draw * local.runs * local.samples * _rows_of_hidden(problem)
    if settings.local_search != "none":
        steps += STEPS.searched_variable * problem.n_variables
    return steps


def _elimination_steps(problem: Problem, tree: bool = False) -> float:
    """Return the steps of exact tables and their combination, or of a junction tree of the whole problem."""
    if problem.n_variables > MAX_INTERPRETED_VARIABLES:
        return inf
    key = "interpreted steps", tree
    return problem.shape_facts.get_or_compute(key, lambda: _count_elimination_steps(problem, tree))


def _count_elimination_steps(problem: Problem, tree: bool) -> float:
    """Count the steps of an elimination; inf if they are more than any process interprets."""
    n, domains, sizes = problem.n_variables, problem.domains, problem.domains.tolist()
    scopes = [factor.scope for factor in problem.factors]
    entries: float = sum(prod([sizes[v] for v in scope]) for scope in scopes)
    steps: float = STEPS.variable * (n + 10) + STEPS.entry * entries
    steps += STEPS.ordered_variable * n if n > MAX_EXACT_VARIABLES else 0
    if steps > MAX_INTERPRETED_STEPS:
        return inf
    if tree:
        return steps + cells_upper_bound(scopes, domains, range(n))
    interfaces = _interfaces(problem)
    shared = {v for interface in interfaces for v in interface}
    hidden = [v for v in range(n) if v not in shared]
    steps += sum(float(prod(domains[interface].tolist())) for interface in interfaces)
    steps += cells_upper_bound(scopes, domains, hidden)
    return inf if steps > MAX_INTERPRETED_STEPS else steps + _combined_cells(problem, interfaces)


def _combined_cells(problem: Problem, interfaces: list[list[int]]) -> float:
    """Return the cells of combining the agents' tables, one agent after the other, the cheapest first.

    An agent joins its messages and tables over all of their variables, without its hidden variables.
    """
    shared = {v for interface in interfaces for v in interface}
    groups = [shared.intersection(factor.scope) for factor in problem.factors]
    groups += [set(interface) for interface in interfaces]
    waiting, total = {agent for agent, interface in enumerate(interfaces) if interface}, 0.0
    while waiting and total <= MAX_INTERPRETED_STEPS:
        joined = {a: set().union(*(g for g in groups if not g.isdisjoint(interfaces[a]))) for a in waiting}
        cells = {a: float(prod(problem.domains[sorted(joined[a])].tolist())) for a in waiting}
        agent = min(waiting, key=lambda a: (cells[a], a))
        total += cells[agent]
        waiting.remove(agent)
        groups = [g for g in groups if g.isdisjoint(interfaces[agent])] + [joined[agent].difference(interfaces[agent])]
    return total


def _interfaces(problem: Problem) -> list[list[int]]:
    """Return each agent's variables that share a factor with another agent's variable."""
    crossing = [factor.scope for factor in problem.factors if len(set(problem.owner[list(factor.scope)].tolist())) > 1]
    shared = sorted({v for scope in crossing for v in scope})
    return [[v for v in shared if problem.owner[v] == agent] for agent in range(problem.n_agents)]


def _rows_of_hidden(problem: Problem) -> float:
    """Return the number of hidden variables in all rows of all agents' tables."""
    interfaces, variables = _interfaces(problem), np.bincount(problem.owner, minlength=problem.n_agents)
    return sum(
        float(prod(problem.domains[interface].tolist())) * (int(count) - len(interface))
        for interface, count in zip(interfaces, variables, strict=True)
    )


_OFFSET_OF_TYPE = {
    "int32": 0,
    "int64": 1 << 29,
    "float64": 1 << 61,
}  # added to a table entry so that sums need this type


def tiny_problem(
    dtype: np.dtype[Any],
    tables: Sequence[np.dtype[Any]] = (np.dtype(np.int32),),
    wide: bool = False,
    hard: bool = True,
    inside: bool = False,
) -> Problem:
    """Return a problem of four agents with three variables each, and factors of every arity up to three.

    Parameters
    ----------
    dtype
        Type of numbers that the sums need; ``int32``, ``int64`` or ``float64``.
    tables
        Types of the agents' tables, used in turn.
    wide
        Whether a variable has more than 256 values (300).
    hard
        Whether there is a hard constraint: value 0 of the first variable is forbidden.
    inside
        Whether a value of a hidden variable is forbidden, too (value 0 of the second variable).
    """
    rng, agents, per_agent = np.random.default_rng(0), 4, 3
    n = agents * per_agent
    owner = np.repeat(np.arange(agents), per_agent)
    domains = np.full(n, 3)
    domains[-1] = 300 if wide else 3
    scopes: list[tuple[int, ...]] = [(v,) for v in range(n)]
    scopes += [(a, b) for b in range(n) for a in range(b) if owner[a] == owner[b]]
    scopes += [(a, a + 1, a + 2) for a in range(0, n, per_agent)]
    scopes += [(a, b) for b in range(0, n, per_agent) for a in range(0, b, per_agent)]
    factors = []
    for scope in scopes:
        table = rng.integers(0, 100, [int(domains[v]) for v in scope]).astype(tables[owner[scope[0]] % len(tables)])
        if (hard and scope == (0,)) or (inside and scope == (1,)):
            table[0] = forbidden_value(table.dtype)
        if scope == scopes[-1]:
            table_type = np.dtype(np.int64) if dtype.kind == "f" and tables[0].kind == "i" else table.dtype
            table = table.astype(table_type) + np.array(_OFFSET_OF_TYPE[dtype.name], dtype=table_type)
        factors.append(Factor(scope, table))
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=owner,
        factors=tuple(factors),
    )


def with_sparse_factor(problem: Problem) -> Problem:
    """Return a problem whose last factor is sparse: a list of tuples and a default."""
    *others, last = problem.factors
    tuples = np.zeros((1, len(last.scope)), dtype=np.int32)
    listed = SparseFactor(last.scope, last.shape, tuples, last.table.reshape(-1)[:2])
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, (*others, listed))


def with_constraint(problem: Problem) -> Problem:
    """Return a problem with a global constraint over its first two variables."""
    shape = problem.domains[:2].tolist()
    codes = tuple(np.arange(size) for size in shape)
    constraint = AllDifferentConstraint((0, 1), shape, {"codes": codes})
    return replace(problem, factors=(*problem.factors, constraint))


def settings(local: dict[str, Any], combine: dict[str, Any] | None = None, local_search: str = "auto") -> Settings:
    """Return settings on the CPU with the given sections."""
    sections = {"local": local, "combine": combine or {}, "device": "cpu", "local_search": local_search}
    return settings_of(Document("", sections))
