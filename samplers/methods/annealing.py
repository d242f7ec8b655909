"""Simulated annealing in rounds: Gibbs moves, warm starts from neighbouring rows, greedy descent.

A row is an assignment of the agent's boundary variables (its interface). Half of the trials cool from a random start.
The others are short rounds that start from the best state of the row, or of rows that differ in one interface variable.
These rounds reheat to half-way down (on a logarithmic scale, for a geometric schedule) and cool again, so good states
pass from row to row. Between the two parts, rows that still violate a hard constraint get repair rounds, at
temperatures at which violations come and go and differences of utility hardly matter.
"""

import numpy as np

from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import Sampler
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import ChainModel
from dmcmc.samplers.model.schedule import START_PER_PENALTY, Round, Temperature


def rounds(model: ChainModel, samples: int, temperature: Temperature) -> list[Round]:
    """Divide ``samples`` trials into a cooling round and warm rounds; add repair rounds if any entry is forbidden.

    Parameters
    ----------
    model : ChainModel
        The agent's columns.
    samples : int
        Trials per chain, without those of repair rounds.
    temperature : Temperature
        The temperature schedule.

    Returns
    -------
    list of Round
        The cooling round, the repair rounds, then the warm rounds, which have half of the trials.
    """
    length = max(tuning.WARM_ROUNDS // 2, samples // (2 * tuning.WARM_ROUNDS))
    warm = samples // (2 * length)
    first = temperature.of_trials(model, samples - warm * length, tuning.ANNEALING_RANGE)
    reheated = temperature.of_trials(model, length, tuning.ANNEALING_RANGE, skip=0.5)
    plan = [Round(first, descent=tuning.DESCENT_SWEEPS)]
    if model.violation:
        repair_temperatures = np.geomspace(
            START_PER_PENALTY * model.penalty, tuning.REPAIR_END * model.penalty, samples
        ).astype(np.float32)
        plan += (
            tuning.WARM_ROUNDS
            // 2
            * [Round(repair_temperatures, warm=True, repair=True, descent=tuning.DESCENT_SWEEPS)]
        )
    return plan + warm * [Round(reheated, warm=True, descent=tuning.DESCENT_SWEEPS)]


SAMPLER = Sampler(
    name="annealing",
    summary="simulated annealing with Gibbs moves, in rounds that pass states on between rows",
    init=gibbs.init,
    step=gibbs.step,
    rounds=rounds,
)
