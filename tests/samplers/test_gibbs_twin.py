"""The compiled Gibbs sampler makes the same chain as a plain NumPy implementation, state by state."""

import numpy as np
import pytest
from support.numpy_gibbs import gibbs_twin

from dmcmc import Problem
from dmcmc.generators import registry as generators
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.runtime.compile import njit
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.chain_model import ChainModel, build_model, chain_key
from dmcmc.samplers.model.state_kernels import new_arrays

init, step = njit()(gibbs.SAMPLER.init), njit()(gibbs.SAMPLER.step)


def chain(local: LocalProblem, model: ChainModel, row: int, run: int, seed: int, temperatures: np.ndarray):
    """Yield the first state of a compiled chain and its state after every sweep."""
    shape = local.interface_shape
    z, scores, scratch = new_arrays(model)
    z[model.hidden :] = np.unravel_index(row, shape) if shape else ()
    rng = tuple(np.uint64(word) for word in (*chain_key(seed, local.agent), row, run))
    utility = init(model, z, scores, rng)
    yield z[: model.hidden].tolist()
    for trial, temperature in enumerate(temperatures, start=1):
        utility = step(model, z, scores, utility, scratch, rng, trial, temperature)
        yield z[: model.hidden].tolist()


def scaled_utilities(problem: Problem, factor: int) -> Problem:
    """Return the problem with all utilities multiplied by a factor."""
    factors = tuple(Factor.of(f.scope, factor * f.table.astype(float)) for f in problem.factors)
    return Problem(problem.variables, problem.domains, problem.agents, problem.owner, factors)


@pytest.mark.parametrize("relative_temperature", [0.02, 0.3, 3.0, 0.0])
@pytest.mark.parametrize(("tables", "factor"), [("preferences", 1), ("uniform", 1), ("uniform", 1000), ("hard", 1)])
def test_the_kernel_visits_the_states_of_the_numpy_sampler(
    tables: str, factor: int, relative_temperature: float
) -> None:
    parameters = {"agents": 3, "variables_per_agent": 7, "domain_size": 11, "tables": tables, "seed": 3}
    problem = generators.generate("meeting-scheduling", parameters)
    problem = problem if factor == 1 else scaled_utilities(problem, factor)
    for local in divide(problem).locals:
        model = build_model(local)
        assert (model.data.dtype == np.uint16) == (tables != "hard" and factor == 1)
        assert model.scale == 1.0
        temperatures = (relative_temperature * model.spread * np.array([1.0, 0.8, 0.6])).astype(np.float32)
        for row in range(0, local.rows, 5):
            for run in range(2):
                interface = dict(zip(local.interface, np.unravel_index(row, local.interface_shape), strict=True))
                twin = gibbs_twin(local, model, interface, 99, row, run, temperatures)
                compiled = chain(local, model, row, run, 99, temperatures)
                for expected, visited in zip(twin, compiled, strict=True):
                    assert [expected[v] for v in local.hidden] == visited
