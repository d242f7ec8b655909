"""Small problems are solved by interpreted kernels: nothing is compiled, and the answers are the same."""

import os
from dataclasses import replace
from itertools import combinations

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from support.kernels.both_ways import kernels_called_both_ways

import dmcmc
from dmcmc.compilation.small_problems import count_steps, solves_interpreted
from dmcmc.config.make_settings import settings_from
from dmcmc.config.settings import Settings
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.runtime import interpreted
from dmcmc.inference.runtime.interpreted import InterpretedSteps
from dmcmc.mpi.world import World

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def problem_of(seed, variables=7, domain=3, agents=1, draw=None, forbidden=0.0):
    """Return a random problem with binary tables."""
    rng, factors = np.random.default_rng(seed), []
    for pair in combinations(range(variables), 2):
        if pair[1] == pair[0] + 1 or rng.random() < 0.4:
            table = (draw or (lambda rng, shape: rng.integers(0, 100, shape)))(rng, (domain, domain))
            factors.append(Factor.of(pair, np.where(rng.random(table.shape) < forbidden, -np.inf, table)))
    owner = np.sort(np.arange(variables) % agents).astype(np.int64)
    names = tuple(f"x{v}" for v in range(variables))
    return Problem(names, np.full(variables, domain), tuple(f"a{i}" for i in range(agents)), owner, tuple(factors))


def with_sparse_factor(problem):
    """Return a problem with an additional sparse factor."""
    tuples = np.array([[0, 1, 2], [1, 1, 1], [2, 0, 0]], dtype=np.int32)
    return replace(
        problem, factors=(*problem.factors, SparseFactor((1, 3, 5), (3, 3, 3), tuples, np.array([9, 5, 7, 1])))
    )


PROBLEMS = {
    "one agent": problem_of(1),
    "three agents": problem_of(2, 7, 3, 3),
    "hard constraints": problem_of(3, 8, 3, 2, forbidden=0.2),
    "floating-point utilities": problem_of(4, 7, 3, 2, lambda rng, shape: rng.uniform(-9, 0, shape)),
    "64-bit utilities": problem_of(5, 7, 3, 2, lambda rng, shape: rng.integers(0, 10**11, shape)),
    "sparse factor": with_sparse_factor(problem_of(6, 7, 3, 2)),
}
METHODS = {
    "auto": {},
    "gibbs": {"method": "gibbs", "runs": 2, "samples": 10},
    "metropolis-hastings": {"method": "metropolis-hastings", "runs": 2, "samples": 10},
    "annealing": {"method": "annealing", "runs": 2, "samples": 10, "bound": "dual"},
    "mini-buckets": {"combine": "mini-bucket", "z": 2},
    "mini-bucket bound": {"method": "annealing", "runs": 1, "samples": 10, "bound": "dual+mini-bucket"},
}


@pytest.fixture
def fresh_process(monkeypatch):
    """Let this process interpret as many steps as a process that has just started."""
    monkeypatch.delenv("DMCMC_COMPILE", raising=False)
    monkeypatch.setattr(interpreted, "STEPS", InterpretedSteps())


@pytest.fixture
def one_core():
    """Let kernels run on one thread, so that no other thread changes their arguments."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def no_compiler(monkeypatch):
    """Fail at the first compilation, and at the first kernel that is loaded."""

    def refuse(self, signature):
        raise AssertionError(f"{self.py_func.__module__}.{self.py_func.__name__} is compiled")

    monkeypatch.setattr(Dispatcher, "compile", refuse)


@pytest.mark.parametrize(
    ("name", "method"), [*((name, "auto") for name in PROBLEMS), *(("three agents", method) for method in METHODS)]
)
def test_every_kernel_gives_the_same_bits_interpreted(name, method, one_core):
    with kernels_called_both_ways() as called:
        result = dmcmc.solve(PROBLEMS[name], seed=3, device="cpu", **METHODS[method])
    assert result.assignment
    assert len(called) > 5


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_small_problem_compiles_nothing(name, fresh_process, no_compiler):
    assert dmcmc.solve(PROBLEMS[name], seed=3, device="cpu").status == "optimal"


def test_a_small_sampled_problem_compiles_nothing(fresh_process, no_compiler):
    result = dmcmc.solve(problem_of(1, 3), method="gibbs", runs=2, samples=10, device="cpu")
    assert result.assignment


def test_the_answer_is_the_same(fresh_process):
    interpreted_result = dmcmc.solve(PROBLEMS["three agents"], seed=3, device="cpu")
    interpreted.STEPS.limit = 0.0
    compiled_result = dmcmc.solve(PROBLEMS["three agents"], seed=3, device="cpu")
    for field in ("status", "objective", "bound", "assignment", "msg_count", "msg_size", "ncccs"):
        assert getattr(interpreted_result, field) == getattr(compiled_result, field)


def test_more_values_are_more_steps(fresh_process):
    steps = [count_steps(problem_of(2, 8, domain, 3), Settings()) for domain in (2, 3, 4, 9)]
    assert steps == sorted(steps)
    assert steps[0] < 500_000 < steps[-1]


def test_work_without_a_limit_is_never_interpreted(fresh_process):
    """A run with a time budget that may not end early has to get as far as possible."""
    for keywords in (
        {"method": "gibbs", "timeout": 10},
        {"combine": "mini-bucket", "timeout": 10},
        {"device": "cuda"},
        {"algorithm": "max-sum"},
        {"cells": 5, "timeout": 10},
    ):
        assert count_steps(problem_of(1, 3), settings_from(None, keywords)) == np.inf


def test_solved_problems_use_up_the_steps_of_a_process(fresh_process):
    world, problem = World(), problem_of(1)
    steps = count_steps(problem, Settings())
    interpreted.STEPS.limit = 2.5 * steps
    assert [solves_interpreted(problem, Settings(), world) for _ in range(4)] == [True, True, False, False]


def test_rank_0_decides_for_all_ranks(fresh_process):
    class OtherRank(World):
        rank = 1

        def decided(self, value, what="decided"):
            return chosen

    for chosen in (True, False):
        assert solves_interpreted(None, Settings(), OtherRank()) == chosen
