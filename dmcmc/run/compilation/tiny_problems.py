"""Tiny problems, whose solving uses the same kernels as that of large ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dmcmc.config.document import Document
from dmcmc.config.settings import Settings, settings_of
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden_value

_MORE = {"int32": 0, "int64": 1 << 29, "float64": 1 << 61}  # a utility that needs these numbers


def tiny(
    dtype: np.dtype[Any],
    tables: Sequence[np.dtype[Any]] = (np.dtype(np.int32),),
    wide: bool = False,
    hard: bool = True,
    inside: bool = False,
) -> Problem:
    """Return four agents of three variables, with every kind of factor.

    Parameters
    ----------
    dtype
        Numbers that the sums need.
    tables
        Those of the agents' own tables.
    wide
        Whether a variable has more values than a byte counts.
    hard
        Whether something is forbidden.
    inside
        Whether that is a value of a variable that an agent has to itself, too.
    """
    rng, agents, own = np.random.default_rng(0), 4, 3
    n = agents * own
    owner = np.repeat(np.arange(agents), own)
    domains = np.full(n, 3)
    domains[-1] = 300 if wide else 3
    scopes: list[tuple[int, ...]] = [(v,) for v in range(n)]
    scopes += [(a, b) for b in range(n) for a in range(b) if owner[a] == owner[b]]
    scopes += [(a, a + 1, a + 2) for a in range(0, n, own)]
    scopes += [(a, b) for b in range(0, n, own) for a in range(0, b, own)]
    factors = []
    for scope in scopes:
        table = rng.integers(0, 100, [int(domains[v]) for v in scope]).astype(tables[owner[scope[0]] % len(tables)])
        if (hard and scope == (0,)) or (inside and scope == (1,)):
            table[0] = forbidden_value(table.dtype)
        if scope == scopes[-1]:
            kind = np.dtype(np.int64) if dtype.kind == "f" and tables[0].kind == "i" else table.dtype
            table = table.astype(kind) + np.array(_MORE[dtype.name], dtype=kind)
        factors.append(Factor(scope, table))
    return Problem(
        variables=tuple(f"x{v}" for v in range(n)),
        domains=domains,
        agents=tuple(f"a{a}" for a in range(agents)),
        owner=owner,
        factors=tuple(factors),
    )


def with_a_list(problem: Problem) -> Problem:
    """Return a problem with one table as a list of tuples and a default."""
    *others, last = problem.factors
    tuples = np.zeros((1, len(last.scope)), dtype=np.int32)
    listed = SparseFactor(last.scope, last.shape, tuples, last.table.reshape(-1)[:2])
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, (*others, listed))


def settings(local: dict[str, Any], combine: dict[str, Any] | None = None, polish: str = "auto") -> Settings:
    sections = {"local": local, "combine": combine or {}, "device": "cpu", "polish": polish}
    return settings_of(Document("", sections))
