"""Samplers' quality at equal work and at equal time, against the best known; one thread.

    python benchmarks/quality.py [--seeds 10] [--only NAME ...]

Sets: generated meeting problems (the default, |X| = 25, |X| = 50, |D| = 96; preferences and uniform) and random DCOPs,
a problem a seed. Equal work: R = 10 runs of S = 100 trials for all. Equal time: every sampler gets the seconds that
annealing took, by changing S. Figures are means of objective / best known, in percent; best known is the optimum where
it is proven, else the best of all runs.
"""

import argparse
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from dmcmc.config.configuration import parse
from dmcmc.generators import registry
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Problem
from dmcmc.run.solve import solve

SETS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "default": ("meeting-scheduling", {}),
    "default, uniform": ("meeting-scheduling", {"tables": "uniform"}),
    "X=25": ("meeting-scheduling", {"variables_per_agent": 25}),
    "X=50": ("meeting-scheduling", {"variables_per_agent": 50}),
    "X=50, uniform": ("meeting-scheduling", {"variables_per_agent": 50, "tables": "uniform"}),
    "D=96": ("meeting-scheduling", {"domain_size": 96}),
    "random": ("random", {"agents": 5, "variables_per_agent": 10, "domain_size": 10}),
}
SAMPLERS = {
    "the paper's Gibbs (T=1)": {"method": "gibbs", "temperature": 1},
    "the paper's MH (T=1)": {"method": "metropolis-hastings", "temperature": 1},
    "gibbs, cooled": {"method": "gibbs"},
    "MH single, cooled": {"method": "metropolis-hastings-single"},
    "tempering": {"method": "tempering"},
    "annealing": {"method": "annealing"},
}


def run(problem: Problem, seed: int, **local: Any) -> tuple[float, float]:
    """Return objective and seconds of one run on one thread."""
    config = {"problem": {"file": "-"}, "local": {"bound": "none", **local}, "seed": seed, "device": "cpu"}
    start = time.perf_counter()
    result = solve(problem, parse(config))
    assert result is not None and result.objective is not None
    return float(result.objective), time.perf_counter() - start


def optimum(problem: Problem) -> float | None:
    """Return the optimum where elimination takes less than 10^9 cells an agent."""
    config = {
        "problem": {"file": "-"},
        "local": {"method": "auto", "cells": 10**9, "runs": 1, "samples": 1, "bound": "none"},
    }
    result = solve(problem, parse(config))
    assert result is not None
    return float(result.objective or 0) if result.status == "optimal" else None


def main() -> None:
    """Run all sets and print the two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=list(SETS))
    arguments = parser.parse_args()
    of = Backend.of
    Backend.of = classmethod(lambda cls, wish, threads, sharers=1: of(wish, 1, sharers))  # type: ignore[method-assign,assignment]
    print(f"mean of {arguments.seeds} problems: objective / best known in percent (worst), seconds; one thread")
    for name in arguments.only:
        family, parameters = SETS[name]
        work: dict[str, list[tuple[float, float]]] = {sampler: [] for sampler in SAMPLERS}
        equal: dict[str, list[tuple[float, float]]] = {sampler: [] for sampler in SAMPLERS}
        known: list[float | None] = []
        for seed in range(arguments.seeds):
            problem = registry.generate(family, {"seed": seed} | parameters)
            if seed == 0:
                for local in SAMPLERS.values():
                    run(problem, 0, **local, runs=1, samples=16)  # compiles
            known.append(optimum(problem))
            for sampler, local in SAMPLERS.items():
                work[sampler].append(run(problem, seed, **local, runs=10, samples=100))
            limit = work["annealing"][-1][1]
            for sampler, local in SAMPLERS.items():
                samples = max(1, int(100 * limit / work[sampler][-1][1]))
                equal[sampler].append(run(problem, seed, **local, runs=10, samples=samples))
        best = [
            value or max(table[sampler][i][0] for table in (work, equal) for sampler in SAMPLERS)
            for i, value in enumerate(known)
        ]
        proven = sum(value is not None for value in known)
        print(f"\n{name}: {proven} of {len(known)} optima proven{'':12s} equal work                  equal time")
        for sampler in SAMPLERS:
            cells = []
            for table in (work, equal):
                ratio = [100 * found / b for (found, _), b in zip(table[sampler], best, strict=True)]
                seconds = float(np.mean([s for _, s in table[sampler]]))
                cells.append(f"{np.mean(ratio):8.3f} ({min(ratio):8.3f}) {seconds:7.2f} s")
            print(f"  {sampler:26s} {cells[0]}   {cells[1]}", flush=True)


if __name__ == "__main__":
    main()
