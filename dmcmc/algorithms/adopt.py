"""ADOPT(k), and BnB-ADOPT: agents of a pseudo-tree search asynchronously, and exchange lower and upper bounds.

Sources: Modi, Shen, Tambe, Yokoo: ADOPT, Artificial Intelligence 161, 2005. Yeoh, Felner, Koenig: BnB-ADOPT, JAIR 38,
2010. Gutierrez, Meseguer, Yeoh: Generalizing ADOPT and BnB-ADOPT, IJCAI 2011, from which k is. Gutierrez, Meseguer:
Removing redundant messages (BnB-ADOPT+), JAIR 45, 2012: a message that would repeat the last one is not sent. Ali,
Koenig, Tambe: Preprocessing techniques for accelerating the DCOP algorithm ADOPT, AAMAS 2005, from which ``bounds`` is.
"""

from typing import Any, ClassVar

import numpy as np

from dmcmc.algorithms.agent import DcopAgent
from dmcmc.algorithms.contract import Parameter
from dmcmc.algorithms.syncbb import NO_BOUND

_BOUNDS = Parameter(
    "none",
    choices=("none", "dp0", "dp2"),
    text="first lower bounds: 0, the least costs of a subtree (dp0), or those for each value of its parent (dp2)",
)

Context = dict[int, tuple[int, int]]  # value of each ancestor, and the number of that value; a higher number is newer


