"""DSA, the distributed stochastic algorithm (Zhang, Wang, Xing, Wittenburg, Artificial Intelligence 161, 2005)."""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import Network
from dmcmc.inference.runtime.types import Ints


def dsa(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Let everyone who may take its best value with a probability; at a tie another one than it has, at random.

    Variant A moves for a gain only, B also without one where a factor could be worth more, C without one anyway. A
    cycle is one round of messages: values.
    """
    values = network.start(rng)
    scores, everyone = network.scores(values), np.arange(values.size)
    probability, variant = float(given["probability"]), str(given["variant"])
    yield values
    while values.size:
        draws = rng.random(scores.shape)
        draws[everyone, values] = -1.0
        best = np.where(scores == scores.max(axis=1)[:, None], draws, -2.0).argmax(axis=1)
        (best, gain) = network.tell(best, scores[everyone, best] - scores[everyone, values])
        network.sends(1)
        willing = gain > 0
        if variant == "B":
            conflicts = np.zeros(values.size, dtype=np.bool_)
            kernels.conflicts(network.layout, values, conflicts)
            willing |= network.tell(conflicts)[0]
        moves = (willing | (variant == "C")) & (rng.random(values.size) < probability)
        network.move(values, scores, np.where(moves, best, values))
        yield values


DSA = Algorithm(
    "dsa",
    "distributed stochastic algorithm: everyone takes its best value with a probability",
    dsa,
    {
        "probability": Parameter(0.7, 0.01, 1.0, text="of a move"),
        "variant": Parameter("C", choices=("A", "B", "C"), text="moves without a gain: none, in conflict, all"),
    },
)
