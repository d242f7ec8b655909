"""Chains on a GPU, where a pass cannot be interrupted, are sampled in passes that fit the time limit."""

from math import prod

import numpy as np
from support.problem_strategies import random_problem

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers import chain_solver, registry
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.contract.protocol import Sampling


class FakeGpu:
    """A device with a fixed time per sample of a row, and its clock."""

    def __init__(self, monkeypatch, seconds_per_sample):
        self.now, self.seconds_per_sample, self.passes = 0.0, seconds_per_sample, []
        monkeypatch.setattr(chain_solver, "sample_rows", self.sample)
        monkeypatch.setattr(chain_solver.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(Backend, "samples_on_gpu", lambda self, updates: True)

    def sample(self, sampler, models, keys, rounds, runs, **options):
        work = sum(runs * sum(round_.temperatures.size for round_ in of_agent) for of_agent in rounds)
        self.now += self.seconds_per_sample * work
        self.passes.append(self.seconds_per_sample * work)
        return [
            np.zeros((prod(model.domains[model.hidden :].tolist()), model.hidden), dtype=np.uint8) for model in models
        ]


def start_sampling(stop, seconds=None):
    problem = random_problem(8, variables=8, agents=2, domain=3, factors=14, hard=0.1)
    backend = Backend(device="cuda", stop=stop)
    sampling = Sampling(
        choose_arithmetic(problem.factors), runs=10, samples=1_000_000, backend=backend, seconds=seconds
    )
    return registry.get("gibbs").start(list(divide(problem).locals), sampling)


def test_passes_grow_within_the_time_limit_and_none_is_long(monkeypatch):
    gpu = FakeGpu(monkeypatch, 1e-6)
    start_sampling(Deadline(4.0))
    assert 1.0 < gpu.now <= 4.01 and len(gpu.passes) > 3
    assert max(gpu.passes) <= tuning.MAX_PASS_SECONDS and gpu.passes[0] == min(gpu.passes)


def test_first_and_later_passes_respect_their_time_limits(monkeypatch):
    gpu = FakeGpu(monkeypatch, 1e-5)
    chains = start_sampling(Deadline(100.0), seconds=2.0)
    assert gpu.now <= 2.01
    before = gpu.now
    chains[0].improve(np.arange(3), 3.0, 1)
    assert before < gpu.now <= before + 3.01 and max(gpu.passes) <= tuning.MAX_PASS_SECONDS


def test_after_the_deadline_there_is_one_short_pass(monkeypatch):
    gpu = FakeGpu(monkeypatch, 1e-5)
    start_sampling(Deadline(-1.0))
    assert len(gpu.passes) == 1 and gpu.now < 0.01


def test_without_a_deadline_one_pass_does_all_of_the_work(monkeypatch):
    gpu = FakeGpu(monkeypatch, 1e-6)
    start_sampling(NO_DEADLINE)
    assert len(gpu.passes) == 1 and gpu.now > 9.9


def test_the_kernels_of_first_and_later_passes_are_loaded_before(monkeypatch):
    gpu = FakeGpu(monkeypatch, 1e-6)
    loaded_runs = []
    monkeypatch.setattr(chain_solver, "sample_rows", lambda *given, **options: loaded_runs.append(given[4]))
    problem = random_problem(8, variables=8, agents=1, domain=3, factors=14)
    sampling = Sampling(choose_arithmetic(problem.factors), runs=10, samples=100, backend=Backend(device="cuda"))
    registry.get("gibbs").load(list(divide(problem).locals), sampling)
    assert gpu.passes == [] and loaded_runs == [1, 10]
