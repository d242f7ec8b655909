"""Measure memory and processor time of each rank for many agents in a tree, with few variables each, solved exactly.

    python -m benchmarks.many_agents make 10000 FOLDER [--variables 5] [--values 10]
    mpiexec -n 4 python -m benchmarks.many_agents run FOLDER --input parts|scattered|file

``make`` writes the problem as one file, and also as one file per agent. ``run`` prints one line per rank: its peak
resident memory above that before the run (the whole problem of one file included), its processor time, and the size of
the control messages between ranks. ``--input parts``: one file per agent. ``scattered``: one file, which rank 0 reads
and scatters. ``file``: one file, which every rank reads. A first, tiny run loads the kernels.
"""

import argparse
import cProfile
import gc
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dmcmc
from dmcmc.config.document import Document
from dmcmc.config.settings import Settings, settings_of
from dmcmc.formats import agent_files, native
from dmcmc.mpi.world import World, connect
from dmcmc.run.solve import solve
from dmcmc.run.solve_directory import solve_directory

_MB = 1e6


def main() -> None:
    """Make a problem, or solve it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make_parser = commands.add_parser("make")
    make_parser.add_argument("agents", type=int)
    make_parser.add_argument("folder", type=Path)
    make_parser.add_argument("--variables", type=int, default=5)
    make_parser.add_argument("--values", type=int, default=10)
    run_parser = commands.add_parser("run")
    run_parser.add_argument("folder", type=Path)
    run_parser.add_argument("--input", choices=["parts", "scattered", "file"], default="parts")
    run_parser.add_argument("--profile", default="", help="write a profile of each rank to TEXT.RANK", metavar="TEXT")
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder, given.agents, given.variables, given.values)
    else:
        run(given.folder, given.input, given.profile)


def make(folder: Path, agents: int, variables: int, values: int) -> None:
    """Write a problem as one file and as one file per agent."""
    problem = dmcmc.generate(
        "random", agents=agents, variables_per_agent=variables, domain_size=values, global_density=0.0
    )
    folder.mkdir(parents=True, exist_ok=True)
    native.save(problem, folder / "problem.npz")
    agent_files.write(problem, folder / "parts", 64 << 30)


def run(folder: Path, source: str, profile: str) -> None:
    """Solve the problem on all ranks, and print the measurements of each."""
    world = connect()
    config = settings_of(
        Document("", {"seed": 7, "device": "cpu", "local": {"method": "exact"}, "budget": {"memory": "6GiB"}})
    )
    with tempfile.TemporaryDirectory() as tiny:
        small = Path(world.on_first_rank(lambda: _make_tiny(Path(tiny))))
        _solve(world, config, small, source)
        world.wait()
    _reset_peak()
    resident_before, processor_start, wall_start = _status("VmRSS"), time.process_time(), time.perf_counter()
    with _profiled(profile and f"{profile}.{world.rank}"):
        result = _solve(world, config, folder, source)
    lines = world.gather((_status("VmHWM") - resident_before, time.process_time() - processor_start, resident_before))
    if lines is None or result is None:
        return
    seconds, control_bytes = time.perf_counter() - wall_start, sum(count.size for count in result.control.values())
    print(f"{source}: {len(result.agents)} agents, {world.size} ranks: {result.status} {result.objective},", end=" ")
    print(f"{seconds:.1f} s, of which {result.time:.1f} solving; agents' messages {result.msg_count},", end=" ")
    print(f"{result.msg_size / _MB:.1f} MB; control messages {control_bytes / _MB:.1f} MB")
    for rank, (peak, spent, first) in enumerate(lines):
        print(f"  rank {rank}: {peak / _MB:.0f} MB over {first / _MB:.0f}, {spent:.1f} s of processor time", flush=True)


def _solve(world: World, config: Settings, folder: Path, source: str) -> dmcmc.Result | None:
    """Solve the problem of a folder; return the result on rank 0."""
    if source == "parts":
        return solve_directory(folder / "parts", config, world)
    reads = world.rank == 0 or source == "file"
    return solve(native.load(folder / "problem.npz") if reads else None, config, world)


def _make_tiny(folder: Path) -> str:
    """Write a tiny problem to a folder; return the folder."""
    make(folder, 8, 5, 10)
    return str(folder)


@contextmanager
def _profiled(path: str) -> Iterator[None]:
    """Write a profile of the body to ``path``, unless it is empty."""
    if not path:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(path)


def _reset_peak() -> None:
    """Reset the peak of the resident memory of this process."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def _status(what: str) -> int:
    """Return a field of ``/proc/self/status`` in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{what}:")[1].split()[0]) << 10


if __name__ == "__main__":
    main()
