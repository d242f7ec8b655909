"""Max-Sum (loopy max-product belief propagation): in cycles, with damping, split factors and alternating directions.

Sources: Farinelli et al., AAMAS 2008; Zivan, Peled: Max/min-sum distributed constraint optimization through value
propagation on an alternating DAG, AAMAS 2012; damping and split factors: Cohen, Galiki, Zivan, Artificial Intelligence
279, 2020.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.agent import DcopAgent, SynchronousAgent
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.layout import integer_tables
from dmcmc.algorithms.network import BYTES, AgentNetwork, Draws
from dmcmc.inference.runtime.types import Ints

Floats = NDArray[np.float64]
Scope = tuple[int, ...]  # variables of a factor in ascending order
Node = tuple[Scope, int]  # a factor by its variables, and the number of its copy where factors are split

_TIE_BREAKER = 1e-4  # largest random utility that breaks ties: below half a unit in all for up to 5,000 variables


def factor_message(tables: Floats, messages: Sequence[Floats], axis: int) -> Floats:
    """Return the messages from some factors of one shape to their variables at position ``axis``, shape (m, domain).

    A message gives, for each value, the best utility over the other variables: the table plus the messages of these.

    Parameters
    ----------
    tables : (m, *shape) float64
        Utilities of m factors.
    messages : sequence of (m, domain) float64
        Messages from the variables at each position.
    axis : int
        Position of the receivers.
    """
    total, arity = tables, len(messages)
    for other, message in enumerate(messages):
        if other != axis:
            total = total + message.reshape(
                len(message), *(message.shape[1] if i == other else 1 for i in range(arity))
            )
    other_axes = tuple(1 + i for i in range(arity) if i != axis)
    return np.asarray(total.max(axis=other_axes) if other_axes else total, dtype=np.float64)


def copies_of(table: Any, split: float) -> list[Floats]:
    """Return the parts into which a factor is split, or the factor alone if ``split`` is 0."""
    return [table * split, table * (1 - split)] if split else [table * 1.0]


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


def max_sum(network: AgentNetwork, rng: Draws, given: Values) -> Iterator[Ints]:
    """Send messages from variables to factors and back; each variable takes the value with the largest belief.

    * From factor f to variable x: r(x) = max over the other variables of (f + sum of their messages q to f).
    * Belief of x: b(x) = sum of all r(x), plus tiny random unary utilities that break ties.
    * From x to f: q(x) = damping * (last q(x)) + (1 - damping) * (b(x) - r(x) from f, less its maximum).

    Without damping the result is exact on a tree after as many cycles as the tree is deep. A cycle has two rounds: to
    factors and from factors. A factor is computed by the agent of its lowest variable. Factors of the same variables
    count as one.
    """
    problem, layout = network.problem, network.layout
    n, damping = problem.n_variables, float(given["damping"])
    tie_breakers = rng.random((n, layout.max_domain)) * _TIE_BREAKER
    is_padding = np.arange(layout.max_domain) >= layout.domains[:, None]
    groups = _groups(network, float(given["split"]))
    to_factors, from_factors, message_bytes = _messages_per_cycle(network, 2 if given["split"] else 1)
    beliefs = np.where(is_padding, -np.inf, tie_breakers)
    while True:
        yield beliefs.argmax(axis=1) if n else np.zeros(0, dtype=np.int64)
        received = np.zeros_like(tie_breakers)
        factor_messages = [
            [factor_message(group.tables, group.from_variables, axis) for axis in range(group.scopes.shape[1])]
            for group in groups
        ]
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


def _groups(network: AgentNetwork, split: float) -> list[_FactorGroup]:
    """Return this rank's factors, grouped by table shape, with zero messages."""
    merged: dict[Scope, Ints] = {}
    for scope, table in integer_tables(network.problem)[0]:
        key = tuple(sorted(scope))
        if network.layout.mine[key[0]]:
            merged[key] = merged.get(key, np.int64(0)) + table.transpose(np.argsort(scope))
    by_shape: dict[tuple[int, ...], list[tuple[Scope, Floats]]] = {}
    for key, table in merged.items():
        by_shape.setdefault(table.shape, []).extend((key, part) for part in copies_of(table, split))
    return [
        _FactorGroup(
            np.array([scope for scope, _ in members], dtype=np.int64),
            np.stack([table for _, table in members]),
            [np.zeros((len(members), size)) for size in shape],
        )
        for shape, members in by_shape.items()
    ]


