"""MGM and MGM2: monotone local search in which only variables move that gain more than their neighbours.

Source: Maheswaran, Pearce, Tambe: Distributed Algorithms for DCOP, PDCS 2004. 1-optimal: no single variable can gain.
2-optimal: no pair of neighbours can gain either.
"""

from collections.abc import Generator, Iterator
from typing import Any, ClassVar

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.agent import ANYTIME, SynchronousAgent
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import BYTES, AgentNetwork, Draws
from dmcmc.inference.runtime.types import Ints

_OFFER_PROBABILITY = "offers"


def mgm(network: AgentNetwork, rng: Draws, given: Values) -> Iterator[Ints]:
    """Move the variables that gain more than all neighbours, until none gains anything: the result is 1-optimal.

    A cycle has two rounds of messages: values and gains.
    """
    values = network.start(rng)
    scores = network.scores(values)
    yield values
    while True:
        best, gain = network.best_moves(values, scores)
        network.sends(1, kind="VALUE")
        network.sends(1, kind="GAIN")
        moves = (gain > 0) & network.leads(gain)
        if not moves.any():
            return
        network.move(values, scores, np.where(moves, best, values))
        yield values


def mgm2(network: AgentNetwork, rng: Draws, given: Values) -> Iterator[Ints]:
    """Let pairs of neighbours move jointly, too, until no pair gains anything: the result is 2-optimal.

    A cycle has five rounds of messages. Values and gains go to all neighbours, gains with the lower number of the two
    variables that move, which decides ties. An offer, the gain of each pair of
    values, goes to one neighbour, and the answer back: the joint gain and the offering variable's value, or a refusal.
    Partners then tell each other whether they may move. Each variable makes an offer with a fixed probability, to a
    random neighbour; a variable without an offer may accept one.

    Offers are random, so a cycle without a move does not show 2-optimality. The first such cycle after a move checks it
    for all pairs; if it does not hold, ``known_not_optimal`` is True until the next move, which saves further checks.
    """
    values, layout = network.start(rng), network.layout
    scores = network.scores(values)
    degree = np.diff(layout.pair_start)
    known_not_optimal = False
    yield values
    while True:
        best, gain = network.best_moves(values, scores)
        (all_scores,) = network.tell(scores)
        offer_pair = np.full(values.size, -1, dtype=np.int64)
        makes_offer = (rng.random(values.size) < float(given[_OFFER_PROBABILITY])) & (degree > 0)
        offer_pair[makes_offer] = (layout.pair_start[:-1] + (rng.random(values.size) * degree).astype(np.int64))[
            makes_offer
        ]
        partner, gain, best = _answer_offers(network, all_scores, values, offer_pair, gain, best)
        network.sends(1, kind="VALUE")
        network.sends(1, kind="GAIN", numbers=2)
        _count_offers(network, offer_pair, partner)
        moves = (gain > 0) & network.leads(gain, partner)
        moves &= (partner < 0) | moves[partner]
        if moves.any():
            known_not_optimal = False
            network.move(values, scores, np.where(moves, best, values))
            yield values
            continue
        if not known_not_optimal:  # offers are random: a cycle without a move does not show 2-optimality
            row = np.empty(layout.max_domain, dtype=np.int64)
            if kernels.is_2_optimal(layout, values, all_scores, row):
                return
            known_not_optimal = True
        yield values


