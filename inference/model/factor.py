"""Factors of a problem, and the levels of its objective to which they belong."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dmcmc.inference.model.arithmetic import Arithmetic, arithmetic_of
from dmcmc.inference.model.flat_tables import flatten, table_ranges
from dmcmc.inference.model.tables import forbidden, forbidden_value, normalise
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Array


@dataclass(frozen=True, eq=False)
class Factor:
    """A utility table over a scope.

    Two factors are equal if they have the same class, scope and name, and equal utilities of the same dtype.

    Subclasses represent their utilities differently (``dmcmc.inference.model.sparse_factor``,
    ``dmcmc.inference.model.automaton``) and build ``table`` only on demand. ``dmcmc.inference.model.densify.densify``
    decides which of them are expanded.

    Attributes
    ----------
    scope : tuple of int
        Variable indices without repetition; empty for a constant.
    table : ndarray of int32, int64 or float64, shape (domain size of scope[0], domain size of scope[1], ...)
        Utilities in the form that ``dmcmc.inference.model.tables.normalise`` returns; the costs of a minimisation
        problem are negated already.
    name : str
        Name of the factor, used in messages only.
    """

    scope: tuple[int, ...]
    table: Array
    name: str = ""

    @classmethod
    def of(cls, scope: Sequence[int], values: ArrayLike, sense: str = "max", name: str = "") -> "Factor":
        """Build a factor from utilities, or from costs with ``sense="min"``.

        Parameters
        ----------
        scope : sequence of int
            Variable indices without repetition; empty for a constant.
        values : array_like, shape (domain size of scope[0], ...)
            Utilities or costs, integers or floats. −inf (for costs: +inf) forbids an entry.
        sense : {"max", "min"}
            Whether ``values`` are utilities ("max") or costs ("min").
        name : str
            Name of the factor, used in messages only.

        Returns
        -------
        Factor
            A dense factor with a read-only table of the narrowest exact dtype.

        Raises
        ------
        ProblemError
            If ``values`` contain NaN, an infinity of the wrong sign, integers beyond 63 bits, or something that is not
            a number; or if ``scope`` is not a sequence of variable indices.
        """
        if sense not in ("max", "min"):
            raise ProblemError(f"sense must be 'max' or 'min', not {sense!r}")
        try:
            indices = tuple([index(v) for v in scope])
            if has_booleans(scope):
                raise TypeError
        except TypeError:
            what = f"factor {name}" if name else "a factor"
            raise ProblemError(
                f"{what}: its scope is a sequence of variable indices, not {scope!r}; Problem.build() takes names"
            ) from None
        return cls(indices, normalise(values, sense, f"factor {name or list(scope)}"), name)

    @property
    def shape(self) -> tuple[int, ...]:
        """The domain sizes of the scope."""
        return self.table.shape

    def renamed(self, scope: Sequence[int], name: str) -> "Factor":
        """Return a factor with the same utilities, another scope and another name.

        Parameters
        ----------
        scope : sequence of int
            Variable indices of the new factor, with the same domain sizes in the same order.
        name : str
            Name of the new factor.

        Returns
        -------
        Factor
            The new factor; it shares its arrays with this one.
        """
        return Factor(tuple(scope), self.table, name)

    def entry(self, values: Sequence[int]) -> int | float | None:
        """Return the utility of one combination of values, or None if it is forbidden.

        Parameters
        ----------
        values : sequence of int
            One value index for each variable of the scope, in the order of the scope.

        Returns
        -------
        int, float or None
            The utility as a Python number; None for a forbidden entry (−∞).
        """
        entry = self.table[tuple(values)]
        utility: int | float | None = None if entry == forbidden_value(self.table.dtype) else entry.item()
        return utility

    def violation(self, values: Sequence[int]) -> int:
        """Return how much one combination of values violates the factor.

        Parameters
        ----------
        values : sequence of int
            One value index for each variable of the scope, in the order of the scope.

        Returns
        -------
        int
            1 for a forbidden entry, otherwise 0; for a hard global constraint its degree of violation.
        """
        return int(self.entry(values) is None)

    def forbidden_entries(self) -> int:
        """Return the number of forbidden entries (−∞).

        Returns
        -------
        int
            Number of forbidden entries of the whole table.
        """
        return int(forbidden(self.table).sum())

    @property
    def is_tabular(self) -> bool:
        """Whether the factor is given by a table, tuples or an automaton, not by a degree of violation."""
        return True

    @property
    def chain_entries(self) -> int:
        """The entries of the tables with hidden variables that stand for the factor; 0 if there are none."""
        return 0

    def decomposed(self) -> tuple["Factor", ...]:
        """Return factors with tables, tuples or automata whose sum is this factor.

        Returns
        -------
        tuple of Factor
            The factor itself, except for a global constraint (``dmcmc.inference.constraints``).
        """
        return (self,)

    @property
    def decomposition(self) -> tuple["Factor", ...] | None:
        """The result of ``decomposed``; None if that is too large."""
        return (self,)

    @property
    def relaxation(self) -> tuple["Factor", ...]:
        """The decomposition, or for a large global constraint factors whose sum is at least its utility."""
        return (self,)

    def arrays(self) -> tuple[Array, ...]:
        """Return the arrays that represent the utilities.

        Returns
        -------
        tuple of ndarray
            The table; subclasses return the arrays of their own representation, with the utilities last.
        """
        return (self.table,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(scope={self.scope}, shape={self.shape}, name={self.name!r})"

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not type(self) or not isinstance(other, Factor):
            return self is other
        if (self.scope, self.name, self.shape) != (other.scope, other.name, other.shape):
            return False
        own_arrays, other_arrays = self.arrays(), other.arrays()
        return len(own_arrays) == len(other_arrays) and all(
            a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(own_arrays, other_arrays, strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.scope, self.name, self.shape))


class Level(NamedTuple):
    """A level of an objective in levels; an earlier level counts more than all later ones.

    Attributes
    ----------
    name : str
        Name of the level.
    weight : int
        The utilities of the level's factors are multiples of it; 0 for levels that are solved one after the other.
    low : int
        A lower bound on the sum of the utilities of all later levels.
    """

    name: str
    weight: int
    low: int


def choose_arithmetic(factors: Iterable[Factor]) -> Arithmetic:
    """Return the narrowest exact arithmetic in which all sums over these factors fit.

    Constants are not part of such sums; they are added exactly at the end (``exact_sum``).
    """
    factors = list(factors)
    flat = flatten([f.scope for f in factors], [f.table for f in factors])
    return arithmetic_of(table_ranges(flat).magnitudes, flat.data.dtype.kind == "i")


def has_booleans(given: ArrayLike) -> bool:
    """Return whether a vector holds truth values, which NumPy would read as integers."""
    return getattr(given, "dtype", None) == np.bool_ or (isinstance(given, list | tuple) and bool in map(type, given))
