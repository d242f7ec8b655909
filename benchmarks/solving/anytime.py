"""Objective and proven bound over time on the meeting problems that nobody solves, beside toulbar2's.

    DMCMC_INSTANCES=FOLDER python benchmarks/anytime.py [--seconds 10 60] [--peers 60] [--only NAME] [--output PREFIX]
        [--device cuda] [--memory 100GiB] [--beside FILE.json] [--picture docs/anytime.png]

FOLDER holds meetings/. Each of our runs is a ``budget.time`` on all cores, from a problem in memory, kernels compiled.
toulbar2's HBFS (objective and bound) and VNS (objective) follow in the same run, each for ``--peers`` seconds of its
own clock on one core (0: none); all start without a solution. Two gaps are named: that of the run itself, and `to
best`, from its bound to the best utility known to anyone. `listed` is what was found before on an idle machine:
toulbar2's gap after 60 s, and the best utility of toulbar2 and of a prototype. PREFIX.txt gets the table,
PREFIX.json all traces, ``--picture`` draws them (needs matplotlib), with the traces of ``--beside``, if that is given:
what another machine's run has kept.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from dmcmc import Problem
from dmcmc.config.configuration import parse
from dmcmc.formats import native
from dmcmc.inference.runtime.device import describe_gpu
from dmcmc.inference.runtime.threads import cores
from dmcmc.run.solve import solve

# listed before: toulbar2's bound after 60 s, and the best utility
LISTED = {
    "ms_A10_n25_D24": (29560, 24147),
    "ms_A10_n50_D24": (119578, 92526),
    "ms_A10_n10_D96": (20776, 18510),
    "mu_A10_n25_D24": (1427540, 1156515),
    "mu_A10_n50_D24": (5797878, 4259492),
    "mu_A10_n10_D96": (226526, 215436),
}
TOULBAR2_GAP = {  # per cent after 60 s, to the best utility that toulbar2 itself found
    "ms_A10_n25_D24": 22,
    "ms_A10_n50_D24": 29,
    "ms_A10_n10_D96": 12,
    "mu_A10_n25_D24": 23,
    "mu_A10_n50_D24": 36,
    "mu_A10_n10_D96": 5,
}

TOULBAR2 = """
import sys, pytoulbar2
from dmcmc import native
problem = native.load(sys.argv[1])
top = sum(int(f.table.max()) for f in problem.factors)
network = pytoulbar2.CFN(ubinit=top + 1, vns=-4 if sys.argv[3] == "vns" else None, verbose=0)
for name, size in zip(problem.variables, problem.domains.tolist()):
    network.AddVariable(name, range(size))
for f in problem.factors:
    network.AddFunction(list(f.scope), (int(f.table.max()) - f.table).ravel().tolist())
print("TOP", top, flush=True)
network.Solve(timeLimit=int(sys.argv[2]))
"""
_SECONDS = r"([\d.]+) seconds\)"

Trace = list[tuple[float, float | None, float | None]]  # (seconds, objective, bound)


def ours(problem: Problem, method: str, seconds: float, device: str, memory: str) -> dict[str, Any]:
    """Solve for some seconds; return status, trace and the like."""
    budget = {"time": seconds, "memory": memory}
    config = {"problem": {"file": "-"}, "local": {"method": method}, "budget": budget, "device": device}
    result = solve(problem, parse(config))
    assert result is not None
    return {
        "solver": f"dmcmc {method}{' GPU' if device == 'cuda' else ''}",
        "budget": seconds,
        "seconds": result.time,
        "status": result.status,
        "objective": result.objective,
        "bound": result.bound,
        "methods": sorted({agent.method for agent in result.agents}),
        "cycles": result.cycle,
        "trace": [(p.time, p.objective, p.bound) for p in result.trace],
    }


def toulbar2(path: Path, how: str, seconds: int) -> dict[str, Any]:
    """Let toulbar2 search (``hbfs`` or ``vns``); return the same, from what it prints on the way."""
    command = [sys.executable, "-c", TOULBAR2, str(path), str(seconds), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10 * seconds + 120)
    found = re.search(r"^TOP (\d+)", done.stdout, re.MULTILINE)
    if found is None:
        raise SystemExit(f"toulbar2 failed on {path.name}: {done.stderr[-500:]}")
    top, trace = int(found[1]), Trace()
    utility: float | None = None
    bound: float | None = None
    for line in done.stdout.splitlines():
        if new := re.match(rf"New solution: (\d+) \(.*?{_SECONDS}", line):
            utility = top - int(new[1])
            trace.append((float(new[2]), utility, bound))
        elif how == "hbfs" and (shown := re.match(rf"Optimality gap: \[(\d+), \d+\].*?{_SECONDS}", line)):
            bound = top - int(shown[1])
            trace.append((float(shown[2]), utility, bound))
    return {
        "solver": f"toulbar2 {how}",
        "budget": seconds,
        "seconds": trace[-1][0] if trace else None,
        "status": "optimal" if utility is not None and utility == bound else "timeout",
        "objective": utility,
        "bound": bound,
        "trace": trace,
    }


def gap(bound: float | None, utility: float | None) -> str:
    """Return a gap in per cent."""
    return "-" if bound is None or utility is None else f"{100 * (bound / utility - 1):.2f} %"


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the lines of the table: each run at its end, ours also against what was listed."""
    head = f"{'instance':16s} {'solver':18s} {'s':>6s} {'objective':>10s} {'bound':>10s} {'gap':>9s} {'to best':>9s}"
    lines = [head + "   listed: gap, utility"]
    for name, runs in found.items():
        best = max([LISTED[name][1], *(run["objective"] for run in runs if run["objective"] is not None)])
        for run in runs:
            objective, bound = run["objective"], run["bound"]
            line = f"{name:16s} {run['solver']:18s} {run['seconds'] or 0:6.1f} {objective!s:>10s} {bound!s:>10s}"
            line += f" {gap(bound, objective):>9s} {gap(bound, best):>9s}"
            if run["solver"].startswith("dmcmc"):
                smaller = bound is not None and 100 * (bound / objective - 1) < TOULBAR2_GAP[name]
                line += f"   {TOULBAR2_GAP[name]} % {'beaten' if smaller else 'NOT BEATEN'}"
                line += f", {LISTED[name][1]} {'reached' if objective >= LISTED[name][1] else 'NOT REACHED'}"
            lines.append(line)
    return lines


