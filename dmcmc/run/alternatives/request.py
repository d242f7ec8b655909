"""Which alternatives of the best assignment are wanted."""

from typing import NamedTuple

from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.python_number import plain_value
from dmcmc.inference.model.unknown_names import suggest_name
from dmcmc.inference.runtime.errors import ConfigError


class AlternativesRequest(NamedTuple):
    """The alternatives that are wanted.

    Attributes
    ----------
    k : int
        Number of assignments, the best one included; at least 1.
    within : float or None
        Largest relative gap to the best assignment, |objective − best| / max(1, |best|); None for any.
    distance : int
        Least number of variables in which any two of them differ; at least 1.
    over : tuple of str or None
        The variables that count for ``distance``; None for all variables.
    """

    k: int
    within: float | None = None
    distance: int = 1
    over: tuple[str, ...] | None = None

    def checked(self, problem: Problem) -> "AlternativesRequest":
        """Return the request with numbers of Python; raise ConfigError if a part of it is not allowed."""
        k, within, distance = (plain_value(number) for number in (self.k, self.within, self.distance))
        for name, number in (("k", k), ("distance", distance)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ConfigError(f"alternatives: {name}: expected a whole number of at least 1, got {number!r}")
        if within is not None and (isinstance(within, bool) or not (isinstance(within, int | float) and within >= 0)):
            raise ConfigError(f"alternatives: within: expected a number of at least 0, such as 0.02, got {within!r}")
        for name in self.over or ():
            if name not in problem.variables:
                hint = suggest_name(str(name), problem.variables)
                raise ConfigError(f"alternatives: over: variable {name!r} does not exist{hint}")
        return self._replace(k=k, within=within, distance=distance)
