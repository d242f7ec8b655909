"""An error on one rank ends all ranks: raised on every rank or, if others cannot wait for it, by the launcher."""

import pickle
from types import SimpleNamespace
from zlib import crc32

import pytest
from support.ranks import needs_mpirun, start
from support.runs import dense_problem

from dmcmc.formats import native
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.mpi.collective_calls import CollectiveCalls, OtherRankError, OutOfStep

pytest.importorskip("mpi4py")


SCRIPT_HEAD = """
import sys
from dataclasses import dataclass, replace
from dmcmc.config.settings import Budget, Combine, Local, Settings
from dmcmc.formats import native
from dmcmc.inference.execution.backend import Backend
from dmcmc.mpi.world import connect
from dmcmc.solving.observe import NoProgress
from dmcmc.anytime.solve import solve
from support.runs import finish_run, start_run

problem, world = native.load(sys.argv[1]), connect()
exact = Settings(local=Local(method="exact"), combine=Combine(method="exact"), budget=Budget(memory=int(sys.argv[2])))
broken = world.rank == 1


@dataclass(frozen=True)
class Broken(Backend):
    call: str = ""

    def eliminate_all(self, *arguments):
        return self._broken("first tables") or super().eliminate_all(*arguments)

    def eliminate(self, *arguments):
        return self._broken("combining") or super().eliminate(*arguments)

    def _broken(self, what):
        if what == self.call:
            raise RuntimeError("broken on purpose")


def all_broken_in(what):
    change = lambda setup: replace(setup, backend=Broken(call=what)) if broken else setup
    return finish_run(start_run(problem, world=world, change=change, local={"method": "exact"}))


class BrokenProgress(NoProgress):
    def stage(self, title, total=None):
        if broken and title == "combining":
            raise RuntimeError("broken on purpose")

"""

REPORT_ERRORS = """
try:
    WORK
except Exception as error:
    world.wait()  # all ranks are here: the script continues
    print(f"rank {world.rank}: {type(error).__name__}: {error}\\n", end="", flush=True)
"""


def run_script(tmp_path, work, memory=1 << 30, ranks=3):
    """Run a script on several ranks, which print the errors that they catch."""
    native.save(dense_problem(0), tmp_path / "problem.npz")
    (tmp_path / "script.py").write_text(SCRIPT_HEAD + work)
    return start(ranks, str(tmp_path / "script.py"), str(tmp_path / "problem.npz"), str(memory))


@needs_mpirun
def test_a_first_combination_that_exceeds_the_memory_of_one_rank_is_an_error_on_all(tmp_path):
    done = run_script(tmp_path, REPORT_ERRORS.replace("WORK", "solve(problem, exact, world)"), memory=3000)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line[:6] for line in lines] == ["rank 0", "rank 1", "rank 2"]
    assert all("ResourceError: " in line and "budget.memory" in line for line in lines)


@needs_mpirun
@pytest.mark.parametrize("what", ["first tables", "combining"])
def test_an_unforeseen_error_is_raised_on_its_rank_and_reported_on_the_others(tmp_path, what):
    done = run_script(tmp_path, REPORT_ERRORS.replace("WORK", f"all_broken_in({what!r})"))
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    reported = "OtherRankError: rank 1 has failed: RuntimeError: broken on purpose"
    assert lines == [f"rank 0: {reported}", "rank 1: RuntimeError: broken on purpose", f"rank 2: {reported}"]


@needs_mpirun
def test_a_failing_rank_ends_the_ranks_that_wait_for_it(tmp_path):
    done = run_script(tmp_path, "solve(problem, exact, world, BrokenProgress())")
    assert done.returncode != 0
    assert done.stderr.count("RuntimeError: broken on purpose") == 1


