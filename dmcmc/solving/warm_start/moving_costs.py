"""Costs of moving variables away from the assignment from which a run starts (``stay``).

The costs are unary factors that are added to the problem, so every method, bound and proof covers them: a variable that
has its value of the start costs nothing, and one that has another value costs its weight. A variable without a value in
the start is free to move.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import msgspec
import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.model.arithmetic import Exact, exact_sum, nearest
from dmcmc.inference.model.building.unknown_names import suggest_name
from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.result import Moves, Result
from dmcmc.solving.warm_start.start_assignment import NO_VALUE, start_of

Weight = Number | Mapping[str, Number]


@dataclass(frozen=True)
class MovingCosts:
    """The costs of moving the variables of a problem.

    Attributes
    ----------
    given : Problem
        The problem without these costs.
    start : sequence of int
        The index of each variable's value in the start; −1 for a variable without one.
    weights : sequence of number
        The cost of moving each variable, at least 0.
    """

    given: Problem
    start: Sequence[int]
    weights: Sequence[Number]

    @property
    def problem(self) -> Problem:
        """The problem with one more factor for each variable that costs something to move."""
        added = [factor_of(self.given, v, self.start[v], self.weights[v]) for v in self._weighted()]
        return replace(self.given, factors=(*self.given.factors, *added))

    def _weighted(self) -> Iterator[int]:
        """Yield the variables that cost something to move."""
        return (v for v, value in enumerate(self.start) if value != NO_VALUE and self.weights[v] > 0)

    def report(self, result: Result) -> Result:
        """Return the result of the problem with these costs together with the variables that moved."""
        if result.assignment is None:
            return result
        values = self.given.values_of(result.assignment)
        moved = self.moved(dict(enumerate(values.tolist())))
        quality = self.given.evaluate(values)
        moves = Moves(
            objective=None if quality.violation else quality.objective,
            cost=nearest(self.cost(moved)),
            count=len(moved),
            moved=self.former_values(moved),
        )
        return msgspec.structs.replace(result, moves=moves)

    def moved(self, values: Mapping[int, int]) -> list[int]:
        """Return the variables whose value differs from that of the start; ``values`` may be part of an assignment."""
        return [v for v, value in values.items() if self.start[v] not in (NO_VALUE, value)]

    def cost(self, moved: Sequence[int]) -> Exact:
        """Return the exact cost of moving some variables."""
        return exact_sum(self.weights[v] for v in moved)

    def former_values(self, moved: Sequence[int]) -> dict[str, Label]:
        """Return the values of some variables in the start, by the names of the variables."""
        return {self.given.variables[v]: self.given.label(v, self.start[v]) for v in moved}


def agree_on_costs(problem: Problem | None, settings: Settings, world: World) -> MovingCosts | None:
    """Return the costs of moving on each rank that has the problem; called by all ranks.

    Rank 0 reads the start.

    Parameters
    ----------
    problem
        The problem as given; None on a rank without it. Rank 0 has it.
    settings
        Settings with ``stay``.
    world
        The ranks.

    Raises
    ------
    ConfigError
        If there is no start, or a variable or a value is unknown; raised on all ranks.
    """
    start, weights = world.on_first_rank(partial(_start_and_weights, problem, settings))
    return None if problem is None else MovingCosts(problem, start, weights)


def _start_and_weights(problem: Problem | None, settings: Settings) -> tuple[list[int], list[Number]]:
    """Return the start and the cost of moving each variable (rank 0)."""
    assert problem is not None and settings.stay is not None
    if settings.start is None and not problem.initial_values:
        raise ConfigError("stay: needs an assignment to stay close to; give start")
    return start_of(problem, settings).tolist(), weights_of(problem.variables, settings.stay.weight)


def weights_of(variables: Sequence[str], weight: Weight) -> list[Number]:
    """Return the cost of moving each variable.

    Raises
    ------
    ConfigError
        If there is a weight for an unknown variable.
    """
    if not isinstance(weight, Mapping):
        return [weight] * len(variables)
    known = set(variables)
    for name in weight:
        if name not in known:
            raise ConfigError(f"stay.weight: variable {name!r} does not exist{suggest_name(name, list(variables))}")
    return [weight.get(name, 0) for name in variables]


def factor_of(problem: Problem, v: int, value: int, weight: Number) -> Factor:
    """Return the utilities of a variable's values: 0 for the value of the start, −weight for all others."""
    table = np.full(int(problem.domains[v]), -weight)
    table[value] = 0
    return Factor.of((v,), table, name=f"stay {problem.variables[v]}")


def without_cost(objective: Number | None, cost: Exact, sense: str) -> Number | None:
    """Return an objective without the cost of moving, rounded to the nearest number."""
    if objective is None:
        return None
    exact = Fraction(objective) + (cost if sense == "max" else -cost)
    return nearest(int(exact) if isinstance(objective, int) and exact.denominator == 1 else exact)
