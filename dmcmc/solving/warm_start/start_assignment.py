"""The assignment that a run starts from, and what moving away from it costs.

The settings give it (``start``: a mapping or a file), or the problem itself (``Problem.initial_values``, which pyDCOP's
``initial_value`` sets). A file is the JSON of a result, a JSON object of values, or CSV. The assignment may leave out
variables and break hard constraints: :func:`completed` chooses the missing values greedily, and hill climbing, which
counts violations first, repairs it.

The costs of moving (``stay``) are unary factors that are added to the problem, so every method, bound and proof covers
them: a variable that has its value of the start costs nothing, and one that has another value costs its weight. A
variable without a value in the start is free to move.
"""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.files.write import plain_json, read_own
from dmcmc.inference.model.arithmetic import Exact, exact_sum, nearest
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import list_values, suggest_name
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.presolve.presolve import restrict_domains
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.world import World
from dmcmc.results.result import Moves, Result
from dmcmc.samplers.local_search.local_search import UncompiledAscent, ascent_of

_HEADER = ("variable", "value")


def assignment_in(data: Any, place: str) -> Mapping[str, Any]:
    """Return the assignment in plain data: the data itself, or the field ``assignment`` of a result.

    Parameters
    ----------
    data
        A mapping from variable names to values, or a result as plain data.
    place
        Where the data is from, for error messages.

    Raises
    ------
    ConfigError
        If there is no assignment.
    """
    if isinstance(data, Mapping) and {"status", "objective", "assignment"} <= data.keys():
        data = data["assignment"]
        if data is None:
            raise ConfigError(f"{place}: the result has no assignment")
    if not isinstance(data, Mapping):
        raise ConfigError(f"{place}: expected a mapping from variables to values, got {type(data).__name__}")
    return data


def read_assignment(path: str) -> Mapping[str, Any]:
    """Read an assignment from a file; see the module for the formats.

    A file that begins with a brace is JSON. All other files are CSV with two columns, the variable and its value; a
    first line ``variable,value`` is a header. Values in CSV are text.

    Raises
    ------
    DmcmcError
        If the file cannot be read, or has no assignment; one line with the file, and the line of the file.
    """
    return read_own(path, "JSON", partial(_assignment_in_text, path))


def _assignment_in_text(path: str, content: bytes) -> Mapping[str, Any]:
    """Return the assignment in JSON or CSV."""
    return assignment_in(plain_json(content), path) if content.lstrip()[:1] == b"{" else _read_csv(path, content)


def _read_csv(path: str, content: bytes) -> dict[str, str]:
    """Return the assignment in CSV text."""
    assignment: dict[str, str] = {}
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        for row in lines:
            cells = [cell.strip() for cell in row]
            if not any(cells) or (lines.line_num == 1 and tuple(cell.lower() for cell in cells) == _HEADER):
                continue
            if len(cells) != len(_HEADER):
                raise FileError(f"{path}:{lines.line_num}: expected a variable and its value, got {len(cells)} columns")
            if cells[0] in assignment:
                raise FileError(f"{path}:{lines.line_num}: variable {cells[0]!r} has two values")
            assignment[cells[0]] = cells[1]
    except (UnicodeError, csv.Error) as error:
        raise FileError(f"{path}: is neither JSON nor CSV: {' '.join(str(error).split())}") from None
    return assignment


Values = NDArray[np.int64]

NO_VALUE = -1  # in place of the index of a missing value


def start_of(problem: Problem, settings: Settings) -> Values:
    """Return the assignment to start from, as value indices.

    Parameters
    ----------
    problem
        The problem as given.
    settings
        Settings of the run.

    Returns
    -------
    (n,) int64
        The index of each variable's value; −1 for a variable without one.

    Raises
    ------
    DmcmcError
        If the file cannot be read, or a variable or a value is unknown; one line that names it.
    """
    start = problem.initial_values if settings.start is None else settings.start
    if isinstance(start, str):
        return value_indices(problem, read_assignment(start), start)
    return value_indices(problem, assignment_in(start, "start"), "start")


def value_indices(problem: Problem, assignment: Mapping[str, Any], place: str) -> Values:
    """Return the index of each variable's value; −1 for a variable without one.

    A value is a label of the variable, or the text of one.

    Raises
    ------
    ConfigError
        If a variable or a value is unknown; the message begins with ``place``.
    """
    index = {name: v for v, name in enumerate(problem.variables)}
    values = np.full(problem.n_variables, NO_VALUE, dtype=np.int64)
    for name, value in assignment.items():
        if name not in index:
            raise ConfigError(f"{place}: variable {name!r} does not exist{suggest_name(name, problem.variables)}")
        labels = problem.labels[index[name]]
        known: Sequence[Label] = range(int(problem.domains[index[name]])) if labels is None else labels
        position = _position(known, value)
        if position is None:
            raise ConfigError(f"{place}: variable {name!r}: {value!r} is not one of its values; {list_values(known)}")
        values[index[name]] = position
    return values


def _position(known: Sequence[Label], value: Any) -> int | None:
    """Return the position of a value among labels, or that of the label with the same text; None if there is none."""
    if isinstance(value, str | int | float) and value in known:
        return known.index(value)
    text = str(value)
    return next((position for position, label in enumerate(known) if str(label) == text), None)


def completed(problem: Problem, values: Values, compiled: bool, stop: Deadline) -> Values:
    """Return an assignment with greedily chosen and then 1-optimal values in place of the missing ones.

    Parameters
    ----------
    problem
        The problem.
    values : (n,) int64
        The index of each variable's value; −1 for a variable without one. Values that are given are not changed.
    compiled
        Whether the kernels of the first search may be used; without them the problem has no global constraint.
    stop
        Deadline of the search.
    """
    if (values != NO_VALUE).all():
        return values
    sizes = zip(values.tolist(), problem.domains.tolist(), strict=True)
    remaining = [np.arange(size) if value == NO_VALUE else np.array([value]) for value, size in sizes]
    restricted = restrict_domains(problem, remaining)
    ascent = ascent_of(restricted, 1, stop) if compiled else UncompiledAscent(restricted, stop)
    chosen = ascent.climb(ascent.greedy()).tolist()
    return np.array([left[position] for left, position in zip(remaining, chosen, strict=True)], dtype=np.int64)


def carried_over(values: Values, given: Problem, presolved: Problem) -> Values:
    """Return the values of a presolved problem's variables in an assignment of the problem as given.

    Parameters
    ----------
    values : (n,) int64
        An assignment of ``given``.
    given
        The problem as given.
    presolved
        The presolved problem, whose variables and labels are some of those of ``given``.

    Returns
    -------
    (m,) int64
        The index of each variable's value; −1 where presolve has removed the value.
    """
    index = {name: v for v, name in enumerate(given.variables)}
    result = np.full(presolved.n_variables, NO_VALUE, dtype=np.int64)
    for v, name in enumerate(presolved.variables):
        if name in index:
            labels = presolved.labels[v]
            known: Sequence[Label] = range(int(presolved.domains[v])) if labels is None else labels
            label = given.label(index[name], int(values[index[name]]))
            result[v] = known.index(label) if label in known else NO_VALUE
    return result


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
