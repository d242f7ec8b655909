"""Variables and tables as users give them, by names and labels.

Factors from what a caller gives: an array, a function of the labels, or a mapping from labels to numbers.

Variables by name, with the labels of their values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import list_values, python_number, suggest_name, whole_number, whole_numbers
from dmcmc.inference.model.sparse_factor import tabulate
from dmcmc.inference.model.tables import as_array, normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array, Label
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES, SMALL_TABLE_ENTRIES


@dataclass
class NamedVariables:
    """The variables of a problem under construction, in the order in which they were added.

    Attributes
    ----------
    domains : dict of str to sequence of label
        The labels of each variable's values; a range if they are 0, 1, ...
    position : dict of str to int
        The index of each variable.
    """

    domains: dict[str, Sequence[Label]] = field(default_factory=dict)
    position: dict[str, int] = field(default_factory=dict)
    _label_indices: dict[str, dict[Label, int]] = field(default_factory=dict, repr=False)

    def add(self, name: str, domain: int | Iterable[Label]) -> None:
        """Add a variable with a number of values, or with the labels of its values.

        Raises
        ------
        ProblemError
            If the variable exists already, or the domain is empty or invalid.
        """
        what = f"variable {name!r}"
        if name in self.domains:
            raise ProblemError(f"{what} exists already")
        self.domains[name] = domain_labels(domain, what)
        self.position[name] = len(self.position)

    def check_scope(self, names: Sequence[str], what: str) -> None:
        """Raise ProblemError if a variable in the scope of a factor is unknown or repeated."""
        for name in names:
            if not isinstance(name, str) or name not in self.domains:
                raise ProblemError(f"{what}: variable {name!r} does not exist{suggest_name(name, self.domains)}")
        if len(set(names)) < len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise ProblemError(f"{what}: variable {twice!r} appears twice in its scope")

    def indices(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the indices of known variables."""
        return tuple([self.position[v] for v in names])

    def numbers(self, variable: str) -> list[int]:
        """Return the number of each value: its label if all labels are numbers, otherwise its index.

        Raises
        ------
        ProblemError
            If all labels are numbers and one of them is no whole number.
        """
        labels = self.domains[variable]
        if any(isinstance(label, str) for label in labels):
            return list(range(len(labels)))
        return whole_numbers(labels, f"variable {variable!r}: labels that are times or numbers")

    def counted(self, names: Sequence[str], values: set[Label]) -> list[list[int]]:
        """Return for each value of each variable 1 if its label is among the given values, else 0."""
        return [[int(label in values) for label in self.domains[v]] for v in names]

    def codes(self, names: Sequence[str], exempt: set[Label] | None = None) -> list[list[int]]:
        """Return a number of each value of each variable, equal for equal labels; −1 for exempt ones."""
        number: dict[Label, int] = {}
        return [
            [-1 if exempt and label in exempt else number.setdefault(label, len(number)) for label in self.domains[v]]
            for v in names
        ]

    def label_indices(self, name: str) -> Mapping[Label, int]:
        """Return the index of each label of a variable, computed at the first use."""
        found = self._label_indices.get(name)
        if found is None:
            found = self._label_indices[name] = {label: i for i, label in enumerate(self.domains[name])}
        return found


def domain_labels(domain: int | Iterable[Label], what: str) -> Sequence[Label]:
    """Return the labels of a domain, or a range if its values are 0, 1, ..."""
    if isinstance(domain, int | float | np.number) and not isinstance(domain, bool):
        size = whole_number(domain, f"{what}: the number of values")
        if size < 1:
            raise ProblemError(f"{what}: a domain needs at least 1 value, not {domain}")
        return range(size)
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


Utilities = ArrayLike | Sequence[Any] | Callable[..., float] | Mapping[Any, float]

_NUMBERS = (int, float)  # the types of most values; others are converted, NaN is rejected


