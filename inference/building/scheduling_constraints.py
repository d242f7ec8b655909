"""Constraints on intervals of time, as methods of the builder of problems."""

from collections.abc import Iterable
from typing import Self

from dmcmc.inference.building.global_constraints import GlobalConstraints, as_names


class SchedulingConstraints(GlobalConstraints):
    """Methods that restrict when intervals start, whose starts are variables."""

    def no_overlap(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int],
        places: Iterable[str] | None = None,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
        """Add a constraint: intervals of time do not overlap, or not in the same place.

        Parameters
        ----------
        starts : iterable of str
            Names of the variables that say when each interval starts. The time of a value is its label if all labels of
            the variable are integers, otherwise its index.
        durations : int or iterable of int
            The duration of each interval, or of all.
        places : iterable of str or None
            Names of the variables that say where each interval is; None if all are in the same place.
        cost : float or None
            Cost per unit of time for which two intervals overlap, for each pair; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or there is not one duration, and one place or none, per start.
        """
        names = as_names(starts)
        where = None if places is None else as_names(places)
        scope = self._scope((*names, *(where or ())), name or "no_overlap")
        given = {
            "times": [self._named.numbers(v) for v in names],
            "durations": _per_variable(durations, len(names)),
            "places": None if where is None else self._named.codes(where),
        }
        return self._constrain("no_overlap", scope, given, cost, name)

    def cumulative(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int],
        demands: int | Iterable[int],
        capacity: int,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
        """Add a constraint: at each time, the demands of the intervals that contain it are at most a capacity.

        Parameters
        ----------
        starts : iterable of str
            Names of the variables that say when each interval starts; see ``no_overlap``.
        durations, demands : int or iterable of int
            The duration and the demand of each interval, or of all.
        capacity : int
            The capacity.
        cost : float or None
            Cost per unit of demand above the capacity and unit of time; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid or missing.
        """
        names = self._scope(starts, name or "cumulative")
        given = {
            "times": [self._named.numbers(v) for v in names],
            "durations": _per_variable(durations, len(names)),
            "demands": _per_variable(demands, len(names)),
            "capacity": capacity,
        }
        return self._constrain("cumulative", names, given, cost, name)

    def breaks(
        self,
        starts: Iterable[str],
        durations: int | Iterable[int] = 1,
        at_most: int = 0,
        cost: float | None = None,
        name: str = "",
    ) -> Self:
        """Add a constraint: the time from the first to the last interval has few breaks.

        Parameters
        ----------
        starts : iterable of str
            Names of the variables that say when each interval starts; see ``no_overlap``.
        durations : int or iterable of int
            The duration of each interval, or of all, at least 1.
        at_most : int
            The largest number of breaks.
        cost : float or None
            Cost of each further break; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or repeated, or a number is invalid or missing.
        """
        names = self._scope(starts, name or "breaks")
        times = [self._named.numbers(v) for v in names]
        given = {"times": times, "durations": _per_variable(durations, len(names)), "high": at_most}
        return self._constrain("breaks", names, given, cost, name)

    def precedence(self, first: str, second: str, distance: int = 0, cost: float | None = None, name: str = "") -> Self:
        """Add a constraint: one variable plus a distance is at most another variable.

        Parameters
        ----------
        first, second : str
            Names of the variables. The number of a value is its label if all labels of the variable are integers,
            otherwise its index.
        distance : int
            The least difference, for instance the duration of the first interval.
        cost : float or None
            Cost per unit by which the difference is too small; None for a hard constraint.
        name : str
            Name of the constraint.

        Returns
        -------
        Self
            This builder.

        Raises
        ------
        ProblemError
            If a variable is unknown or both are the same.
        """
        names = self._scope((first, second), name or "precedence")
        given = {"numbers": [self._named.numbers(v) for v in names], "distance": distance}
        return self._constrain("precedence", names, given, cost, name)


def _per_variable(numbers: int | Iterable[int], count: int) -> list[int]:
    """Return one number per variable, given one per variable or one for all."""
    return list(numbers) if isinstance(numbers, Iterable) else [numbers] * count
