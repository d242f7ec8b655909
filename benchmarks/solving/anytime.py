"""Objective and proven bound over time on the meeting problems that nobody solves, beside toulbar2's.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.solving.anytime [--seconds 10 60] [--peers 60] [--only NAME]
        [--output FILE.txt] [--device cuda] [--memory 100GiB] [--beside FILE.json] [--picture docs/anytime.png]

FOLDER holds meetings/. Each of our runs is a ``budget.time`` on all cores, from a problem in memory, kernels compiled.
toulbar2's HBFS (objective and bound) and VNS (objective) follow in the same run, each for ``--peers`` seconds of its
own clock on one core (0: none); all start without a solution. Two gaps are named: that of the run itself, and `to
best`, from its bound to the best utility known to anyone. `listed` is what was found before on an idle machine:
toulbar2's gap after 60 s, and the best utility of toulbar2 and of a prototype. FILE.txt gets the table, FILE.json
beside it all traces, ``--picture`` draws them (needs matplotlib), with the traces of ``--beside``, if that is given:
what another machine's run has kept.
"""

import json
from pathlib import Path
from typing import Any

import dmcmc
from benchmarks.harness import Report, meeting, options
from benchmarks.toulbar2 import search
from dmcmc import Problem
from dmcmc.files.write import replace_file

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


def ours(problem: Problem, method: str, seconds: float, device: str, memory: int) -> dict[str, Any]:
    """Solve for some seconds; return status, trace and the like."""
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


def toulbar2(path: Path, how: str, seconds: int) -> dict[str, Any]:
    """Let toulbar2 search (``hbfs`` or ``vns``); return the same."""
    trace = search(path, how, seconds)
    last = trace[-1] if trace else None
    objective, bound = (last.objective, last.bound) if last else (None, None)
    return {
        "solver": f"toulbar2 {how}",
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


def measure(name: str, given: Any) -> list[dict[str, Any]]:
    """Return the runs of ours and of toulbar2 on a problem."""
    path = meeting(name)
    problem, runs = dmcmc.load(path), list[dict[str, Any]]()
    for method in given.methods:
        ours(problem, method, 0.5, given.device, given.memory)  # compiles
        runs += [ours(problem, method, seconds, given.device, given.memory) for seconds in given.seconds]
    if given.peers:
        runs += [toulbar2(path, how, given.peers) for how in ("hbfs", "vns")]
    return runs


def main() -> None:
    """Measure, print, keep and draw."""
    parser = options(__file__, __doc__, device="cpu", memory="8GiB", only=True)
    parser.add_argument("--seconds", type=float, nargs="+", default=[10, 60])
    parser.add_argument("--methods", nargs="+", default=["auto", "annealing"])
    parser.add_argument("--peers", type=int, default=60, help="seconds of toulbar2's HBFS and VNS, 0 for neither")
    parser.add_argument("--beside", type=Path, help="a .json of another run, for the picture")
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    say = Report(__file__, given, seconds=given.seconds, toulbar2=f"{given.peers} s on one core")
    machine = list(say.lines)
    found: dict[str, list[dict[str, Any]]] = {}
    for name in (name for name in LISTED if given.only in name):
        found[name] = measure(name, given)
        for line in table({name: found[name]})[0 if len(found) == 1 else 1 :]:
            say(line)
    say.keep()
    if given.output:
        raw = json.dumps({"machine": machine, "runs": found}, indent=1)
        replace_file(given.output.with_suffix(".json"), [raw, "\n"])
    if given.beside:
        for name, runs in json.loads(given.beside.read_text())["runs"].items():
            found.setdefault(name, []).extend(runs)
    if given.picture:
        draw(found, given.picture)


if __name__ == "__main__":
    main()
