"""ALS, anytime local search: agents find the best step of a run by a spanning tree, and keep their values of it.

Source: Zivan, Okamoto, Peled: Explorative anytime local search for distributed constraint optimization, Artificial
Intelligence 212, 2014.
"""

from collections.abc import Generator
from typing import Any

from dmcmc.algorithms.agent import EVERYONE, SynchronousAgent
from dmcmc.algorithms.syncbb import NO_BOUND

_VALUE = "VALUE"  # kind of the messages that carry those of the scheme


class AnytimeSearch(SynchronousAgent):
    """A local search whose agents keep their values of the best step; made by :func:`anytime`.

    A step is a round in which all agents tell their values. An agent adds the cost of a step in its subtree to a later
    value message to its parent. The root compares the steps, and adds the last and the best of them to its messages
    to its children, which pass them on.

    Attributes
    ----------
    best : int or None
        The agent's value of the best step that it knows of.
    compared : tuple of int, int
        The last step that the root has compared, as far as this agent knows, and the best one.
    """

    structure = "spanning tree"

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Run the search; steps are numbered from 0."""
        search, inbox = super().run(), None
        self.best: int | None = None
        self.compared, self.step, self.least = (-1, -1), -1, NO_BOUND
        self.history: dict[int, int] = {}
        self.costs_of: dict[int, dict[int, int]] = {}  # of each step: cost of the own part, and of each child's subtree
        self.report: tuple[int, int] | None = None  # a step, and its cost in this subtree
        while True:
            try:
                search.send(inbox)  # type: ignore[arg-type]
            except StopIteration:
                return
            tells_values = any(kind == _VALUE for _, kind, *_ in self.outbox)
            if tells_values:
                self._add_to_values()
            inbox = yield
            if tells_values:
                inbox = self._read_values(inbox)

    def _add_to_values(self) -> None:
        """Add what the scheme has to say to the messages with the own value."""
        assert self.value is not None
        self.step += 1
        self.history[self.step] = self.value
        messages, self.outbox = self.outbox, []
        for message in messages:
            if message[0] == EVERYONE and message[1] == _VALUE:
                for u in self.neighbours:
                    if u == self.parent and self.report is not None:
                        self.send(u, _VALUE, (message[2], *self.report))
                    else:
                        self.send(u, _VALUE, (message[2], *self.compared) if u in self.children else message[2])
            else:
                self.outbox.append(message)
        self.report = None

    def _read_values(self, inbox: dict[int, Any]) -> dict[int, Any]:
        """Take what the neighbours have added to their values, and return the values."""
        view = {u: content[0] if isinstance(content, tuple) else content for u, content in inbox.items()}
        known = view | {self.me: self.history[self.step]}
        if all(v in known for c in self.own_constraints for v in c.others):
            self._take_cost(self.step, self.me, sum(c.cost(known) for c in self.own_constraints))
        for u, content in inbox.items():
            if isinstance(content, tuple) and u == self.parent:
                self._compare(content[1:])
            elif isinstance(content, tuple):
                self._take_cost(content[1], u, content[2])
        return view

    def _take_cost(self, step: int, part: int, cost: int) -> None:
        """Take the cost of a step, of this agent or of a child's subtree; report or compare it once all are there."""
        costs = self.costs_of.setdefault(step, {})
        costs[part] = cost
        if len(costs) <= len(self.children):
            return
        total = sum(self.costs_of.pop(step).values())
        if self.parent is not None:
            self.report = step, total
        else:
            self.least, best = min((self.least, self.compared[1]), (total, step))
            self._compare((step, best))

    def _compare(self, compared: tuple[int, int]) -> None:
        """Keep the value of the best step, and forget those of the steps that are compared."""
        if compared[1] in self.history:
            self.best = self.history[compared[1]]
        self.compared = compared
        self.history = {step: value for step, value in self.history.items() if step > compared[0]}
        self.costs_of = {step: costs for step, costs in self.costs_of.items() if step > compared[0]}


def anytime(algorithm: type[SynchronousAgent]) -> type[SynchronousAgent]:
    """Return a local search with the scheme."""
    return type(algorithm.__name__, (AnytimeSearch, algorithm), {})
