"""The README's picture: Table 1 of the DMCMC paper, beside what was published and beside toulbar2.

    python -m benchmarks.headline [--picture docs/table1.png]

Reads ``results/papers/dmcmc-table1`` (``dmcmc experiment configs/papers/dmcmc-table1.yaml``); prints what the picture
shows. Needs ``.[plot]``.
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
    "auto, 60 s": ("dmcmc, 60 s at most", "#2563c9", "o"),
    BOTH: ("dmcmc with toulbar2 beside it", "#5ba3f0", "D"),
    PEER: ("toulbar2, 60 s at most", "#d1570f", "s"),
    "Gibbs GPU": ("Gibbs, one H200", "#17825a", "^"),
    "MGM2": ("MGM2", "#8a8f9c", "x"),
}
PUBLISHED = "Gibbs GPU"
_LEAST = 0.003  # per cent: what a logarithm shows of no gap at all
NAMES = {"agents": "|A|", "variables_per_agent": "|X|", "domain_size": "|D|", "local_density": "p"}


def name_of(case: str) -> str:
    """Return a setting in a few letters."""
    parts = [f"{NAMES[key.rpartition('.')[2]]} = {value}" for key, value in json.loads(case).items()]
    return ", ".join(parts) or "default"


def read() -> tuple[list[str], dict[tuple[str, str], list[dict[str, Any]]], dict[tuple[str, int], float]]:
    """Return the settings, the runs of each with each method, and the best bound on every problem."""
    runs, bounds, cases = defaultdict(list), dict[tuple[str, int], float](), dict[str, None]()
    for line in (FOLDER / "runs.jsonl").read_text().splitlines():
        record = json.loads(line)
        case = json.dumps(record["case"])
        cases[case] = None
        if record["outcome"] == "done":
            runs[case, record["method"]].append(record)
            if record.get("bound") is not None:
                place = case, record["seed"]
                bounds[place] = min(bounds.get(place, float("inf")), record["bound"])
    return list(cases), runs, bounds


def main() -> None:
    """Print the figures, and draw them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", help="a file to draw to")
    picture = parser.parse_args().picture
    cases, runs, bounds = read()
    gaps = {
        (case, method): mean(100 * (1 - r["objective"] / bounds[case, r["seed"]]) for r in found)
        for (case, method), found in runs.items()
    }
    times = {key: median(r["time"] for r in found) for key, found in runs.items()}
    for case in cases:
        told = [f"{m} {times[case, m]:.3g} s {gaps[case, m]:.2g} %" for m in SHOWN if (case, m) in times]
        print(f"{name_of(case)}: {'; '.join(told)}")
    for method in (OURS, BOTH, PEER):
        found = [r for case in cases for r in runs[case, method]]
        print(f"{method}: {sum(r['status'] == 'optimal' for r in found)} of {len(found)} proven")
    by_place = {(case, r["seed"]): r["objective"] for case in cases for r in runs[case, PEER]}
    for method in (OURS, BOTH):
        less = [r["objective"] - by_place[case, r["seed"]] for case in cases for r in runs[case, method]]
        print(f"{method} beside {PEER}: {sum(d > 0 for d in less)} better, {sum(d < 0 for d in less)} worse")
    if picture:
        draw(cases, times, gaps, picture)


def draw(
    cases: list[str], times: dict[tuple[str, str], float], gaps: dict[tuple[str, str], float], picture: str
) -> None:
    """Draw seconds and what is left to the best bound, setting by setting."""
    from matplotlib.figure import Figure

    told = json.loads((FOLDER / "experiment.json").read_text())["experiment"]["paper"]
    paper = {json.dumps(row.get("case", {})): row["time"] for row in told if row["method"] == PUBLISHED}
    figure = Figure(figsize=(9.2, 4.4), layout="constrained", dpi=130)
    left, right = figure.subplots(1, 2, sharey=True)
    rows = list(range(len(cases)))
    left.plot(
        [paper.get(c) for c in cases], rows, "^", mfc="none", color="#17825a", label="Gibbs, Tesla C2075, as published"
    )
    for method, (label, colour, marker) in SHOWN.items():
        known = [i for i in rows if (cases[i], method) in times]
        left.plot([times[cases[i], method] for i in known], known, marker, color=colour, label=label, ms=5)
        right.plot([max(_LEAST, gaps[cases[i], method]) for i in known], known, marker, color=colour, ms=5)
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
