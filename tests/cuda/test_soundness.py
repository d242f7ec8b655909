"""With `device: cuda`, too, objective, optimum and bound are in order."""

import pytest
from support import soundness

from dmcmc.inference.execution.cost_model import Costs
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason="no GPU")


def test_objective_optimum_and_bound_are_in_order_on_a_gpu(monkeypatch):
    costs = Costs(trip=-1.0, wave=0.0, matched=0.0, cell=1.0)  # nothing is too little for the GPU
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", costs)
    checked = [(seed, soundness.check(seed, tiny=True, device="cuda", most_seconds=0.05)) for seed in range(12)]
    assert [f"seed {seed}: {text}" for seed, (_, found) in checked for text in found] == []
