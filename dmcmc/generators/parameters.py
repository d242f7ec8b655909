"""The parameters of generators, and random tables.

Code that all problem families share: validated parameters, random streams, and a memory check before any allocation.

A problem family is a generator of :mod:`dmcmc.generators.registry`.

Build a problem from scopes and one block of tables; the generators share this code.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Annotated

import msgspec
import numpy as np
from msgspec import inspect
from numpy.typing import ArrayLike, NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, ResourceError
from dmcmc.inference.runtime.memory import format_bytes, memory_limit
from dmcmc.inference.runtime.types import Array

Count = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Ratio = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]

_BYTES_PER_OBJECT = 400  # approximate bytes of a Python object for a name or a factor


class Parameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base class of a family's parameters, validated by the types of their fields on construction.

    Attributes
    ----------
    seed : int
        Seed of the random streams; equal seeds give equal problems.

    Raises
    ------
    ConfigError
        For a value of the wrong type or out of range; the message starts with the parameter's name.
    """

    seed: Seed = 0

    def __post_init__(self) -> None:
        """Validate every field, then the combination of fields."""
        info = inspect.type_info(type(self))
        assert isinstance(info, inspect.StructType)
        for field in info.fields:
            problem = _problem(field.type, getattr(self, field.name))
            if problem:
                raise ConfigError(f"{field.name}: {problem}")
        self.check()

    def check(self) -> None:
        """Check conditions that involve several parameters."""


class MultiVariableAgents(Parameters, frozen=True, kw_only=True):
    """Parameters of agents that own several variables, of which the first ones are interface variables.

    Attributes
    ----------
    agents, variables_per_agent, domain_size, interface_variables : int
        Number of agents; numbers of variables, of values and of interface variables of each.
    """

    agents: Count = 5
    variables_per_agent: Count = 10
    domain_size: Count = 10
    interface_variables: Count = 1

    def check(self) -> None:
        """Check that an agent has at least as many variables as interface variables."""
        if self.interface_variables > self.variables_per_agent:
            raise ConfigError(
                f"interface_variables: must be at most variables_per_agent ({self.variables_per_agent}),"
                f" not {self.interface_variables}"
            )


