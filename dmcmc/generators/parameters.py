"""What the families share: checked parameters, random streams and a look at the memory before anything is allocated."""

import math
from fractions import Fraction
from typing import Annotated

import msgspec
import numpy as np
from msgspec import inspect

from dmcmc.inference.runtime.errors import ConfigError, ResourceError
from dmcmc.inference.runtime.memory import memory_limit, readable

Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

_BYTES_PER_OBJECT = 400  # a name or a factor, as Python holds it


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of a family's parameters: checked when built, by the types of its fields.

    Raises
    ------
    ConfigError
        For a value of the wrong type or out of range; starts with the parameter's name.
    """

    seed: Seed = 0

    def __post_init__(self) -> None:
        info = inspect.type_info(type(self))
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            problem = _problem(field.type, getattr(self, field.name))
            if problem:
                raise ConfigError(f"{field.name}: {problem}")
        self.check()

    def check(self) -> None:
        """Hold the parameters against each other."""


def _problem(kind: inspect.Type, value: object) -> str:
    """Return what a value should have been, or nothing."""
    if isinstance(kind, inspect.UnionType):
        if value is None:
            return ""
        kind = next(k for k in kind.types if not isinstance(k, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return "" if value in kind.values else f"must be one of {', '.join(map(str, kind.values))}, not {value!r}"
    assert isinstance(kind, inspect.IntType | inspect.FloatType)
    whole = isinstance(kind, inspect.IntType)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"must be {'an integer' if whole else 'a number'}, not {value!r}"
    low, high = kind.ge, kind.le
    assert low is not None and high is not None
    if low <= value <= high:
        return ""
    if not whole:
        return f"must be between {low} and {high}, not {value}"
    return f"must be at least {low}, not {value}" if value < low else f"must be at most {high}, not {value}"


def edge_count(nodes: int, density: float, at_least: int = 0) -> int:
    """Return ⌊n(n−1)p/2⌋, or ``at_least`` if that is more; p as it is written (0.29 is 29/100, not the nearest double).

    Examples
    --------
    >>> edge_count(10, 0.5), edge_count(4, 0.1, at_least=3)
    (22, 3)
    """
    return max(at_least, math.floor(Fraction(nodes * (nodes - 1), 2) * Fraction(repr(density))))


def share(count: int, ratio: float) -> int:
    """Return ⌊count · ratio⌋, the ratio as it is written."""
    return math.floor(count * Fraction(repr(ratio)))


def stream(seed: int, purpose: int) -> np.random.Generator:
    """Return the random stream of one purpose: Philox keyed by (seed, purpose), so that streams never depend on others.

    Only integers may be drawn: they are the same on every platform.
    """
    return np.random.Generator(np.random.Philox(key=seed + (purpose << 64)))


def check_size(agents: int, variables: int, factors: int, entries: int) -> None:
    """Refuse a problem that cannot fit, before anything is allocated.

    Parameters
    ----------
    agents, variables, factors
        How many of each.
    entries
        Table entries in all, 4 bytes each; drawing them takes as much again.

    Raises
    ------
    ResourceError
        With the numbers.
    """
    needed, limit = 8 * entries + _BYTES_PER_OBJECT * (agents + variables + factors), memory_limit()
    if needed > limit:
        raise ResourceError(
            f"the problem is too large: {_number(variables)} variables and {_number(factors)} factors with"
            f" {_number(entries)} table entries need {readable(needed)}; at most {readable(limit)} is allowed"
        )


def _number(count: int) -> str:
    """Return a count, short however large it is."""
    return f"{count:,}" if count < 10**12 else f"{count:.3g}"
