"""Max-Sum (loopy max-product belief propagation) with damping.

Sources: Farinelli et al., AAMAS 2008; Cohen, Galiki, Zivan, Artificial Intelligence 279, 2020.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.layout import integer_tables
from dmcmc.algorithms.network import BYTES, AgentNetwork
from dmcmc.inference.runtime.types import Ints

Floats = NDArray[np.float64]


class _FactorGroup(NamedTuple):
    """Factors of one shape, and the messages that their variables sent last.

    m is the number of factors; axis a of ``tables`` belongs to variable ``scopes[:, a - 1]``, because axis 0 is the
    factor.

    Attributes
    ----------
    scopes : (m, arity) int64
        Variables of each factor.
    tables : (m, *shape) float64
        Utilities of each factor, in the units of the integer tables.
    from_variables : list of (m, domain) float64
        Damped messages from the variables, one array per variable of the scope.
    """

    scopes: Ints
    tables: Floats
    from_variables: list[Floats]


def max_sum(network: AgentNetwork, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Send messages from variables to factors and back; each variable takes the value with the largest belief.

    * From factor f to variable x: r(x) = max over the other variables of (f + sum of their messages q to f).
    * Belief of x: b(x) = sum of all r(x), plus tiny random unary utilities that break ties. Their total is below half a
      unit of the integer tables.
    * From x to f: q(x) = damping * (last q(x)) + (1 - damping) * (b(x) - r(x) from f, less its maximum).

    Without damping the result is exact on a tree after as many cycles as the tree is deep. A cycle has two rounds: to
    factors and from factors. A factor is computed by the agent of its first variable.
    """
    problem, layout = network.problem, network.layout
    n, damping = problem.n_variables, float(given["damping"])
    tie_breakers = rng.random((n, layout.max_domain)) * (0.5 / max(n, 1))
    is_padding = np.arange(layout.max_domain) >= layout.domains[:, None]
    groups = _groups(network)
    to_factors, from_factors, message_bytes = _messages_per_cycle(network)
    beliefs = np.where(is_padding, -np.inf, tie_breakers)
    while True:
        received = np.zeros_like(tie_breakers)
        factor_messages = [[_factor_message(group, axis) for axis in range(group.scopes.shape[1])] for group in groups]
        for group, messages in zip(groups, factor_messages, strict=True):
            for axis, message in enumerate(messages):
                np.add.at(received[:, : message.shape[1]], group.scopes[:, axis], message)
        beliefs = np.where(is_padding, -np.inf, tie_breakers + sum(network.world.allgather(received)))
        for group, messages in zip(groups, factor_messages, strict=True):
            for axis, message in enumerate(messages):
                new_message = beliefs[group.scopes[:, axis], : message.shape[1]] - message
                new_message -= new_message.max(axis=1, keepdims=True)
                group.from_variables[axis][:] = damping * group.from_variables[axis] + (1 - damping) * new_message
        network.count_messages("TO_FACTOR", to_factors, message_bytes)
        network.count_messages("FROM_FACTOR", from_factors, message_bytes)
        yield beliefs.argmax(axis=1) if n else np.zeros(0, dtype=np.int64)


def _groups(network: AgentNetwork) -> list[_FactorGroup]:
    """Return this rank's factors, grouped by table shape, with zero messages."""
    tables, _, _ = integer_tables(network.problem)
    by_shape: dict[tuple[int, ...], list[tuple[tuple[int, ...], Ints]]] = {}
    for scope, table in tables:
        if network.layout.mine[scope[0]]:
            by_shape.setdefault(table.shape, []).append((scope, table))
    return [
        _FactorGroup(
            np.array([scope for scope, _ in members], dtype=np.int64),
            np.stack([table for _, table in members]).astype(np.float64),
            [np.zeros((len(members), size)) for size in shape],
        )
        for shape, members in by_shape.items()
    ]


def _factor_message(group: _FactorGroup, axis: int) -> Floats:
    """Return the messages (m, domain) from the factors to their variables at position ``axis`` of the scope.

    The message gives, for each value, the best utility over the other variables: the table plus the messages of the
    other variables, maximised over these.
    """
    total, arity = group.tables, group.scopes.shape[1]
    for other, message in enumerate(group.from_variables):
        if other != axis:
            total = total + message.reshape(
                len(message), *(message.shape[1] if i == other else 1 for i in range(arity))
            )
    other_axes = tuple(1 + i for i in range(arity) if i != axis)
    return np.asarray(total.max(axis=other_axes) if other_axes else total, dtype=np.float64)


def _messages_per_cycle(network: AgentNetwork) -> tuple[Ints, Ints, Ints]:
    """Return the senders of the messages to factors and of those back, and the bytes of both, (messages,) int64 each.

    Message i to a factor is sent by the agent of the variable, and message i back by the agent that computes the
    factor.
    """
    owner, domains = network.problem.owner, network.problem.domains
    pairs = [(v, f.scope[0]) for f in network.problem.factors for v in f.scope[1:] if owner[v] != owner[f.scope[0]]]
    variables, first = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return owner[variables], owner[first], BYTES * domains[variables]


MAX_SUM = Algorithm(
    "max-sum",
    "Max-Sum with damping: messages between variables and factors",
    max_sum,
    {"damping": Parameter(0.9, 0.0, 0.999, text="share of the previous cycle's message in a variable's message")},
    cycles=1000,
    kind="message passing",
    paper="Farinelli et al., AAMAS 2008; damping: Cohen, Galiki, Zivan, Artificial Intelligence 279, 2020",
)