def _problem(kind: inspect.Type, value: object) -> str:
    """Return an error message that states the expected value; empty if the value is valid."""
    if isinstance(kind, inspect.UnionType):
        if value is None:
            return ""
        kind = next(k for k in kind.types if not isinstance(k, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return "" if value in kind.values else f"must be one of {', '.join(map(str, kind.values))}, not {value!r}"
    assert isinstance(kind, inspect.IntType | inspect.FloatType)
    is_integer = isinstance(kind, inspect.IntType)
    if isinstance(value, bool) or not isinstance(value, int if is_integer else int | float):
        return f"must be {'an integer' if is_integer else 'a number'}, not {value!r}"
    low, high = kind.ge, kind.le
    assert low is not None and high is not None
    if low <= value <= high:
        return ""
    if not is_integer:
        return f"must be between {low} and {high}, not {value}"
    return f"must be at least {low}, not {value}" if value < low else f"must be at most {high}, not {value}"


def edge_count(nodes: int, density: float, at_least: int = 0) -> int:
    """Return ⌊n(n−1)p/2⌋, at least ``at_least``; p is taken as the decimal number written (0.29 is 29/100).

    Examples
    --------
    >>> edge_count(10, 0.5), edge_count(4, 0.1, at_least=3)
    (22, 3)
    """
    return max(at_least, math.floor(Fraction(nodes * (nodes - 1), 2) * Fraction(repr(density))))


def share(count: int, ratio: float) -> int:
    """Return ⌊count · ratio⌋, with the ratio taken as the decimal number written."""
    return math.floor(count * Fraction(repr(ratio)))


def stream(seed: int, purpose: int) -> np.random.Generator:
    """Return the random stream for one purpose: Philox keyed by (seed, purpose), so that streams are independent.

    The purpose is a small number that a generator gives to a part of the problem, such as 0 for the graph and 1 for the
    tables; changing one part leaves the others as they were. Only integers may be drawn, because they are identical on
    every platform.
    """
    return np.random.Generator(np.random.Philox(key=seed + (purpose << 64)))


def check_size(agents: int, variables: int, factors: int, entries: int) -> None:
    """Raise an error for a problem that does not fit the memory, before anything is allocated.

    Parameters
    ----------
    agents, variables, factors
        Number of each.
    entries
        Total number of table entries. Each needs 8 bytes: 4 in its table, and 4 while the tables are drawn.

    Raises
    ------
    ResourceError
        If the problem needs more than the memory limit; states the sizes.
    """
    needed, limit = 8 * entries + _BYTES_PER_OBJECT * (agents + variables + factors), memory_limit()
    if needed > limit:
        raise ResourceError(
            f"the problem is too large: {_number(variables)} variables and {_number(factors)} factors with"
            f" {_number(entries)} table entries need {format_bytes(needed)}; at most {format_bytes(limit)} is allowed"
        )


def _number(count: int) -> str:
    """Return a count as text, in scientific notation if it is very large."""
    return f"{count:,}" if count < 10**12 else f"{count:.3g}"


def uniform(rng: np.random.Generator, low: int, high: int, shape: Sequence[int]) -> NDArray[np.int32]:
    """Return independent integers, uniform in low..high (both included)."""
    return rng.integers(low, high, size=tuple(shape), dtype=np.int32, endpoint=True)


def binary_factors(edges: NDArray[np.int64], tables: Array) -> tuple[Factor, ...]:
    """Return one factor per edge.

    Parameters
    ----------
    edges
        (m, 2) int64. Scopes.
    tables
        (m, d, d) int32, already the narrowest dtype; becomes read-only.
    """
    tables.flags.writeable = False
    return tuple(Factor((u, v), table) for (u, v), table in zip(edges.tolist(), tables, strict=True))


def agents_problem(
    name: str, agents: int, each: int, domain_size: int, factors: tuple[Factor, ...], letter: str
) -> Problem:
    """Return a problem whose agents own ``each`` variables.

    Variables are named by agent and ``letter``: ``a3.x7`` is the eighth variable of the fourth agent.
    """
    names = [f"a{a}.{letter}{i}" for a in range(agents) for i in range(each)]
    owner = np.repeat(np.arange(agents), each)
    return problem_of_domains(name, names, np.full(agents * each, domain_size), owner, factors, "max")


def binary_problem(edges: NDArray[np.int64], tables: Array, make: Callable[[tuple[Factor, ...]], Problem]) -> Problem:
    """Return the problem that ``make`` builds from one factor per edge, with the block of tables attached.

    Compiled code can then use the block without copying the tables again.

    Parameters
    ----------
    edges
        (m, 2) int64. Scopes.
    tables
        (m, d, d) int32 utilities, contiguous, one table per edge; becomes read-only.
    make
        Builds the problem from the factors.
    """
    data = tables.reshape(-1)  # stays writable for compiled code; the factors' tables become read-only
    problem = make(binary_factors(edges, tables))
    table_begin = data.size // max(1, len(edges)) * np.arange(len(edges) + 1)
    problem.take_flat(
        FlatTables(np.arange(0, 2 * len(edges) + 1, 2), edges.reshape(-1).astype(np.int64), table_begin, data)
    )
    return problem


def problem_of_domains(
    name: str, names: Sequence[str], domains: ArrayLike, owner: ArrayLike, factors: Sequence[Factor], sense: str
) -> Problem:
    """Return a problem whose variables have these domain sizes; agent ``a0`` and so on own them by number."""
    agents = tuple(f"a{a}" for a in range(int(np.max(owner)) + 1))
    given = np.asarray(domains, dtype=np.int64), agents, np.asarray(owner, dtype=np.int64)
    return Problem(tuple(names), *given, tuple(factors), sense=sense, name=name)
