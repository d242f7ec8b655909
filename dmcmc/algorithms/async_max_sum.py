"""Asynchronous Max-Sum: each agent sends messages by its own clock, if those that have arrived change them.

Source: Farinelli, Rogers, Petcu, Jennings: Decentralised coordination of low-power embedded devices, AAMAS 2008.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.agent import DcopAgent
from dmcmc.algorithms.contract import Parameter

Floats = NDArray[np.float64]
Scope = tuple[int, ...]  # variables of a constraint in ascending order, which names it


class AsyncMaxSum(DcopAgent):
    """The node of a variable, and the nodes of the constraints whose lowest variable it is.

    Messages are costs, less their least one. Some time after a message, an agent sends those of its messages that
    differ from the last ones by more than ``change`` in an entry. Tiny random costs break ties.
    """

    name, kind, cycles = "a-max-sum", "message passing", 1000
    summary = "Max-Sum in which each variable sends by its own clock, with damping"
    paper = "Farinelli, Rogers, Petcu, Jennings: Decentralised coordination of low-power embedded devices, AAMAS 2008"
    parameters: ClassVar = {
        "damping": Parameter(0.5, 0.0, 0.999, text="share of the last message in a variable's message"),
        "change": Parameter(1e-6, 0.0, 1e18, text="least change of an entry with which a message is sent again"),
        "period": Parameter(1.0, 1e-6, 1e6, text="time from a message to the answers, in the unit of delays"),
    }

    def start(self) -> None:
        """Begin with the messages of the constraints."""
        self.preference = np.array([self.random() for _ in range(self.domain)]) * 1e-3
        order = [np.argsort(c.scope) for c in self.own_constraints]
        scopes = [tuple(sorted(c.scope)) for c in self.own_constraints]
        tables = [
            c.table().transpose(axes).astype(np.float64) for c, axes in zip(self.own_constraints, order, strict=True)
        ]
        self.tables: dict[Scope, Floats] = {}
        for scope, table in zip(scopes, tables, strict=True):
            self.tables[scope] = self.tables.get(scope, 0.0) + table  # constraints of the same variables are one
        self.scopes = sorted({tuple(sorted(c.scope)) for c in self.constraints})
        self.received: dict[Scope, Floats] = {scope: np.zeros(self.domain) for scope in self.scopes}
        self.to_factor: dict[Scope, dict[int, Floats]] = {scope: {} for scope in self.tables}
        self.sent: dict[tuple[Scope, int], Floats] = {}
        self.value = int(self.preference.argmin())
        self.wakes_soon = True
        self.wake(self.random() * float(self.given["period"]))

    def on_message(self, sender: int, kind: str, content: tuple[Scope, Floats]) -> None:
        """Take a message of a constraint or of a variable."""
        scope, message = content
        if kind == "FROM_FACTOR":
            self.received[scope] = message
        else:
            self.to_factor[scope][sender] = message
        if not self.wakes_soon:
            self.wakes_soon = True
            self.wake(float(self.given["period"]))

    def on_wake(self) -> None:
        """Send the messages that have changed, and take the best value."""
        self.wakes_soon = False
        for scope, table in self.tables.items():
            self._send_from_factor(scope, table, self.to_factor[scope])
        belief = self.preference + sum(self.received.values(), np.zeros(self.domain))
        self.value = int(belief.argmin())
        damping = float(self.given["damping"])
        for scope in self.scopes:
            new = belief - self.received[scope]
            old = self.sent.get((scope, -1))
            new = new - new.min() if old is None else damping * old + (1 - damping) * (new - new.min())
            if self._has_changed(scope, -1, new):
                if scope[0] == self.me:
                    self.to_factor[scope][self.me] = new
                else:
                    self.send(scope[0], "TO_FACTOR", (scope, new))
                if scope[0] == self.me and not self.wakes_soon:  # the own constraint has news for the others
                    self.wakes_soon = True
                    self.wake(float(self.given["period"]))

    def _send_from_factor(self, scope: Scope, table: Floats, messages: Mapping[int, Floats]) -> None:
        """Send the messages of a constraint that have changed."""
        shaped = {v: message.reshape([-1 if u == v else 1 for u in scope]) for v, message in messages.items()}
        total = table + sum(shaped.values(), np.zeros([1] * len(scope)))
        for axis, v in enumerate(scope):
            rest = total - shaped[v] if v in shaped else total
            new = rest.min(axis=tuple(a for a in range(len(scope)) if a != axis))
            new = new - new.min()
            if self._has_changed(scope, v, new):
                if v == self.me:
                    self.received[scope] = new
                else:
                    self.send(v, "FROM_FACTOR", (scope, new))

    def _has_changed(self, scope: Scope, receiver: int, new: Floats) -> bool:
        """Return whether a message differs enough from the last one of its kind; then remember it."""
        old = self.sent.get((scope, receiver))
        if old is not None and np.abs(new - old).max() <= float(self.given["change"]):
            return False
        self.sent[scope, receiver] = new
        return True
