"""How much utility a sampler finds in how much time, against the proven optimum: the picture of the README.

python benchmarks/quality_over_time.py docs/quality.png        (needs matplotlib: pip install '.[plot]')
"""

import argparse
import statistics
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.solving.first_light import meetings, run

SAMPLES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
SERIES = [
    ("gibbs", "auto", "gibbs, cooled (default)", "o-"),
    ("gibbs", 1.0, "gibbs, temperature 1 (paper)", "s--"),
    ("metropolis-hastings-single", "auto", "metropolis-hastings-single, cooled", "^-"),
    ("metropolis-hastings", 1.0, "metropolis-hastings, joint (paper)", "v--"),
]


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    picture = parser.parse_args().picture
    problems = [meetings(seed, tables="uniform") for seed in range(5)]
    run(problems[0], method="exact")
    exact = [run(p, method="exact") for p in problems]
    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for method, temperature, label, style in SERIES:
        run(problems[0], method=method, samples=1)  # compile
        times, ratios = [], []
        for samples in SAMPLES:
            results = [run(p, method=method, temperature=temperature, runs=1, samples=samples) for p in problems]
            times.append(statistics.median(r.time for r in results))
            ratios.append(statistics.mean(100 * r.objective / e.objective for r, e in zip(results, exact, strict=True)))
        axes.plot(times, ratios, style, label=label, markersize=4)
    axes.plot(statistics.median(r.time for r in exact), 100.0, "k*", markersize=12, label="exact (proven)")
    axes.set_xscale("log")
    ticks = (0.02, 0.05, 0.1, 0.2, 0.5)
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("solve time in seconds, 2 cores")
    axes.set_ylabel("utility, % of the optimum")
    axes.set_title("10 agents × 10 events, 24 slots, uniform utilities: mean of 5 problems, 1 run a row", fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
