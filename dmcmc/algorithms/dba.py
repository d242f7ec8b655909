"""DBA, distributed breakout, and GDBA, its generalisation from conflicts to costs.

Sources: Hirayama, Yokoo: The distributed breakout algorithms, Artificial Intelligence 161, 2005. Okamoto, Zivan, Nahon:
Distributed Breakout: Beyond Satisfaction, IJCAI 2016.
"""

from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.agent import ANYTIME, Constraint, SynchronousAgent
from dmcmc.algorithms.contract import Parameter
from dmcmc.inference.runtime.types import Ints


class DBA(SynchronousAgent):
    """Reduce the weight of the constraints in conflict; where nobody nearby can, these get one unit heavier.

    A constraint is in conflict if it does not have its best entry. Agents exchange values, then improvements; the
    largest improvement among neighbours moves.
    """

    name, rounds = "dba", 2
    summary = "distributed breakout: constraints in conflict get heavier in local minima"
    paper = "Hirayama, Yokoo: The distributed breakout algorithms, Artificial Intelligence 161, 2005"
    parameters: ClassVar = ANYTIME

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Exchange values, then improvements."""
        self.value, view = self.random.below(self.domain), dict[int, int]()
        weights = dict.fromkeys(range(len(self.constraints)), 1)
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            rows = {i: c.costs(view) for i, c in enumerate(self.constraints) if all(v in view for v in c.others)}
            costs = [sum(weights[i] * (row[d] > 0) for i, row in rows.items()) for d in range(self.domain)]
            best = costs.index(min(costs))
            gain = costs[self.value] - costs[best]
            self.tell("IMPROVE", gain)
            gains = yield
            if gain > 0 and all((gain, -self.me) > (other, -v) for v, other in gains.items()):
                self.value = best
            elif max([gain, *gains.values()]) <= 0:
                for i, row in rows.items():
                    weights[i] += row[self.value] > 0


class GDBA(SynchronousAgent):
    """Breakout on costs: in a local minimum, entries of violated constraints get modifiers, added or multiplied.

    ``violation`` says when a constraint counts as violated: its entry is above 0 (``NZ``), above the least (``NM``),
    or the largest (``MX``). ``scope`` says which entries get a larger modifier: the present one (``E``), those with the
    own value (``C``), those with the values of the others (``R``), or all (``T``).
    """

    name, rounds = "gdba", 2
    summary = "generalised distributed breakout: costs of violated constraints grow in local minima"
    paper = "Okamoto, Zivan, Nahon: Distributed Breakout: Beyond Satisfaction, IJCAI 2016"
    parameters: ClassVar = {
        "manner": Parameter("M", choices=("A", "M"), text="modifiers are added (A) or multiplied (M)"),
        "violation": Parameter("NM", choices=("NZ", "NM", "MX"), text="when a constraint is violated"),
        "scope": Parameter("T", choices=("E", "C", "R", "T"), text="which entries change"),
        **ANYTIME,
    }

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Exchange values, then improvements of the modified costs."""
        self.value, view = self.random.below(self.domain), dict[int, int]()
        multiplies, scope = self.given["manner"] == "M", str(self.given["scope"])
        base = float(multiplies)
        modifiers = [np.full([self.domains[v] for v in c.scope], base) for c in self.constraints]
        limits = [(int(table.min()), int(table.max())) for table in (c.table() for c in self.constraints)]
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            total, violated = np.zeros(self.domain), list[tuple[Constraint, NDArray[np.float64]]]()
            for c, modifier, (least, largest) in zip(self.constraints, modifiers, limits, strict=True):
                if not all(v in view for v in c.others):
                    continue
                row: Ints = np.array(list(c.costs(view)), dtype=np.int64)
                factor = modifier[tuple(view[v] for v in c.others)]
                total += row * factor if multiplies else row + factor
                entry = row[self.value]
                if entry > 0 if self.given["violation"] == "NZ" else self._is_violated(entry, least, largest):
                    violated.append((c, modifier))
            best = int(total.argmin())
            gain = float(total[self.value] - total[best])
            self.tell("IMPROVE", gain)
            gains = yield
            if gain > 0 and all((gain, -self.me) > (other, -v) for v, other in gains.items()):
                self.value = best
            elif max([gain, *gains.values()]) <= 0:
                for c, modifier in violated:
                    changed = modifier[tuple(view[v] for v in c.others)] if scope in "ER" else modifier
                    changed[..., self.value if scope in "EC" else slice(None)] += 1

    def _is_violated(self, entry: int, least: int, largest: int) -> bool:
        """Return whether an entry is not the least one (``NM``), or is the largest one (``MX``)."""
        return entry != least if self.given["violation"] == "NM" else entry == largest
