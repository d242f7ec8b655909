"""An error on one rank ends all of them: raised on every rank or, where nobody could wait, by the launcher."""

import pickle
from types import SimpleNamespace

import pytest
from support.ranks import needs_mpirun, start
from support.runs import dense_problem

from dmcmc.formats import native
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError
from dmcmc.mpi.world import FailedElsewhere, World

pytest.importorskip("mpi4py")


HEAD = """
import sys
from dataclasses import dataclass, replace
from dmcmc.config.settings import Budget, Combine, Local, Settings
from dmcmc.formats import native
from dmcmc.inference.execution.backend import Backend
from dmcmc.mpi.world import connect
from dmcmc.run.monitoring.progress import Silent
from dmcmc.run.solve import solve
from support.runs import begun, finished

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
    return finished(begun(problem, world=world, change=change, local={"method": "exact"}))


class BrokenProgress(Silent):
    def stage(self, title, total=None):
        if broken and title == "combining":
            raise RuntimeError("broken on purpose")

"""

TELL = """
try:
    WORK
except Exception as error:
    world.wait()  # all ranks are here: the script goes on
    print(f"rank {world.rank}: {type(error).__name__}: {error}\\n", end="", flush=True)
"""


def told(tmp_path, work, memory=1 << 30, ranks=3):
    """What each rank says that it has caught."""
    native.save(dense_problem(0), tmp_path / "problem.npz")
    (tmp_path / "script.py").write_text(HEAD + work)
    return start(ranks, str(tmp_path / "script.py"), str(tmp_path / "problem.npz"), str(memory))


@needs_mpirun
def test_a_first_combination_that_does_not_fit_the_memory_of_one_rank_is_an_error_on_all(tmp_path):
    done = told(tmp_path, TELL.replace("WORK", "solve(problem, exact, world)"), memory=3000)
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line[:6] for line in lines] == ["rank 0", "rank 1", "rank 2"]
    assert all("ResourceError: " in line and "budget.memory" in line for line in lines)


@needs_mpirun
@pytest.mark.parametrize("what", ["first tables", "combining"])
def test_what_nobody_foresaw_is_raised_where_it_was_and_told_everywhere_else(tmp_path, what):
    done = told(tmp_path, TELL.replace("WORK", f"all_broken_in({what!r})"))
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    elsewhere = "FailedElsewhere: rank 1 has failed: RuntimeError: broken on purpose"
    assert lines == [f"rank 0: {elsewhere}", "rank 1: RuntimeError: broken on purpose", f"rank 2: {elsewhere}"]


@needs_mpirun
def test_a_rank_that_others_wait_for_ends_them_when_it_ends(tmp_path):
    done = told(tmp_path, "solve(problem, exact, world, BrokenProgress())")
    assert done.returncode != 0
    assert done.stderr.count("RuntimeError: broken on purpose") == 1


DISKS = """
import resource
from contextlib import suppress
from pathlib import Path
from dmcmc.formats import agent_files
from dmcmc.run.agent.checkpoint import Checkpoint
from dmcmc.run.private.solve import solve_directory

here, keep = Path(sys.argv[1]).parent, Checkpoint.keep
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

def tell(what, solve):
    try:
        result = solve()
        said = result and (result.objective, result.bound, result.assignment)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    for rank in range(world.size):
        world.wait()
        if rank == world.rank and said:
            print(f"{what}: {said}", flush=True)

checked = Settings(local=exact.local, combine=exact.combine, budget=exact.budget, checkpoint=str(kept))
if world.rank == 0:
    agent_files.write(problem, parts, 1 << 30)
world.wait()
tell("undisturbed", lambda: solve(problem, exact, world))
if broken:
    Checkpoint.keep = on_a_full_disk
tell("full", lambda: solve(problem, checked, world))
Checkpoint.keep = keep
tell("full of parts", lambda: solve_directory(parts, checked, world, None, True))
cut(kept / "agent-1.npz")
tell("cut", lambda: solve(problem, checked, world))
cut(parts / "agent-2.npz")
tell("cut part", lambda: solve_directory(parts, exact, world))
"""


@needs_mpirun
def test_full_disks_and_files_that_are_cut_short_are_told_on_all_ranks_and_later_runs_go_on(tmp_path):
    done = told(tmp_path, DISKS)
    assert done.returncode == 0, done.stderr
    said = [line.split(": ", 1) for line in done.stdout.splitlines()]
    answer = said[0][1]
    assert [what for what, words in said if words == answer] == ["undisturbed", "full of parts", "cut"]
    failures = [words for words in said if words[1] != answer]
    assert [what for what, _ in failures] == ["full"] * 3 + ["cut part"] * 3
    assert all("FileError: " in why and "cannot be written: File too large" in why for _, why in failures[:3])
    assert all("FileError: " in why and "agent-2.npz: is damaged" in why for _, why in failures[3:])
    assert done.stderr.count("agent-1.npz: is damaged; the agent's table is made again") == 1


class Ranks:
    """A communicator of which the others' values are known."""

    def __init__(self, rank, values):
        self.rank, self.values = rank, values

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return len(self.values) + 1

    def allgather(self, value):
        others = [pickle.dumps(other) for other in self.values]
        return [*others[: self.rank], value, *others[self.rank :]]

    def Ibarrier(self):
        return SimpleNamespace(Test=lambda: True)


class WorldOf(World):
    def __init__(self, rank, values):
        self.comm, self.agreed, self.rank, self.size = Ranks(rank, values), None, rank, len(values) + 1


def test_all_ranks_raise_the_same_error_the_worst_first():
    late, full, bug = OutOfTime("late"), ResourceError("full"), FailedElsewhere("rank 2 has failed")
    for own, others, raised in [
        (None, [full, late], late),
        (full, [None, late], late),
        (late, [full, None], late),
        (full, [None, bug], bug),
        (None, [None, full], full),
    ]:
        with pytest.raises(type(raised), match=str(raised)):
            WorldOf(0, others).agree(own)
    with pytest.raises(ValueError, match="mine"):
        WorldOf(1, [full, None]).agree(ValueError("mine"))
    WorldOf(1, [None, None]).agree(None)
