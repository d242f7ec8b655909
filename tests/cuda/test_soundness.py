"""With ``device: cuda``, objective ≤ optimum ≤ bound holds."""

import pytest
from support import soundness

from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason="no GPU")


def test_objective_optimum_and_bound_are_in_order_on_a_gpu(monkeypatch):
    costs = CostModel(
        gpu_round_trip=-1.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0, seconds_per_cell=1.0
    )  # so that all work goes to the GPU
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", costs)
    checked = [(seed, soundness.check(seed, tiny=True, device="cuda", most_seconds=0.05)) for seed in range(12)]
    assert [f"seed {seed}: {text}" for seed, (_, found) in checked for text in found] == []
