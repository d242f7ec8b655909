"""Measure the time of each phase of a run on several ranks and GPUs, and check that the answer is bitwise identical.

    CUDA_VISIBLE_DEVICES=0,1 mpiexec -n 2 python -m benchmarks.ranks sample eliminate [--mode shared] [--input parts]

Prints one line per problem, for the last call (the first one may load kernels): seconds by rank 0's clock in total, of
each phase, and of the agents' local work (maximum over ranks, and sum); then a hash of objective, bound and assignment.
``--lines FILE`` appends the same as one JSON object per problem, for :mod:`benchmarks.gpu_scaling`.

=============  ======================================================================================
sample         much sampling: 100 agents of 50 variables, on a GPU
sample-many    800 agents of 50 variables with a quarter of the samples, on a GPU
eliminate      much elimination: 256 agents, 96 values, on a GPU
divided        two agents with a bucket of 80^6 cells each, on a GPU: divided among ranks if there are more than two
divided-large  the same with 120^6 cells and a message of 120^5 (99.5 GB), which does not fit a GPU: made in slices
sliced         10 agents of 10 values and a separator of 10^9 entries (4 GB), combined in slices of 256 MiB, on a GPU
union          25 agents of one variable with a time limit: bounded and searched as one problem
cpu            100 agents of the default size, exact
cpu-gibbs      100 agents of the default size, sampled
rows           two agents on more than two ranks: the rows of their tables are shared among ranks
small          20 small agents, exact
small-gibbs    20 small agents, sampled
buckets        10 agents whose tables are combined by mini-buckets
buckets-gibbs  10 sampled agents whose tables are combined by mini-buckets
few-gibbs      three sampled agents on more than three ranks
tiny           16 agents with almost no work: the overhead of ranks
=============  ======================================================================================

``--input file``: every rank has the problem file. ``scattered``: rank 0 alone reads it and scatters the agents.
``parts``: there is one file per agent, and each rank reads those of its agents. All three give the same answer if the
local search over all variables is off.

``--times N`` multiplies the number of agents (weak scaling); ``--quick`` takes small problems, on the CPU.
"""

import argparse
import hashlib
import json
import os
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import dmcmc
from dmcmc.anytime.solve_private import solve_directory
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.formats import agent_files
from dmcmc.inference.runtime.device import describe_gpu
from dmcmc.inference.runtime.threads import cores
from dmcmc.mpi.compute_node import visible_gpus
from dmcmc.mpi.world import World, connect
from dmcmc.solving.observe import NoProgress

_GIBBS = {"method": "gibbs", "runs": 10}
_NO_BOUND = {"bound": "none"}  # without local search: sampling is the only source of assignments
_BUCKETS = {"method": "mini-bucket", "z": 2}
_CUDA_EXACT = {"device": "cuda", "local": {"method": "exact", "cells": 4 * 10**12}}
_SAMPLE = {
    "device": "cuda",
    "local_search": "none",
    "local": _NO_BOUND | {"method": "gibbs", "runs": 100, "samples": 2000},
}
_RANDOM_NETWORK = {"family": "random-network", "domain_size": 10, "tightness": 0}
_DENSE = {"family": "random", "agents": 10, "variables_per_agent": 5, "domain_size": 5, "interface_variables": 2}
PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sample": ({"agents": 100, "variables_per_agent": 50}, _SAMPLE),
    "sample-many": (
        {"agents": 800, "variables_per_agent": 50},
        _SAMPLE | {"local": _NO_BOUND | {"method": "gibbs", "runs": 100, "samples": 500}},
    ),
    "eliminate": (
        {"agents": 256, "variables_per_agent": 8, "domain_size": 96, "local_density": 0.6},
        _CUDA_EXACT | {"budget": {"memory": "16GiB"}},
    ),
    "divided": (
        {"agents": 2, "variables_per_agent": 8, "domain_size": 80, "local_density": 0.8, "interface_variables": 2},
        _CUDA_EXACT | {"budget": {"memory": "64GiB"}},
    ),
    "divided-large": (
        {"agents": 2, "variables_per_agent": 8, "domain_size": 120, "local_density": 0.8, "interface_variables": 2},
        _CUDA_EXACT | {"budget": {"memory": "64GiB"}},
    ),
    "sliced": (
        _RANDOM_NETWORK | {"nodes": 10, "density": 1.0},
        _CUDA_EXACT | {"combine": {"method": "sliced"}, "budget": {"memory": "256MiB"}},
    ),
    "union": (
        _RANDOM_NETWORK | {"nodes": 25, "density": 0.4, "seed": 101},
        {"search": "none", "budget": {"time": 25, "memory": "8GiB"}},
    ),
    "cpu": ({"agents": 100}, {"device": "cpu"}),
    "cpu-gibbs": ({"agents": 100, "seed": 1}, {"device": "cpu", "local": _GIBBS | {"samples": 100}}),
    "rows": (
        {"agents": 2, "variables_per_agent": 40, "interface_variables": 2, "seed": 1},
        {"device": "cpu", "local_search": "none", "local": _GIBBS | _NO_BOUND | {"samples": 200}},
    ),
    "small": ({"agents": 20, "variables_per_agent": 8, "domain_size": 10, "seed": 2}, {"device": "cpu"}),
    "small-gibbs": (
        {"agents": 20, "variables_per_agent": 8, "domain_size": 10, "seed": 3},
        {"device": "cpu", "local_search": "none", "local": _GIBBS | {"samples": 20}},
    ),
    "buckets": (_DENSE, {"device": "cpu", "local_search": "none", "combine": _BUCKETS}),
    "buckets-gibbs": (
        _DENSE | {"seed": 5},
        {"device": "cpu", "local_search": "none", "local": _GIBBS | {"samples": 20}, "combine": _BUCKETS},
    ),
    "few-gibbs": (
        {"agents": 3, "variables_per_agent": 10, "domain_size": 10, "interface_variables": 2, "seed": 4},
        {"device": "cpu", "local_search": "none", "local": _GIBBS | {"samples": 20}},
    ),
    "tiny": ({"agents": 16, "variables_per_agent": 3, "domain_size": 3, "seed": 1}, {"device": "cpu"}),
}

