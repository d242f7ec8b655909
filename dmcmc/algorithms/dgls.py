"""DGLS, distributed guided local search (after arXiv 2508.06899): MGM that penalises what keeps it where it is.

Where no neighbour of a variable gains anything, the entries that lose most around it are penalised, on both sides of
each factor alike; penalties fade, so they are bounded by weight / evaporation times what an entry loses. The paper's
parts are an adaptive condition of violation, evaporation and coordinated penalties; here an entry is violated that
loses at least the mean of its variable's factors, and pays ``weight`` times its loss.
"""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import Network
from dmcmc.inference.runtime.types import Ints


def dgls(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Move as MGM does on utilities less penalties; raise penalties where nobody can move.

    A cycle is two rounds of messages, values and gains, and a third one, who is stuck, where penalties are raised.
    """
    values, layout = network.start(rng), network.layout
    penalties = np.zeros(layout.data.size, dtype=np.int64)
    guided = layout._replace(data=layout.data.copy())
    scores = network.scores(values, guided)
    keep, weight = round(1024 * (1 - float(given["evaporation"]))), float(given["weight"])
    yield values
    while values.size:
        best, gain = network.best_moves(values, scores)
        network.sends(2)
        moves = (gain > 0) & network.leads(gain)
        network.move(values, scores, np.where(moves, best, values), guided)
        stuck = ~network.near(gain > 0)
        if stuck.any():
            network.sends(1)
            kernels.penalise(layout, values, penalties, guided.data, stuck, weight, keep)
            kernels.fill_scores(guided, values, scores)
        yield values


DGLS = Algorithm(
    "dgls",
    "distributed guided local search: MGM with penalties that fade",
    dgls,
    {
        "weight": Parameter(0.4, 1e-6, 100.0, text="of a penalty, relative to what the entry loses"),
        "evaporation": Parameter(0.2, 0.0, 1.0, text="which share of all penalties goes when new ones come"),
    },
)
