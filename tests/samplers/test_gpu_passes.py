"""On a GPU, which nothing can stop, chains are sampled in passes that surely fit the time."""

import numpy as np
from support.problem_strategies import random_problem

from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import choose_arithmetic
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.samplers import chain_solver, registry
from dmcmc.samplers.contract.protocol import Sampling


class Gpu:
    """A device that takes so many seconds a sample of each row, and the clock that says so."""

    def __init__(self, monkeypatch, pace):
        self.now, self.pace, self.passes = 0.0, pace, []
        monkeypatch.setattr(chain_solver, "_sample_on_gpu", self.sample)
        monkeypatch.setattr(chain_solver.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(Backend, "samples_on_gpu", lambda self, updates: True)

    def sample(self, sampler, planned):
        work = sum(chains.runs * sum(r.temperatures.size for r in chains.rounds) for chains in planned)
        self.now += self.pace * work
        self.passes.append(self.pace * work)
        return [np.zeros((chains.local.rows, len(chains.local.hidden)), dtype=np.uint8) for chains in planned]


def started(stop, seconds=None):
    problem = random_problem(8, variables=8, agents=2, domain=3, factors=14, hard=0.1)
    backend = Backend(device="cuda", stop=stop)
    sampling = Sampling(
        choose_arithmetic(problem.factors), runs=10, samples=1_000_000, backend=backend, seconds=seconds
    )
    return registry.get("gibbs").start(list(divide(problem).locals), sampling)


def test_passes_grow_as_far_as_the_time_allows_and_none_is_long(monkeypatch):
    gpu = Gpu(monkeypatch, 1e-6)
    started(Stop(4.0))
    assert 1.0 < gpu.now <= 4.01 and len(gpu.passes) > 3
    assert max(gpu.passes) <= chain_solver._LONGEST and gpu.passes[0] == min(gpu.passes)


def test_a_first_pass_has_the_part_of_the_time_that_it_is_given_and_later_ones_theirs(monkeypatch):
    gpu = Gpu(monkeypatch, 1e-5)
    chains = started(Stop(100.0), seconds=2.0)
    assert gpu.now <= 2.01
    before = gpu.now
    chains[0].improve(np.arange(3), 3.0, 1)
    assert before < gpu.now <= before + 3.01 and max(gpu.passes) <= chain_solver._LONGEST


def test_when_the_time_is_over_there_is_one_short_pass(monkeypatch):
    gpu = Gpu(monkeypatch, 1e-5)
    started(Stop(-1.0))
    assert len(gpu.passes) == 1 and gpu.now < 0.01


def test_without_an_end_there_is_one_pass_of_all_that_is_asked_for(monkeypatch):
    gpu = Gpu(monkeypatch, 1e-6)
    started(NO_STOP)
    assert len(gpu.passes) == 1 and gpu.now > 9.9


def test_what_the_first_pass_and_later_ones_launch_is_loaded_before(monkeypatch):
    gpu = Gpu(monkeypatch, 1e-6)
    given = []
    monkeypatch.setattr(chain_solver, "_sample_on_gpu", lambda sampler, planned: given.append(planned[0].runs))
    problem = random_problem(8, variables=8, agents=1, domain=3, factors=14)
    sampling = Sampling(choose_arithmetic(problem.factors), runs=10, samples=100, backend=Backend(device="cuda"))
    registry.get("gibbs").load(list(divide(problem).locals), sampling, 1000)
    assert gpu.passes == [] and given == [1, 10]
