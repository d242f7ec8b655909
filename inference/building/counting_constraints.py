"""Constraints that count values, as methods of the builder of problems."""

from collections.abc import Iterable
from typing import Self

from dmcmc.inference.building.global_constraints import GlobalConstraints, as_names
from dmcmc.inference.constraints.count import count_variable
from dmcmc.inference.model.python_number import whole_number
from dmcmc.inference.runtime.types import Label


class CountingConstraints(GlobalConstraints):
    """Methods that limit how many variables take some values."""

    def at_most(
        self, k: int, variables: Iterable[str], values: Iterable[Label], cost: float | None = None, name: str = ""
    ) -> Self:
        """Add a constraint: at most ``k`` of some variables take one of some values.

        Parameters
        ----------
        k : int
            The largest number.
        variables : iterable of str
            Names of variables.
        values : iterable of label
            The values that are counted; variables that do not have a value cannot take it.
        cost : float or None
            Cost of each variable above the number, at least 0; it lowers the utility of a problem that is maximised.
            None for a hard constraint.
        name : str
            Name of the constraint, used in messages and files.

        Returns
        -------
        Self
            This builder, so that calls can be chained.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        return self.count(variables, values, (0, k), cost, name or "at_most")

    def at_least(
        self, k: int, variables: Iterable[str], values: Iterable[Label], cost: float | None = None, name: str = ""
    ) -> Self:
        """Add a constraint: at least ``k`` of some variables take one of some values.

        Parameters
        ----------
        k : int
            The smallest number.
        variables : iterable of str
            Names of variables.
        values : iterable of label
            The values that are counted.
        cost : float or None
            Cost of each variable below the number, at least 0; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        names, k = as_names(variables), whole_number(k, f"constraint {name or 'at_least'}: the number")
        return self.count(names, values, (k, max(k, len(names))), cost, name or "at_least")

    def count(
        self,
        variables: Iterable[str],
        values: Iterable[Label],
        number: int | tuple[int, int] | str,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
        """Add a constraint on the number of variables that take one of some values.

        Parameters
        ----------
        variables : iterable of str
            Names of variables.
        values : iterable of label
            The values that are counted.
        number : int, (int, int) or str
            The number, the smallest and the largest number, or the name of a variable whose value is the number.
        cost : float or None
            Cost per unit by which the number differs; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid.
        """
        names, wanted = as_names(variables), set(values)
        if isinstance(number, str):
            scope = self._scope((*names, number), name or "count")
            counted = [*self._named.counted(names, wanted), self._named.numbers(number)]
            return self._append(count_variable(self._named.indices(scope), counted, cost, name or "count"))
        low, high = number if isinstance(number, tuple | list) and len(number) == 2 else (number, number)
        self._scope(names, name or "count")
        return self._constrain(
            "count", names, {"counted": self._named.counted(names, wanted), "low": low, "high": high}, cost, name
        )

    def all_different(
        self, variables: Iterable[str], exempt: Iterable[Label] = (), cost: float | None = None, name: str = ""
    ) -> Self:
        """Add a constraint: no two variables take the same value.

        Parameters
        ----------
        variables : iterable of str
            Names of variables. Values are the same if their labels are.
        exempt : iterable of label
            Values that several variables may take.
        cost : float or None
            Cost of each variable that would have to change; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated.
        """
        names = self._scope(variables, name or "all_different")
        return self._constrain("all_different", names, {"codes": self._named.codes(names, set(exempt))}, cost, name)
