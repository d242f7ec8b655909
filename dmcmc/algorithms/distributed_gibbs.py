"""Distributed Gibbs (Nguyen, Yeoh, Lau: Distributed Gibbs, AAMAS 2013): one chain over all variables, down a tree."""

from collections.abc import Iterator

import numpy as np

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.contract import Algorithm, Parameter, Values
from dmcmc.algorithms.network import BYTES, Network
from dmcmc.algorithms.tree import Tree
from dmcmc.inference.runtime.types import Ints
from dmcmc.mpi.world import World


def distributed_gibbs(network: Network, rng: np.random.Generator, given: Values) -> Iterator[Ints]:
    """Draw every variable given all others, parents before children; levels of the tree are drawn at the same time.

    A cycle is one sample: each variable tells its value to all neighbours, and what the sample is worth goes up the
    tree. All ranks do the same work: a chain waits for itself.
    """
    network = network if network.world.size == 1 else _alone(network)
    values = network.start(rng)
    scores, tree, owner = network.scores(values), Tree.of(network.problem), network.problem.owner
    work = np.diff(network.layout.column_start) + 1.0
    if values.size:
        network.parallel = float(sum(work[tree.levels == level].max() for level in np.unique(tree.levels)) / work.sum())
    _, children = tree.edges_across(owner)
    up = np.bincount(owner[children], minlength=network.problem.n_agents)
    cold = 1.0 / (float(given["temperature"]) * network.layout.scale)
    yield values
    while values.size:
        kernels.gibbs_sweep(network.layout, values, scores, tree.top_down, cold, rng.random(values.size))
        network.sends(1)
        network.sends(1, BYTES, up)
        yield values


def _alone(network: Network) -> Network:
    """Return the network on this rank alone, whose counts are the same arrays."""
    single = Network(network.problem, World())
    single.messages, single.bytes = network.messages, network.bytes
    return single


GIBBS = Algorithm(
    "distributed-gibbs",
    "one Gibbs chain over all variables, down the pseudo-tree",
    distributed_gibbs,
    {
        "temperature": Parameter(
            1.0, 1e-9, 1e15, text="of the distribution exp(utility / temperature); the paper's is 1"
        )
    },
    cycles=1000,
)
