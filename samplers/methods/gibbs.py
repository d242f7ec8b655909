"""Gibbs sampling (DMCMC paper, lines 43-48): each hidden variable in turn is drawn from its conditional distribution.

One trial is one sweep. ``temperature: 1`` is the paper's sampler. A cooled temperature is simulated annealing with
Gibbs moves. Temperature 0 takes the best value.
"""

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.model.draw_kernels import best_value_weight, draw, rate_of
from dmcmc.samplers.model.state_kernels import (
    change,
    evaluate,
    fill_scores,
    gain_of,
    greedy_sweep,
    philox,
    random_state,
)


def init(model, z, scores, rng):
    """Draw a random state; return its utility."""
    random_state(model, z, rng)
    fill_scores(model, z, scores)
    return evaluate(model, z)


def step(model, z, scores, utility, scratch, rng, trial, temperature):
    """Sweep once over the hidden variables; return the utility.

    Value x of a variable is drawn with probability proportional to exp(score of x / temperature). A block of random
    bits has four words, one per variable.
    """
    if temperature <= 0:
        return greedy_sweep(model, z, scores, utility)
    rate = rate_of(temperature)
    best_weight = best_value_weight(model.lanes)
    words = philox(rng[0], rng[1], rng[2], rng[3], trial, 0)
    for v in range(model.hidden):
        lane = v & 3
        if lane == 0 and v > 0:
            words = philox(rng[0], rng[1], rng[2], rng[3], trial, v >> 2)
        old = z[v]
        new = draw(model, scores, v, rate, best_weight, old, words[lane], scratch)
        if new != old:
            utility += gain_of(scores, v, new, old)
            change(model, z, scores, v, new)
    return utility


SAMPLER = Sampler(
    name="gibbs",
    summary="Gibbs sampling, cooled by default; temperature: 1 is the DMCMC paper's",
    init=init,
    step=step,
)


def uses_gibbs_kernel(sampler: Sampler) -> bool:
    """Return whether a sampler has the functions of Gibbs sampling, for which there is a special GPU kernel."""
    return (sampler.init, sampler.step) == (init, step)
