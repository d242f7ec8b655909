"""While a GPU makes tables, the host makes the first assignment instead of waiting; under Numba's simulator."""

from dataclasses import replace

import numpy as np
import pytest

import dmcmc
import dmcmc.inference.execution.backend as backends
from dmcmc.config.settings import Settings
from dmcmc.inference.elimination.cuda import eliminate as on_gpu
from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.questions.mini_buckets import solve_single_agent
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.solving.planning.plan import Setup
from dmcmc.solving.rank_search import OverlappedWork

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


@pytest.fixture
def order(monkeypatch):
    """The events in their order; even tiny buckets go to the GPU."""
    monkeypatch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([1]))
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))
    monkeypatch.setattr(Setup, "proves_on_gpu", Setup.will_prove)  # these agents are too small for it
    shared_device()  # a process that has used the GPU before
    happened, first, run_waves = list[str](), LocalSearch.first, on_gpu.run_waves

    def noted_first(self, *given):
        happened.append("first assignment")
        return first(self, *given)

    def noted_waves(*given):
        run_waves(*given)
        happened.append("launched")

    monkeypatch.setattr(LocalSearch, "first", noted_first)
    monkeypatch.setattr(on_gpu, "run_waves", noted_waves)
    return happened


def problem():
    return dmcmc.generate(
        "random", agents=3, variables_per_agent=4, domain_size=2, interface_variables=2, local_density=0.9, seed=3
    )


def again(order, **given):
    """The result of a second solve: the first one also solves tiny problems to compile kernels."""
    dmcmc.solve(problem(), seed=7, **given)
    order.clear()
    return dmcmc.solve(problem(), seed=7, **given)


def test_the_first_assignment_is_made_while_the_device_works(order):
    expected = again(order, method="exact", device="cpu")
    assert order == ["first assignment"]
    found = again(order, method="exact", device="cuda")
    assert order[:2] == ["launched", "first assignment"] and order.count("first assignment") == 1
    assert (found.status, found.objective, found.assignment) == (
        expected.status,
        expected.objective,
        expected.assignment,
    )
    objectives = [point.objective for point in found.trace]
    assert expected.trace[0].objective in objectives  # the search has found it in both runs
    assert shared_device().overlapped_work is None


@pytest.mark.parametrize(
    "given", [{"method": "gibbs", "runs": 1, "samples": 2}, {"timeout": 600}, {"local_search": "none"}]
)
def test_the_first_assignment_is_made_at_once_without_a_proof_or_with_a_time_budget(order, given, monkeypatch):
    monkeypatch.setattr(backends.Backend, "samples_on_gpu", lambda *_: False)  # the simulator is too slow for chains
    again(order, device="cuda", search="none", **given)
    assert order[:1] == (["launched"] if "local_search" in given else ["first assignment"])
    assert order.count("first assignment") == (0 if "local_search" in given else 1)


def test_a_failed_elimination_leaves_no_overlapped_work(order, monkeypatch):
    def broken(*given):
        raise RuntimeError("broken")

    again(order, method="exact", device="cuda")
    order.clear()
    with monkeypatch.context() as patch:
        patch.setattr(on_gpu, "run_waves", broken)
        with pytest.raises(RuntimeError, match="broken"):
            dmcmc.solve(problem(), method="exact", device="cuda", seed=7)
    assert shared_device().overlapped_work is None and not order
    assert dmcmc.solve(problem(), method="exact", device="cuda", seed=7).status == "optimal"


def test_the_first_assignment_of_a_single_agent_is_made_at_once(order):
    divided = problem()
    undivided = replace(divided, agents=("all",), owner=np.zeros(divided.n_variables, dtype=np.int64))
    results = [solve_single_agent(undivided, Settings(device=device, seed=7)) for device in ("cpu", "cuda")]
    assert order.count("first assignment") >= 2
    assert results[0].trace[0].objective == results[1].trace[0].objective
    assert results[0].assignment == results[1].assignment


@pytest.mark.parametrize("error", [OutOfMemory("out of memory"), RuntimeError("broken")])
def test_overlapped_work_is_done_if_the_device_runs_out_of_memory(error):
    done, overlapped = list[int](), OverlappedWork()
    overlapped.defer(lambda: done.append(1))
    with pytest.raises(type(error)), overlapped.overlapping():
        raise error
    assert bool(done) == isinstance(error, OutOfMemory) and shared_device().overlapped_work is None
    overlapped.run()
    overlapped.run()
    assert done == [1]
