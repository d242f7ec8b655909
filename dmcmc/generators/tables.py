"""Build a problem from scopes and one block of tables; the generators share this code."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.flat_tables import FlatTables
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Array


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
    return Problem(
        variables=tuple(f"a{a}.{letter}{i}" for a in range(agents) for i in range(each)),
        domains=np.full(agents * each, domain_size, dtype=np.int64),
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=np.repeat(np.arange(agents, dtype=np.int64), each),
        factors=factors,
        name=name,
    )


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
