"""Tiny problems and settings, whose solution compiles the same kernels as that of large ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dmcmc.config.settings import Settings, settings_of
from dmcmc.files.document import Document
from dmcmc.inference.constraints.all_different import AllDifferentConstraint
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden_value

_OFFSET_OF_TYPE = {
    "int32": 0,
    "int64": 1 << 29,
    "float64": 1 << 61,
}  # added to a table entry so that sums need this type


def tiny_problem(
    dtype: np.dtype[Any],
    tables: Sequence[np.dtype[Any]] = (np.dtype(np.int32),),
    wide: bool = False,
    hard: bool = True,
    inside: bool = False,
) -> Problem:
    """Return a problem of four agents with three variables each, and factors of every arity up to three.

    Parameters
    ----------
    dtype
        Type of numbers that the sums need; ``int32``, ``int64`` or ``float64``.
    tables
        Types of the agents' tables, used in turn.
    wide
        Whether a variable has more than 256 values (300).
    hard
        Whether there is a hard constraint: value 0 of the first variable is forbidden.
    inside
        Whether a value of a hidden variable is forbidden, too (value 0 of the second variable).
    """
    rng, agents, per_agent = np.random.default_rng(0), 4, 3
    n = agents * per_agent
    owner = np.repeat(np.arange(agents), per_agent)
    domains = np.full(n, 3)
    domains[-1] = 300 if wide else 3
    scopes: list[tuple[int, ...]] = [(v,) for v in range(n)]
    scopes += [(a, b) for b in range(n) for a in range(b) if owner[a] == owner[b]]
    scopes += [(a, a + 1, a + 2) for a in range(0, n, per_agent)]
    scopes += [(a, b) for b in range(0, n, per_agent) for a in range(0, b, per_agent)]
    factors = []
    for scope in scopes:
        table = rng.integers(0, 100, [int(domains[v]) for v in scope]).astype(tables[owner[scope[0]] % len(tables)])
        if (hard and scope == (0,)) or (inside and scope == (1,)):
            table[0] = forbidden_value(table.dtype)
        if scope == scopes[-1]:
            table_type = np.dtype(np.int64) if dtype.kind == "f" and tables[0].kind == "i" else table.dtype
            table = table.astype(table_type) + np.array(_OFFSET_OF_TYPE[dtype.name], dtype=table_type)
        factors.append(Factor(scope, table))
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=owner,
        factors=tuple(factors),
    )


def with_sparse_factor(problem: Problem) -> Problem:
    """Return a problem whose last factor is sparse: a list of tuples and a default."""
    *others, last = problem.factors
    tuples = np.zeros((1, len(last.scope)), dtype=np.int32)
    listed = SparseFactor(last.scope, last.shape, tuples, last.table.reshape(-1)[:2])
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, (*others, listed))


def with_constraint(problem: Problem) -> Problem:
    """Return a problem with a global constraint over its first two variables."""
    shape = problem.domains[:2].tolist()
    codes = tuple(np.arange(size) for size in shape)
    constraint = AllDifferentConstraint((0, 1), shape, {"codes": codes})
    return replace(problem, factors=(*problem.factors, constraint))


def settings(local: dict[str, Any], combine: dict[str, Any] | None = None, local_search: str = "auto") -> Settings:
    """Return settings on the CPU with the given sections."""
    sections = {"local": local, "combine": combine or {}, "device": "cpu", "local_search": local_search}
    return settings_of(Document("", sections))
