"""Metropolis-Hastings with the DMCMC paper's joint proposal (§3.2): all hidden variables move at once.

The proposal is N(z, √|D|·I), with variance √|D|. It is reflected at the ends of the domain and rounded, which keeps it
symmetric, so that a proposal is accepted with probability min(1, exp(ΔU / temperature)). One trial is one proposal.

A loss is accepted by comparison with a logarithm, whose last bit may differ between CPU and GPU, so chains on them may
diverge. The GPU has a kernel for these chains (:mod:`dmcmc.samplers.cuda.joint_proposal_kernels`).
"""

import math

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.model.proposal_kernels import jump, reflected
from dmcmc.samplers.model.state_kernels import eased, evaluate, philox, random_state, uniform

_ACCEPT_BLOCK = 1 << 23  # block of the chain's counter for the acceptance test: above those of all variables


def init(model, z, scores, rng):
    """Draw a random state; return its utility."""
    random_state(model, z, rng)
    return evaluate(model, z)


def step(model, z, scores, utility, scratch, rng, trial, temperature):
    """Propose new values of all hidden variables once; return the utility.

    ``scratch`` holds the present values until the proposal is accepted. A block of random bits has four words, one per
    variable; the eased utility has a finite penalty per violation.
    """
    words = philox(rng[0], rng[1], rng[2], rng[3], trial, 0)
    for v in range(model.hidden):
        lane = v & 3
        if lane == 0 and v > 0:
            words = philox(rng[0], rng[1], rng[2], rng[3], trial, v >> 2)
        scratch[v] = z[v]
        z[v] = reflected(z[v] + jump(model.jumps, model.jump_at[v], words[lane]), model.domains[v])
    proposed = evaluate(model, z)
    words = philox(rng[0], rng[1], rng[2], rng[3], trial, _ACCEPT_BLOCK)
    if math.log(uniform(words[0])) * temperature < eased(model, proposed) - eased(model, utility):
        return proposed
    for v in range(model.hidden):
        z[v] = scratch[v]
    return utility


SAMPLER = Sampler(
    name="metropolis-hastings",
    summary="Metropolis-Hastings with the DMCMC paper's joint proposal; temperature: 1 is the paper's",
    init=init,
    step=step,
    scored=False,
)
