"""Measure objective and proven bound over time on the meeting problems that are not solved yet, compared with toulbar2.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.anytime [--seconds 10 60] [--peers 60] [--only NAME]
        [--output FILE.txt] [--device cuda] [--memory 100GiB] [--add FILE.json] [--picture docs/anytime.png]

FOLDER holds meetings/. Each of our runs has a time limit, on all cores, for a problem in memory, with compiled kernels.
toulbar2's HBFS (objective and bound) and VNS (objective) follow in the same script, each for ``--peers`` seconds of its
own clock on one core (0: not at all). All start without a solution. Two gaps are printed: that of the run itself, and
``to best``, from its bound to the best known utility. ``listed`` are former results on an idle machine: toulbar2's gap
after 60 s, and the best utility of toulbar2 and of a prototype. FILE.txt contains the table, FILE.json all traces.
``--picture`` draws the traces (needs matplotlib), together with those of another run's file, ``--add``.
"""

import json
from pathlib import Path
from typing import Any

import dmcmc
from benchmarks.harness import Report, meeting, options
from benchmarks.toulbar2 import search
from dmcmc import Problem
from dmcmc.files.write import replace_file

# former results: toulbar2's bound after 60 s, and the best utility
FORMER_RESULTS = {
    "ms_A10_n25_D24": (29560, 24147),
    "ms_A10_n50_D24": (119578, 92526),
    "ms_A10_n10_D96": (20776, 18510),
    "mu_A10_n25_D24": (1427540, 1156515),
    "mu_A10_n50_D24": (5797878, 4259492),
    "mu_A10_n10_D96": (226526, 215436),
}
TOULBAR2_GAP = {  # per cent after 60 s, relative to the best utility that toulbar2 itself found
    "ms_A10_n25_D24": 22,
    "ms_A10_n50_D24": 29,
    "ms_A10_n10_D96": 12,
    "mu_A10_n25_D24": 23,
    "mu_A10_n50_D24": 36,
    "mu_A10_n10_D96": 5,
}


def ours(problem: Problem, method: str, seconds: float, device: str, memory: int) -> dict[str, Any]:
    """Solve for some seconds; return status, objective, bound and trace."""
    budget = {"time": seconds, "memory": memory}
    result = dmcmc.solve(problem, local={"method": method}, budget=budget, device=device)
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


def toulbar2(path: Path, method: str, seconds: int) -> dict[str, Any]:
    """Let toulbar2 search (``hbfs`` or ``vns``); return the same fields."""
    trace = search(path, method, seconds)
    last = trace[-1] if trace else None
    objective, bound = (last.objective, last.bound) if last else (None, None)
    return {
        "solver": f"toulbar2 {method}",
        "budget": seconds,
        "seconds": last.seconds if last else None,
        "status": "optimal" if objective is not None and objective == bound else "timeout",
        "objective": objective,
        "bound": bound,
        "trace": trace,
    }


def gap(bound: float | None, utility: float | None) -> str:
    """Return a gap in per cent."""
    return "-" if bound is None or utility is None else f"{100 * (bound / utility - 1):.2f} %"


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the lines of the table: each run at its end, ours also compared with the former results."""
    head = f"{'instance':16s} {'solver':18s} {'s':>6s} {'objective':>10s} {'bound':>10s} {'gap':>9s} {'to best':>9s}"
    lines = [head + "   listed: gap, utility"]
    for name, runs in found.items():
        best = max([FORMER_RESULTS[name][1], *(run["objective"] for run in runs if run["objective"] is not None)])
        for run in runs:
            objective, bound = run["objective"], run["bound"]
            line = f"{name:16s} {run['solver']:18s} {run['seconds'] or 0:6.1f} {objective!s:>10s} {bound!s:>10s}"
            line += f" {gap(bound, objective):>9s} {gap(bound, best):>9s}"
            if run["solver"].startswith("dmcmc"):
                is_tighter = bound is not None and 100 * (bound / objective - 1) < TOULBAR2_GAP[name]
                line += f"   {TOULBAR2_GAP[name]} % {'beaten' if is_tighter else 'NOT BEATEN'}"
                former = FORMER_RESULTS[name][1]
                line += f", {former} {'reached' if objective >= former else 'NOT REACHED'}"
            lines.append(line)
    return lines


def draw(found: dict[str, list[dict[str, Any]]], picture: Path) -> None:
    """Draw every trace: bounds above, objectives below the best known utility."""
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
        best = max([FORMER_RESULTS[name][1], *(run["objective"] for run in runs if run["objective"] is not None)])
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


def measure(name: str, given: Any) -> list[dict[str, Any]]:
    """Return our runs and toulbar2's on a problem."""
    path = meeting(name)
    problem, runs = dmcmc.load(path), list[dict[str, Any]]()
    for method in given.methods:
        ours(problem, method, 0.5, given.device, given.memory)  # compile the kernels
        runs += [ours(problem, method, seconds, given.device, given.memory) for seconds in given.seconds]
    if given.peers:
        runs += [toulbar2(path, how, given.peers) for how in ("hbfs", "vns")]
    return runs


def main() -> None:
    """Measure, print, save and draw."""
    parser = options(__file__, __doc__, device="cpu", memory="8GiB", only=True)
    parser.add_argument("--seconds", type=float, nargs="+", default=[10, 60])
    parser.add_argument("--methods", nargs="+", default=["auto", "annealing"])
    parser.add_argument("--peers", type=int, default=60, help="seconds of toulbar2's HBFS and VNS, 0 for neither")
    parser.add_argument("--add", type=Path, metavar="FILE.json", help="traces of another run, for the picture")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    report = Report(__file__, given, seconds=given.seconds, toulbar2=f"{given.peers} s on one core")
    machine = list(report.lines)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in (name for name in FORMER_RESULTS if given.only in name):
        found[name] = measure(name, given)
        for line in table({name: found[name]})[0 if len(found) == 1 else 1 :]:
            report(line)
    report.keep()
    if given.output:
        raw = json.dumps({"machine": machine, "runs": found}, indent=1)
        replace_file(given.output.with_suffix(".json"), [raw, "\n"])
    if given.add:
        for name, runs in json.loads(given.add.read_text())["runs"].items():
            found.setdefault(name, []).extend(runs)
    if given.picture:
        draw(found, given.picture)


if __name__ == "__main__":
    main()
