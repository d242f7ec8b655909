"""Metropolis-Hastings for one variable at a time: propose another value uniformly, accept by the change of utility.

One trial is one proposal per hidden variable. The change is a difference of two scores that are kept up to date, so a
rejected proposal costs two reads; cold chains reject nearly all proposals.

A loss is accepted by comparison with a logarithm, whose last bit may differ between CPU and GPU, so chains on them may
diverge.
"""

import math

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.model.state_kernels import (
    change,
    eased,
    evaluate,
    fill_scores,
    gain_of,
    philox,
    random_state,
    uniform,
)


def init(model, z, scores, rng):
    """Draw a random state; return its utility."""
    random_state(model, z, rng)
    fill_scores(model, z, scores)
    return evaluate(model, z)


def step(model, z, scores, utility, scratch, rng, trial, temperature):
    """Propose a value for each hidden variable in turn; return the utility.

    A proposal is accepted with probability min(1, exp(change of eased utility / temperature)); the eased utility has a
    finite penalty per violation. Each variable uses two of the four words of a block of random bits.
    """
    words = philox(rng[0], rng[1], rng[2], rng[3], trial, 0)
    for v in range(model.hidden):
        if v > 0 and v % 2 == 0:
            words = philox(rng[0], rng[1], rng[2], rng[3], trial, v // 2)
        size = model.domains[v]
        if size == 1:
            continue
        old = z[v]
        new = min(int(uniform(words[2 * (v % 2)]) * (size - 1)), size - 2)
        if new >= old:
            new += 1  # any value except the present one
        gain = gain_of(scores, v, new, old)
        rise = eased(model, utility + gain) - eased(model, utility)
        if rise >= 0 or math.log(uniform(words[2 * (v % 2) + 1])) * temperature < rise:
            utility += gain
            change(model, z, scores, v, new)
    return utility


SAMPLER = Sampler(
    name="metropolis-hastings-single",
    summary="Metropolis-Hastings one variable at a time, cooled by default",
    init=init,
    step=step,
)
