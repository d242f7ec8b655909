"""While a GPU makes tables the host makes the first assignment, where it would only wait; under Numba's simulator."""

from dataclasses import replace

import numpy as np
import pytest

import dmcmc
import dmcmc.inference.execution.backend as backends
from dmcmc.config.settings import Settings
from dmcmc.inference.elimination.cuda import eliminate as on_gpu
from dmcmc.inference.execution.cost_model import Costs
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.run import local_search
from dmcmc.run.overlapped_work import Meanwhile
from dmcmc.run.planning.combination_plan import will_prove
from dmcmc.run.whole_problem.mini_bucket_solve import solve_single_agent
from dmcmc.samplers.local_search.local_search import LocalSearch

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


@pytest.fixture
def order(monkeypatch):
    """What happened, in its order: even tiny buckets go to the GPU."""
    monkeypatch.setattr(backends, "_BUCKETS", np.array([1]))
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", Costs(cell=1.0))
    monkeypatch.setattr(local_search, "proves_on_gpu", will_prove)  # these agents are too small for it
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
    """What a second solve makes: before the first one others have been made, of tiny problems, to compile."""
    dmcmc.solve(problem(), seed=7, **given)
    order.clear()
    return dmcmc.solve(problem(), seed=7, **given)


def test_the_first_assignment_is_made_while_the_device_is_at_work(order):
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
    assert expected.trace[0].objective in objectives  # what search has found is in both
    assert shared_device().meanwhile is None


@pytest.mark.parametrize("given", [{"method": "gibbs", "runs": 1, "samples": 2}, {"timeout": 600}, {"polish": "none"}])
def test_it_is_made_at_once_where_tables_do_not_prove_the_answer_or_there_is_a_clock(order, given, monkeypatch):
    monkeypatch.setattr(backends.Backend, "samples_on_gpu", lambda *_: False)  # the simulator is too slow for chains
    again(order, device="cuda", search="none", **given)
    assert order[:1] == (["launched"] if "polish" in given else ["first assignment"])
    assert order.count("first assignment") == (0 if "polish" in given else 1)


def test_an_elimination_that_fails_leaves_nothing_behind_for_the_next(order, monkeypatch):
    def broken(*given):
        raise RuntimeError("broken")

    again(order, method="exact", device="cuda")
    order.clear()
    with monkeypatch.context() as patch:
        patch.setattr(on_gpu, "run_waves", broken)
        with pytest.raises(RuntimeError, match="broken"):
            dmcmc.solve(problem(), method="exact", device="cuda", seed=7)
    assert shared_device().meanwhile is None and not order
    assert dmcmc.solve(problem(), method="exact", device="cuda", seed=7).status == "optimal"


def test_a_problem_that_is_not_divided_has_it_at_once(order):
    whole = problem()
    alone = replace(whole, agents=("all",), owner=np.zeros(whole.n_variables, dtype=np.int64))
    results = [solve_single_agent(alone, Settings(device=device, seed=7)) for device in ("cpu", "cuda")]
    assert order.count("first assignment") >= 2
    assert results[0].trace[0].objective == results[1].trace[0].objective
    assert results[0].assignment == results[1].assignment


@pytest.mark.parametrize("error", [OutOfMemory("no room"), RuntimeError("broken")])
def test_a_run_that_ends_for_want_of_memory_has_it_all_the_same(error):
    done, meanwhile = list[int](), Meanwhile()
    meanwhile.leave(lambda: done.append(1))
    with pytest.raises(type(error)), meanwhile.at_work():
        raise error
    assert bool(done) == isinstance(error, OutOfMemory) and shared_device().meanwhile is None
    meanwhile.do()
    meanwhile.do()
    assert done == [1]
