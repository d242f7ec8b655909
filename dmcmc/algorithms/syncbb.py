"""SyncBB, synchronous branch and bound: one partial assignment passes through the agents, in a fixed order.

Source: Hirayama, Yokoo: Distributed Partial Constraint Satisfaction Problem, CP 1997.
"""

from typing import Any

from dmcmc.algorithms.agent import DcopAgent

NO_BOUND = 1 << 62  # upper bound before the first complete assignment: above every cost


class SyncBB(DcopAgent):
    """Extend the partial assignment that arrives by each value that stays below the upper bound, or send it back.

    A partial assignment is a tuple of the values of all agents before this one. The last agent finds complete
    assignments; the best one travels back with the upper bound. Once the first agent has no value left, it tells all
    agents the best assignment.
    """

    name, kind, structure, proves, cycles = "syncbb", "complete", "order", True, 0
    summary = "synchronous branch and bound over a fixed order of the agents"
    paper = "Hirayama, Yokoo: Distributed Partial Constraint Satisfaction Problem, CP 1997"

    def start(self) -> None:
        """Begin the search, if this is the first agent."""
        self.value, self.bound = 0, NO_BOUND
        self.best: tuple[int, ...] = ()
        self.is_last = self.me == self.order[-1]
        if self.me == self.order[0]:
            self._open((), 0)

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Go on with a partial assignment from the agent before, or with the next value after one came back."""
        if kind == "SOLUTION":
            self.value = content[self.me]
            self.finish()
            return
        values, cost, self.bound, self.best = content
        if kind == "FORWARD":
            self._open(values, cost)
        else:
            self._next()

    def _open(self, values: tuple[int, ...], cost: int) -> None:
        """Begin with the first value, below the values of the agents before."""
        self.before, self.cost_before, self.tried = values, cost, -1
        view = dict(zip(self.order, values, strict=False))
        rows = [c.costs(view) for c in self.own_constraints]
        self.added = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * self.domain
        self._next()

    def _next(self) -> None:
        """Send the partial assignment with the next value that stays below the bound, or send it back."""
        while self.tried + 1 < self.domain:
            self.tried += 1
            cost, values = self.cost_before + self.added[self.tried], (*self.before, self.tried)
            if cost >= self.bound:
                continue
            if self.is_last:
                self.bound, self.best = cost, values
                continue
            self.value = self.tried
            self.send(self.order[self.me + 1], "FORWARD", (values, cost, self.bound, self.best))
            return
        if self.me != self.order[0]:
            self.send(self.order[self.me - 1], "BACK", ((), 0, self.bound, self.best))
            return
        for other in self.order[1:]:
            self.send(other, "SOLUTION", self.best)
        self.value = self.best[0]
        self.finish()
