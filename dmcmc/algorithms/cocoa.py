"""CoCoA, cooperative constraint approximation: each agent decides once, after asking its neighbours.

Source: van Leeuwen, Pawełczak: CoCoA, a non-iterative approach to a local search (A)DCOP solver, AAAI 2017.
"""

from typing import Any, ClassVar

from dmcmc.algorithms.agent import DcopAgent
from dmcmc.algorithms.contract import Parameter


class CoCoA(DcopAgent):
    """Ask the neighbours for the least cost that each own value would leave them, and take the best value.

    If more values are best than ``unique`` allows, an agent waits until more neighbours have decided. Agents whose
    undecided neighbours all wait decide by number, the lowest first, so that all decide.
    """

    name = "cocoa"
    summary = "each variable decides once, by the costs that its neighbours expect of each of its values"
    paper = "van Leeuwen, Pawełczak: CoCoA: a non-iterative approach to a local search (A)DCOP solver, AAAI 2017"
    cycles = 0
    parameters: ClassVar = {
        "unique": Parameter(1, 1, 10**6, text="most best values with which an agent decides at once")
    }

    def start(self) -> None:
        """Begin, if this is the lowest number nearby; agents without neighbours decide at once."""
        self.decided: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.answers: dict[int, list[int]] = {}
        self.state, self.must_decide = "idle", False
        if all(self.me < v for v in self.neighbours):
            self.must_decide = True
            self._ask()

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Answer a neighbour, take an answer, or go on because a neighbour has decided or waits."""
        if kind == "ASK":
            self.send(sender, "COST", (content, self._least_costs(sender)))
        elif kind == "COST":
            if self.state == "asking" and content[0] == len(self.decided):
                self.answers[sender] = content[1]
                self._take_answers()
        elif kind == "WAIT":
            self.waiting.add(sender)
            if self.state == "idle":
                self._ask()
            else:
                self._go_on()
        else:  # DECIDED
            self.decided[sender] = content
            if self.state != "decided":
                self._ask()
            elif not self._undecided():
                self.finish()

    def _undecided(self) -> list[int]:
        """Return the neighbours that have not decided."""
        return [v for v in self.neighbours if v not in self.decided]

    def _ask(self) -> None:
        """Ask all undecided neighbours; the question has the number of decided ones, so that old answers are known."""
        self.state, self.answers = "asking", {}
        for v in self._undecided():
            self.send(v, "ASK", len(self.decided))
        self._take_answers()

    def _least_costs(self, asker: int) -> list[int]:
        """Return the least cost here for each value of a neighbour, given the values that are decided."""
        own = [self.value] if self.value is not None else range(self.domain)
        found = []
        for value in range(self.domains[asker]):
            costs = self.costs(self.decided | {asker: value})
            found.append(min(costs[d] for d in own))
        return found

    def _take_answers(self) -> None:
        """Decide once all undecided neighbours have answered, or wait if several values are best."""
        if len(self.answers) < len(self._undecided()):
            return
        total = [sum(column) for column in zip(self.costs(self.decided), *self.answers.values(), strict=True)]
        least = min(total)
        best = [d for d, cost in enumerate(total) if cost == least]
        if len(best) <= int(self.given["unique"]) or self.must_decide or not self._undecided():
            self.state, self.value = "decided", best[self.random.below(len(best))]
            self.tell("DECIDED", self.value)
            if not self._undecided():
                self.finish()
            return
        if self.state != "waiting":
            self.state = "waiting"
            self.tell("WAIT")
        self._go_on()

    def _go_on(self) -> None:
        """Decide if all undecided neighbours wait, too, and this agent has the lowest number of them."""
        undecided = self._undecided()
        if self.state == "waiting" and self.waiting.issuperset(undecided) and all(self.me < v for v in undecided):
            self.must_decide = True
            self._ask()