class Adopt(DcopAgent):
    """Keep a lower and an upper bound for each value and child; change the value when another one looks better by k.

    A VALUE message tells descendants an ancestor's value, and a child the cost above which its bounds do not matter. A
    COST message tells the parent the bounds of a subtree, and the values of ancestors for which they hold. Both bounds
    of a child return to their first values when such an ancestor has another value.

    With first lower bounds, leaves begin: an agent adds the least costs of its constraints, and the bounds of its
    children, and sends the sum to its parent. The search begins at the root.
    """

    name, kind, structure, proves, cycles = "adopt", "complete", "tree", True, 0
    summary = "asynchronous best-first search on a pseudo-tree with lower and upper bounds; k moves it to depth-first"
    paper = "Modi, Shen, Tambe, Yokoo: ADOPT, Artificial Intelligence 161, 2005; ADOPT(k), IJCAI 2011"
    parameters: ClassVar = {
        "k": Parameter(1, 1, NO_BOUND, text="lower bounds may differ by less than this before the value changes"),
        "bounds": _BOUNDS,
    }

    def start(self) -> None:
        """Begin the search, or wait for the first lower bounds of the children."""
        self.first = {c: [0] * self.domain for c in self.children}
        self.waits_for, self.searches = set(self.children), False
        if self.given["bounds"] == "none":
            self._search()
        elif not self.children:
            self._send_first_bounds()

    def _send_first_bounds(self) -> None:
        """Send a lower bound on the cost of this subtree for each value of the parent; the root begins the search."""
        if self.parent is None:
            self._search()
            return
        least = np.zeros((self.domains.get(self.parent, 1), self.domain), dtype=np.int64) + np.sum(
            [np.zeros(self.domain, dtype=np.int64), *map(np.array, self.first.values())], axis=0
        )
        for c in self.own_constraints:
            table = c.table()
            keeps = (c.others.index(self.parent),) if self.parent in c.others else ()
            least += table.min(axis=tuple(i for i in range(len(c.others)) if i not in keeps))
        bounds = least.min(axis=1)
        by_value = self.given["bounds"] == "dp2" and self.parent in self.domains
        self.send(self.parent, "FIRST", bounds.tolist() if by_value else int(bounds.min()))

    def _search(self) -> None:
        """Take the value with the least lower bound, given the first value of all ancestors."""
        self.searches = True
        self.k, self.number = int(self.given["k"]), 0
        self.context: Context = dict.fromkeys(self.separator, (0, 0))
        self.limit, self.ended_above = NO_BOUND, self.parent is None
        self.lower = {c: list(bounds) for c, bounds in self.first.items()}
        self.upper = {c: [NO_BOUND] * self.domain for c in self.children}
        self.holds: dict[int, list[Context]] = {c: [{}] * self.domain for c in self.children}
        self.last_sent: dict[int, Any] = {}
        self.value = 0
        self._new_costs()
        self._choose(always=True)
        self._act()

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Take a value of an ancestor or the bounds of a child, then act on them."""
        if kind == "FIRST":
            self.first[sender] = content if isinstance(content, list) else [content] * self.domain
            self.waits_for.discard(sender)
            if not self.waits_for:
                self._send_first_bounds()
            return
        if not self.searches:
            self._search()
        if kind == "COST":
            self._take_bounds(sender, *content)
        elif kind == "VALUE":
            value, number, limit = content
            self._update({sender: (value, number)})
            if sender == self.parent:
                self.limit = limit
                self.last_sent.pop(sender, None)
        else:  # END, from the parent
            self._update(content)
            self.ended_above, self.limit = True, NO_BOUND
        self._act()

    def _update(self, context: Context) -> None:
        """Take newer values of ancestors; forget the bounds that do not hold for them."""
        changed = {v for v, (value, number) in context.items() if v in self.context and number > self.context[v][1]}
        moved = {v for v in changed if context[v][0] != self.context[v][0]}
        self.context |= {v: context[v] for v in changed}
        if not moved:
            return
        for child in self.children:
            for value, held in enumerate(self.holds[child]):
                if any(held[v][0] != self.context[v][0] for v in held.keys() & moved):
                    self._forget(child, value)
        self._new_costs()
        self._choose(always=True)

    def _forget(self, child: int, value: int) -> None:
        """Return the bounds of a child for one value to their first values."""
        self.lower[child][value], self.upper[child][value] = self.first[child][value], NO_BOUND
        self.holds[child][value] = {}

    def _take_bounds(self, child: int, context: Context, lower: int, upper: int) -> None:
        """Take the bounds of a child, if they hold for the values that this agent and its ancestors have now."""
        own = context.pop(self.me, None) if self.me in context else None
        self._update(context)
        if any(v in self.context and self.context[v][0] != value for v, (value, _) in context.items()):
            return
        for value in range(self.domain) if own is None else (own[0],):
            self.holds[child][value] = {v: context[v] for v in context if v in self.context}
            self.lower[child][value] = max(self.lower[child][value], lower)
            self.upper[child][value] = min(self.upper[child][value], upper)

    def _new_costs(self) -> None:
        """Compute the cost of each value, given those of the ancestors."""
        view = {v: value for v, (value, _) in self.context.items()}
        rows = [c.costs(view) for c in self.own_constraints]
        self.own = [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * self.domain

    def _bounds(self) -> tuple[list[int], list[int]]:
        """Return the lower and the upper bound of each value."""
        lower = [cost + sum(self.lower[c][d] for c in self.children) for d, cost in enumerate(self.own)]
        upper = [min(NO_BOUND, cost + sum(self.upper[c][d] for c in self.children)) for d, cost in enumerate(self.own)]
        self.count(2 * self.domain * len(self.children))
        return lower, upper

    def _choose(self, always: bool = False) -> None:
        """Change to the value with the least lower bound if the present one is worse by k, or cannot be the best."""
        lower, upper = self._bounds()
        assert self.value is not None
        now, least = lower[self.value], min(lower)
        if always or (now > least and (now - least >= self.k or now >= min(self.limit, *upper))):
            self.value = self.value if now == least else lower.index(least)
            self.number += 1

    def _act(self) -> None:
        """Choose a value, end if the bounds meet, and tell others what has changed."""
        self._choose()
        assert self.value is not None
        lower, upper = self._bounds()
        if self.ended_above and min(upper) <= min(lower):
            best = upper.index(min(upper))
            if best != self.value:
                self.value, self.number = best, self.number + 1
            for other in self.pseudo_children:
                self._tell(other, "VALUE", (self.value, self.number, NO_BOUND))
            for child in self.children:
                self.send(child, "END", self.context | {self.me: (best, self.number)})
            self.finish()
            return
        spare = min(self.limit, *upper) - lower[self.value]
        for child in self.children:
            self._tell(child, "VALUE", (self.value, self.number, self.lower[child][self.value] + spare))
        for other in self.pseudo_children:
            self._tell(other, "VALUE", (self.value, self.number, NO_BOUND))
        if self.parent is not None:
            self._tell(self.parent, "COST", (dict(self.context), min(lower), min(upper)))

    def _tell(self, receiver: int, kind: str, content: Any) -> None:
        """Send a message unless it repeats the last one."""
        if self.last_sent.get(receiver) != content:
            self.last_sent[receiver] = content
            self.send(receiver, kind, content)


class BnBAdopt(Adopt):
    """ADOPT(k) with unlimited k: depth-first branch and bound."""

    name, parameters = "bnb-adopt", {"bounds": _BOUNDS}
    summary = "asynchronous depth-first branch and bound on a pseudo-tree, without redundant messages (BnB-ADOPT+)"
    paper = "Yeoh, Felner, Koenig: BnB-ADOPT, JAIR 38, 2010; BnB-ADOPT+, JAIR 45, 2012"

    def start(self) -> None:
        """Search depth-first."""
        self.given = {"k": NO_BOUND} | dict(self.given)
        super().start()
