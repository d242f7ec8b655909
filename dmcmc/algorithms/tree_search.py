"""PT-FB and NCBB: branch and bound on a pseudo-tree, in which the subtrees of an agent search at the same time.

Sources: Litov, Meisels: Forward bounding on pseudo-trees for DCOPs and ADCOPs (PT-FB), Artificial Intelligence 252,
2017. Chechetka, Sycara: No-commitment branch and bound search for distributed constraint optimization (NCBB), AAMAS
2006.
"""

from typing import Any, NamedTuple

from dmcmc.algorithms.afb import ForwardBounding
from dmcmc.algorithms.syncbb import NO_BOUND


class _Attempt(NamedTuple):
    """A value that a child's subtree searches for, and the number of its messages."""

    number: int
    value: int


class TreeSearch(ForwardBounding):
    """Branch and bound on a pseudo-tree: a parent asks a child for the least cost of its subtree, below a bound.

    For each of its values an agent has a lower bound on the cost of each child's subtree, which holds as long as the
    values of the ancestors stay. Such a bound is the sum of those of the neighbours in the subtree, or the cost that
    the child has found. A child answers with its cost if that is below the bound, or else with a lower bound that is
    not below it. Once the root knows the least cost, all agents search again below the values of their ancestors, from
    the root down, with the known cost as bound.

    Attributes
    ----------
    below : dict of int to set of int
        Agents in the subtree of each child.
    context, own : dict of int to int, list of int
        Values of the ancestors, and the cost of each own value for them.
    upper : int
        Upper bound: only costs below it matter.
    lower : dict of int to list of int
        Lower bound of each child's subtree for each own value.
    open : dict of int to set of int
        Own values for which each child has not searched.
    attempts : dict of int to attempt
        What the children search for now.
    """

    kind, structure, proves, cycles = "complete", "tree", True, 0

    def start(self) -> None:
        """Tell the parent who is in this subtree; the root begins once it knows its subtrees."""
        self.prepare()
        self.value, self.number, self.is_last_search = 0, 0, self.parent is None
        self.below: dict[int, set[int]] = {}
        self._tell_below()

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Answer a request for a bound, begin a search, or take a bound or a cost of a subtree."""
        if kind == "BELOW":
            self.below[sender] = set(content)
            self._tell_below()
        elif kind == "ASK":
            self.send(sender, "BOUND", (content[0], min(self.bounds_given(content[1]))))
        elif kind in ("SEARCH", "LAST_SEARCH"):
            self.is_last_search = kind == "LAST_SEARCH"
            self._open(*content)
        else:
            child = next(c for c, agents in self.below.items() if sender in agents)
            attempt = self.attempts.get(child)
            if attempt is not None and attempt.number == content[0]:
                self._take(child, attempt.value, content[1], kind == "COST")

    def _tell_below(self) -> None:
        """Tell the parent about this subtree once all children have done so."""
        if len(self.below) == len(self.children):
            if self.parent is None:
                self._open(0, {}, NO_BOUND)
            else:
                self.send(self.parent, "BELOW", [self.me, *(v for agents in self.below.values() for v in agents)])

    def _open(self, request: int, context: dict[int, int], upper: int) -> None:
        """Begin a search for the least cost below some values of the ancestors."""
        self.request, self.context, self.upper = request, context, upper
        self.own, self.best = self.bounds_given(context), -1
        self.lower = {c: [0] * self.domain for c in self.children}
        self.open = {c: set(range(self.domain)) for c in self.children}
        self.attempts: dict[int, _Attempt] = {}
        self.asked: dict[int, tuple[int, int]] = {}  # bounds of each child's subtree: their sum, and how many miss
        self.untried = sorted(range(self.domain), key=lambda value: -self.own[value])
        for value in range(self.domain):
            self._complete(value)
        self.choose()

    def total(self, value: int) -> int:
        """Return the lower bound of an own value."""
        return self.own[value] + sum(bounds[value] for bounds in self.lower.values())

    def try_value(self, child: int, value: int) -> None:
        """Ask a child's subtree for bounds of a value."""
        self.number += 1
        self.value, self.attempts[child] = value, _Attempt(self.number, value)
        asked = [v for v in self.neighbours if v in self.below[child]]
        self.asked[child] = (0, len(asked))
        for v in asked:
            self.send(v, "ASK", (self.number, self.context | {self.me: value}))

    def search_below(self, child: int) -> None:
        """Let a child search for its cost of the value that it has been asked for."""
        number, value = self.attempts[child]
        upper = self.upper - self.total(value) + self.lower[child][value]
        self.send(child, "SEARCH", (number, self.context | {self.me: value}, upper))

    def _take(self, child: int, value: int, bound: int, is_cost: bool) -> None:
        """Take a cost of a child's subtree, or a lower bound of one agent in it."""
        if is_cost:
            self.open[child].discard(value)
            del self.attempts[child]
        else:
            bound, missing = self.asked[child][0] + bound, self.asked[child][1] - 1
            self.asked[child] = bound, missing
        self.lower[child][value] = max(self.lower[child][value], bound)
        if is_cost:
            self._complete(value)
        else:
            self.bounded(child, value, missing)
        self.choose()

    def _complete(self, value: int) -> None:
        """Take the cost of a value as upper bound if all children have searched for it, and it is less."""
        if not any(value in values for values in self.open.values()) and self.total(value) < self.upper:
            self.upper, self.best = self.total(value), value

    def bounded(self, child: int, value: int, missing: int) -> None:
        """Act on a new lower bound of a child's subtree, of which some agents have not answered."""

    def choose(self) -> None:
        """Choose the next values, or answer the parent."""
        raise NotImplementedError

    def answer(self) -> None:
        """Tell the parent the cost of this subtree; in the last search, take the best value, and go on below it."""
        if not self.is_last_search:
            assert self.parent is not None
            self.send(self.parent, "COST", (self.request, min(map(self.total, range(self.domain)))))
            return
        self.value = self.best
        for child in self.children:
            upper = self.lower[child][self.best] + 1
            self.send(child, "LAST_SEARCH", (0, self.context | {self.me: self.best}, upper))
        self.finish()


