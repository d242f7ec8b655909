# mypy: ignore-errors
"""Multistart coordinate ascent, DSA (Zhang et al., AIJ 2005) and MGM2 (Maheswaran et al., PDCS 2004), compiled.

All agents act in one process, one variable each. ``scores[v, d]`` is what the factors of v are worth if v took d and
all others stayed; it is kept up to date by :func:`change`. A state's worth is its sum of entries, of which a search
keeps its best.
"""

import numpy as np

from dmcmc.algorithms.local_kernels import best_pair, best_value, change, fill_scores, in_conflict, is_2_optimal, worth
from dmcmc.inference.runtime.compile import njit

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@njit(inline="always")
def draw(rng):
    """Return a uniform float64 in [0, 1) (SplitMix64); ``rng`` is one word."""
    rng[0] += _GAMMA
    x = rng[0]
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    x ^= x >> np.uint64(31)
    return np.float64(x >> np.uint64(11)) * 2.0**-53


@njit()
def begin(layout, z, scores, rng):
    """Draw a state; return its worth."""
    for v in range(z.size):
        z[v] = int(draw(rng) * layout.domains[v])
    fill_scores(layout, z, scores)
    return worth(layout, z)


@njit()
def ascend(layout, z, scores):
    """Give each variable in turn its best value until none has a better one; return the gain."""
    gain = np.int64(0)
    since = 0
    v = 0
    while since < z.size:
        best = best_value(scores, v, layout.domains[v])
        since += 1
        if scores[v, best] > scores[v, z[v]]:
            gain += change(layout, z, scores, v, best)
            since = 1
        v = v + 1 if v + 1 < z.size else 0
    return gain


@njit()
def dsa(layout, z, scores, rng, total, best, cycles, probability, sideways):
    """Run DSA for some cycles from a state; ``best`` is the best on the way; return its worth.

    In each cycle every variable looks for its best value, at a tie for another one at random, and takes it with a
    probability: if it is better (A), or as good and in conflict (B), or as good (C); ``sideways`` is 0, 1 or 2.
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
                total += change(layout, z, scores, v, wanted[v])
        if total > top:
            top = total
            best[:] = z
    return top


@njit()
def _offers(layout, z, scores, rng, q, state):
    """Let some offer joint moves to a random neighbour each, and the others accept what gains most."""
    gain, value, partner, to, row = state
    n = z.size
    for v in range(n):
        value[v] = best_value(scores, v, layout.domains[v])
        gain[v] = scores[v, value[v]] - scores[v, z[v]]
        partner[v] = -1
        to[v] = -1
        degree = layout.pair_start[v + 1] - layout.pair_start[v]
        if degree and draw(rng) < q:
            to[v] = layout.pair_start[v] + int(draw(rng) * degree)
    for u in range(n):
        if to[u] >= 0:
            v = layout.neighbour[to[u]]
            if to[v] >= 0:  # who offers takes no offers
                continue
            most, a, b = best_pair(layout, z, scores, row, u, to[u])
            if most > gain[v]:  # of one that had accepted, that is the gain of the offer before
                if partner[v] >= 0:
                    left = partner[v]
                    partner[left] = -1
                    value[left] = best_value(scores, left, layout.domains[left])
                    gain[left] = scores[left, value[left]] - scores[left, z[left]]
                partner[u], partner[v] = v, u
                gain[u], gain[v] = most, most
                value[u], value[v] = a, b


@njit(inline="always")
def _leads(layout, gain, partner, v):
    """Return whether v gains more than its neighbours, its partner left out; at a tie the lowest of a group leads."""
    own = min(v, partner[v]) if partner[v] >= 0 else v
    for p in range(layout.pair_start[v], layout.pair_start[v + 1]):
        w = layout.neighbour[p]
        if w != partner[v]:
            other = min(w, partner[w]) if partner[w] >= 0 else w
            if gain[w] > gain[v] or (gain[w] == gain[v] and other < own):
                return False
    return True


@njit()
def mgm2(layout, z, scores, rng, q):
    """Run MGM2 until the state is 2-optimal; return the gain.

    q is the probability with which a variable makes an offer in a cycle. No two neighbours move in one cycle, but
    partners, so the state never gets worse.
    """
    n = z.size
    gain, value = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    partner, to = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    row, moves = np.empty(layout.most, dtype=np.int64), np.empty(n, dtype=np.int64)
    state = (gain, value, partner, to, row)
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
                total += change(layout, z, scores, v, value[v])
        if moved:
            checked = False
        elif not checked:  # offers are random: that there was none says nothing
            if is_2_optimal(layout, z, scores, row):
                return total
            checked = True


@njit(nogil=True)
def ascents(layout, seed, first, count, best):
    """Ascend from some random states; ``best`` is the best that was found; return its worth."""
    z, scores, rng, top = _new(layout)
    for start in range(first, first + count):
        rng[0] = _key(seed, start)
        total = begin(layout, z, scores, rng) + ascend(layout, z, scores)
        if total > top:
            top = total
            best[:] = z
    return top


@njit(nogil=True)
def dsas(layout, seed, first, count, best, how):
    """Run DSA from some random states; ``how`` is (cycles, probabilities in turn, sideways)."""
    z, scores, rng, top = _new(layout)
    cycles, probabilities, sideways = how
    way = z.copy()
    for start in range(first, first + count):
        rng[0] = _key(seed, start)
        total = begin(layout, z, scores, rng)
        probability = probabilities[start % probabilities.size]
        total = dsa(layout, z, scores, rng, total, way, cycles, probability, sideways)
        if total > top:
            top = total
            best[:] = way
    return top


@njit(nogil=True)
def mgm2s(layout, seed, first, count, best, q):
    """Run MGM2 from some random states."""
    z, scores, rng, top = _new(layout)
    for start in range(first, first + count):
        rng[0] = _key(seed, start)
        total = begin(layout, z, scores, rng) + mgm2(layout, z, scores, rng, q)
        if total > top:
            top = total
            best[:] = z
    return top


@njit()
def _new(layout):
    """Return a state, its scores, a random stream, and less than any worth."""
    n = layout.domains.size
    z, scores = np.zeros(n, dtype=np.int64), np.zeros((n, layout.most), dtype=np.int64)
    return z, scores, np.zeros(1, dtype=np.uint64), np.int64(-(2**62))


@njit(inline="always")
def _key(seed, start):
    """Return the first word of a start's random stream."""
    return np.uint64(seed) * _MIX_1 ^ (np.uint64(start) + np.uint64(1)) * _MIX_2
