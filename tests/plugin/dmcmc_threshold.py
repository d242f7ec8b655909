"""Threshold accepting: propose another value of each variable, accept whatever loses at most the threshold."""

import numpy as np

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.model.state_kernels import change, eased, evaluate, fill_scores, gain_of, philox, random_state


def init(model, z, scores, rng):
    """Start anywhere; return the utility."""
    random_state(model, z, rng)
    fill_scores(model, z, scores)
    return evaluate(model, z)


def step(model, z, scores, utility, scratch, rng, trial, temperature):
    """Propose once for each hidden variable, the temperature being the threshold; return the utility."""
    for v in range(model.hidden):
        lane = v & 3
        if lane == 0:  # a block of random bits is four words
            words = philox(rng[0], rng[1], rng[2], rng[3], trial, v >> 2)
        if model.domains[v] == 1:
            continue
        new = (np.int64(words[lane]) * (model.domains[v] - 1)) >> 32
        if new >= z[v]:
            new += 1  # any value but the present one
        proposed = utility + gain_of(scores, v, new, z[v])
        if eased(model, proposed) - eased(model, utility) >= -temperature:
            change(model, z, scores, v, new)
            utility = proposed
    return utility


SAMPLER = Sampler(
    name="threshold-accepting",
    summary="threshold accepting one variable at a time: losses up to the temperature are accepted",
    init=init,
    step=step,
)
