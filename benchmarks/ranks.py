"""How long runs take on some ranks and GPUs, by phase, and that the answer is the same to the bit.

    CUDA_VISIBLE_DEVICES=0,1 mpiexec -n 2 python -m benchmarks.ranks sample eliminate [--mode shared] [--input parts]

A line for each problem, of a second call (the first may load kernels): seconds by rank 0's clock, of each phase, and of
the agents' own work, the most of a rank and in all; then a hash of objective, bound and assignment. ``sample`` is much
sampling (100 agents of 50 variables, on a GPU), ``eliminate`` much elimination (256 agents, 96 values, on a GPU),
``cpu`` 100 agents of the default kind, ``cpu-gibbs`` the same sampled, ``rows`` two agents for more ranks than that,
``small`` and ``small-gibbs`` 20 small agents, exact and sampled, ``buckets`` and ``buckets-gibbs`` 10 agents whose
tables are combined by mini-buckets, ``few-gibbs`` 3 sampled agents for more ranks than that, ``tiny`` 16 agents
that are no work: what ranks cost.

``--input parts`` has a file an agent, of which each rank reads its own; ``dealt`` one file that rank 0 alone reads and
deals out: the answer of one file (``file``) on all ranks, if without search over all variables.
"""

import argparse
import hashlib
import json
import tempfile
import time
from itertools import product
from typing import Any

import dmcmc
from dmcmc.config.document import Document
from dmcmc.config.settings import settings_of
from dmcmc.formats import agent_files
from dmcmc.mpi.world import World, connect
from dmcmc.run.monitoring.progress import Silent
from dmcmc.run.private.solve import solve_directory

_GIBBS = {"method": "gibbs", "runs": 10}
_PLAIN = {"bound": "none"}  # and no polish: sampling is all that there is
_BUCKETS = {"method": "mini-bucket", "z": 2}
_DENSE = {"family": "random", "agents": 10, "variables_per_agent": 5, "domain_size": 5, "interface_variables": 2}
PROBLEMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sample": (
        {"agents": 100, "variables_per_agent": 50},
        {"device": "cuda", "polish": "none", "local": _PLAIN | {"method": "gibbs", "runs": 100, "samples": 2000}},
    ),
    "eliminate": (
        {"agents": 256, "variables_per_agent": 8, "domain_size": 96, "local_density": 0.6},
        {"device": "cuda", "local": {"method": "exact", "cells": 4 * 10**12}, "budget": {"memory": "16GiB"}},
    ),
    "cpu": ({"agents": 100}, {"device": "cpu"}),
    "cpu-gibbs": ({"agents": 100, "seed": 1}, {"device": "cpu", "local": _GIBBS | {"samples": 100}}),
    "rows": (
        {"agents": 2, "variables_per_agent": 40, "interface_variables": 2, "seed": 1},
        {"device": "cpu", "polish": "none", "local": _GIBBS | _PLAIN | {"samples": 200}},
    ),
    "small": ({"agents": 20, "variables_per_agent": 8, "domain_size": 10, "seed": 2}, {"device": "cpu"}),
    "small-gibbs": (
        {"agents": 20, "variables_per_agent": 8, "domain_size": 10, "seed": 3},
        {"device": "cpu", "polish": "none", "local": _GIBBS | {"samples": 20}},
    ),
    "buckets": (_DENSE, {"device": "cpu", "polish": "none", "combine": _BUCKETS}),
    "buckets-gibbs": (
        _DENSE | {"seed": 5},
        {"device": "cpu", "polish": "none", "local": _GIBBS | {"samples": 20}, "combine": _BUCKETS},
    ),
    "few-gibbs": (
        {"agents": 3, "variables_per_agent": 10, "domain_size": 10, "interface_variables": 2, "seed": 4},
        {"device": "cpu", "polish": "none", "local": _GIBBS | {"samples": 20}},
    ),
    "tiny": ({"agents": 16, "variables_per_agent": 3, "domain_size": 3, "seed": 1}, {"device": "cpu"}),
}


class Phases(Silent):
    """What a run does, and for how long: a progress that keeps the seconds of each stage."""

    def __init__(self) -> None:
        self.found: dict[str, float] = {}
        self._last, self._at = "plan", time.perf_counter()

    def stage(self, title: str, total: int | None = None) -> None:
        """End one stage and begin the next."""
        now = time.perf_counter()
        self.found[self._last] = self.found.get(self._last, 0.0) + now - self._at
        self._last, self._at = title.split(",")[0].split(":")[0], now

    def advance(self, steps: int = 1) -> None:
        """Go on in a stage."""


def main() -> None:
    """Solve each problem twice, and print what the second call took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problems", nargs="+", choices=[*PROBLEMS], metavar="PROBLEM")
    parser.add_argument(
        "--mode", choices=["auto", "dpop", "shared"], nargs="+", default=["auto"], help="how to combine"
    )
    parser.add_argument(
        "--input", choices=["file", "dealt", "parts"], nargs="+", default=["file"], help="who knows the problem"
    )
    parser.add_argument("--calls", type=int, default=2, help="of which the last is told")
    parser.add_argument(
        "--uneven", action="store_true", help="every third rank has all of its cores, others share them"
    )
    given, world = parser.parse_args(), connect()
    if given.uneven:
        world.core_sharers = 1 + world.rank % 3
    for name, mode, source in product(given.problems, given.mode, given.input):
        for _ in range(given.calls):
            world.wait()
            phases = Phases()
            result = _solved(world, name, mode, source, phases)
            phases.stage("end")
        if world.rank == 0:
            assert result is not None
            print(_line(name, f"{mode} {source}", world.size, result, phases.found), flush=True)


def _solved(world: World, name: str, mode: str, source: str, phases: Phases) -> dmcmc.Result | None:
    """Solve a problem of one file, or of one an agent; return the result on rank 0."""
    family, options = PROBLEMS[name]
    problem = dmcmc.generate(**{"family": "meeting-scheduling", **family})
    options = {**options, "combine": {"mode": mode, **options.get("combine", {})}}
    if source != "parts":
        given = problem if source == "file" or world.rank == 0 else None
        return dmcmc.solve_on(world, given, seed=7, progress=phases, **options)
    with tempfile.TemporaryDirectory() as folder:
        folder = world.decided(lambda: str(folder))
        world.decided(lambda: agent_files.write(problem, folder, 1 << 30))
        config = settings_of(Document("", {"seed": 7, **options}))
        result = solve_directory(folder, config, world, phases, share_assignment=True)
        world.wait()
    return result


def _line(name: str, how: str, ranks: int, result: dmcmc.Result, phases: dict[str, float]) -> str:
    """Return what a run took, and a hash of its answer."""
    local: dict[int, float] = {}
    for agent in result.agents:
        local[agent.rank] = local.get(agent.rank, 0.0) + agent.time
    answer = json.dumps([result.objective, result.bound, result.assignment], sort_keys=True)
    parts = " ".join(f"{title}={seconds:.2f}" for title, seconds in phases.items() if seconds > 0.004)
    return (
        f"{name:13} {how:12} ranks {ranks:2}  {result.status:9} {result.time:7.3f} s  {parts}"
        f"  local: most {max(local.values()):.3f}"
        f" all {sum(local.values()):.3f}  told {sum(count.count for count in result.control.values())}"
        f"  {hashlib.sha256(answer.encode()).hexdigest()[:12]}"
    )


if __name__ == "__main__":
    main()
