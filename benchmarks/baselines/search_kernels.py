# mypy: ignore-errors
"""Compiled multistart coordinate ascent, DSA (Zhang et al., AIJ 2005) and MGM2 (Maheswaran et al., PDCS 2004).

All agents act in one process; each has one variable. Arguments of the kernels:

layout : ColumnLayout. The problem, see ``dmcmc.algorithms.layout``.
z : (n,) int64. The current state: the value of each variable.
scores : (n, max_domain) int64. ``scores[v, d]`` is the sum of the factors of v if v took d and all others stayed;
``set_value`` keeps it up to date.
rng : (1,) uint64. The state of the random stream.

The total of a state is the sum of its factors' entries, an int64. A search returns its best total.
"""

import numpy as np

from dmcmc.algorithms.local_kernels import (
    best_pair,
    best_value,
    fill_scores,
    in_conflict,
    is_2_optimal,
    set_value,
    total_score,
)
from dmcmc.inference.runtime.compile import njit

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def draw(rng):
    """Return a uniform float64 in [0, 1) (SplitMix64)."""
    rng[0] += _GAMMA
    x = rng[0]
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    x ^= x >> np.uint64(31)
    return np.float64(x >> np.uint64(11)) * 2.0**-53


@njit()
def begin(layout, z, scores, rng):
    """Draw a state; return its total."""
    for v in range(z.size):
        z[v] = int(draw(rng) * layout.domains[v])
    fill_scores(layout, z, scores)
    return total_score(layout, z)


@njit()
def ascend(layout, z, scores):
    """Give each variable in turn its best value until no variable has a better one; return the gain."""
    gain = np.int64(0)
    since = 0
    v = 0
    while since < z.size:
        best = best_value(scores, v, layout.domains[v])
        since += 1
        if scores[v, best] > scores[v, z[v]]:
            gain += set_value(layout, z, scores, v, best)
            since = 1
        v = v + 1 if v + 1 < z.size else 0
    return gain


@njit()
def dsa(layout, z, scores, rng, total, best, cycles, probability, sideways):
    """Run DSA for some cycles from a state; return the best total, and leave its state in ``best``.

    In each cycle, every variable chooses its best value (at a tie another one than its own, at random) and takes it
    with a probability: if it is better (DSA-A), or equally good and in conflict (DSA-B), or equally good (DSA-C).
    ``sideways`` is 0, 1 or 2 for A, B and C. ``total`` is the total of the state ``z``.
    """
    wanted = np.empty(z.size, dtype=np.int64)
    top = total
    best[:] = z
    for _ in range(cycles):
        for v in range(z.size):
            size = layout.domains[v]
            score = scores[v, best_value(scores, v, size)]
            better = score > scores[v, z[v]]
            wanted[v] = -1
            if better or sideways == 2 or (sideways == 1 and in_conflict(layout, z, v)):
                ties = 0
                for d in range(size):
                    if scores[v, d] == score and d != z[v]:
                        ties += 1
                        if draw(rng) * ties < 1.0:
                            wanted[v] = d
                if draw(rng) >= probability:
                    wanted[v] = -1
        for v in range(z.size):
            if wanted[v] >= 0:
                total += set_value(layout, z, scores, v, wanted[v])
        if total > top:
            top = total
            best[:] = z
    return top


@njit()
def _offers(layout, z, scores, rng, q, state):
    """Let some variables offer a joint move to a random neighbour, and the others accept the best offer.

    ``q`` is the probability of an offer. ``state`` has five int64 arrays: gain, value, partner, the offer's pair index
    (each of shape (n,)), and the row of ``best_pair``.
    """
    gain, value, partner, target, row = state
    n = z.size
    for v in range(n):
        value[v] = best_value(scores, v, layout.domains[v])
        gain[v] = scores[v, value[v]] - scores[v, z[v]]
        partner[v] = -1
        target[v] = -1
        degree = layout.pair_start[v + 1] - layout.pair_start[v]
        if degree and draw(rng) < q:
            target[v] = layout.pair_start[v] + int(draw(rng) * degree)
    for u in range(n):
        if target[u] >= 0:
            v = layout.neighbour[target[u]]
            if target[v] >= 0:  # a variable that offers does not accept offers
                continue
            best_gain, a, b = best_pair(layout, z, scores, row, u, target[u])
            if best_gain > gain[v]:  # if v has accepted an offer before, gain[v] is the gain of that offer
                if partner[v] >= 0:
                    rejected = partner[v]
                    partner[rejected] = -1
                    value[rejected] = best_value(scores, rejected, layout.domains[rejected])
                    gain[rejected] = scores[rejected, value[rejected]] - scores[rejected, z[rejected]]
                partner[u], partner[v] = v, u
                gain[u], gain[v] = best_gain, best_gain
                value[u], value[v] = a, b


