"""What writers share: factors as listed entries, names, and what a format leaves out."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

Cost = int | float | None

DROPPABLE = {
    "agents": "owners of variables: one agent owns all",
    "digits": "decimals after the sixth",
    "labels": "value labels: values are numbered",
    "names": "names of variables: x0, x1, ...",
    "sense": "whether the objective is minimised or maximised: its sign may turn",
}
"""What :func:`without` takes away."""


@dataclass(frozen=True)
class Listing:
    """A factor in the problem's own sense; None is a forbidden entry.

    Attributes
    ----------
    scope, shape : tuple of int
    rows : list of list of int
        Value indices of the listed entries.
    costs : list of numbers
        One a row.
    default : number or None
        What all other entries are.
    """

    scope: tuple[int, ...]
    shape: tuple[int, ...]
    rows: list[list[int]]
    costs: list[Cost]
    default: Cost

    @property
    def all_costs(self) -> list[Cost]:
        """The costs of the rows and the default."""
        return [*self.costs, self.default]


def listing(factor: Factor, sense: str) -> Listing:
    """List the entries of a factor that differ from the most frequent one (from the default of a sparse factor)."""
    if isinstance(factor, SparseFactor):
        costs = _own(factor.utilities, sense)
        return Listing(factor.scope, factor.shape, factor.tuples.tolist(), costs[:-1], costs[-1])
    flat = factor.table.reshape(-1)
    kinds, counts = np.unique(flat, return_counts=True)
    default = kinds[counts.argmax()]
    listed = np.flatnonzero(flat != default)
    rows = np.stack(np.unravel_index(listed, factor.shape), axis=1) if factor.shape else np.empty((0, 0), dtype=int)
    costs = _own(np.append(flat[listed], default), sense)
    return Listing(factor.scope, factor.shape, rows.tolist(), costs[:-1], costs[-1])


def _own(utilities: Array, sense: str) -> list[Cost]:
    """Return utilities as the problem has them: negated where it is one of costs; None where forbidden."""
    hard = forbidden(utilities).tolist()
    return [
        None if no else value if sense == "max" else 0 - value
        for no, value in zip(hard, utilities.tolist(), strict=True)
    ]


def listings(problem: Problem, constants: bool = True) -> Iterator[tuple[str, Listing]]:
    """Yield every factor with a name of its own; without ``constants`` as a factor over the first variable.

    Raises
    ------
    ProblemError
        For a constant where there is no variable to put it on.
    """
    taken: Counter[str] = Counter(factor.name for factor in problem.factors)
    for i, factor in enumerate(problem.factors):
        name = factor.name
        if not name or taken[name] > 1:
            name = f"c{i}"
            while name in taken:
                name += "_"
        found = listing(factor, problem.sense)
        if not found.scope and not constants:
            if not problem.n_variables:
                raise ProblemError("a constant needs a variable in this format, and the problem has none")
            found = Listing((0,), (int(problem.domains[0]),), [], [], found.default)
        yield name, found


def labels_of(problem: Problem, variable: int) -> Sequence[Label]:
    """Return a variable's labels: 0, 1, ... where it has none."""
    labels = problem.labels[variable]
    return range(int(problem.domains[variable])) if labels is None else labels


def keep(problem: Problem, *said: str) -> None:
    """Raise ProblemError if the problem has one of :data:`DROPPABLE` that the format cannot say; ``said`` it can."""
    lost = {
        "agents": problem.n_agents > 1 and f"has no agents, and the problem has {problem.n_agents}",
        "labels": any(map(_labelled, problem.labels)) and "has no value labels, and the problem has",
        "names": problem.variables != _numbered(problem.n_variables) and "has no names, and the variables have",
    }
    for what, message in lost.items():
        if message and what not in said:
            raise ProblemError(f"the format {message}; --drop {what} writes it without")


def without(problem: Problem, what: Collection[str], sense: str | None = None) -> Problem:
    """Return the problem without what a format cannot say.

    Parameters
    ----------
    problem
        Not changed.
    what
        Some of :data:`DROPPABLE`.
    sense
        What the format says, for ``"sense"``: utilities stay, their sign may turn when they are reported.
    """
    if "agents" in what:
        problem = replace(problem, agents=("all",), owner=np.zeros(problem.n_variables, dtype=np.int64))
    if "labels" in what:
        problem = replace(problem, labels=())
    if "names" in what:
        problem = replace(problem, variables=_numbered(problem.n_variables))
    if "digits" in what:
        problem = replace(problem, factors=tuple(map(_rounded, problem.factors)))
    if "sense" in what and sense is not None:
        problem = replace(problem, sense=sense)
    return problem


def _rounded(factor: Factor) -> Factor:
    """Return a factor with at most six decimals."""
    if isinstance(factor, SparseFactor):
        utilities = Factor.of((0,), np.round(factor.utilities, 6)).table
        return SparseFactor(factor.scope, factor.shape, factor.tuples, utilities, factor.name)
    if factor.table.dtype.kind != "f":
        return factor
    return Factor.of(factor.scope, np.round(factor.table, 6), name=factor.name)


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"x{i}" for i in range(count))


def _labelled(labels: tuple[Label, ...] | None) -> bool:
    """Return whether labels are more than the values' numbers."""
    return labels is not None and labels != tuple(range(len(labels)))
