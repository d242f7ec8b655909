"""The agents of a node combined as one plan on a GPU: the answer of messages, to the bit; under Numba's simulator."""

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.elimination.cuda import eliminate
from dmcmc.inference.execution.costs import Costs
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


def two_trees(agents=8):
    """Agents of two components, two interface variables each; few different entries, so that there are many ties."""
    rng = np.random.default_rng(3)
    edges = [(a, (a - 1) // 2 if a < 5 else 5) for a in range(agents) if a not in (0, 5)]
    scopes = [(2 * a, 2 * a + 1) for a in range(agents)]
    scopes += [(2 * a + k, 2 * b + 1 - k) for a, b in edges for k in (0, 1)]
    names = tuple(f"x{v}" for v in range(2 * agents)), tuple(f"a{a}" for a in range(agents))
    factors = tuple(Factor.of(scope, rng.integers(0, 4, (3, 3))) for scope in scopes)
    return Problem(names[0], np.full(2 * agents, 3), names[1], np.repeat(np.arange(agents), 2), factors)


def test_one_plan_on_the_device_has_the_answer_of_messages(monkeypatch):
    problem, plans = two_trees(), []
    alone = dmcmc.solve(problem, local={"method": "exact"}, combine={"mode": "dpop"}, device="cpu")
    before = eliminate.eliminate_hybrid

    def listening(flat, hybrid, *given, **named):
        plans.append(hybrid.plan)
        return before(flat, hybrid, *given, **named)

    monkeypatch.setattr(eliminate, "eliminate_hybrid", listening)
    costs = Costs(trip=-1.0, wave=0.0, cell=1.0)  # nothing is too little for the GPU
    monkeypatch.setattr("dmcmc.inference.execution.costs.COSTS", costs)
    found = dmcmc.solve(problem, local={"method": "exact"}, combine={"mode": "shared"}, device="cuda")
    assert (found.objective, found.bound, found.assignment) == (alone.objective, alone.bound, alone.assignment)
    assert max(plan.buckets for plan in plans) == problem.n_variables  # both components, all agents
