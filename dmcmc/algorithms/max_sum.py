"""Max-Sum with damping (Farinelli et al., AAMAS 2008; Cohen, Galiki, Zivan, Artificial Intelligence 279, 2020)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.layout import whole_tables
from dmcmc.algorithms.network import BYTES, Network
from dmcmc.inference.runtime.types import Ints

Floats = NDArray[np.float64]


class _Group(NamedTuple):
    """Factors of one shape: their variables (m, arity), their tables (m, *shape), messages from variables an axis."""

    scopes: Ints
    tables: Floats
    heard: list[Floats]


def max_sum(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Send messages from variables to factors and back; each variable takes the value with the largest sum.

    On a tree without damping it is exact after as many cycles as the tree is deep. Very small random utilities, less
    than 1/2 in all where tables are whole numbers, settle ties. A cycle is two rounds: to factors and from them; a
    factor lives with its first variable.
    """
    problem, layout = network.problem, network.layout
    n, damping = problem.n_variables, float(given["damping"])
    dust = rng.random((n, layout.most)) * (0.5 / max(n, 1))
    beyond = np.arange(layout.most) >= layout.domains[:, None]
    groups = _groups(network)
    links, sizes = _links(network)
    beliefs = np.where(beyond, -np.inf, dust)
    while True:
        told = np.zeros_like(dust)
        answers = [[_answer(group, axis) for axis in range(group.scopes.shape[1])] for group in groups]
        for group, messages in zip(groups, answers, strict=True):
            for axis, message in enumerate(messages):
                np.add.at(told[:, : message.shape[1]], group.scopes[:, axis], message)
        beliefs = np.where(beyond, -np.inf, dust + sum(network.world.allgather(told)))
        for group, messages in zip(groups, answers, strict=True):
            for axis, message in enumerate(messages):
                fresh = beliefs[group.scopes[:, axis], : message.shape[1]] - message
                fresh -= fresh.max(axis=1, keepdims=True)
                group.heard[axis][:] = damping * group.heard[axis] + (1 - damping) * fresh
        network.messages += 2 * links
        network.bytes += 2 * sizes
        yield beliefs.argmax(axis=1) if n else np.zeros(0, dtype=np.int64)


def _groups(network: Network) -> list[_Group]:
    """Return this rank's factors by shape."""
    tables, _, _ = whole_tables(network.problem)
    by_shape: dict[tuple[int, ...], list[tuple[tuple[int, ...], Ints]]] = {}
    for scope, table in tables:
        if network.layout.mine[scope[0]]:
            by_shape.setdefault(table.shape, []).append((scope, table))
    return [
        _Group(
            np.array([scope for scope, _ in found], dtype=np.int64),
            np.stack([table for _, table in found]).astype(np.float64),
            [np.zeros((len(found), size)) for size in shape],
        )
        for shape, found in by_shape.items()
    ]


def _answer(group: _Group, axis: int) -> Floats:
    """Return what factors tell the variable of an axis: the best utility for each of its values."""
    total, arity = group.tables, group.scopes.shape[1]
    for other, heard in enumerate(group.heard):
        if other != axis:
            total = total + heard.reshape(len(heard), *(heard.shape[1] if a == other else 1 for a in range(arity)))
    rest = tuple(1 + a for a in range(arity) if a != axis)
    return np.asarray(total.max(axis=rest) if rest else total, dtype=np.float64)


def _links(network: Network) -> tuple[Ints, Ints]:
    """Return how many messages and bytes each agent sends in one of the two rounds."""
    problem = network.problem
    links, sizes = np.zeros(problem.n_agents, dtype=np.int64), np.zeros(problem.n_agents, dtype=np.int64)
    for factor in problem.factors:
        for v in factor.scope[1:]:
            if problem.owner[v] != problem.owner[factor.scope[0]]:
                links[problem.owner[v]] += 1
                sizes[problem.owner[v]] += BYTES * int(problem.domains[v])
    return links, sizes


MAX_SUM = Algorithm(
    "max-sum",
    "Max-Sum with damping: messages between variables and factors",
    max_sum,
    {"damping": Parameter(0.9, 0.0, 0.999, text="which share of a variable's message is that of the cycle before")},
    cycles=1000,
)
