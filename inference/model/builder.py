"""Problems written by hand: variables and factors by name, with tables, functions or mappings of the values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.model.problem import Factor, Label, Problem
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import as_array, normalise
from dmcmc.inference.model.unknown_names import list_values, suggest_name
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array

Utilities = ArrayLike | Sequence[Any] | Callable[..., float] | Mapping[Any, float]

_DEFAULT_AGENT = "all"  # the agent that owns variables without a named agent
_MAX_LIST_ENTRIES = 64  # tables of up to this many entries are filled as lists, which takes half of NumPy's time
_NUMBERS = (int, float)  # the types of most values; others are converted, NaN is rejected
_MAX_FUNCTION_CALLS = 10**7  # limit on the calls of one factor's function


@dataclass
class Builder:
    """A problem under construction; ``Problem.build`` returns an empty one.

    Attributes
    ----------
    sense : {"max", "min"}
        Whether the factors are utilities ("max") or costs ("min").
    name : str
        Name of the problem.

    Raises
    ------
    ProblemError
        If ``sense`` is neither "max" nor "min".

    Examples
    --------
    >>> office = Problem.build(sense="max", name="office")
    >>> desk = office.variable("desk", ["window", "door"], agent="ann")
    >>> lamp = office.variable("lamp", 3, agent="bob")
    >>> office.factor(desk, {"window": 5}).factor((desk, lamp), lambda d, r: r if d == "door" else -r)
    Builder(sense='max', name='office')
    >>> office.problem().evaluate({"desk": "window", "lamp": 2})
    Evaluation(objective=3, violation=0)
    """

    sense: str = "max"
    name: str = ""
    _domains: dict[str, Sequence[Label]] = field(default_factory=dict, init=False, repr=False)
    _position: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # index of each variable
    _label_indices: dict[str, dict[Label, int]] = field(default_factory=dict, init=False, repr=False)
    _agents: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # index of each agent
    _owner: list[int] = field(default_factory=list, init=False, repr=False)
    _factors: list[Factor] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {self.sense!r}")

    def variable(self, name: str, domain: int | Iterable[Label], agent: str = _DEFAULT_AGENT) -> str:
        """Add a variable and return its name.

        Parameters
        ----------
        name : str
            Name of the variable; it must not exist yet.
        domain : int or iterable of label
            The number of values (0, 1, ...), or their labels: distinct strings or numbers.
        agent : str
            The owner; an unknown name adds a new agent.

        Returns
        -------
        str
            ``name``.

        Raises
        ------
        ProblemError
            If the variable exists already, a name is not a string, or the domain is empty or invalid.
        """
        what = f"variable {name!r}"
        if not isinstance(name, str) or not isinstance(agent, str):
            raise ProblemError(f"{what}: names of variables and agents must be strings, not {name!r} and {agent!r}")
        if name in self._domains:
            raise ProblemError(f"{what} exists already")
        self._domains[name] = _domain_labels(domain, what)
        self._position[name] = len(self._position)
        self._owner.append(self._agents.setdefault(agent, len(self._agents)))
        return name

    def factor(self, scope: str | Iterable[str], utilities: Utilities, default: float = 0, name: str = "") -> "Builder":
        """Add a factor: the utility or cost of each combination of values of some variables.

        Parameters
        ----------
        scope : str or iterable of str
            The names of the variables. A single name may be given without a tuple; an empty tuple makes a constant.
        utilities : array_like, callable or mapping
            An array with one axis per variable, or a function of one label per variable, or a mapping from tuples of
            labels to numbers (from single labels for a scope of one variable). −inf (for costs: inf) forbids a
            combination.
        default : float
            The value of all combinations that a mapping does not list.
        name : str
            Name of the factor, used in messages and files.

        Returns
        -------
        Builder
            This builder, so that calls can be chained.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, the table has a wrong shape, a value is not a number, or a function
            takes another number of arguments.
        """
        if not isinstance(scope, Iterable):
            raise ProblemError(f"factor: the scope is the name of a variable, or several names, not {scope!r}")
        names = (scope,) if isinstance(scope, str) else tuple(scope)
        what = f"factor {name!r}" if name else f"factor over ({', '.join(map(str, names))})"
        for variable in names:
            if not isinstance(variable, str) or variable not in self._domains:
                known = suggest_name(variable, self._domains)
                raise ProblemError(f"{what}: variable {variable!r} does not exist{known}")
            if names.count(variable) > 1:
                raise ProblemError(f"{what}: variable {variable!r} appears twice in its scope")
        if isinstance(utilities, Mapping):
            factor = self._factor_of_mapping(names, utilities, default, what)
        else:
            domains = [self._domains[v] for v in names]
            table = _tabulate_function(names, domains, utilities, what) if callable(utilities) else utilities
            values = normalise(_check_shape(names, domains, table, what), self.sense, what)
            factor = Factor(tuple([self._position[v] for v in names]), values)
        self._factors.append(factor.renamed(factor.scope, name))
        return self

    def problem(self) -> Problem:
        """Return the problem with the variables and factors added so far.

        Returns
        -------
        Problem
            The problem; the builder can be extended afterwards.

        Raises
        ------
        ProblemError
            If the parts are inconsistent.
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

    def _factor_of_mapping(
        self, names: Sequence[str], utilities: Mapping[Any, float], default: float, what: str
    ) -> Factor:
        """Return the factor that is given by a mapping from labels to numbers."""
        axes = [(len(self._domains[name]), self._indices_of_labels(name)) for name in names]
        flat_indices, values = [], []
        for key, value in utilities.items():
            labels = key if isinstance(key, tuple) else (key,)
            flat_index = 0
            try:
                for (size, indices), label in zip(axes, labels, strict=True):
                    flat_index = flat_index * size + indices[label]
            except (KeyError, ValueError):
                raise self._wrong_key(names, key, labels, what) from None
            flat_indices.append(flat_index)
            if type(value) not in _NUMBERS or value != value:
                value = _python_number(value, f"{what}: the value at {key!r}")
            values.append(value)
        default = _python_number(default, f"{what}: default")
        scope, shape = [self._position[name] for name in names], [size for size, _ in axes]
        if prod(shape) <= _MAX_LIST_ENTRIES:
            entries = [default] * prod(shape)
            for flat_index, value in zip(flat_indices, values, strict=True):
                entries[flat_index] = value
            return Factor(tuple(scope), normalise(as_array(entries, what).reshape(shape), self.sense, what))
        rows = np.array([_unravelled(flat_index, shape) for flat_index in flat_indices], dtype=np.int64)
        whose = what.removeprefix("factor ")  # tabulate puts the word in front of it
        return tabulate(scope, shape, rows, values, default, self.sense, whose)

    def _wrong_key(self, names: Sequence[str], key: object, labels: Sequence[Label], what: str) -> ProblemError:
        """Return the error for a key of a mapping with a wrong number of labels, or with an unknown label."""
        if len(labels) != len(names):
            return ProblemError(f"{what}: {key!r} has {len(labels)} values for {len(names)} variables")
        axis = next(i for i, label in enumerate(labels) if label not in self._indices_of_labels(names[i]))
        shown = repr(labels[axis]) + (f" in {key!r}" if isinstance(key, tuple) else "")
        values_known = list_values(self._domains[names[axis]])
        return ProblemError(f"{what}: {shown} is not a value of {names[axis]!r}; {values_known}")

    def _indices_of_labels(self, name: str) -> Mapping[Label, int]:
        """Return the index of each label of a variable, computed at the first use."""
        found = self._label_indices.get(name)
        if found is None:
            found = self._label_indices[name] = {label: i for i, label in enumerate(self._domains[name])}
        return found


