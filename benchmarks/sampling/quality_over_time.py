"""Measure the utility of each sampler over time, relative to the proven optimum, and draw the README's picture.

    python -m benchmarks.sampling.quality_over_time [--picture docs/quality.png]

Needs matplotlib: pip install '.[plot]'.
"""

import statistics
from pathlib import Path

from benchmarks.harness import Report, options
from benchmarks.solving.exact_and_sampled import meetings, run, utility_of

SAMPLES = (1, 2, 5, 10, 20, 50, 100, 200, 500)
SERIES = [
    ("gibbs", "auto", "gibbs, cooled (default)", "o-"),
    ("gibbs", 1.0, "gibbs, temperature 1 (paper)", "s--"),
    ("metropolis-hastings-single", "auto", "metropolis-hastings-single, cooled", "^-"),
    ("metropolis-hastings", 1.0, "metropolis-hastings, joint (paper)", "v--"),
]


def main() -> None:
    """Measure and draw."""
    parser = options(__file__, __doc__)
    parser.add_argument("--picture", type=Path, default=Path("docs/quality.png"))
    parser.add_argument("--problems", type=int, default=5)
    parser.add_argument("--most", type=int, default=SAMPLES[-1], help="largest number of samples")
    given = parser.parse_args()
    report = Report(__file__, given)
    problems = [meetings(seed, tables="uniform") for seed in range(given.problems)]
    run(problems[0], method="exact")
    exact = [run(p, method="exact") for p in problems]
    optimum = statistics.median(r.time for r in exact)
    report(f"exact: {optimum:.3f} s")
    curves = {}
    for method, temperature, label, style in SERIES:
        run(problems[0], method=method, samples=1)  # compile
        times, ratios = [], []
        for samples in (s for s in SAMPLES if s <= given.most):
            results = [run(p, method=method, temperature=temperature, runs=1, samples=samples) for p in problems]
            times.append(statistics.median(r.time for r in results))
            ratios.append(
                statistics.mean(100 * utility_of(r) / utility_of(e) for r, e in zip(results, exact, strict=True))
            )
            report(f"{label:36s} {samples:4d} samples {times[-1]:8.3f} s {ratios[-1]:7.2f} %")
        curves[label, style] = times, ratios
    draw(curves, optimum, len(problems), given.picture)
    report.keep()


def draw(
    curves: dict[tuple[str, str], tuple[list[float], list[float]]], optimum: float, problems: int, picture: Path
) -> None:
    """Draw a line per sampler, and an asterisk for the exact solution."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    for (label, style), (times, ratios) in curves.items():
        axes.plot(times, ratios, style, label=label, markersize=4)
    axes.plot(optimum, 100.0, "k*", markersize=12, label="exact (proven)")
    axes.set_xscale("log")
    ticks = (0.02, 0.05, 0.1, 0.2, 0.5)
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_xlabel("solve time in seconds, 2 cores")
    axes.set_ylabel("utility, % of the optimum")
    about = f"10 agents × 10 events, 24 time slots, uniform utilities: mean of {problems} problems, 1 run per row"
    axes.set_title(about, fontsize=9)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main()
