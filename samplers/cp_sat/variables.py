"""The variables of a problem in a CP-SAT model: as integers, and as literals of their values."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ModelVariables:
    """The variables of a problem in a CP-SAT model, each in the forms that its constraints use.

    Parameters
    ----------
    cp_model : module
        ``ortools.sat.python.cp_model``.
    sizes : list of int
        The domain size of each variable.

    Attributes
    ----------
    cp : CpModel
        The model.
    sizes : list of int
        The domain size of each variable.
    allowed : list of list of int
        The values of each variable that no cost function of one variable forbids.
    literals_of : list
        For each variable, the literals [x_v = a] of its values once they are needed; None before.
    never : constant
        The literal that is false.
    """

    def __init__(self, cp_model: Any, sizes: list[int]) -> None:
        self.cp, self.sizes, self._domain = cp_model.CpModel(), sizes, cp_model.Domain
        self.literals_of: list[list[Any] | None] = [None] * len(sizes)
        self.allowed = [list(range(size)) for size in sizes]
        self.never = self.cp.new_constant(0)
        self._integers: list[Any] = [None] * len(sizes)

    def domain(self, values: list[int]) -> Any:
        """Return a domain of CP-SAT with some values."""
        return self._domain.from_values(values)

    def x(self, v: int) -> Any:
        """Return a variable as an integer; it is made at the first use."""
        known = self._integers[v]
        if known is None:
            known = self._integers[v] = self.cp.new_int_var_from_domain(self.domain(self.allowed[v]), "")
            self._link(v)
        return known

    def literals(self, v: int) -> list[Any]:
        """Return the literals [x_v = a] of a variable's values; they are made at the first use."""
        known = self.literals_of[v]
        if known is None:
            known = [self.never] * self.sizes[v]
            if len(self.allowed[v]) == 2:
                one, other = self.allowed[v]
                known[other] = self.cp.new_bool_var("")
                known[one] = known[other].negated()
            else:
                for a in self.allowed[v]:
                    known[a] = self.cp.new_bool_var("")
                self.cp.add_exactly_one(known[a] for a in self.allowed[v])
            self.literals_of[v] = known
            self._link(v)
        return known

    def _link(self, v: int) -> None:
        """Connect a variable's integer and literals if there are both."""
        x, literals = self._integers[v], self.literals_of[v]
        if x is None or literals is None:
            return
        for a in self.allowed[v]:
            self.cp.add(x == a).only_enforce_if(literals[a])
            self.cp.add(x != a).only_enforce_if(literals[a].negated())

    def values(self, value_of: Callable[[Any], int]) -> list[int]:
        """Return the value of each variable in a solution, given the value of each literal and integer."""
        return [self._value(v, value_of) for v in range(len(self.sizes))]

    def _value(self, v: int, value_of: Callable[[Any], int]) -> int:
        """Return the value of a variable in a solution."""
        if self._integers[v] is not None:
            return value_of(self._integers[v])
        literals = self.literals_of[v]
        if literals is None:
            return self.allowed[v][0]
        return next(a for a in self.allowed[v] if value_of(literals[a]))

    def allow(self, v: int, allowed: NDArray[np.bool_]) -> None:
        """Remove the values of a variable that are not allowed; to be called before all other methods."""
        self.allowed[v] = [a for a in self.allowed[v] if allowed[a]]
        if not self.allowed[v]:
            self.allowed[v] = [0]
            self.cp.add_bool_or([])

    def hint(self, values: list[int]) -> None:
        """Set the assignment from which the search starts; an empty one is none."""
        self.cp.clear_hints()
        for v, value in enumerate(values):
            if self._integers[v] is not None:
                self.cp.add_hint(self._integers[v], value)
            for a, literal in enumerate(self.literals_of[v] or ()):
                if a in self.allowed[v] and not (len(self.allowed[v]) == 2 and a == self.allowed[v][0]):
                    self.cp.add_hint(literal, value == a)
