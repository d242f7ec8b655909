"""KOPT: monotone local search in which connected groups of up to k variables move together; ends k-optimal.

Sources: Katagishi, Pearce: KOPT: distributed DCOP algorithm for arbitrary k-optima with monotonically increasing
utility, DCR 2007. Pearce, Tambe: Quality guarantees on k-optimal solutions for DCOPs, IJCAI 2007.
"""

from collections.abc import Generator, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from dmcmc.algorithms.agent import SynchronousAgent
from dmcmc.algorithms.contract import Parameter, Value
from dmcmc.inference.runtime.types import Ints

Group = tuple[int, ...]  # variables that move together, in ascending order; the first one leads


class KOpt(SynchronousAgent):
    """Let the lowest variable of each connected group find the group's best move; the largest gain nearby moves.

    A cycle has 4 k - 2 rounds. In k rounds agents pass on values, and in the first cycle also constraints. Each leader
    then looks for the best move of a group. In 2 k - 1 rounds agents pass on the largest gain, and in k - 1 rounds the
    moves. Groups that move at the same time share no constraint.
    """

    name, optimal_for = "kopt", 3
    summary = "MGM with connected groups of up to k variables that move together; ends k-optimal"
    paper = "Katagishi, Pearce: KOPT: distributed DCOP algorithm for arbitrary k-optima, DCR 2007"
    parameters: ClassVar = {"k": Parameter(3, 1, 6, text="largest number of variables of a group")}

    @classmethod
    def rounds_of(cls, given: Mapping[str, Value]) -> int:
        """Return the rounds of a cycle."""
        return 4 * int(given["k"]) - 2

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Exchange values, gains and moves."""
        k, own = int(self.given["k"]), dict[Group, Ints]()
        self.value = self.random.below(self.domain)
        for c in self.constraints:
            scope = tuple(sorted(c.scope))
            own[scope] = own.get(scope, np.int64(0)) + c.table().transpose(np.argsort(c.scope))
        self.values, self.tables = dict[int, int](), dict[int, dict[Group, Ints]]()
        while True:
            known = yield from self._pass_on("VALUES", {self.me: (self.value, None if self.tables else own)}, k)
            self.values |= {v: value for v, (value, _) in known.items()}
            self.tables |= {v: tables for v, (_, tables) in known.items() if tables is not None}
            gain, move = max(map(self._best_move, self._groups(k)), key=lambda found: found[0])
            largest = (gain, -self.me)
            for _ in range(2 * k - 1):
                self.tell("GAIN", largest)
                largest = max([largest, *(yield).values()])
            leads = gain > 0 and largest == (gain, -self.me)
            moves = yield from self._pass_on("MOVES", move if leads else {}, k - 1)
            self.value = moves.get(self.me, self.value)

    def _pass_on(self, kind: str, known: dict[int, Any], rounds: int) -> Generator[None, Any, dict[int, Any]]:
        """Return what all agents within some rounds know; what is new to an agent goes to its neighbours once."""
        news = known
        for _ in range(rounds):
            if news:
                self.tell(kind, news)
            inbox = yield
            news = {v: entry for entries in inbox.values() for v, entry in entries.items() if v not in known}
            known = known | news
        return known

    def _groups(self, k: int) -> Iterator[Group]:
        """Yield the connected groups of up to k variables that this agent leads."""
        groups: list[Group] = [(self.me,)]
        seen = set(groups)
        for group in groups:
            yield group
            around = {u for v in group for scope in self.tables[v] for u in scope}.difference(group)
            for v in sorted(around & self.tables.keys()) if len(group) < k else ():
                larger = tuple(sorted((*group, v)))
                if v > self.me and larger not in seen:
                    seen.add(larger)
                    groups.append(larger)

    def _best_move(self, group: Group) -> tuple[int, dict[int, int]]:
        """Return the largest gain of a group while all others keep their values, and the values for it."""
        tables = {scope: table for v in group for scope, table in self.tables[v].items()}
        if not all(self.values.keys() >= set(scope) for scope in tables):
            return 0, {}
        total: Ints = np.zeros([1] * len(group), dtype=np.int64)
        for scope, table in tables.items():
            part = table[tuple(slice(None) if v in group else self.values[v] for v in scope)]
            total = total + part.reshape([table.shape[scope.index(v)] if v in scope else 1 for v in group])
        self.count(total.size * len(tables))
        now = tuple(self.values[v] if size > 1 else 0 for v, size in zip(group, total.shape, strict=True))
        best = np.unravel_index(total.argmin(), total.shape)
        return int(total[now] - total.min()), {v: int(value) for v, value in zip(group, best, strict=True)}