# Changed parameters and settings with ``--quick``. Kernels and code are those of the CPU.
QUICK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sample": ({"agents": 8, "variables_per_agent": 5}, {"local": _GIBBS | _NO_BOUND | {"samples": 20}}),
    "sample-many": ({"agents": 16, "variables_per_agent": 5}, {"local": _GIBBS | _NO_BOUND | {"samples": 10}}),
    "eliminate": ({"agents": 8, "domain_size": 8}, {}),
    "divided": ({"domain_size": 10}, {"budget": {"memory": "1GiB"}}),
    "divided-large": ({"domain_size": 12}, {"budget": {"memory": "1MiB"}}),
    "sliced": ({"nodes": 6, "domain_size": 6}, {"budget": {"memory": "64KiB"}}),
    "union": ({"nodes": 8, "domain_size": 3}, {"budget": {"time": 2, "memory": "1GiB"}}),
}


class Phases(NoProgress):
    """Progress display that records the seconds of each stage and prints nothing.

    Attributes
    ----------
    seconds : dict of str to float
        Wall-clock seconds by title of the stage.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._title, self._start = "plan", time.perf_counter()

    def stage(self, title: str, total: int | None = None) -> None:
        """End the current stage and begin the next one."""
        now = time.perf_counter()
        self.seconds[self._title] = self.seconds.get(self._title, 0.0) + now - self._start
        self._title, self._start = title.split(",")[0].split(":")[0], now

    def advance(self, steps: int = 1) -> None:
        """Ignore progress within a stage."""


def main() -> None:
    """Solve each problem several times, and print the measurements of the last call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", choices=[*PROBLEMS], metavar="PROBLEM")
    parser.add_argument(
        "--mode",
        choices=["auto", "dpop", "shared"],
        nargs="+",
        default=["auto"],
        help="how to combine the agents' tables",
    )
    parser.add_argument(
        "--input",
        choices=["file", "scattered", "parts"],
        nargs="+",
        default=["file"],
        help="which rank reads which file",
    )
    parser.add_argument("--calls", type=int, default=2, help="calls per problem; the last one is printed")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="no further call of a problem after this time, without calls that compile kernels",
    )
    parser.add_argument("--uneven", action="store_true", help="let two of three ranks use a part of their cores")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="multiply the number of agents by N")
    parser.add_argument("--quick", action="store_true", help="take small problems, on the CPU")
    parser.add_argument("--lines", type=Path, metavar="FILE.jsonl", help="append a JSON object per problem")
    parser.add_argument("--gpus", type=int, help="number of GPUs in the JSON objects; default: those of the ranks")
    given, world = parser.parse_args(), connect()
    if given.uneven:
        world.core_sharers = 1 + world.rank % 3
    gpus = given.gpus or len({name for names in world.allgather(visible_gpus(os.environ)[:1]) for name in names})
    for name, mode, source in product(given.problems, given.mode, given.input):
        work, calls, warm_seconds = _problem(name, given.times, given.quick), list[float](), 0.0
        while world.bcast(len(calls) < given.calls and warm_seconds < given.seconds):
            world.wait()
            phases = Phases()
            result = _solve(world, work, mode, source, phases)
            phases.stage("end")
            calls.append(0.0 if result is None else result.time)
            warm_seconds += 0.0 if result is None or result.time_compiling else result.time
        if world.rank == 0:
            assert result is not None
            print(_line(name, f"{mode} {source}", world.size, result, phases.seconds), flush=True)
            if given.lines is not None:
                what = {"problem": name, "mode": mode, "input": source, "times": given.times, "gpus": gpus}
                values = what | _measured(world.size, result, phases.seconds) | {"calls": calls}
                with given.lines.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(values) + "\n")


