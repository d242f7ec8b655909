"""Gibbs sampling (DMCMC paper, lines 43-48): each hidden variable in turn is drawn from its conditional.

One trial is one sweep. ``temperature: 1`` is the paper's sampler; cooled, it is simulated annealing with Gibbs moves.
"""

import numpy as np
from numba import njit

from dmcmc.samplers.protocol import Sampler
from dmcmc.samplers.rng import philox
from dmcmc.samplers.state import change, evaluate, fill_scores, random_state

_LOG2_E = 1.4426950408889634
# 2^f on [0, 1], relative error below 3e-7: enough for single precision.
_C5, _C4, _C3 = np.float32(1.8775767e-3), np.float32(8.9893397e-3), np.float32(5.5826318e-2)
_C2, _C1, _C0 = np.float32(2.4015361e-1), np.float32(6.9315308e-1), np.float32(9.9999994e-1)
_FLOOR = np.float32(-31.0)


@njit(cache=True, inline="always")
def draw(scores, v, size, per_unit, unit, old, word, weights):
    """Draw a value of v with probability ∝ exp(score / temperature), without a normalising constant.

    The weights are whole numbers, so that their sum is the same in any order and on any processor.

    Parameters
    ----------
    scores : (hidden, lanes) numbers
    size : int
        Domain size.
    per_unit : float32
        log2(e) / temperature.
    unit : float32
        The weight of the best value.
    old : int
        The present value; it is looked at first, since cold chains mostly stay.
    word : uint64
        32 random bits.
    weights : (lanes,) int32
        Scratch.
    """
    row, shares = scores[v, :size], weights[:size]
    top = row[0]
    for d in range(size):
        top = max(top, row[d])
    total = 0
    for d in range(size):
        x = max(np.float32(row[d] - top) * per_unit, _FLOOR)
        whole = np.floor(x)
        f = x - whole
        power = ((((_C5 * f + _C4) * f + _C3) * f + _C2) * f + _C1) * f + _C0
        share = np.int32(np.int32(power * unit) >> np.int32(-whole))
        shares[d] = share
        total += share
    left = np.int64((word * np.uint64(total)) >> np.uint64(32)) - shares[old]
    if left < 0:
        return old
    for d in range(size):
        if d != old:
            left -= shares[d]
            if left < 0:
                return d
    return old


def init(model, z, scores, rng):
    """Start anywhere; return the utility."""
    random_state(model, z, rng)
    fill_scores(model, z, scores)
    return evaluate(model, z)


def step(model, z, scores, utility, scratch, rng, trial, temperature):
    """One sweep over the hidden variables; return the utility."""
    per_unit = np.float32(_LOG2_E / temperature)
    unit = np.float32(2 ** (29 - int(np.ceil(np.log2(model.lanes)))))
    word_of = philox(rng[0], rng[1], rng[2], rng[3], trial, 0)
    for v in range(model.hidden):
        lane = v & 3
        if lane == 0:
            word_of = philox(rng[0], rng[1], rng[2], rng[3], trial, v >> 2)
        old = z[v]
        new = draw(scores, v, model.domains[v], per_unit, unit, old, word_of[lane], scratch)
        if new != old:
            utility += scores[v, new] - scores[v, old]
            change(model, z, scores, v, new)
    return utility


SAMPLER = Sampler(
    name="gibbs",
    summary="Gibbs sampling, cooled by default; temperature: 1 is the DMCMC paper's",
    init=init,
    step=step,
)
