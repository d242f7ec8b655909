"""Schedules with hard constraints: chains find a feasible one wherever toulbar2 does."""

import pytest
from support import toulbar2

import dmcmc
from dmcmc.generators import registry as generators

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


@pytest.mark.parametrize("seed", range(len(PROBLEMS)))
def test_annealing_finds_a_feasible_schedule_wherever_one_exists(seed):
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
    best = toulbar2.optimum(problem)
    result = dmcmc.solve(problem, method="annealing", bound="none", seed=1)
    assert (result.status in ("feasible", "optimal")) == (best > toulbar2.HARD)
    if best > toulbar2.HARD:
        assert 0.98 * best <= result.objective <= best
