"""AFB, asynchronous forward bounding: branch and bound in which later agents bound the cost of partial assignments.

Source: Gershman, Meisels, Zivan: Asynchronous Forward Bounding for Distributed COPs, JAIR 34, 2009.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dmcmc.algorithms.agent import DcopAgent
from dmcmc.algorithms.syncbb import NO_BOUND

Stamp = tuple[int, ...]  # number of the value of each agent of a partial assignment, in the order of the agents


def is_older(stamp: Stamp, newest: Stamp) -> bool:
    """Return whether a partial assignment has been given up: an agent before has taken a later value since."""
    pairs = zip(stamp, newest, strict=False)
    return next((ours < theirs for ours, theirs in pairs if ours != theirs), False)


class ForwardBounding(DcopAgent):
    """An agent that can tell a lower bound on the cost of its own constraints, given the values of some other agents.

    Attributes
    ----------
    least : list of list of int
        For each own constraint, the least cost of each own value.
    """

    def prepare(self) -> None:
        """Read the own constraints."""
        self.least = [c.table().reshape(-1, self.domain).min(axis=0).tolist() for c in self.own_constraints]

    def view_of(self, values: Sequence[int]) -> dict[int, int]:
        """Return the values of the first agents of the order by agent."""
        return dict(zip(self.order, values, strict=False))

    def bounds_given(self, view: Mapping[int, int]) -> list[int]:
        """Return a lower bound on the cost of the own constraints for each own value."""
        rows = [
            c.costs(view) if all(v in view for v in c.others) else least
            for c, least in zip(self.own_constraints, self.least, strict=True)
        ]
        return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * self.domain


class AFB(ForwardBounding):
    """Pass a partial assignment on, ask later agents for lower bounds, and take the next value if they are too high.

    A lower bound of an agent is the least cost of its own constraints, of which those with unassigned variables count
    with their least entry for each own value. Each constraint belongs to its last agent, so bounds add up. Each value
    that an agent takes has a number, which only grows; a message about an older value is dropped.
    """

    name, kind, structure, proves, cycles = "afb", "complete", "order", True, 0
    summary = "branch and bound over a fixed order, with lower bounds from the agents that are not assigned yet"
    paper = "Gershman, Meisels, Zivan: Asynchronous Forward Bounding for Distributed COPs, JAIR 34, 2009"

    def start(self) -> None:
        """Begin the search, if this is the first agent."""
        self.value, self.number, self.bound = 0, 0, NO_BOUND
        self.best: tuple[int, ...] = ()
        self.newest: Stamp = ()
        self.stamp: Stamp | None = None  # of the partial assignment that this agent has passed on
        self.is_last = self.me == self.order[-1]
        self.prepare()
        if self.me == self.order[0]:
            self._open((), (), 0)

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Answer a request for a bound, take a bound or a better solution, or go on with a partial assignment."""
        if kind == "SOLUTION":
            self.bound, self.best = min((self.bound, self.best), content)
        elif kind == "END":
            self.value = content[self.me]
            self.finish()
        elif kind == "BOUND":
            self._take_bound(*content)
        elif not is_older(content[0], self.newest):
            self.newest = content[0]
            if kind == "ASK":
                stamp, values = content
                self.send(sender, "BOUND", (stamp, min(self.bounds_given(self.view_of(values)))))
            elif kind == "FORWARD":
                self._open(*content)
            else:  # BACK: the agent after this one has no value left
                self.bound, self.best = min((self.bound, self.best), content[1:])
                self._next()

    def _open(self, stamp: Stamp, values: tuple[int, ...], cost: int) -> None:
        """Begin with the first value, below the values of the agents before."""
        self.stamp_before, self.before, self.cost_before, self.tried = stamp, values, cost, -1
        self.added = self.bounds_given(self.view_of(values))
        self._next()

    def _next(self) -> None:
        """Pass the partial assignment on with the next value that stays below the bound, or send it back."""
        while self.tried + 1 < self.domain:
            self.tried += 1
            self.cost, values = self.cost_before + self.added[self.tried], (*self.before, self.tried)
            if self.cost >= self.bound:
                continue
            if self.is_last:
                self.bound, self.best = self.cost, values
                for other in self.order[:-1]:
                    self.send(other, "SOLUTION", (self.bound, self.best))
                continue
            self.value, self.number, self.bounds = self.tried, self.number + 1, 0
            self.stamp = self.newest = (*self.stamp_before, self.number)
            self.send(self.order[self.me + 1], "FORWARD", (self.stamp, values, self.cost))
            for other in self.order[self.me + 1 :]:
                self.send(other, "ASK", (self.stamp, values))
            return
        if self.me != self.order[0]:
            self.stamp = None
            self.send(self.order[self.me - 1], "BACK", (self.stamp_before, self.bound, self.best))
            return
        for other in self.order[1:]:
            self.send(other, "END", self.best)
        self.value = self.best[0]
        self.finish()

    def _take_bound(self, stamp: Stamp, bound: int) -> None:
        """Add a lower bound of a later agent to the own partial assignment; give that up if it costs too much."""
        if self.stamp is not None and stamp == self.stamp == self.newest[: len(stamp)]:
            self.bounds += bound
            if self.cost + self.bounds >= self.bound:
                self._next()
