"""Gibbs sampling (DMCMC paper, lines 43-48): each hidden variable in turn is drawn from its conditional.

One trial is one sweep. ``temperature: 1`` is the paper's sampler; cooled, it is simulated annealing with Gibbs moves;
temperature 0 takes the best value.
"""

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.model.draw_kernels import draw, rate_of, share_unit
from dmcmc.samplers.model.rng_kernels import philox
from dmcmc.samplers.model.state_kernels import change, evaluate, fill_scores, gain_of, greedy_sweep, random_state


def init(model, z, scores, rng):
    """Start anywhere; return the utility."""
    random_state(model, z, rng)
    fill_scores(model, z, scores)
    return evaluate(model, z)


def step(model, z, scores, utility, scratch, rng, trial, temperature):
    """One sweep over the hidden variables; return the utility."""
    if temperature <= 0:
        return greedy_sweep(model, z, scores, utility)
    per_unit = rate_of(temperature)
    unit = share_unit(model.lanes)
    words = philox(rng[0], rng[1], rng[2], rng[3], trial, 0)
    for v in range(model.hidden):
        lane = v & 3
        if lane == 0 and v > 0:
            words = philox(rng[0], rng[1], rng[2], rng[3], trial, v >> 2)
        old = z[v]
        new = draw(model, scores, v, per_unit, unit, old, words[lane], scratch)
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
