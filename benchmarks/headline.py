"""Draw the README's picture: Table 1 of the DMCMC paper, compared with the published times and with toulbar2.

    python -m benchmarks.headline [--picture docs/table1.png]

Reads ``results/papers/dmcmc-table1`` (``dmcmc experiment configs/papers/dmcmc-table1.yaml``), and prints the figures
that the picture shows. Needs ``.[plot]``.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, median
from typing import Any

FOLDER = Path(__file__).parent / "results/papers/dmcmc-table1"
OURS, PEER, BOTH = "auto, 60 s", "toulbar2, 60 s", "auto with toulbar2, 60 s"
SHOWN = {
    "auto, 60 s": ("dmcmc, up to 60 s", "#2563c9", "o"),
    BOTH: ("dmcmc with toulbar2 in the background", "#5ba3f0", "D"),
    PEER: ("toulbar2, up to 60 s", "#d1570f", "s"),
    "Gibbs GPU": ("Gibbs, one H200", "#17825a", "^"),
    "MGM2": ("MGM2", "#8a8f9c", "x"),
}
PUBLISHED = "Gibbs GPU"
_MIN_GAP = 0.003  # per cent: the smallest gap that the logarithmic axis shows
NAMES = {"agents": "|A|", "variables_per_agent": "|X|", "domain_size": "|D|", "local_density": "p"}


def name_of(case: str) -> str:
    """Return a short name of a setting."""
    parts = [f"{NAMES[key.rpartition('.')[2]]} = {value}" for key, value in json.loads(case).items()]
    return ", ".join(parts) or "default"


def read() -> tuple[list[str], dict[tuple[str, str], list[dict[str, Any]]], dict[tuple[str, int], float]]:
    """Return the settings, the runs by setting and method, and the best bound by setting and seed."""
    runs, bounds, cases = defaultdict(list), dict[tuple[str, int], float](), dict[str, None]()
    for line in (FOLDER / "runs.jsonl").read_text().splitlines():
        record = json.loads(line)
        case = json.dumps(record["case"])
        cases[case] = None
        if record["outcome"] == "done":
            runs[case, record["method"]].append(record)
            if record.get("bound") is not None:
                instance = case, record["seed"]
                bounds[instance] = min(bounds.get(instance, float("inf")), record["bound"])
    return list(cases), runs, bounds


def main() -> None:
    """Print the figures, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", help="write the picture to FILE", metavar="FILE")
    picture = parser.parse_args().picture
    cases, runs, bounds = read()
    gaps = {
        (case, method): mean(100 * (1 - r["objective"] / bounds[case, r["seed"]]) for r in found)
        for (case, method), found in runs.items()
    }
    times = {key: median(r["time"] for r in found) for key, found in runs.items()}
    for case in cases:
        figures = [f"{m} {times[case, m]:.3g} s {gaps[case, m]:.2g} %" for m in SHOWN if (case, m) in times]
        print(f"{name_of(case)}: {'; '.join(figures)}")
    for method in (OURS, BOTH, PEER):
        found = [r for case in cases for r in runs[case, method]]
        print(f"{method}: {sum(r['status'] == 'optimal' for r in found)} of {len(found)} proven")
    peer_objective = {(case, r["seed"]): r["objective"] for case in cases for r in runs[case, PEER]}
    for method in (OURS, BOTH):
        changes = [r["objective"] - peer_objective[case, r["seed"]] for case in cases for r in runs[case, method]]
        print(
            f"{method} compared with {PEER}: {sum(d > 0 for d in changes)} better, {sum(d < 0 for d in changes)} worse"
        )
    if picture:
        draw(cases, times, gaps, picture)


def draw(
    cases: list[str], times: dict[tuple[str, str], float], gaps: dict[tuple[str, str], float], picture: str
) -> None:
    """Draw the times and the gaps to the best bound, one row per setting."""
    from matplotlib.figure import Figure

    published = json.loads((FOLDER / "experiment.json").read_text())["experiment"]["paper"]
    published_seconds = {
        json.dumps(row.get("case", {})): row["time"] for row in published if row["method"] == PUBLISHED
    }
    figure = Figure(figsize=(9.2, 4.4), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2, sharey=True)
    rows = list(range(len(cases)))
    left.plot(
        [published_seconds.get(c) for c in cases],
        rows,
        "^",
        mfc="none",
        color="#17825a",
        label="Gibbs, Tesla C2075, as published",
    )
    for method, (label, colour, marker) in SHOWN.items():
        known = [i for i in rows if (cases[i], method) in times]
        left.plot([times[cases[i], method] for i in known], known, marker, color=colour, label=label, ms=5)
        right.plot([max(_MIN_GAP, gaps[cases[i], method]) for i in known], known, marker, color=colour, ms=5)
    left.set(
        xscale="log",
        xlabel="seconds (median), until proven or at the limit",
        yticks=rows,
        yticklabels=map(name_of, cases),
    )
    right.set(xscale="log", xlabel="% below the best proven bound (left edge: none)")
    left.invert_yaxis()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.savefig(picture)


if __name__ == "__main__":
    main()
