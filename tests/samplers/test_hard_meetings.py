"""Schedules with hard constraints: chains find one that can be kept wherever toulbar2 does."""

import numpy as np
import pytest

import dmcmc
from dmcmc.generators import registry as generators
from dmcmc.inference.model.tables import forbidden

toulbar2 = pytest.importorskip("pytoulbar2")

TOP = 10**9
PROBLEMS = [  # agents, events, slots, density, shared events, busy share
    (1, 8, 5, 0.5, 1, 0.2),
    (1, 9, 14, 0.4, 1, 0.4),
    (2, 9, 15, 0.9, 1, 0.2),
    (1, 13, 14, 0.6, 2, 0.1),
    (1, 15, 14, 0.6, 1, 0.0),
    (2, 14, 5, 0.3, 2, 0.4),
    (3, 7, 8, 0.9, 1, 0.1),
    (4, 7, 9, 0.8, 1, 0.0),
    (5, 8, 11, 0.8, 1, 0.3),
    (6, 10, 9, 0.55, 2, 0.45),
    (2, 15, 15, 0.8, 1, 0.0),
    (2, 9, 10, 0.9, 2, 0.4),
]


def optimum(problem):
    """What toulbar2 finds and proves, None if it proves that there is nothing."""
    network = toulbar2.CFN(TOP)
    most = 0
    for v, size in enumerate(problem.domains):
        network.AddVariable(f"x{v}", range(size))
    for factor in problem.factors:
        hard = forbidden(factor.table)
        highest = int(factor.table.max())
        most += highest
        costs = np.where(hard, TOP, highest - np.where(hard, 0, factor.table))
        network.AddFunction([f"x{v}" for v in factor.scope], costs.ravel().tolist())
    found = network.Solve()
    return None if found is None else most - round(found[1])


@pytest.mark.parametrize("seed", range(len(PROBLEMS)))
def test_annealing_finds_a_schedule_wherever_there_is_one(seed):
    agents, events, slots, density, shared, busy = PROBLEMS[seed]
    problem = generators.generate(
        "meeting-scheduling",
        {
            "agents": agents,
            "variables_per_agent": events,
            "domain_size": slots,
            "local_density": density,
            "interface_variables": shared,
            "busy": busy,
            "tables": "hard",
            "seed": seed,
        },
    )
    best = optimum(problem)
    result = dmcmc.solve(problem, method="annealing", bound="none", seed=1)
    assert (result.status in ("feasible", "optimal")) == (best is not None)
    if best is not None:
        assert 0.98 * best <= result.objective <= best
