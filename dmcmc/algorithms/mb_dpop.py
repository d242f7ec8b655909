"""MB-DPOP, memory-bounded DPOP: tables of at most k variables, while values of the others are tried in turn.

Source: Petcu, Faltings: MB-DPOP: a new memory-bounded algorithm for distributed optimization, IJCAI 2007.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np

from dmcmc.algorithms.agent import DcopAgent
from dmcmc.algorithms.contract import Parameter
from dmcmc.inference.runtime.types import Ints

Sizes = dict[int, int]  # number of values of some variables


class TableAgent(DcopAgent):
    """An agent of a pseudo-tree that sends costs of its subtree by the values of its separator.

    Attributes
    ----------
    sizes : dict of int to int
        Number of values of the separator's variables and of this one.
    shapes : dict of int to (dict of int to int, dict of int to int)
        The variables that each child wants to know the values of before it sends a table, and those of the table.
    """

    kind, structure, proves, cycles = "complete", "tree", True, 0

    def start(self) -> None:
        """Tell the parent the shape of the tables; leaves begin."""
        self.value = 0
        self.shapes: dict[int, tuple[Sizes, Sizes]] = {}
        self._tell_shape()

    def _tell_shape(self) -> None:
        """Tell the parent the shape once those of all children are known; the root begins."""
        if len(self.shapes) < len(self.children):
            return
        known = dict(self.domains)
        for parts in self.shapes.values():
            known |= parts[0] | parts[1]
        self.sizes = {v: known[v] for v in (*self.separator, self.me)}
        if self.parent is None:
            self.begin()
            return
        cut = max(0, len(self.separator) - int(self.given.get("k", len(self.separator))))
        shape = tuple({v: known[v] for v in part} for part in (self.separator[:cut], self.separator[cut:]))
        self.send(self.parent, "SHAPE", shape)

    def begin(self) -> None:
        """Begin as the root."""

    def sum_of(
        self, tables: Iterable[tuple[Sequence[int], Ints]], free: Sequence[int], fixed: Mapping[int, int]
    ) -> Ints:
        """Return the sum of tables over some variables, an axis each, for the values of the other ones."""
        total: Ints = np.zeros([self.sizes[v] for v in free], dtype=np.int64)
        for scope, table in tables:
            part = table[tuple(fixed.get(v, slice(None)) for v in scope)]
            left = [v for v in scope if v not in fixed]
            part = part.transpose([left.index(v) for v in free if v in left])
            total += part.reshape([self.sizes[v] if v in left else 1 for v in free])
            self.count(total.size)
        return total

    def own_tables(self) -> list[tuple[Sequence[int], Ints]]:
        """Return the tables of the own constraints, and read them."""
        return [(c.scope, c.table()) for c in self.own_constraints]


class MBDPOP(TableAgent):
    """DPOP with cycle cuts: an agent asks a child for a table for each assignment of the child's cut variables.

    A separator of more than k variables is cut: the variables nearest to the root come with the parent's request. A
    parent goes through those that it does not get with its own request. With a large k this is DPOP.
    """

    name = "mb-dpop"
    summary = "DPOP whose tables have at most k variables; values of the other ones are tried in turn"
    paper = "Petcu, Faltings: MB-DPOP: a new memory-bounded algorithm for distributed optimization, IJCAI 2007"
    parameters: ClassVar = {"k": Parameter(3, 1, 1000, text="largest number of variables of a message's table")}

    def start(self) -> None:
        """Begin without requests."""
        self.requests: deque[tuple[str, int, dict[int, int]]] = deque()
        self.is_busy = False
        self.known: tuple[dict[int, int], Ints] | None = None  # the last table, and the values for which it holds
        super().start()

    def begin(self) -> None:
        """Begin with the choice of the root's value."""
        self._take("VALUE", 0, {})

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Take a shape, a table of a child, a request for a table, or the values of the ancestors."""
        if kind == "SHAPE":
            self.shapes[sender] = content
            self._tell_shape()
        elif kind == "UTIL":
            number, table = content
            self.tables[sender][1].reshape(-1, table.size)[number] = table.ravel()
            self.missing -= 1
            self._combine()
        else:
            self._take(kind, *content)

    def _take(self, kind: str, number: int, values: dict[int, int]) -> None:
        """Work on a request, or keep it until the last one is answered."""
        if self.is_busy:
            self.requests.append((kind, number, values))
            return
        self.is_busy, self.kind_now, self.number, self.fixed = True, kind, number, values
        self.tables: dict[int, tuple[list[int], Ints]] = {}
        self.missing = 0
        if kind == "ASK" or self.known is None or not self.known[0].items() <= values.items():
            for child, (cut, kept) in self.shapes.items():
                tried = [v for v in cut if v not in values]
                sizes = [cut[v] for v in tried], list(kept.values())
                self.tables[child] = [*tried, *kept], np.zeros(sizes[0] + sizes[1], dtype=np.int64)
                for i, assignment in enumerate(product(*map(range, sizes[0]))):
                    given = values | dict(zip(tried, assignment, strict=True))
                    self.send(child, "ASK", (i, {v: given[v] for v in cut}))
                    self.missing += 1
            self.known = None
        self._combine()

    def _combine(self) -> None:
        """Answer the request once all tables are there."""
        if self.missing:
            return
        if self.known is None:
            free = [v for v in self.sizes if v == self.me or v not in self.fixed]
            fixed = {v: value for v, value in self.fixed.items() if v in self.sizes}
            self.known = self.fixed, self.sum_of([*self.own_tables(), *self.tables.values()], free, fixed)
        values, total = self.known
        if self.kind_now == "ASK":
            assert self.parent is not None
            self.send(self.parent, "UTIL", (self.number, total.min(axis=-1)))
        else:
            row = total[tuple(self.fixed[v] for v in self.separator if v not in values)]
            self.value = int(row.argmin())
            chosen = self.fixed | {self.me: self.value}
            for child, (cut, kept) in self.shapes.items():
                self.send(child, "VALUE", (0, {v: chosen[v] for v in (*cut, *kept)}))
            self.finish()
        self.is_busy = False
        if self.requests:
            self._take(*self.requests.popleft())
