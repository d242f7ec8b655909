"""DSA, the distributed stochastic algorithm (Zhang, Wang, Xing, Wittenburg, Artificial Intelligence 161, 2005)."""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.inference.runtime.types import Ints


def dsa(network: AgentNetwork, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Let each variable take its best value with a fixed probability; at a tie, a random best value other than its own.

    Variant A moves only for a gain. Variant B also moves without a gain if a factor of the variable is below its
    largest entry. Variant C also moves without a gain anyway. A cycle is one round of messages: values.

    Best values get random numbers in [0, 1), except the current value, which gets -1; all others get -2. The largest
    number decides.
    """
    values = network.start(rng)
    scores, variables = network.scores(values), np.arange(values.size)
    probability, variant = float(given["probability"]), str(given["variant"])
    yield values
    while values.size:
        draws = rng.random(scores.shape)
        draws[variables, values] = -1.0
        best = np.where(scores == scores.max(axis=1)[:, None], draws, -2.0).argmax(axis=1)
        (best, gain) = network.tell(best, scores[variables, best] - scores[variables, values])
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
    "distributed stochastic algorithm: each variable takes its best value with a fixed probability",
    dsa,
    {
        "probability": Parameter(0.7, 0.01, 1.0, text="probability of a move"),
        "variant": Parameter(
            "C",
            choices=("A", "B", "C"),
            text="who moves without a gain: nobody (A), variables in conflict (B), all (C)",
        ),
    },
)
