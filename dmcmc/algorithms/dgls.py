"""DGLS, distributed guided local search (after arXiv 2508.06899): MGM with penalties that let it leave local optima.

The loss of a factor is its largest entry less its current one. If neither a variable nor any of its neighbours gains
anything, the entries with the largest loss around it are penalised, equally in the table copies of all variables of the
factor. Penalties decay, so a penalty is at most weight / evaporation times the loss of its entry.

The paper's components are an adaptive condition of violation, evaporation and coordinated penalties. Here an entry
counts as violated if its loss is at least the mean loss of its variable's factors. Its penalty then grows by ``weight``
times its loss.
"""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.inference.runtime.types import Ints


def dgls(network: AgentNetwork, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Move as MGM does on utilities less penalties; raise penalties where no variable can gain.

    A cycle has two rounds of messages (values and gains), and a third one (which variables are stuck) if penalties are
    raised. A variable is *stuck* if neither it nor a neighbour gains anything. *Scores* are the utilities of a
    variable's factors less their penalties, per value; ``guided`` is the layout of tables with penalties subtracted.
    """
    values, layout = network.start(rng), network.layout
    penalties = np.zeros(layout.data.size, dtype=np.int64)
    guided = layout._replace(data=layout.data.copy())
    scores = network.scores(values, guided)
    # The kernel decays integer penalties: penalty * kept_1024ths // 1024.
    kept_1024ths, weight = round(1024 * (1 - float(given["evaporation"]))), float(given["weight"])
    yield values
    while values.size:
        best, gain = network.best_moves(values, scores)
        network.sends(2)
        moves = (gain > 0) & network.leads(gain)
        network.move(values, scores, np.where(moves, best, values), guided)
        stuck = ~network.near(gain > 0)
        if stuck.any():
            network.sends(1)
            kernels.penalise(layout, values, penalties, guided.data, stuck, weight, kept_1024ths)
            kernels.fill_scores(guided, values, scores)
        yield values


DGLS = Algorithm(
    "dgls",
    "distributed guided local search: MGM with decaying penalties",
    dgls,
    {
        "weight": Parameter(0.4, 1e-6, 100.0, text="penalty per unit of an entry's loss"),
        "evaporation": Parameter(0.2, 0.0, 1.0, text="share of all penalties that decays when new ones are added"),
    },
)