def _messages_per_cycle(network: AgentNetwork, copies: int) -> tuple[Ints, Ints, Ints]:
    """Return the senders of the messages to factors and of those back, and the bytes of both, (messages,) int64 each.

    Message i to a factor is sent by the agent of the variable, and message i back by the agent that computes the
    factor. Two variables exchange one message in each direction for all factors that one computes and both share.
    """
    owner, domains = network.problem.owner, network.problem.domains
    scopes = {tuple(sorted(f.scope)) for f in network.problem.factors}
    shared: dict[tuple[int, int], int] = {}
    for scope in scopes:
        for v in scope[1:]:
            if owner[v] != owner[scope[0]]:
                shared[v, scope[0]] = shared.get((v, scope[0]), 0) + copies
    variables, first = np.array(list(shared), dtype=np.int64).reshape(-1, 2).T
    return owner[variables], owner[first], BYTES * domains[variables] * np.array(list(shared.values()), dtype=np.int64)


class FactorOwner(DcopAgent):
    """The nodes of a variable, and of the factors whose lowest variable it is; factors of the same variables are one.

    Attributes
    ----------
    preference : (domain,) float64
        Tiny random utilities that break ties.
    tables : dict of node to (1, *shape) float64
        Utilities of the factors that this agent computes.
    nodes : list of node
        All factors of the variable, in an order that all agents share.
    received : dict of node to (domain,) float64
        The last message of each factor.
    to_factor : dict of node to list of (1, domain) float64
        The last messages of the variables of each factor that this agent computes.
    """

    def prepare(self, split: float = 0.0) -> None:
        """Read the tables of the own factors; all messages are zero."""
        self.preference = np.array([self.random() for _ in range(self.domain)]) * _TIE_BREAKER
        merged: dict[Scope, Ints] = {}
        for c in self.own_constraints:
            key = tuple(sorted(c.scope))
            merged[key] = merged.get(key, np.int64(0)) - c.table().transpose(np.argsort(c.scope))
        self.tables: dict[Node, Floats] = {
            (scope, copy): part[None]
            for scope, table in merged.items()
            for copy, part in enumerate(copies_of(table, split))
        }
        copies = range(2 if split else 1)
        self.nodes = sorted({(tuple(sorted(c.scope)), copy) for c in self.constraints for copy in copies})
        self.received: dict[Node, Floats] = {node: np.zeros(self.domain) for node in self.nodes}
        self.to_factor = {node: [np.zeros((1, self.domains[v])) for v in node[0]] for node in self.tables}

    def from_factor(self, node: Node, receiver: int) -> Floats:
        """Return the message of an own factor to one of its variables."""
        return np.asarray(factor_message(self.tables[node], self.to_factor[node], node[0].index(receiver))[0])

    def belief(self) -> Floats:
        """Return the belief of each value."""
        return np.asarray(np.sum([self.preference, *self.received.values()], axis=0))