def draw(found: dict[str, list[dict[str, Any]]], picture: Path) -> None:
    """Draw every trace: bounds above, objectives below the best utility known."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = {
        "dmcmc auto": "C0",
        "dmcmc annealing": "C2",
        "dmcmc auto GPU": "C4",
        "toulbar2 hbfs": "C3",
        "toulbar2 vns": "C1",
    }
    rows, columns = -(-len(found) // 3), min(3, len(found))
    figure, axes = plt.subplots(rows, columns, figsize=(3.6 * columns, 2.9 * rows), layout="constrained", squeeze=False)
    for panel, (name, runs) in zip(axes.flat, found.items(), strict=False):
        best = max([LISTED[name][1], *(run["objective"] for run in runs if run["objective"] is not None)])
        longest = {run["solver"]: run for run in sorted(runs, key=lambda run: run["budget"])}
        for solver, run in longest.items():
            for side, style in ((2, "-"), (1, "--")):
                points = [(p[0], 100 * p[side] / best) for p in run["trace"] if p[side] is not None]
                if not points:
                    continue
                times, values = zip(*points, (run["budget"], points[-1][1]), strict=True)
                panel.step(times, values, style, where="post", color=colours.get(solver, "k"), linewidth=1.2)
        panel.axhline(100, color="grey", linewidth=0.5)
        panel.set_xscale("log")
        panel.set_xlim(0.3, 70)
        panel.set_title(name, fontsize=9)
        panel.set_ylim(90, 150 if "n50" in name else 130 if "n25" in name else 115)
        panel.grid(alpha=0.3)
    for panel in axes[-1]:
        panel.set_xlabel("seconds", fontsize=8)
    for line in axes[:, 0]:
        line.set_ylabel("% of the best utility known", fontsize=8)
    solvers = dict.fromkeys(run["solver"] for runs in found.values() for run in runs)
    handles = [plt.Line2D([], [], color=colours.get(solver, "k"), label=solver) for solver in solvers]
    handles += [
        plt.Line2D([], [], color="k", linestyle=style, label=t) for style, t in (("-", "bound"), ("--", "found"))
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=6, fontsize=8)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=110)


def main() -> None:
    """Measure, print, keep and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, nargs="+", default=[10, 60])
    parser.add_argument("--methods", nargs="+", default=["auto", "annealing"])
    parser.add_argument("--peers", type=int, default=60, help="seconds of toulbar2's HBFS and VNS, 0 for neither")
    parser.add_argument("--only", default="", help="instances whose names contain this")
    parser.add_argument("--output", type=Path, help="prefix of the .txt and .json files")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--memory", default="8GiB", help="budget.memory")
    parser.add_argument("--beside", type=Path, help="a .json of another run, for the picture")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    folder = Path(os.environ["DMCMC_INSTANCES"]) / "meetings"
    found: dict[str, list[dict[str, Any]]] = {}
    for name in (name for name in LISTED if options.only in name):
        path = folder / f"{name}_pl0.5_s0.npz"
        problem, runs = native.load(path), list[dict[str, Any]]()
        for method in options.methods:
            ours(problem, method, 0.5, options.device, options.memory)  # compiles
            runs += [ours(problem, method, seconds, options.device, options.memory) for seconds in options.seconds]
        if options.peers:
            runs += [toulbar2(path, how, options.peers) for how in ("hbfs", "vns")]
        found[name] = runs
        print("\n".join(table({name: runs})[0 if len(found) == 1 else 1 :]), flush=True)
    head = f"{platform.machine()}, {cores()} cores (toulbar2: one)"
    if options.device == "cuda":
        head += f", {describe_gpu()}, memory {options.memory}"
    head += f"; seconds {options.seconds}, toulbar2 {options.peers} s"
    if options.output:
        options.output.with_suffix(".txt").write_text("\n".join([head, *table(found)]) + "\n")
        raw = {"machine": head, "python": platform.python_version(), "runs": found}
        options.output.with_suffix(".json").write_text(json.dumps(raw, indent=1) + "\n")
    if options.beside:
        for name, runs in json.loads(options.beside.read_text())["runs"].items():
            found.setdefault(name, []).extend(runs)
    if options.picture:
        draw(found, options.picture)


if __name__ == "__main__":
    main()
