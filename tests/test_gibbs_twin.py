"""The Gibbs kernel makes the same chain as plain NumPy."""

import numpy as np
import pytest
from numpy_gibbs import gibbs_twin

from dmcmc.generators import registry as generators
from dmcmc.inference.agents import divide
from dmcmc.inference.arithmetic import choose_arithmetic
from dmcmc.samplers import registry
from dmcmc.samplers.model import build_model
from dmcmc.samplers.protocol import Settings
from dmcmc.samplers.schedule import Temperature


@pytest.mark.parametrize("temperature", [Temperature(), Temperature.constant(1.0), Temperature.constant(300.0)])
@pytest.mark.parametrize("tables", ["preferences", "uniform"])
def test_the_kernel_keeps_the_best_state_of_the_twins_chains(tables: str, temperature: Temperature) -> None:
    problem = generators.generate(
        "meeting-scheduling",
        {"agents": 3, "variables_per_agent": 7, "domain_size": 11, "tables": tables, "seed": 3},
    )
    runs, samples, seed = 2, 12, 99
    arithmetic = choose_arithmetic(problem.factors)
    settings = Settings(arithmetic, seed=seed, runs=runs, samples=samples, temperature=temperature)
    for local in divide(problem).locals:
        (table,) = registry.get("gibbs").solve([local], settings)
        temperatures = temperature.of_trials(build_model(local), samples)
        for row in range(local.rows):
            interface = dict(zip(local.interface, np.unravel_index(row, local.interface_shape), strict=True))
            chains = [gibbs_twin(local, interface, seed, row, run, temperatures) for run in range(runs)]
            best = max(
                (state for chain in chains for state in chain),
                key=lambda state: sum(int(f.table[tuple(state[v] for v in f.scope)]) for f in local.factors),
            )
            assert table.witness(interface) == {v: best[v] for v in local.hidden}