def _problem(name: str, times: int, quick: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a problem's generator parameters, with ``times`` as many agents, and the settings of its runs."""
    family, options = PROBLEMS[name]
    if quick:
        small_family, small_options = QUICK.get(name, ({}, {}))
        family, options = family | small_family, options | small_options | {"device": "cpu"}
    if times > 1:
        size = "agents" if "agents" in family else "nodes"
        family = family | {size: times * family[size]}
    return family, options


def _solve(
    world: World, work: tuple[dict[str, Any], dict[str, Any]], mode: str, source: str, phases: Phases
) -> dmcmc.Result | None:
    """Generate and solve a problem from one file or from one file per agent; return the result on rank 0."""
    family, options = work
    problem = dmcmc.generate(**{"family": "meeting-scheduling", **family})
    options = {**options, "combine": {"mode": mode, **options.get("combine", {})}}
    if source != "parts":
        known_problem = problem if source == "file" or world.rank == 0 else None
        return dmcmc.solve_on(world, known_problem, seed=7, progress=phases, **options)
    with tempfile.TemporaryDirectory() as folder:
        folder = world.on_first_rank(lambda: str(folder))
        world.on_first_rank(lambda: agent_files.write(problem, folder, 1 << 30))
        config = settings_of(Document("", {"seed": 7, **options}))
        result = solve_directory(folder, config, world, phases, share_assignment=True)
        world.wait()
    return result


def _line(name: str, how: str, ranks: int, result: dmcmc.Result, phases: dict[str, float]) -> str:
    """Return the line of a run: its times, and a hash of its answer."""
    local = _local_seconds(ranks, result)
    parts = " ".join(f"{title}={seconds:.2f}" for title, seconds in phases.items() if seconds > 0.004)
    return (
        f"{name:13} {how:12} ranks {ranks:2}  {result.status:9} {result.time:7.3f} s  {parts}"
        f"  local: max {max(local):.3f}"
        f" sum {sum(local):.3f}  control messages {sum(count.count for count in result.control.values())}"
        f"  {_hash(result)}"
    )


def _measured(ranks: int, result: dmcmc.Result, phases: dict[str, float]) -> dict[str, Any]:
    """Return the measurements of a run for a JSON object; times are in seconds, ``local`` has one per rank."""
    used = any(visible_gpus(os.environ))
    return {
        "agents": len(result.agents),
        "ranks": ranks,
        "cores": cores(),
        "gpu": describe_gpu() if used else "",
        "mps": "CUDA_MPS_PIPE_DIRECTORY" in os.environ,
        "status": result.status,
        "objective": result.objective,
        "bound": result.bound,
        "seconds": result.time,
        "compiling": result.time_compiling,
        "phases": {title: round(seconds, 4) for title, seconds in phases.items()},
        "local": [round(seconds, 4) for seconds in _local_seconds(ranks, result)],
        "messages": result.msg_count + result.extra_msg_count,
        "control_messages": sum(count.count for count in result.control.values()),
        "control_bytes": sum(count.size for count in result.control.values()),
        "hash": _hash(result),
    }


def _local_seconds(ranks: int, result: dmcmc.Result) -> list[float]:
    """Return the seconds of the agents' local work on each rank."""
    local = [0.0] * ranks
    for agent in result.agents:
        local[agent.rank] += agent.time
    return local


def _hash(result: dmcmc.Result) -> str:
    """Return a hash of objective, bound and assignment."""
    answer = json.dumps([result.objective, result.bound, result.assignment], sort_keys=True)
    return hashlib.sha256(answer.encode()).hexdigest()[:12]


if __name__ == "__main__":
    main()
