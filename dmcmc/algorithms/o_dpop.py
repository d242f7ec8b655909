"""O-DPOP: agents ask their children for the next best costs of their subtrees, as long as these can matter.

Source: Petcu, Faltings: O-DPOP: an algorithm for open/distributed constraint optimization, AAAI 2006.
"""

from typing import Any

import numpy as np

from dmcmc.algorithms.mb_dpop import TableAgent
from dmcmc.inference.runtime.types import Ints


class ODPOP(TableAgent):
    """DPOP that sends single entries, the least cost first, on request.

    A good is an assignment of the separator with the least cost of the subtree for it. All goods that a child has not
    sent cost at least as much as its last one. An agent asks its children until its own best good is certain. Messages
    have few numbers, but agents keep tables as in DPOP.
    """

    name = "o-dpop"
    summary = "DPOP whose agents send single entries of their tables on request, the best ones first"
    paper = "Petcu, Faltings: O-DPOP: an algorithm for open/distributed constraint optimization, AAAI 2006"

    def start(self) -> None:
        """Begin without goods."""
        self.is_asked, self.missing, self.own = False, 0, np.zeros(0, dtype=np.int64)
        self.goods: dict[int, Ints] = {}  # of each child, with its last cost where it has not sent one
        self.is_known: dict[int, Ints] = {}
        super().start()

    def begin(self) -> None:
        """Look for the best value of the root."""
        self.on_message(self.me, "ASK", None)

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Take a shape, a request for a good, a good of a child, or the values of the ancestors."""
        if kind == "SHAPE":
            self.shapes[sender] = content
            shape = list(content[1].values())
            self.goods[sender], self.is_known[sender] = (np.zeros(shape, dtype=np.int64) for _ in range(2))
            self._tell_shape()
        elif kind == "VALUE":
            self._choose(content)
        elif kind == "ASK":
            self.is_asked = True
            if not self.own.size:
                self.own = self.sum_of(self.own_tables(), list(self.sizes), {})
                self.choice: Ints = np.full(self.own.shape[:-1], -1)  # best value for each good that has been sent
            self._next()
        else:
            values, cost = content
            self.is_known[sender][values] = 1
            self.goods[sender][values] = cost
            self.goods[sender][self.is_known[sender] == 0] = cost
            self.missing -= 1
            self._next()

    def _next(self) -> None:
        """Send the next good once it is certain, or ask for the goods of the children that it depends on."""
        if self.missing or not self.is_asked:
            return
        children = [(list(self.shapes[child][1]), goods) for child, goods in self.goods.items()]
        lower = self.own + self.sum_of(children, list(self.sizes), {})
        lower[self.choice >= 0] = np.iinfo(np.int64).max
        at = tuple(int(i) for i in np.unravel_index(lower.argmin(), lower.shape))
        values = dict(zip(self.sizes, at, strict=True))
        for child, is_known in self.is_known.items():
            if not is_known[tuple(values[v] for v in self.shapes[child][1])]:
                self.send(child, "ASK")
                self.missing += 1
        if self.missing:
            return
        self.choice[at[:-1]], self.is_asked = at[-1], False
        if self.parent is None:
            self._choose({})
        else:
            self.send(self.parent, "GOOD", (at[:-1], int(lower[at])))

    def _choose(self, above: dict[int, int]) -> None:
        """Take the best value for those of the ancestors, and tell the children."""
        self.value = int(self.choice[tuple(above[v] for v in self.separator)])
        values = above | {self.me: self.value}
        for child, (_, kept) in self.shapes.items():
            self.send(child, "VALUE", {v: values[v] for v in kept})
        self.finish()
