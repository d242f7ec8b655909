"""If the GPU of one rank fails, all ranks continue on the CPU, with one file, with private inputs and in a session.

If the kernels of one rank's GPU are loaded slowly, all ranks work on the CPU.
"""

import pytest
from support.ranks import documents, lines, needs_mpirun, start
from support.runs import dense_problem

import dmcmc
from dmcmc.formats import agent_files, native

pytest.importorskip("mpi4py")
pytestmark = needs_mpirun

SCRIPT = """
import json, sys
from numba.cuda.simulator.kernel import FakeCUDAKernel
from dmcmc import Session
from dmcmc.config.make_settings import settings_from
from dmcmc.formats import native
from dmcmc.inference.execution import cost_model
from dmcmc.inference.runtime import device
from dmcmc.mpi.world import connect
from dmcmc.anytime.solve import solve
from dmcmc.anytime.solve_private import solve_directory

cost_model.COSTS = cost_model.CostModel(
    gpu_round_trip=-1.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0, seconds_per_cell=1.0
)
world, launch, count = connect(), FakeCUDAKernel.__call__, 0


class CudaAPIError(RuntimeError):
    pass


def fail_on_rank_1(self, *arguments):
    global count
    count += not self._device
    if world.rank == 1 and not self._device and count > limit:
        raise CudaAPIError("[700] CUDA_ERROR_ILLEGAL_ADDRESS")
    return launch(self, *arguments)


FakeCUDAKernel.__call__ = fail_on_rank_1
problem = native.load(sys.argv[1])
for limit, timeout in ((0, None), (1, None), (0, 20.0)):
    for run in ("file", "private", "session"):
        count = 0
        settings = settings_from(None, {"device": "cuda", "timeout": timeout, "method": "exact"})
        if run == "file":
            result = solve(problem, settings, world)
        elif run == "private":
            result = solve_directory(sys.argv[2], settings, world, share_assignment=True)
        else:
            session = Session(problem, settings, world=world)
            result = session.solve()
        failed = world.allgather(device.gpu_has_failed())
        device._FAILURES.clear()
        device.shared_device.cache_clear()
        if world.rank == 0:
            print(json.dumps([run, result.status, result.objective, result.bound, failed]), flush=True)
"""


def test_all_ranks_continue_on_the_cpu(tmp_path):
    problem = dense_problem(agents=3, seed=1)
    expected = dmcmc.solve(problem).objective
    native.save(problem, tmp_path / "p.npz")
    agent_files.write(problem, tmp_path / "parts", 1 << 30)
    simulated = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = start(2, "-c", SCRIPT, str(tmp_path / "p.npz"), str(tmp_path / "parts"), **simulated)
    assert done.returncode == 0, done.stderr
    found = documents(done.stdout)
    assert [(status, objective, bound) for _, status, objective, bound, _ in found] == [
        ("optimal", expected, expected)
    ] * 9
    assert any(failed[1] for *_, failed in found)
    assert all("the GPU has failed" in line for line in lines(done.stderr))


SLOW = """
import json, sys
from threading import Event, Timer
from numba.cuda.simulator.kernel import FakeCUDAKernel
from dmcmc.anytime.solve import solve
from dmcmc.compilation import gpu_components
from dmcmc.config.make_settings import settings_from
from dmcmc.formats import native
from dmcmc.inference.execution import cost_model
from dmcmc.mpi.world import connect

cost_model.COSTS = cost_model.CostModel(
    gpu_round_trip=-1.0, seconds_per_wave=0.0, seconds_per_matched_bucket=0.0, seconds_per_cell=1.0
)
world, loaded, launches, launch = connect(), Event(), [], FakeCUDAKernel.__call__


def load_slowly(sets):
    if world.rank == 1:
        loaded.wait(300)


def count(self, *arguments):
    launches.append(self._device)
    return launch(self, *arguments)


FakeCUDAKernel.__call__, gpu_components.load_sets = count, load_slowly
gpu_components.allows_concurrent_use = lambda: True  # the other ranks have a deadline for opening their GPUs
if sys.argv[2] != "never":
    Timer(float(sys.argv[2]), loaded.set).start()
problem = native.load(sys.argv[1])
settings = settings_from(None, {"device": "cuda", "timeout": 40.0, "search": "none", "method": "exact"})
result = solve(problem, settings, world)
loaded.set()
launched = world.allgather(len(launches))
if world.rank == 0:
    print(json.dumps([result.status, result.objective, result.bound, result.time, launched]), flush=True)
"""


@pytest.mark.parametrize(("seconds", "uses_gpu"), [("never", False), ("0.5", True)])
def test_slow_loading_on_one_rank_neither_delays_the_run_nor_changes_its_answer(seconds, uses_gpu, tmp_path):
    problem = dense_problem(agents=3, seed=1)
    expected = dmcmc.solve(problem).objective
    native.save(problem, tmp_path / "p.npz")
    simulated = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}
    done = start(2, "-c", SLOW, str(tmp_path / "p.npz"), seconds, **simulated)
    assert done.returncode == 0, done.stderr
    ((status, objective, bound, time, launched),) = documents(done.stdout)
    assert (status, objective, bound) == ("optimal", expected, expected)
    assert time < 30 and bool(sum(launched)) == uses_gpu
