"""MGM and MGM2 (Maheswaran, Pearce, Tambe: Distributed Algorithms for DCOP, PDCS 2004): an answer never gets worse."""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import BYTES, Network
from dmcmc.inference.runtime.types import Ints

_OFFERS = "offers"


def mgm(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Let those move who gain more than all neighbours, until nobody can: the end is 1-optimal.

    A cycle is two rounds of messages: values, gains.
    """
    values = network.start(rng)
    scores = network.scores(values)
    yield values
    while True:
        best, gain = network.best_moves(values, scores)
        network.sends(2)
        moves = (gain > 0) & network.leads(gain)
        if not moves.any():
            return
        network.move(values, scores, np.where(moves, best, values))
        yield values


def mgm2(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Let neighbours move together where that gains most, until no one and no two can: the end is 2-optimal.

    A cycle is five rounds: values, offers (the gain of each pair of values), answers, gains, who moves.
    """
    values, layout = network.start(rng), network.layout
    scores = network.scores(values)
    degree = np.diff(layout.pair_start)
    offer = BYTES * int(layout.most) ** 2
    checked = False
    yield values
    while True:
        best, gain = network.best_moves(values, scores)
        (full,) = network.tell(scores)
        to = np.full(values.size, -1, dtype=np.int64)
        offers = (rng.random(values.size) < float(given[_OFFERS])) & (degree > 0)
        to[offers] = (layout.pair_start[:-1] + (rng.random(values.size) * degree).astype(np.int64))[offers]
        partner, gain, best = _accepted(network, full, values, to, gain, best)
        network.sends(4)
        offering = np.bincount(
            network.problem.owner[offers & _outside(network, to)], minlength=network.problem.n_agents
        )
        network.sends(1, offer, offering)
        moves = (gain > 0) & network.leads(gain, partner)
        moves &= (partner < 0) | moves[partner]
        if moves.any():
            checked = False
            network.move(values, scores, np.where(moves, best, values))
            yield values
            continue
        if not checked:  # offers are random: that there was none says nothing
            row = np.empty(layout.most, dtype=np.int64)
            if kernels.is_2_optimal(layout, values, full, row):
                return
            checked = True
        yield values


def _accepted(
    network: Network, scores: Ints, values: Ints, to: Ints, gain: Ints, best: Ints
) -> tuple[Ints, Ints, Ints]:
    """Return partners, gains and values to take, once offers have been answered."""
    n = values.size
    partner, joint, pairs = np.full(n, -1), gain.copy(), np.zeros((n, 2), dtype=np.int64)
    kernels.answer_offers(network.layout, values, scores, to, gain, partner, joint, pairs)
    partner, joint, pairs = network.tell(partner, joint, pairs)
    accepted = np.flatnonzero(partner >= 0)
    offered = partner[accepted]
    gain, best = gain.copy(), best.copy()
    gain[accepted] = gain[offered] = joint[accepted]
    best[offered], best[accepted] = pairs[accepted, 0], pairs[accepted, 1]
    partner[offered] = accepted
    return partner, gain, best


def _outside(network: Network, to: Ints) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
    """Return whose offers go to another agent."""
    owner, found = network.problem.owner, np.zeros(to.size, dtype=np.bool_)
    asked = np.flatnonzero(to >= 0)
    found[asked] = owner[network.neighbour[to[asked]]] != owner[asked]
    return found


MGM = Algorithm("mgm", "maximum gain messages: who gains most among neighbours moves; ends 1-optimal", mgm)
MGM2 = Algorithm(
    "mgm2",
    "MGM with pairs of neighbours that move together; ends 2-optimal",
    mgm2,
    {_OFFERS: Parameter(0.5, 0.01, 0.99, text="probability of making an offer")},
)