DISKS = """
import resource
from contextlib import suppress
from pathlib import Path
from dmcmc.formats import agent_files
from dmcmc.solving.agent.checkpoint import Checkpoint
from dmcmc.anytime.solve_private import solve_directory

here, keep = Path(sys.argv[1]).parent, Checkpoint.save
parts, kept = here / "parts", here / "kept"

def on_a_full_disk(*given):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        keep(*given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

def cut(path):
    world.wait()
    if world.rank == 0:
        path.write_bytes(path.read_bytes()[:-100])
    world.wait()

def report(what, solve):
    try:
        result = solve()
        output = result and (result.objective, result.bound, result.assignment)
    except Exception as error:
        output = f"{type(error).__name__}: {error}"
    for rank in range(world.size):
        world.wait()
        if rank == world.rank and output:
            print(f"{what}: {output}", flush=True)

checked = Settings(local=exact.local, combine=exact.combine, budget=exact.budget, checkpoint=str(kept))
if world.rank == 0:
    agent_files.write(problem, parts, 1 << 30)
world.wait()
report("undisturbed", lambda: solve(problem, exact, world))
if broken:
    Checkpoint.save = on_a_full_disk
report("full", lambda: solve(problem, checked, world))
Checkpoint.save = keep
report("full of parts", lambda: solve_directory(parts, checked, world, None, True))
cut(kept / "agent-1.npz")
report("cut", lambda: solve(problem, checked, world))
cut(parts / "agent-2.npz")
report("cut part", lambda: solve_directory(parts, exact, world))
"""


@needs_mpirun
def test_full_disks_and_truncated_files_are_errors_on_all_ranks_and_later_runs_succeed(tmp_path):
    done = run_script(tmp_path, DISKS)
    assert done.returncode == 0, done.stderr
    outputs = [line.split(": ", 1) for line in done.stdout.splitlines()]
    answer = outputs[0][1]
    assert [what for what, words in outputs if words == answer] == ["undisturbed", "full of parts", "cut"]
    failures = [words for words in outputs if words[1] != answer]
    assert [what for what, _ in failures] == ["full"] * 3 + ["cut part"] * 3
    assert all("FileError: " in why and "cannot be written: File too large" in why for _, why in failures[:3])
    assert all("FileError: " in why and "agent-2.npz: is damaged" in why for _, why in failures[3:])
    assert done.stderr.count("agent-1.npz: the file is damaged; the agent's table is computed again") == 1


class FixedCommunicator:
    """A communicator whose other ranks make calls with given names, and have given errors."""

    def __init__(self, rank, errors, names):
        self.rank, self.errors, self.names = rank, errors, names

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return len(self.errors) + 1

    def with_own(self, own, others):
        return [*others[: self.rank], own, *others[self.rank :]]

    def Iallgather(self, header, headers):
        others = [
            [crc32(name.encode()), error is not None, 0] for name, error in zip(self.names, self.errors, strict=True)
        ]
        headers[:] = self.with_own(header, others)
        return SimpleNamespace(Test=lambda: True)

    def allgather(self, value):
        return self.with_own(value, [pickle.dumps(error) for error in self.errors] if any(self.errors) else self.names)


def calls_with(rank, errors, names=None):
    """Return the collective calls of one rank, and the counted messages."""
    counted = []
    calls = CollectiveCalls(
        FixedCommunicator(rank, errors, names or ["agree"] * len(errors)), lambda *n: counted.append(n)
    )
    return calls, counted


def test_all_ranks_raise_the_worst_error():
    late, full, bug = OutOfTime("late"), ResourceError("full"), OtherRankError("rank 2 has failed")
    for own, others, raised in [
        (None, [full, late], late),
        (full, [None, late], late),
        (late, [full, None], late),
        (full, [None, bug], bug),
        (None, [None, full], full),
    ]:
        with pytest.raises(type(raised), match=str(raised)):
            calls_with(0, others)[0].agree(own)
    with pytest.raises(ValueError, match="mine"):
        calls_with(1, [full, None])[0].agree(ValueError("mine"))
    calls, counted = calls_with(1, [None, None])
    calls.agree(None)
    assert calls.agreed_error is None and counted == [(2, 48)]


def test_a_failure_is_raised_in_whatever_call_the_other_ranks_make():
    full = ResourceError("full")
    calls, _ = calls_with(0, [None, full], ["gather", "agree"])
    with pytest.raises(ResourceError, match="full") as raised:
        calls.begin("gather")
    assert calls.agreed_error is raised.value


def test_ranks_that_make_different_calls_end_with_an_error():
    calls, _ = calls_with(1, [None, None], ["search", "values"])
    with pytest.raises(OutOfStep, match="rank 0: search; rank 1: values; rank 2: values"):
        calls.begin("values")
    assert isinstance(calls.agreed_error, OutOfStep)


def test_work_with_collective_calls_reports_its_error_once():
    full = ResourceError("full")
    calls, counted = calls_with(0, [None, full])

    def work():
        calls.agree(None)

    with pytest.raises(ResourceError, match="full"):
        calls.run(work)
    assert len(counted) == 2  # the header, and the errors
