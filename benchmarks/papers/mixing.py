"""Measure how well the chains of the DMCMC paper mix at temperature 1: distinct states and effective sample sizes.

    python -m benchmarks.papers.mixing [--quick] [--output FILE]

The problem is that of Fig. 5 (random graphs, utilities 1 to 1,000), and the default problem of Table 1. A line has the
mean over agents and seeds: distinct states of a chain, integrated autocorrelation time of the utility in trials, the
effective sample size of a row (all runs), and the share of chains that stay at one state in their second half. ``N`` is
R · S, the sample size that Property 1 counts.
"""

from statistics import fmean
from typing import Any

import dmcmc
from benchmarks.harness import Columns, Report, options

_PROBLEMS: dict[str, dict[str, Any]] = {
    "random": {
        **{"agents": 5, "variables_per_agent": 10, "domain_size": 10},
        **{"local_density": 0.5, "global_density": 0.5},
    },
    "meeting-scheduling": {"agents": 10, "variables_per_agent": 10, "domain_size": 24, "local_density": 0.5},
}
_PLAIN: dict[str, Any] = {
    **{"diagnose": True, "bound": "none", "local_search": "none", "search": "none", "device": "cpu"},
}
_RUNS = 10
_TABLE = Columns(
    ("problem", "<18"), ("sampler", "<26"), ("temperature", ">11g"), ("S", ">6d"), ("N", ">7d"), ("distinct", ">8.1f"),
    ("time", ">8.1f"), ("effective", ">9.1f"), ("frozen", ">6.0%"), ("objective", ">9.0f"),
)  # fmt: skip


def measured(family: str, method: str, temperature: float, samples: int, seeds: int) -> list[Any]:
    """Return a line of the table."""
    results = [
        dmcmc.solve(
            dmcmc.generate(family, seed=seed, **_PROBLEMS[family]),
            method=method,
            temperature=temperature,
            runs=_RUNS,
            samples=samples,
            seed=seed,
            **_PLAIN,
        )
        for seed in range(seeds)
    ]
    chains = [agent.chains for result in results for agent in result.agents if agent.chains is not None]
    return [
        *(family, method, temperature, samples, _RUNS * samples),
        fmean(c.distinct_states for c in chains),
        fmean(c.autocorrelation_time for c in chains),
        fmean(c.effective_samples for c in chains),
        fmean(c.frozen for c in chains),
        fmean(result.objective or 0 for result in results),
    ]


def main() -> None:
    """Print the table."""
    parser = options(__file__, __doc__ or "")
    parser.add_argument("--quick", action="store_true", help="one seed, 10 samples")
    given = parser.parse_args()
    report, seeds = Report(__file__, given), 1 if given.quick else 3
    report(_TABLE.head)
    for family in _PROBLEMS:
        for method in ("gibbs", "metropolis-hastings"):
            for temperature in (1.0, 100.0):
                for samples in (10,) if given.quick else (10, 100, 1000):
                    report(_TABLE.line(*measured(family, method, temperature, samples, seeds)))
    report.keep()


if __name__ == "__main__":
    main()
