"""What a run with a time budget uses on a GPU has been loaded before its clock starts: only the simulator says."""

from dataclasses import replace

import pytest
from support.runs import Hurried, clocked

import dmcmc
from dmcmc.inference.execution import cost_model
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.run import solve as solving

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

FREE = replace(cost_model.COSTS, trip=0.0, wave=0.0, matched=0.0)  # all goes to the GPU


# Too large to be exact: bounded by mini-buckets of what a dual ascent has shifted; eliminated.
@pytest.mark.parametrize("local", [{"cells": 4, "runs": 1, "samples": 2}, {"method": "exact"}])
def test_nothing_is_launched_that_was_not_loaded(local, launches, clock, monkeypatch):
    loaded, launched = launches

    def before_the_clock(*given):
        try:
            return load(*given)
        finally:
            loaded.update(launched)  # samplers are loaded by next to no work
            launched.clear()

    load = solving.warm_up_gpu
    monkeypatch.setattr(solving, "warm_up_gpu", before_the_clock)
    monkeypatch.setattr(cost_model, "COSTS", FREE)
    problem = dmcmc.generate("random", agents=1, variables_per_agent=7, domain_size=2, seed=1)
    with clocked(monkeypatch) as late:
        progress = Hurried(clock, "improving", times=3)
        result = dmcmc.solve(problem, timeout=600, device="cuda", search="none", local=local, progress=progress)
    assert result.assignment is not None
    assert late == []
    assert launched and launched <= loaded
