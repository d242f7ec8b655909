"""Parallel tempering: the runs of a row are chains on a ladder of temperatures that exchange states.

Hot chains cross the barriers between the states that cold chains improve. A trial is a Gibbs sweep of every chain and
an attempt to exchange every other pair of neighbouring temperatures. With one run there is nothing to exchange. An
exchange is decided by comparison with a logarithm, whose last bit may differ between CPU and GPU, so chains on them may
diverge.
"""

import numpy as np

from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.schedule import COLDEST, Round, Temperature


def rounds(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Return one round at the lowest temperature, with a ladder up to the highest.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    samples : int
        Trials per chain.
    temperature : Temperature
        The temperature schedule, whose ends are those of the ladder.
    """
    start, end = temperature.resolve(model)
    cold, hot = min(start, end), max(start, end)
    if cold < hot:
        cold = max(cold, COLDEST)  # the ladder is a geometric sequence, which cannot begin at 0
    ladder = hot / cold if cold > 0 else 1.0
    return [Round(np.full(samples, cold, dtype=np.float32), descent=tuning.DESCENT_SWEEPS, ladder=ladder)]


SAMPLER = Sampler(
    name="tempering",
    summary="parallel tempering: the runs of a row are Gibbs chains at different temperatures that exchange states",
    init=gibbs.init,
    step=gibbs.step,
    rounds=rounds,
    exchange=True,
)