def _unravelled(flat_index: int, shape: Sequence[int]) -> list[int]:
    """Return the indices of an entry in a table of some shape, of which the size may exceed 64 bits."""
    indices = []
    for size in reversed(shape):
        flat_index, position = divmod(flat_index, size)
        indices.append(position)
    return indices[::-1]


def as_problem(source: object) -> Problem:
    """Return a problem, or the problem of a builder.

    Parameters
    ----------
    source : Problem or Builder
        The problem, or a builder with its variables and factors.

    Returns
    -------
    Problem
        The problem.

    Raises
    ------
    ProblemError
        If ``source`` is neither.
    """
    if isinstance(source, Problem):
        return source
    if isinstance(source, Builder):
        return source.problem()
    given = "None" if source is None else f"{type(source).__name__} object"
    raise ProblemError(f"expected a Problem, got {given}; dmcmc.load reads a file, Problem.build() starts a problem")


def _domain_labels(domain: int | Iterable[Label], what: str) -> Sequence[Label]:
    """Return the labels of a domain, or a range if its values are 0, 1, ..."""
    if isinstance(domain, int | np.integer) and not isinstance(domain, bool):
        if domain < 1:
            raise ProblemError(f"{what}: a domain needs at least 1 value, not {domain}")
        return range(int(domain))
    if isinstance(domain, str) or not isinstance(domain, Iterable):
        raise ProblemError(f"{what}: a domain is a number of values or a list of labels, not {domain!r}")
    labels = [label.item() if isinstance(label, np.generic) else label for label in domain]
    if not labels:
        raise ProblemError(f"{what}: a domain needs at least 1 value")
    for label in labels:
        if isinstance(label, bool) or not isinstance(label, str | int | float):
            raise ProblemError(f"{what}: labels must be strings or numbers, not {label!r}")
    if len(set(labels)) < len(labels):
        twice = next(label for i, label in enumerate(labels) if label in labels[:i])
        raise ProblemError(f"{what}: label {twice!r} appears twice")
    plain = all(isinstance(label, int) for label in labels) and labels == list(range(len(labels)))
    return range(len(labels)) if plain else labels


