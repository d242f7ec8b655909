"""Asynchronous Max-Sum: each agent sends messages by its own clock, if those that have arrived change them.

Source: Farinelli, Rogers, Petcu, Jennings: Decentralised coordination of low-power embedded devices, AAMAS 2008.
"""

from typing import ClassVar

import numpy as np

from dmcmc.algorithms.contract import Parameter
from dmcmc.algorithms.max_sum import FactorOwner, Floats, Node


class AsyncMaxSum(FactorOwner):
    """Max-Sum without a common clock.

    Messages are utilities, less their largest one. Some time after a message, an agent sends those of its messages that
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
        """Begin with the messages of the factors."""
        self.prepare()
        self.sent: dict[tuple[Node, int], Floats] = {}
        self.value = int(self.preference.argmax())
        self.wakes_soon = True
        self.wake(self.random() * float(self.given["period"]))

    def on_message(self, sender: int, kind: str, content: tuple[Node, Floats]) -> None:
        """Take a message of a factor or of a variable."""
        node, message = content
        if kind == "FROM_FACTOR":
            self.received[node] = message
        else:
            self.to_factor[node][node[0].index(sender)] = message[None]
        self._wake_soon()

    def _wake_soon(self) -> None:
        """Ask for a call after the period, unless there will be one."""
        if not self.wakes_soon:
            self.wakes_soon = True
            self.wake(float(self.given["period"]))

    def on_wake(self) -> None:
        """Send the messages that have changed, and take the best value."""
        self.wakes_soon = False
        for node in self.tables:
            for v in node[0]:
                new = self.from_factor(node, v)
                new -= new.max()
                if self._has_changed(node, v, new):
                    if v == self.me:
                        self.received[node] = new
                    else:
                        self.send(v, "FROM_FACTOR", (node, new))
        belief, damping = self.belief(), float(self.given["damping"])
        self.value = int(belief.argmax())
        for node, message in self.received.items():
            new, old = belief - message, self.sent.get((node, -1))
            new = new - new.max() if old is None else damping * old + (1 - damping) * (new - new.max())
            if self._has_changed(node, -1, new):
                if node[0][0] == self.me:
                    self.to_factor[node][0] = new[None]
                    self._wake_soon()  # the own factor has news for the others
                else:
                    self.send(node[0][0], "TO_FACTOR", (node, new))

    def _has_changed(self, node: Node, receiver: int, new: Floats) -> bool:
        """Return whether a message differs enough from the last one of its kind; then remember it."""
        old = self.sent.get((node, receiver))
        if old is not None and np.abs(new - old).max() <= float(self.given["change"]):
            return False
        self.sent[node, receiver] = new
        return True
