"""Problems written by hand: variables and factors by name, tables or functions of the values."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

Utilities = ArrayLike | Sequence[Any] | Callable[..., float] | Mapping[Any, float]

_ALONE = "all"  # the agent of variables for which none is named
_MOST_CALLS = 10**7  # of a factor's function
_SHOWN = 8  # names in an error


@dataclass
class Builder:
    """A problem in the making; :meth:`.Problem.build` begins one.

    Examples
    --------
    >>> office = Problem.build(sense="max", name="office")
    >>> desk = office.variable("desk", ["window", "door"], agent="ann")
    >>> room = office.variable("room", 3, agent="bob")
    >>> office.factor(desk, {"window": 5}).factor((desk, room), lambda d, r: r if d == "door" else -r)
    Builder(sense='max', name='office')
    >>> office.problem().evaluate({"desk": "window", "room": 2})
    Evaluation(objective=3, violation=0)
    """

    sense: str = "max"
    name: str = ""
    _domains: dict[str, Sequence[Label]] = field(default_factory=dict, repr=False)
    _agents: list[str] = field(default_factory=list, repr=False)
    _owner: list[int] = field(default_factory=list, repr=False)
    _factors: list[Factor] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {self.sense!r}")

    def variable(self, name: str, domain: int | Iterable[Label], agent: str = _ALONE) -> str:
        """Add a variable; return its name.

        Parameters
        ----------
        name
            Not used before.
        domain
            How many values it has (0, 1, ...), or their labels: distinct words or numbers.
        agent
            Who owns it; a new name is a new agent.

        Raises
        ------
        ProblemError
            For a name that stands for another variable, and a domain that is none.
        """
        what = f"variable {name!r}"
        if not isinstance(name, str) or not isinstance(agent, str):
            raise ProblemError(f"{what}: names of variables and agents are words, not {name!r} and {agent!r}")
        if name in self._domains:
            raise ProblemError(f"{what} is there already")
        if agent not in self._agents:
            self._agents.append(agent)
        self._domains[name] = _values(domain, what)
        self._owner.append(self._agents.index(agent))
        return name

    def factor(self, scope: str | Iterable[str], utilities: Utilities, default: float = 0, name: str = "") -> "Builder":
        """Add a factor: what the values of some variables together are worth, or cost.

        Parameters
        ----------
        scope
            The variables' names; one alone may stand without a tuple, and none at all is a constant's scope.
        utilities
            An array with an axis a variable; or a function of one label a variable; or a mapping from labels (a tuple
            of them, or one alone for one variable) to numbers. −inf (for costs: inf) forbids.
        default
            Of what a mapping leaves out.
        name
            For errors and files.

        Returns
        -------
        Builder
            This one.

        Raises
        ------
        ProblemError
            For an unknown variable, a table of another shape, and what is no number.
        """
        names = (scope,) if isinstance(scope, str) else tuple(scope)
        what = f"factor {name!r}" if name else f"factor over ({', '.join(map(str, names))})"
        for variable in names:
            if variable not in self._domains:
                raise ProblemError(f"{what}: there is no variable {variable!r}{self._nearest(variable)}")
            if names.count(variable) > 1:
                raise ProblemError(f"{what}: variable {variable!r} stands twice in its scope")
        position = {variable: i for i, variable in enumerate(self._domains)}
        places, domains = [position[v] for v in names], [self._domains[v] for v in names]
        if isinstance(utilities, Mapping):
            factor = self._listed(places, domains, utilities, default, what)
        else:
            table = _called(names, domains, utilities, what) if callable(utilities) else utilities
            values = normalise(_shaped(names, domains, table, what), self.sense, what)
            factor = Factor(tuple(places), values)
        self._factors.append(factor.renamed(factor.scope, name))
        return self

    def problem(self) -> Problem:
        """Return the problem as it is now.

        Raises
        ------
        ProblemError
            If the parts do not fit together.
        """
        return Problem(
            variables=tuple(self._domains),
            domains=np.array([len(values) for values in self._domains.values()], dtype=np.int64),
            agents=tuple(self._agents),
            owner=np.array(self._owner, dtype=np.int64),
            factors=tuple(self._factors),
            labels=tuple(None if isinstance(v, range) else tuple(v) for v in self._domains.values()),
            sense=self.sense,
            name=self.name,
        )

    def _listed(
        self,
        places: Sequence[int],
        domains: Sequence[Sequence[Label]],
        utilities: Mapping[Any, float],
        default: float,
        what: str,
    ) -> Factor:
        """Return a mapping's factor."""
        index = [{label: i for i, label in enumerate(domain)} for domain in domains]
        tuples = []
        for key in utilities:
            labels = key if isinstance(key, tuple) else (key,)
            if len(labels) != len(domains):
                raise ProblemError(f"{what}: {key!r} has {len(labels)} values for {len(domains)} variables")
            wrong = [label for label, known in zip(labels, index, strict=True) if label not in known]
            if wrong:
                raise ProblemError(f"{what}: {wrong[0]!r} in {key!r} is no value of its variable")
            tuples.append([known[label] for label, known in zip(labels, index, strict=True)])
        values = [_number(value, f"{what}: at {key!r}") for key, value in utilities.items()]
        default = _number(default, f"{what}: default")
        rows = np.array(tuples, dtype=np.int64).reshape(len(tuples), len(domains))
        return tabulate(places, [len(d) for d in domains], rows, values, default, self.sense, what)

    def _nearest(self, name: object) -> str:
        """Return which variable may have been meant, or which there are."""
        close = difflib.get_close_matches(str(name), self._domains, n=1)
        if close:
            return f"; did you mean {close[0]!r}?"
        known = list(self._domains)
        return f"; there are {', '.join(known[:_SHOWN])}{', ...' if len(known) > _SHOWN else ''}" if known else ""


