"""Distributed Gibbs: one Gibbs chain over all variables, which draws them in the order of a pseudo-tree.

Source: Nguyen, Yeoh, Lau: Distributed Gibbs, AAMAS 2013.
"""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.algorithms.tree import VariableTree
from dmcmc.inference.runtime.types import Ints
from dmcmc.mpi.world import World


def distributed_gibbs(network: AgentNetwork, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Draw every variable given all others, parents before children.

    The probability of value d is proportional to exp(score of d / temperature); the score is the sum of the utilities
    of the variable's factors. Variables of one tree level share no factor, so their agents could draw concurrently.
    ``network.parallel`` counts the time as if they did: the sum over levels of the largest work of a variable, divided
    by the work of all variables; the work is the number of factors + 1.

    A cycle is one sample: each variable sends its value to all neighbours, and the utility of the sample is summed up
    the tree. All ranks do the same work, because the chain is sequential.
    """
    network = network if network.world.size == 1 else _on_one_rank(network)
    values = network.start(rng)
    scores, tree, owner = network.scores(values), VariableTree.of(network.problem), network.problem.owner
    work = np.diff(network.layout.column_start) + 1.0
    if values.size:
        network.parallel = float(sum(work[tree.levels == level].max() for level in np.unique(tree.levels)) / work.sum())
    _, children = tree.edges_across(owner)
    inverse_temperature = 1.0 / (float(given["temperature"]) * network.layout.scale)
    yield values
    while values.size:
        kernels.gibbs_sweep(network.layout, values, scores, tree.top_down, inverse_temperature, rng.random(values.size))
        network.sends(1)
        network.count_messages("UTILITY", owner[children])
        yield values


def _on_one_rank(network: AgentNetwork) -> AgentNetwork:
    """Return the network on this rank alone; messages are counted for both."""
    single = AgentNetwork(network.problem, World())
    single.share_counts(network)
    return single


GIBBS = Algorithm(
    "distributed-gibbs",
    "one Gibbs chain over all variables, down the pseudo-tree",
    distributed_gibbs,
    {
        "temperature": Parameter(
            1.0, 1e-9, 1e15, text="temperature of the distribution exp(utility / temperature); the paper uses 1"
        )
    },
    cycles=1000,
    kind="sampling",
    paper="Nguyen, Yeoh, Lau: Distributed Gibbs, AAMAS 2013",
)
