"""Compare the samplers' objectives at equal work and at equal time with the best known ones, on one thread.

    python -m benchmarks.sampling.quality [--seeds 10] [--sets NAME ...] [--output FILE]

The sets are generated meeting problems (the default, |X| = 25, |X| = 50, |D| = 96; preferences and uniform utilities)
and random DCOPs, one problem per seed. Equal work: R = 10 runs of S = 100 samples for all. Equal time: every sampler
has the seconds that annealing took, by changing S. Figures are means of objective / best known, in per cent; the best
known is the optimum if it is proven, or else the best of all runs.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, one_core, options, timed
from dmcmc import Problem

SETS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "default": ("meeting-scheduling", {}),
    "default, uniform": ("meeting-scheduling", {"tables": "uniform"}),
    "X=25": ("meeting-scheduling", {"variables_per_agent": 25}),
    "X=50": ("meeting-scheduling", {"variables_per_agent": 50}),
    "X=50, uniform": ("meeting-scheduling", {"variables_per_agent": 50, "tables": "uniform"}),
    "D=96": ("meeting-scheduling", {"domain_size": 96}),
    "random": ("random", {"agents": 5, "variables_per_agent": 10, "domain_size": 10}),
}
SAMPLERS: Mapping[str, dict[str, Any]] = {
    "the paper's Gibbs (T=1)": {"method": "gibbs", "temperature": 1},
    "the paper's MH (T=1)": {"method": "metropolis-hastings", "temperature": 1},
    "gibbs, annealed": {"method": "gibbs"},
    "MH single, annealed": {"method": "metropolis-hastings-single"},
    "tempering": {"method": "tempering"},
    "annealing": {"method": "annealing"},
}


SamplerResults = dict[str, list[tuple[float, float]]]  # objective and seconds of every problem, by sampler


def run(problem: Problem, seed: int, **local: Any) -> tuple[float, float]:
    """Return the objective and the seconds of one run on one core."""
    result, times = timed(
        lambda: dmcmc.solve(problem, local={"bound": "none", **local}, seed=seed, device="cpu"), 1, untimed=0
    )
    assert result.objective is not None
    return float(result.objective), times.least


def optimum(problem: Problem) -> float | None:
    """Return the optimum if elimination takes less than 10^9 cells per agent, or else None."""
    result = dmcmc.solve(problem, local={"method": "auto", "cells": 10**9, "runs": 1, "samples": 1, "bound": "none"})
    return float(result.objective or 0) if result.status == "optimal" else None


def measure(
    family: str, parameters: dict[str, Any], seeds: int
) -> tuple[list[float | None], SamplerResults, SamplerResults]:
    """Return the optima, and the results of the samplers with equal work and in equal time."""
    work: SamplerResults = {sampler: [] for sampler in SAMPLERS}
    equal: SamplerResults = {sampler: [] for sampler in SAMPLERS}
    known: list[float | None] = []
    for seed in range(seeds):
        problem = dmcmc.generate(family, seed=seed, **parameters)
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
    return known, work, equal


def lines(name: str, known: list[float | None], work: SamplerResults, equal: SamplerResults) -> list[str]:
    """Return the table of a set."""
    best = [
        value or max(found[sampler][i][0] for found in (work, equal) for sampler in SAMPLERS)
        for i, value in enumerate(known)
    ]
    proven = sum(value is not None for value in known)
    text = [f"{name}: {proven} of {len(known)} optima proven{'':12s} equal work                  equal time"]
    for sampler in SAMPLERS:
        cells = []
        for found in (work, equal):
            ratio = [100 * objective / b for (objective, _), b in zip(found[sampler], best, strict=True)]
            seconds = float(np.mean([s for _, s in found[sampler]]))
            cells.append(f"{np.mean(ratio):8.3f} ({min(ratio):8.3f}) {seconds:7.2f} s")
        text.append(f"  {sampler:26s} {cells[0]}   {cells[1]}")
    return text


def main() -> None:
    """Measure all sets and print their tables."""
    parser = options(__file__, __doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS), metavar="NAME")
    given = parser.parse_args()
    with one_core():
        report = Report(__file__, given)
        report(f"mean of {given.seeds} problems: objective / best known in percent (worst), seconds; one core")
        for name in given.sets:
            for line in ["", *lines(name, *measure(*SETS[name], given.seeds))]:
                report(line)
    report.keep()


if __name__ == "__main__":
    main()