def _tabulate_function(
    names: Sequence[str], domains: Sequence[Sequence[Label]], function: Callable[..., float], what: str
) -> Array:
    """Return the table of a function's values; the last variable changes fastest."""
    calls = prod(len(d) for d in domains)
    if calls > _MAX_FUNCTION_CALLS:
        raise ProblemError(f"{what}: its function would be called {calls:,} times; give an array, or a mapping")

    def numbers() -> Iterator[int | float]:
        """Yield the function's values."""
        for labels in product(*domains):
            value = function(*labels)
            if type(value) not in _NUMBERS or value != value:
                where = ", ".join(f"{v}={label!r}" for v, label in zip(names, labels, strict=True))
                value = _python_number(value, f"{what}: the function at {where}")
            yield value

    try:
        values = list(numbers())
    except TypeError as error:
        if _takes(function, len(names)):
            raise
        raise ProblemError(f"{what}: its function has to take {len(names)} labels as arguments: {error}") from None
    return as_array(values, what).reshape([len(d) for d in domains])


def _takes(function: Callable[..., float], arguments: int) -> bool:
    """Return whether a function can be called with a number of arguments; True if this is not known."""
    try:
        signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # a built-in function without a signature
        return True
    return True


def _python_number(value: Any, what: str) -> int | float:
    """Return a value as a Python int or float; raise ProblemError for anything else."""
    plain = value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
    if isinstance(plain, bool):
        raise ProblemError(f"{what} is {plain}: a number is needed (0 to allow; -inf, or inf for costs, to forbid)")
    if not isinstance(plain, int | float):
        raise ProblemError(f"{what} is {plain!r}: a number is needed")
    if plain != plain:
        raise ProblemError(f"{what} is NaN: a number is needed")
    return plain


def _check_shape(names: Sequence[str], domains: Sequence[Sequence[Label]], table: ArrayLike, what: str) -> ArrayLike:
    """Return a table with one axis per variable; raise ProblemError if its shape is wrong."""
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
