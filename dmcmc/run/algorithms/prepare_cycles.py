"""Prepare a problem, random numbers and kernels for an algorithm that works in message cycles."""

from collections.abc import Mapping

import numpy as np

from dmcmc.algorithms.contract import Algorithm, Value
from dmcmc.algorithms.network import AgentNetwork
from dmcmc.config.settings import Settings
from dmcmc.generators import registry as generators
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memory import format_bytes

_COMPILE_CYCLES = 30  # cycles on a small problem that call all kernels, also those for stuck variables (DGLS)


def with_dense_tables(problem: Problem, config: Settings) -> Problem:
    """Return the problem with dense tables; raise an error if their copies do not fit the memory."""
    dense = densify(problem, config.budget.bytes).problem
    needed = sum(8 * (1 + len(f.scope)) * float(np.prod(f.shape, dtype=float)) for f in dense.factors)
    if needed > config.budget.bytes or any(type(f) is not Factor for f in dense.factors):
        raise ResourceError(
            f"{config.algorithm_settings.name}: its tables would take {format_bytes(int(min(needed, 2**62)))} of"
            f" {format_bytes(config.budget.bytes)}; raise budget.memory, or use algorithm: dmcmc"
        )
    return dense


def generator(seed: int) -> np.random.Generator:
    """Return the random number generator of a run, the same on all ranks."""
    return np.random.Generator(np.random.Philox(seed))


def compile_kernels(algorithm: Algorithm, values: Mapping[str, Value]) -> None:
    """Run a small problem for some cycles, which compiles the kernels."""
    small = generators.generate("random", {"agents": 4, "variables_per_agent": 3, "domain_size": 3, "seed": 0})
    network = AgentNetwork(small)
    for cycle, state in enumerate(algorithm.steps(network, generator(0), values)):
        network.total_score(state)
        if cycle >= _COMPILE_CYCLES:
            break
