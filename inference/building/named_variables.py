"""Variables by name, with the labels of their values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dmcmc.inference.model.python_number import whole_number, whole_numbers
from dmcmc.inference.model.unknown_names import suggest_name
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Label


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
