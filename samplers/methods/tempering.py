"""Parallel tempering: the runs of a row are chains at a ladder of temperatures that exchange states.

Hot chains cross what separates the states that the cold ones improve. A trial is a Gibbs sweep of every chain and one
attempt to exchange for every other pair of neighbouring temperatures. With one run there is nothing to exchange.
Exchanges are decided by a logarithm, whose last bit may differ between CPU and GPU: chains may part there.
"""

import numpy as np

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.rounds import Round
from dmcmc.samplers.model.schedule import Temperature

_RANGE = (0.4, 0.15)
_DESCENT = 10


def rounds(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Return one round at the coldest temperature, up a ladder to the hottest."""
    start, end = temperature.resolve(model, _RANGE)
    cold, hot = min(start, end), max(start, end)
    return [Round(np.full(samples, cold, dtype=np.float32), descent=_DESCENT, ladder=hot / cold)]


SAMPLER = Sampler(
    name="tempering",
    summary="parallel tempering: the runs of a row are Gibbs chains at different temperatures that exchange states",
    init=gibbs.init,
    step=gibbs.step,
    rounds=rounds,
    exchange=True,
)