def factor_of(
    named: NamedVariables, names: Sequence[str], utilities: Utilities, default: float, sense: str, name: str
) -> Factor:
    """Return the factor over some variables.

    Parameters
    ----------
    named : NamedVariables
        The variables of the problem.
    names : sequence of str
        The scope.
    utilities, default, name
        As for ``Builder.factor``.
    sense : {"max", "min"}
        Whether the numbers are utilities or costs.

    Raises
    ------
    ProblemError
        If a variable is unknown or repeated, the table has a wrong shape, a value is not a number, or a function
        takes another number of arguments.
    """
    what = f"factor {name!r}" if name else f"factor over ({', '.join(map(str, names))})"
    named.check_scope(names, what)
    if isinstance(utilities, Mapping):
        factor = _factor_of_mapping(named, names, utilities, default, sense, what)
    else:
        domains = [named.domains[v] for v in names]
        table = _tabulate_function(names, domains, utilities, what) if callable(utilities) else utilities
        factor = Factor(named.indices(names), normalise(_check_shape(names, domains, table, what), sense, what))
    return factor.renamed(factor.scope, name)


def _factor_of_mapping(
    named: NamedVariables, names: Sequence[str], utilities: Mapping[Any, float], default: float, sense: str, what: str
) -> Factor:
    """Return the factor that is given by a mapping from labels to numbers."""
    axes = [(len(named.domains[name]), named.label_indices(name)) for name in names]
    flat_indices, values = [], []
    for key, value in utilities.items():
        labels = key if isinstance(key, tuple) else (key,)
        flat_index = 0
        try:
            for (size, indices), label in zip(axes, labels, strict=True):
                flat_index = flat_index * size + indices[label]
        except (KeyError, ValueError):
            raise _wrong_key(named, names, key, labels, what) from None
        flat_indices.append(flat_index)
        if type(value) not in _NUMBERS or value != value:
            value = python_number(value, f"{what}: the value at {key!r}")
        values.append(value)
    default = python_number(default, f"{what}: default")
    scope, shape = named.indices(names), [size for size, _ in axes]
    if prod(shape) <= SMALL_TABLE_ENTRIES:
        entries = [default] * prod(shape)
        for flat_index, value in zip(flat_indices, values, strict=True):
            entries[flat_index] = value
        return Factor(scope, normalise(as_array(entries, what).reshape(shape), sense, what))
    rows = np.array([_unravelled(flat_index, shape) for flat_index in flat_indices], dtype=np.int64)
    whose = what.removeprefix("factor ")  # tabulate puts the word in front of it
    return tabulate(scope, shape, rows, values, default, sense, whose)


def _wrong_key(
    named: NamedVariables, names: Sequence[str], key: object, labels: Sequence[Label], what: str
) -> ProblemError:
    """Return the error for a key of a mapping with a wrong number of labels, or with an unknown label."""
    if len(labels) != len(names):
        return ProblemError(f"{what}: {key!r} has {len(labels)} values for {len(names)} variables")
    axis = next(i for i, label in enumerate(labels) if label not in named.label_indices(names[i]))
    shown = repr(labels[axis]) + (f" in {key!r}" if isinstance(key, tuple) else "")
    values_known = list_values(named.domains[names[axis]])
    return ProblemError(f"{what}: {shown} is not a value of {names[axis]!r}; {values_known}")


def _tabulate_function(
    names: Sequence[str], domains: Sequence[Sequence[Label]], function: Callable[..., float], what: str
) -> Array:
    """Return the table of a function's values; the last variable changes fastest."""
    calls = prod(len(d) for d in domains)
    if calls > 10 * MAX_ENUMERATED_ENTRIES:  # about ten seconds
        raise ProblemError(f"{what}: its function would be called {calls:,} times; give an array, or a mapping")

    def numbers() -> Iterator[int | float]:
        """Yield the function's values."""
        for labels in product(*domains):
            value = function(*labels)
            if type(value) not in _NUMBERS or value != value:
                where = ", ".join(f"{v}={label!r}" for v, label in zip(names, labels, strict=True))
                value = python_number(value, f"{what}: the function at {where}")
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
    return table if isinstance(table, list | tuple) else array  # NumPy has rounded the integers of lists beyond int64


def _unravelled(flat_index: int, shape: Sequence[int]) -> list[int]:
    """Return the indices of an entry in a table of some shape, of which the size may exceed 64 bits."""
    indices = []
    for size in reversed(shape):
        flat_index, position = divmod(flat_index, size)
        indices.append(position)
    return indices[::-1]
