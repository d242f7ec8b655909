"""ConcFB, concurrent forward bounding: one search for each value of the first agent, all at the same time.

Source: Netzer, Grubshtein, Meisels: Concurrent forward bounding for distributed constraint optimization problems,
Artificial Intelligence 193, 2012. Here the searches are not split further while they run.
"""

from dataclasses import dataclass
from typing import Any

from dmcmc.algorithms.afb import ForwardBounding
from dmcmc.algorithms.syncbb import NO_BOUND


@dataclass
class _Search:
    """An agent's part of one search, while the partial assignment is here or at later agents.

    Attributes
    ----------
    values, cost : tuple of int, int
        Values of the agents before, and their cost.
    added : list of int
        Cost of each own value.
    untried : list of int
        Own values that have not been tried, the next one last.
    bounds, waiting : int
        Sum of the lower bounds of later agents for the present value, and number of bounds that have not arrived.
    """

    values: tuple[int, ...]
    cost: int
    added: list[int]
    untried: list[int]
    tried: int = -1
    bounds: int = 0
    waiting: int = 0


class ConcFB(ForwardBounding):
    """Search as many partial assignments at the same time as the first agent has values, with one upper bound.

    Each search takes values by their costs. Before it goes on to the next agent, it waits for lower bounds of all later
    agents, and takes the next value if they are too high. All messages have the number of their search.
    """

    name, kind, structure, proves, cycles = "conc-fb", "complete", "order", True, 0
    summary = "one branch and bound for each value of the first agent at the same time, with bounds from later agents"
    paper = "Netzer, Grubshtein, Meisels: Concurrent forward bounding, Artificial Intelligence 193, 2012"

    def start(self) -> None:
        """Begin all searches, if this is the first agent."""
        self.prepare()
        self.value, self.bound = 0, NO_BOUND
        self.best: tuple[int, ...] = ()
        self.searches: dict[int, _Search] = {}
        if self.me == self.order[0]:
            self.running = self.domain
            for value in range(self.domain):
                self._open(value, (), 0)

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Answer a request for a bound, take a bound or a better solution, or go on with a search."""
        if kind == "ASK":
            number, values = content
            self.send(sender, "BOUND", (number, min(self.bounds_given(self.view_of(values)))))
        elif kind == "BOUND":
            number, bound = content
            search = self.searches[number]
            search.bounds += bound
            search.waiting -= 1
            if not search.waiting:
                self._go_on(number, search)
        elif kind == "FORWARD":
            self._open(*content)
        elif kind == "END":
            self.value = content[self.me]
            self.finish()
        else:  # a solution, or the agent after this one has no value left
            self.bound, self.best = min((self.bound, self.best), content[1:])
            if kind == "BACK":
                self._next(content[0], self.searches[content[0]])

    def _open(self, number: int, values: tuple[int, ...], cost: int) -> None:
        """Begin below the values of the agents before, with the value that adds the least cost."""
        added = self.bounds_given(self.view_of(values))
        untried = sorted(range(self.domain), key=lambda value: -added[value]) if values else [number]
        search = self.searches[number] = _Search(values, cost, added, untried)
        self._next(number, search)

    def _next(self, number: int, search: _Search) -> None:
        """Ask for bounds of the next value that stays below the upper bound, or send the partial assignment back."""
        later = self.order[self.me + 1 :]
        while search.untried:
            search.tried = search.untried.pop()
            cost, values = search.cost + search.added[search.tried], (*search.values, search.tried)
            if cost >= self.bound:
                continue
            if later:
                search.bounds, search.waiting = 0, len(later)
                for other in later:
                    self.send(other, "ASK", (number, values))
                return
            self.bound, self.best = cost, values
            for other in self.order[:-1]:
                self.send(other, "SOLUTION", (number, self.bound, self.best))
        if self.me != self.order[0]:
            self.send(self.order[self.me - 1], "BACK", (number, self.bound, self.best))
            return
        self.running -= 1
        if not self.running:
            for other in self.order[1:]:
                self.send(other, "END", self.best)
            self.value = self.best[0]
            self.finish()

    def _go_on(self, number: int, search: _Search) -> None:
        """Pass the partial assignment on, unless the bounds of later agents are too high."""
        cost = search.cost + search.added[search.tried]
        if cost + search.bounds >= self.bound:
            self._next(number, search)
            return
        self.value = search.tried
        self.send(self.order[self.me + 1], "FORWARD", (number, (*search.values, search.tried), cost))
