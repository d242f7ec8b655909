"""Simulated annealing in rounds: Gibbs moves, warm starts from neighbouring rows, greedy descent.

Half of the trials cool from a random start. The rest are short rounds that reheat to half-way down (on a logarithmic
scale) and cool again, from the best state of the row and of rows that differ in one interface variable: what one row
has found is passed on to the others. Between the two, rows that still violate something get rounds of their own, at
temperatures at which violations come and go and utilities hardly count.
"""

import numpy as np

from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.rounds import Round
from dmcmc.samplers.model.schedule import LOOSE, Temperature

_RANGE = (0.35, 0.2)  # of the typical spread of a conditional; descent does the rest
_WARM = 8  # warm rounds, fewer where they would be shorter than
_SHORTEST = 4
_REPAIRS = 4  # rounds of as many trials as all others together
_TIGHT = 0.15  # of the penalty of a violation: none comes back
_DESCENT = 10


def rounds(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Divide ``samples`` trials into a first half and warm rounds; add repairs where something is forbidden."""
    length = max(_SHORTEST, samples // (2 * _WARM))
    warm = samples // (2 * length)
    first = temperature.of_trials(model, samples - warm * length, _RANGE)
    again = temperature.of_trials(model, length, _RANGE, skip=0.5)
    plan = [Round(first, descent=_DESCENT)]
    if model.violation:
        mend = np.geomspace(LOOSE * model.penalty, _TIGHT * model.penalty, samples).astype(np.float32)
        plan += _REPAIRS * [Round(mend, warm=True, repair=True, descent=_DESCENT)]
    return plan + warm * [Round(again, warm=True, descent=_DESCENT)]


SAMPLER = Sampler(
    name="annealing",
    summary="simulated annealing with Gibbs moves, in rounds that pass states on between rows",
    init=gibbs.init,
    step=gibbs.step,
    rounds=rounds,
)