class PTFB(TreeSearch):
    """Try one value after the other, the least cost first, in all subtrees at the same time.

    The children search while the bounds of their subtrees arrive; if these are too high, the next value begins.
    """

    name = "pt-fb"
    summary = "branch and bound on a pseudo-tree, with lower bounds from the agents below"
    paper = "Litov, Meisels: Forward bounding on pseudo-trees for DCOPs and ADCOPs, Artificial Intelligence 252, 2017"

    def choose(self) -> None:
        """Go on to the next value if the present one has been searched for, or costs too much."""
        if any(self.total(attempt.value) < self.upper for attempt in self.attempts.values()):
            return
        self.attempts.clear()
        while self.untried:
            value = self.untried.pop()
            if self.children and self.total(value) < self.upper:
                for child in self.children:
                    self.try_value(child, value)
                for child in self.children:
                    self.search_below(child)
                return
        self.answer()


class NCBB(TreeSearch):
    """Give each child that has nothing to do the value with the least lower bound that it has not searched for.

    A child begins once the agents of its subtree have answered with bounds, if these are not too high.
    """

    name = "ncbb"
    summary = "branch and bound on a pseudo-tree, in which subtrees search for different values at the same time"
    paper = "Chechetka, Sycara: No-commitment branch and bound search for distributed constraint optimization, 2006"

    def bounded(self, child: int, value: int, missing: int) -> None:
        """Let the child search once all bounds are there."""
        if not missing:
            if self.total(value) < self.upper:
                self.search_below(child)
            else:
                del self.attempts[child]

    def choose(self) -> None:
        """Choose values for all children that have nothing to do."""
        for child in self.children:
            values = [d for d in self.open[child] if self.total(d) < self.upper]
            if values and child not in self.attempts:
                self.try_value(child, min(values, key=lambda value: (self.total(value), value)))
                if not self.asked[child][1]:
                    self.search_below(child)
        if not self.attempts:
            self.answer()