class MaxSum(FactorOwner, SynchronousAgent):
    """Max-Sum in cycles: a round of messages to factors and a round back; see :func:`max_sum`.

    With a ``phase``, messages flow in one direction of the order of all variables for as many cycles, in which a factor
    comes right after its lowest variable, and then in the other one. With value propagation, variables then send the
    utility of their present value only, so that a factor takes the values of its senders as fixed.
    """

    name, kind, cycles, rounds = "max-sum", "message passing", 1000, 2
    summary = "Max-Sum with damping: messages between variables and factors"
    paper = "Farinelli et al., AAMAS 2008; damping: Cohen, Galiki, Zivan, Artificial Intelligence 279, 2020"
    parameters: ClassVar = {
        "damping": Parameter(0.9, 0.0, 0.999, text="share of the previous cycle's message in a variable's message"),
        "split": Parameter(0.0, 0.0, 0.999, text="share of a factor in the first of two copies; 0: factors are whole"),
    }
    compiled: ClassVar[Algorithm | None] = Algorithm("max-sum", summary, max_sum, parameters, cycles, kind)

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Send messages to factors and back."""
        self.prepare(float(self.given["split"]))
        damping, phase = float(self.given["damping"]), int(self.given.get("phase", 0))
        above = {u: self._shared(u, self.me) for u in self.neighbours if self._shared(u, self.me)}
        below = {u: self._shared(self.me, u) for u in self.neighbours if self._shared(self.me, u)}
        damped = {node: np.zeros(self.domain) for node in self.nodes}
        to_factors = dict(damped)
        self.value, cycle = int(self.preference.argmax()), 0
        while True:
            upwards = downwards = True
            if phase:
                downwards = cycle // phase % 2 == 0
                upwards = not downwards
            cycle += 1
            for u, nodes in above.items():
                if upwards:
                    self.send(u, "TO_FACTOR", [to_factors[node] for node in nodes])
            for u, messages in (yield).items():
                for node, message in zip(below[u], messages, strict=True):
                    self.to_factor[node][node[0].index(u)] = message[None]
            for node in self.tables:
                self.to_factor[node][0] = to_factors[node][None]
            for u, nodes in below.items():
                if downwards:
                    self.send(u, "FROM_FACTOR", [self.from_factor(node, u) for node in nodes])
            for u, messages in (yield).items():
                self.received |= zip(above[u], messages, strict=True)
            for node in self.tables:
                if upwards or len(node[0]) == 1:
                    self.received[node] = self.from_factor(node, self.me)
            belief = self.belief()
            self.value = int(belief.argmax())
            for node, message in self.received.items():
                new = belief - message
                damped[node] = damping * damped[node] + (1 - damping) * (new - new.max())
                to_factors[node] = self._sent(damped[node], cycle)

    def _shared(self, owner: int, member: int) -> list[Node]:
        """Return the factors that one variable computes and another one is in, as far as this agent is in them."""
        return [node for node in self.nodes if node[0][0] == owner and member in node[0]]

    def _sent(self, message: Floats, cycle: int) -> Floats:
        """Return the message to a factor as it is sent after a cycle."""
        return message


class AlternatingMaxSum(MaxSum):
    """Max-Sum with alternating directions."""

    name, compiled = "max-sum-ad", None
    summary = "Max-Sum whose messages flow in one direction of an order for some cycles, then in the other one"
    paper = "Zivan, Peled: Max/min-sum through value propagation on an alternating DAG, AAMAS 2012"
    parameters: ClassVar = MaxSum.parameters | {
        "damping": Parameter(0.0, 0.0, 0.999, text="share of the previous cycle's message in a variable's message"),
        "phase": Parameter(50, 1, 10**9, text="cycles in one direction; the paper takes the longest path's length"),
    }


class ValuePropagation(AlternatingMaxSum):
    """Max-Sum with alternating directions and value propagation."""

    name = "max-sum-ad-vp"
    summary = "Max-Sum with alternating directions, in which variables after some phases propagate their values"
    parameters: ClassVar = AlternatingMaxSum.parameters | {
        "plain": Parameter(2, 0, 10**9, text="phases without value propagation at the beginning")
    }

    def _sent(self, message: Floats, cycle: int) -> Floats:
        """Exclude all values but the present one once values are propagated."""
        if cycle < int(self.given["plain"]) * int(self.given["phase"]):
            return message
        return np.where(np.arange(self.domain) == self.value, 0.0, -np.inf)