def _values(domain: int | Iterable[Label], what: str) -> Sequence[Label]:
    """Return a domain's labels; a range where the values are 0, 1, ..."""
    if isinstance(domain, int | np.integer) and not isinstance(domain, bool):
        if domain < 1:
            raise ProblemError(f"{what}: a domain of {domain} values; at least 1 is needed")
        return range(int(domain))
    if isinstance(domain, str) or not isinstance(domain, Iterable):
        raise ProblemError(f"{what}: a domain is a number of values or a list of labels, not {domain!r}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in domain]
    if not labels:
        raise ProblemError(f"{what}: a domain without values; at least 1 is needed")
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int | float):
            raise ProblemError(f"{what}: labels are words or numbers, not {label!r}")
    if len(set(labels)) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        raise ProblemError(f"{what}: label {twice!r} stands twice")
    plain = all(isinstance(label, int) for label in labels) and labels == list(range(len(labels)))
    return range(len(labels)) if plain else labels


def _called(
    names: Sequence[str], domains: Sequence[Sequence[Label]], function: Callable[..., float], what: str
) -> Array:
    """Return what a function says of each combination of values, the last variable's changing fastest."""
    calls = prod(len(d) for d in domains)
    if calls > _MOST_CALLS:
        raise ProblemError(f"{what}: its function would be called {calls:,} times; give an array, or a mapping")

    def numbers() -> Iterator[float]:
        for labels in product(*domains):
            where = ", ".join(f"{v}={label!r}" for v, label in zip(names, labels, strict=True))
            yield _number(function(*labels), f"{what}: the function of {where}")

    return np.array(list(numbers())).reshape([len(d) for d in domains])


def _number(value: Any, what: str) -> int | float:
    """Return a value as Python's own number."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
    if isinstance(plain, bool):
        raise ProblemError(f"{what} is {plain}: a number is needed (0 where allowed, -inf or, of costs, inf where not)")
    if not isinstance(plain, int | float):
        raise ProblemError(f"{what} is {plain!r}: a number is needed")
    if plain != plain:
        raise ProblemError(f"{what} is NaN: a number is needed")
    return plain


def _shaped(names: Sequence[str], domains: Sequence[Sequence[Label]], table: ArrayLike, what: str) -> ArrayLike:
    """Return a table with an axis a variable, or say what was expected."""
    shape = tuple(len(d) for d in domains)
    try:
        array = np.asarray(table)
    except ValueError:  # rows of different lengths
        raise ProblemError(f"{what}: expected a table of shape {shape}, got rows of different lengths") from None
    if array.shape != shape:
        sizes = ", ".join(f"{v} has {n}" for v, n in zip(names, shape, strict=True))
        values = f" (values: {sizes})" if sizes else ""
        raise ProblemError(f"{what}: expected a table of shape {shape}{values}, got {array.shape}")
    return array
