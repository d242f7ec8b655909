"""DSA, the distributed stochastic algorithm, in its variants: in cycles, without a common clock, and by relative gains.

Sources: Zhang, Wang, Xing, Wittenburg, Artificial Intelligence 161, 2005 (A to E). Fitzpatrick, Meertens, SAGA 2001
(without a common clock). Zivan, Okamoto, Peled, Artificial Intelligence 212, 2014 (DSA-SDP).
"""

from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.agent import ANYTIME, DcopAgent, SynchronousAgent
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import AgentNetwork, Draws
from dmcmc.inference.runtime.types import Ints

_PROBABILITY = Parameter(0.7, 0.01, 1.0, text="probability of a move")
_VARIANT = Parameter(
    "C",
    choices=("A", "B", "C", "D", "E"),
    text="moves without a gain: none (A), in conflict (B, D), all (C, E); D and E move with a gain for certain",
)


def dsa(network: AgentNetwork, rng: Draws, given: Values) -> Iterator[Ints]:
    """Let each variable take its best value with a fixed probability; at a tie, a random best value other than its own.

    Variants A, B and C move with a gain with that probability, D and E always. Without a gain, B and D move with that
    probability if a factor of the variable is below its largest entry, C and E anyway. A cycle is one round of
    messages: values.
    """
    values = network.start(rng)
    scores, variables = network.scores(values), np.arange(values.size)
    probability, variant = float(given["probability"]), str(given["variant"])
    yield values
    while values.size:
        ties = scores == scores.max(axis=1)[:, None]
        ties[variables, values] = False
        n_ties = ties.sum(axis=1)
        chosen = (rng.random(values.size) * n_ties).astype(np.int64)
        best = np.where(n_ties > 0, (ties.cumsum(axis=1) > chosen[:, None]).argmax(axis=1), values)
        (best, gain) = network.tell(best, scores[variables, best] - scores[variables, values])
        network.sends(1)
        allowed = (gain > 0) | (variant in "CE")
        if variant in "BD":
            conflicts = np.zeros(values.size, dtype=np.bool_)
            kernels.conflicts(network.layout, values, conflicts)
            allowed |= network.tell(conflicts)[0]
        lucky = rng.random(values.size) < probability
        moves = allowed & (lucky | ((gain > 0) & (variant in "DE")))
        network.move(values, scores, np.where(moves, best, values))
        yield values


class DSA(SynchronousAgent):
    """Take the best value with a fixed probability; see :func:`dsa` for the variants."""

    name = "dsa"
    summary = "each variable takes its best value with a fixed probability"
    paper = "Zhang, Wang, Xing, Wittenburg: Distributed stochastic search, Artificial Intelligence 161, 2005"
    parameters: ClassVar = {"probability": _PROBABILITY, "variant": _VARIANT} | ANYTIME
    compiled: ClassVar[Algorithm | None] = Algorithm("dsa", summary, dsa, parameters)

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Send the value, and move."""
        self.value, view = self.random.below(self.domain), dict[int, int]()
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            self.value = stochastic_move(self, view, self.value)


class MixedDSA(DSA):
    """DSA with a probability of a move for variables in a violated hard constraint, and another one for the others."""

    name, compiled = "mixed-dsa", None
    summary = "DSA with different probabilities where hard constraints are violated and where not"
    paper = "after the mixeddsa of pyDCOP (Rust, Picard, Ramparany 2019)"
    parameters: ClassVar = {
        "hard": Parameter(0.7, 0.01, 1.0, text="probability of a move if a hard constraint is violated"),
        "probability": Parameter(0.5, 0.01, 1.0, text="probability of a move otherwise"),
        "variant": _VARIANT,
        **ANYTIME,
    }


def stochastic_move(agent: DcopAgent, view: dict[int, int], value: int) -> int:
    """Return the value of an agent after one step of DSA, given the values of its neighbours; draws two numbers."""
    costs, variant = agent.costs(view), str(agent.given["variant"])
    is_violated = "hard" in agent.given and costs[value] >= agent.violation
    probability = float(agent.given["hard" if is_violated else "probability"])
    least = min(costs)
    ties = [d for d, cost in enumerate(costs) if cost == least and d != value]
    drawn, lucky = agent.random(), agent.random() < probability
    best = ties[int(drawn * len(ties))] if ties else value
    gain = costs[value] - costs[best]
    if gain > 0:
        return best if lucky or variant in "DE" else value
    in_conflict = variant in "BD" and costs[value] > 0  # a cost above 0: a constraint is below its best entry
    return best if lucky and (in_conflict or variant in "CE") else value


class ADSA(DcopAgent):
    """DSA without a common clock: each variable moves by its own clock, by the values that it has received."""

    name = "a-dsa"
    summary = "DSA in which each variable moves by its own clock"
    paper = (
        "Fitzpatrick, Meertens: An experimental assessment of a stochastic, anytime, decentralized soft colourer, 2001"
    )
    parameters: ClassVar = {
        "probability": _PROBABILITY,
        "variant": _VARIANT,
        "period": Parameter(1.0, 1e-6, 1e6, text="time between two steps of a variable, in the unit of delays"),
    }

    def start(self) -> None:
        """Take a random value."""
        self.view: dict[int, int] = {}
        self.value = self.random.below(self.domain)
        self.tell("VALUE", self.value)
        self.wake(self.random() * float(self.given["period"]))

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Remember the value of a neighbour."""
        self.view[sender] = content

    def on_wake(self) -> None:
        """Make a step, and tell the neighbours a new value."""
        assert self.value is not None
        new = stochastic_move(self, self.view, self.value)
        if new != self.value:
            self.value = new
            self.tell("VALUE", new)
        self.wake(float(self.given["period"]))


class SlopeDSA(SynchronousAgent):
    """DSA-SDP: the probability of a move grows with its relative gain, and now and then agents explore.

    With a gain, the probability is 0.6 plus the relative gain, of which at most 0.15 counts. Every ``exploration``
    cycles an agent without a gain moves with the larger of 0.4 and 0.8 minus the relative loss, unless its cost would
    more than double.
    """

    name = "dsa-sdp"
    summary = "DSA whose probability of a move depends on its relative gain, with periodic exploration"
    paper = "Zivan, Okamoto, Peled: Explorative anytime local search, Artificial Intelligence 212, 2014"
    parameters: ClassVar = {
        "exploration": Parameter(40, 1, 10**9, text="cycles from one exploration to the next")
    } | ANYTIME

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Send the value, and move."""
        self.value, view, cycle = self.random.below(self.domain), dict[int, int](), 0
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            cycle += 1
            costs = self.costs(view)
            others = [d for d in range(self.domain) if d != self.value]
            if not others:
                continue
            now = max(1, costs[self.value])
            new = min(others, key=costs.__getitem__)
            slope = (costs[self.value] - costs[new]) / now
            if slope > 0:
                probability = 0.6 + min(0.15, slope)
            else:
                explores = cycle % int(self.given["exploration"]) == 0 and slope >= -1
                probability = max(0.4, 0.8 + slope) if explores else 0.0
            if self.random() < probability:
                self.value = new