def _answer_offers(
    network: AgentNetwork, scores: Ints, values: Ints, offer_pair: Ints, gain: Ints, best: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return what each variable does after the offers have been answered; called by all ranks.

    Parameters
    ----------
    scores : (n, largest domain) int64
        Scores of all ranks' variables.
    offer_pair : (n,) int64
        Number of the pair (of ``layout.neighbour``) over which each variable makes an offer; -1 if it makes none.
    gain, best : (n,) int64
        Gain and value of each variable's own best move.

    Returns
    -------
    partner, gain, best : (n,) int64
        The variable that moves jointly with each variable (-1 for none), the gain of its move alone or of the joint
        move, and the value to take.
    """
    n = values.size
    partner, joint_gain, joint_values = np.full(n, -1), gain.copy(), np.zeros((n, 2), dtype=np.int64)
    kernels.answer_offers(network.layout, values, scores, offer_pair, gain, partner, joint_gain, joint_values)
    partner, joint_gain, joint_values = network.tell(partner, joint_gain, joint_values)
    accepted = np.flatnonzero(partner >= 0)
    offering = partner[accepted]
    gain, best = gain.copy(), best.copy()
    gain[accepted] = gain[offering] = joint_gain[accepted]
    best[offering], best[accepted] = joint_values[accepted, 0], joint_values[accepted, 1]
    partner[offering] = accepted
    return partner, gain, best


def _count_offers(network: AgentNetwork, offer_pair: Ints, partner: Ints) -> None:
    """Count the messages between variables of different agents that make, answer and carry out offers.

    Parameters
    ----------
    offer_pair, partner : (n,) int64
        The pair over which each variable makes an offer, and the variable that it moves with; -1 for none.
    """
    owner, domains = network.problem.owner, network.problem.domains
    offering = np.flatnonzero(offer_pair >= 0)
    receiving = network.neighbour[offer_pair[offering]]
    across = owner[offering] != owner[receiving]
    offering, receiving = offering[across], receiving[across]
    network.count_messages("OFFER", owner[offering], BYTES * domains[offering] * domains[receiving])
    accepted = partner[offering] == receiving
    network.count_messages("ANSWER", owner[receiving], np.where(accepted, 2 * BYTES, BYTES))
    network.count_messages("GO", np.concatenate([owner[offering[accepted]], owner[receiving[accepted]]]))


class MGM(SynchronousAgent):
    """Move if no neighbour gains more; at a tie the variable with the lower number moves."""

    name, rounds, optimal_for = "mgm", 2, 1
    summary = "the variable with the largest gain among its neighbours moves; ends 1-optimal"
    paper = "Maheswaran, Pearce, Tambe: Distributed Algorithms for DCOP, PDCS 2004"
    parameters: ClassVar = ANYTIME
    compiled = Algorithm("mgm", summary, mgm, parameters)

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Exchange values, then gains."""
        self.value, view = self.random.below(self.domain), dict[int, int]()
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            costs = self.costs(view)
            best = costs.index(min(costs))
            gain = costs[self.value] - costs[best]
            self.tell("GAIN", gain)
            gains = yield
            if gain > 0 and all((gain, -self.me) > (other, -v) for v, other in gains.items()):
                self.value = best


class MGM2(SynchronousAgent):
    """Move alone or with a neighbour; see :func:`mgm2`."""

    name, rounds, optimal_for = "mgm2", 5, 2
    summary = "MGM with pairs of neighbours that move together; ends 2-optimal"
    paper = "Maheswaran, Pearce, Tambe: Distributed Algorithms for DCOP, PDCS 2004"
    parameters: ClassVar = {
        _OFFER_PROBABILITY: Parameter(0.5, 0.01, 0.99, text="probability of making an offer")
    } | ANYTIME
    compiled = Algorithm("mgm2", summary, mgm2, parameters)

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Exchange values, offers, answers, gains, and what partners may do."""
        self.value, view = self.random.below(self.domain), dict[int, int]()
        while True:
            self.tell("VALUE", self.value)
            view |= yield
            costs = self.costs(view)
            best = costs.index(min(costs))
            gain = costs[self.value] - costs[best]
            offers, drawn = self.random() < float(self.given[_OFFER_PROBABILITY]), self.random()
            partner = receiver = None
            if offers and self.neighbours:
                receiver = self.neighbours[int(drawn * len(self.neighbours))]
                rows = [self.costs(view | {receiver: b}) for b in range(self.domains[receiver])]
                self.send(receiver, "OFFER", costs[self.value] - np.array(rows).T)
            offered = yield
            answers: dict[int, Any] = dict.fromkeys(offered, 0)
            if receiver is None:
                for u, table in offered.items():
                    joint = table + self._gains_without(u, view, self.value)
                    if joint.max() > gain:
                        partner, gain = u, int(joint.max())
                        theirs, best = (int(d) for d in np.unravel_index(joint.argmax(), joint.shape))
                        answers = dict.fromkeys(offered, 0) | {u: (gain, theirs)}
            for u, answer in answers.items():
                self.send(u, "ANSWER", answer)
            answers = yield
            if receiver is not None and isinstance(answers.get(receiver), tuple):
                partner, (gain, best) = receiver, answers[receiver]
            tie = min(self.me, self.me if partner is None else partner)
            self.tell("GAIN", (gain, tie))
            gains = yield
            moves = gain > 0 and all((gain, -tie) > (g, -t) for u, (g, t) in gains.items() if u != partner)
            if partner is not None:
                self.send(partner, "GO", moves)
            may_go = yield
            if moves and (partner is None or may_go.get(partner)):
                self.value = best

    def _gains_without(self, other: int, view: dict[int, int], value: int) -> Ints:
        """Return the gain of each own value in the constraints that another variable is not in."""
        gains = np.zeros(self.domain, dtype=np.int64)
        for c in self.constraints:
            if other not in c.others and all(v in view for v in c.others):
                row = c.costs(view)
                gains += row[value] - np.array(row)
        return gains
