"""The element constraint: a result equals the entry of an array at an index."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.constraints.global_constraint import Domains, GlobalConstraint, int_arrays
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.errors import ProblemError


class ElementConstraint(GlobalConstraint):
    """result = array[index], where each entry of the array is a variable.

    The degree of violation is 1 if they differ. The scope holds the index, the result and the entries of the array. The
    value with index i of the index variable selects the i-th entry of ``selected``. An array of constants needs no
    entries in the scope: the constraint is then a table, which ``Problem.build()`` adds.

    Attributes
    ----------
    codes : tuple of ndarray of int64, shape (values,)
        For the result and for each entry of the array, a number of each value: values are equal if their numbers are.
    selected : ndarray of int64, shape (values of the index,)
        The entry of the array that each value of the index selects.
    """

    kind = "element"
    summary = "a result equals the entry of an array of variables at an index"
    codes: tuple[NDArray[np.int64], ...]
    selected: NDArray[np.int64]

    @staticmethod
    def checked(given: Mapping[str, Any], shape: Sequence[int], what: str) -> dict[str, Any]:
        """Return the parameters from the form that ``parameters`` returns; see ``GlobalConstraint``."""
        if len(shape) < 3:
            raise ProblemError(f"{what}: needs an index, a result and at least one entry")
        codes = int_arrays(given["codes"], shape[1:], what)
        (selected,) = int_arrays([given["selected"]], shape[:1], what)
        if selected.min() < 0 or selected.max() >= len(shape) - 2:
            raise ProblemError(f"{what}: an index selects an entry outside 0..{len(shape) - 3}")
        return {"codes": codes, "selected": selected}

    def degree(self, values: Sequence[int]) -> int:
        """Return the degree of violation of one combination of values."""
        entry = int(self.selected[values[0]])
        return int(self.codes[0][values[1]] != self.codes[1 + entry][values[2 + entry]])

    def with_values(self, remaining: Sequence[NDArray[np.int64]]) -> Self:
        """Return the constraint over some values of its variables."""
        codes = tuple(c[values] for c, values in zip(self.codes, remaining[1:], strict=True))
        given = {"codes": codes, "selected": self.selected[remaining[0]]}
        return type(self)(self.scope, [len(values) for values in remaining], given, self.cost, self.name)

    def propagate(self, domains: Domains) -> Domains | None:
        """Remove all unsupported values."""
        if not all(domain.any() for domain in domains):
            return None
        index, result = domains[0].copy(), domains[1]
        possible = set(self.codes[0][result].tolist())
        reached = set[int]()
        for value in np.flatnonzero(index).tolist():
            entry = int(self.selected[value])
            common = possible & set(self.codes[1 + entry][domains[2 + entry]].tolist())
            index[value] = bool(common)
            reached |= common
        if not index.any():
            return None
        kept = list(domains)
        kept[0], kept[1] = index, result & np.isin(self.codes[0], sorted(reached))
        entries = np.unique(self.selected[index])
        if entries.size == 1:
            entry = int(entries[0])
            kept[2 + entry] = domains[2 + entry] & np.isin(self.codes[1 + entry], sorted(reached))
        return kept

    def parts(self) -> list[Factor]:
        """Return a table over the index, the result and an entry for each entry."""
        found = []
        for entry in np.unique(self.selected).tolist():
            differs = self.codes[0][:, None] != self.codes[1 + entry]
            degrees = (self.selected == entry)[:, None, None] * differs.astype(np.int64)
            if degrees.any():
                found.append(self.table_part((0, 1, 2 + entry), degrees))
        return found
