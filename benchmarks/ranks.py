"""How long runs take on some ranks and GPUs, by phase, and that the answer is the same to the bit.

    CUDA_VISIBLE_DEVICES=0,1 mpiexec -n 2 python -m benchmarks.ranks sample eliminate [--mode shared]

A line for each problem, of a second call (the first may load kernels): seconds by rank 0's clock, of each phase, and of
the agents' own work, the most of a rank and in all; then a hash of objective, bound and assignment. ``sample`` is much
sampling (100 agents of 50 variables, on a GPU), ``eliminate`` much elimination (256 agents, 96 values, on a GPU),
``cpu`` 100 agents of the default kind, ``cpu-gibbs`` the same sampled, ``rows`` two agents for more ranks than that.
"""

import argparse
import hashlib
import json
import time
from typing import Any

import dmcmc
from dmcmc.mpi.world import connect

_GIBBS = {"method": "gibbs", "runs": 10}
_PLAIN = {"bound": "none"}  # and no polish: sampling is all that there is
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
}


class Phases:
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
    parser.add_argument("--mode", choices=["auto", "dpop", "shared"], default="auto", help="how tables are combined")
    given, world = parser.parse_args(), connect()
    for name in given.problems:
        family, options = PROBLEMS[name]
        problem = dmcmc.generate("meeting-scheduling", **family)
        for _ in range(2):
            world.wait()
            phases = Phases()
            result = dmcmc.solve_on(world, problem, seed=7, progress=phases, combine={"mode": given.mode}, **options)
            phases.stage("end")
        if world.rank == 0:
            print(_line(name, world.size, result, phases.found), flush=True)


def _line(name: str, ranks: int, result: dmcmc.Result, phases: dict[str, float]) -> str:
    """Return what a run took, and a hash of its answer."""
    local: dict[int, float] = {}
    for agent in result.agents:
        local[agent.rank] = local.get(agent.rank, 0.0) + agent.time
    answer = json.dumps([result.objective, result.bound, result.assignment], sort_keys=True)
    parts = " ".join(f"{title}={seconds:.2f}" for title, seconds in phases.items() if seconds > 0.004)
    return (
        f"{name:10} ranks {ranks:2}  {result.status:9} {result.time:7.3f} s  {parts}"
        f"  local: most {max(local.values()):.3f}"
        f" all {sum(local.values()):.3f}  {hashlib.sha256(answer.encode()).hexdigest()[:12]}"
    )


if __name__ == "__main__":
    main()
