"""Memory and processor time of each rank for many agents: a tree of agents with few variables each, solved exactly.

    python -m benchmarks.many_agents make 10000 FOLDER [--variables 5] [--values 10]
    mpiexec -n 4 python -m benchmarks.many_agents run FOLDER --input parts|dealt|file

``make`` writes the problem as one file and, beside it, a file an agent. ``run`` prints a line a rank: its peak of
resident memory over what it had before the run (the whole problem of one file included), its processor time, and what
ranks told each other. ``parts`` has a file an agent; ``dealt`` one file that rank 0 hands out; ``file`` one that every
rank has. A first, tiny run loads the kernels.
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
from dmcmc.run.private.solve import solve_directory
from dmcmc.run.solve import solve

_MB = 1e6


def main() -> None:
    """Make a problem, or run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("agents", type=int)
    making.add_argument("folder", type=Path)
    making.add_argument("--variables", type=int, default=5)
    making.add_argument("--values", type=int, default=10)
    running = commands.add_parser("run")
    running.add_argument("folder", type=Path)
    running.add_argument("--input", choices=["parts", "dealt", "file"], default="parts")
    running.add_argument("--profile", default="", help="where profiles of processor time go, one a rank")
    given = parser.parse_args()
    if given.command == "make":
        make(given.folder, given.agents, given.variables, given.values)
    else:
        run(given.folder, given.input, given.profile)


def make(folder: Path, agents: int, variables: int, values: int) -> None:
    """Write a problem both ways."""
    problem = dmcmc.generate(
        "random", agents=agents, variables_per_agent=variables, domain_size=values, global_density=0.0
    )
    folder.mkdir(parents=True, exist_ok=True)
    native.save(problem, folder / "problem.npz")
    agent_files.write(problem, folder / "parts", 64 << 30)


def run(folder: Path, source: str, profile: str) -> None:
    """Solve it on all ranks, and print what each took."""
    world = connect()
    config = settings_of(
        Document("", {"seed": 7, "device": "cpu", "local": {"method": "exact"}, "budget": {"memory": "6GiB"}})
    )
    with tempfile.TemporaryDirectory() as tiny:
        small = Path(world.decided(lambda: _made(Path(tiny))))
        _solved(world, config, small, source)
        world.wait()
    _reset_peak()
    before, begun, clock = _status("VmRSS"), time.process_time(), time.perf_counter()
    with _profiled(profile and f"{profile}.{world.rank}"):
        result = _solved(world, config, folder, source)
    lines = world.gather((_status("VmHWM") - before, time.process_time() - begun, before))
    if lines is None or result is None:
        return
    seconds, told = time.perf_counter() - clock, sum(count.size for count in result.control.values())
    print(f"{source}: {len(result.agents)} agents, {world.size} ranks: {result.status} {result.objective},", end=" ")
    print(f"{seconds:.1f} s, of which {result.time:.1f} solving; agents' messages {result.msg_count},", end=" ")
    print(f"{result.msg_size / _MB:.1f} MB; ranks told each other {told / _MB:.1f} MB")
    for rank, (peak, spent, first) in enumerate(lines):
        print(f"  rank {rank}: {peak / _MB:.0f} MB over {first / _MB:.0f}, {spent:.1f} s of its processor", flush=True)


def _solved(world: World, config: Settings, folder: Path, source: str) -> dmcmc.Result | None:
    """Solve what a folder has."""
    if source == "parts":
        return solve_directory(folder / "parts", config, world)
    given = world.rank == 0 or source == "file"
    return solve(native.load(folder / "problem.npz") if given else None, config, world)


def _made(folder: Path) -> str:
    make(folder, 8, 5, 10)
    return str(folder)


@contextmanager
def _profiled(path: str) -> Iterator[None]:
    """Keep a profile, if anywhere."""
    if not path:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    yield
    profile.disable()
    profile.dump_stats(path)


def _reset_peak() -> None:
    """Let the peak of resident memory begin anew."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")


def _status(what: str) -> int:
    """Return what the system says of this process, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{what}:")[1].split()[0]) << 10


if __name__ == "__main__":
    main()