@njit(inline="always")
def _leads(layout, gain, partner, v):
    """Return whether v gains more than its neighbours except its partner; the lower number decides at a tie."""
    rank = min(v, partner[v]) if partner[v] >= 0 else v
    for p in range(layout.pair_start[v], layout.pair_start[v + 1]):
        w = layout.neighbour[p]
        if w != partner[v]:
            other_rank = min(w, partner[w]) if partner[w] >= 0 else w
            if gain[w] > gain[v] or (gain[w] == gain[v] and other_rank < rank):
                return False
    return True


@njit()
def mgm2(layout, z, scores, rng, q):
    """Run MGM2 until the state is 2-optimal; return the gain.

    ``q`` is the probability with which a variable makes an offer in a cycle. No two neighbours move in the same cycle,
    except for partners, so the state never gets worse.
    """
    n = z.size
    gain, value = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    partner, target = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    row, moves = np.empty(layout.max_domain, dtype=np.int64), np.empty(n, dtype=np.int64)
    state = (gain, value, partner, target, row)
    total = np.int64(0)
    checked = False
    while True:
        _offers(layout, z, scores, rng, q, state)
        moved = False
        for v in range(n):
            moves[v] = gain[v] > 0 and _leads(layout, gain, partner, v)
        for v in range(n):
            if moves[v] and (partner[v] < 0 or moves[partner[v]]):
                moved = True
                total += set_value(layout, z, scores, v, value[v])
        if moved:
            checked = False
        elif not checked:  # offers are random, so a cycle without a move proves nothing
            if is_2_optimal(layout, z, scores, row):
                return total
            checked = True


@njit(nogil=True)
def ascents(layout, seed, first, count, best):
    """Ascend from some random states; return the best total, and leave its state in ``best``."""
    z, scores, rng, top = _new_arrays(layout)
    for start in range(first, first + count):
        rng[0] = _key(seed, start)
        total = begin(layout, z, scores, rng) + ascend(layout, z, scores)
        if total > top:
            top = total
            best[:] = z
    return top


@njit(nogil=True)
def dsas(layout, seed, first, count, best, parameters):
    """Run DSA from some random states; ``how`` is (cycles, probabilities that alternate, sideways)."""
    z, scores, rng, top = _new_arrays(layout)
    cycles, probabilities, sideways = parameters
    start_best = z.copy()
    for start in range(first, first + count):
        rng[0] = _key(seed, start)
        total = begin(layout, z, scores, rng)
        probability = probabilities[start % probabilities.size]
        total = dsa(layout, z, scores, rng, total, start_best, cycles, probability, sideways)
        if total > top:
            top = total
            best[:] = start_best
    return top


@njit(nogil=True)
def mgm2s(layout, seed, first, count, best, q):
    """Run MGM2 from some random states; return the best total, and leave its state in ``best``."""
    z, scores, rng, top = _new_arrays(layout)
    for start in range(first, first + count):
        rng[0] = _key(seed, start)
        total = begin(layout, z, scores, rng) + mgm2(layout, z, scores, rng, q)
        if total > top:
            top = total
            best[:] = z
    return top


@njit()
def _new_arrays(layout):
    """Return a state, its scores, a random stream, and a number below any total."""
    n = layout.domains.size
    z, scores = np.zeros(n, dtype=np.int64), np.zeros((n, layout.max_domain), dtype=np.int64)
    return z, scores, np.zeros(1, dtype=np.uint64), np.int64(-(2**62))


@njit(inline="always")
def _key(seed, start):
    """Return the initial state of a start's random stream."""
    return np.uint64(seed) * _MIX_1 ^ (np.uint64(start) + np.uint64(1)) * _MIX_2
