"""With `device: cuda`, too, objective, optimum and bound are in order."""

from support import soundness

from dmcmc.inference.execution import backend as backends


def test_objective_optimum_and_bound_are_in_order_on_a_gpu(monkeypatch):
    for name, value in (("_TRIP", -1.0), ("_WAVE", 0.0), ("_MATCHED", 0.0), ("_CELL", 1.0)):
        monkeypatch.setattr(backends, name, value)  # nothing is too little for the GPU
    checked = [(seed, soundness.check(seed, tiny=True, device="cuda", most_seconds=0.05)) for seed in range(12)]
    assert [f"seed {seed}: {text}" for seed, (_, found) in checked for text in found] == []
