"""Meeting scheduling on CPUs, exactly and by sampling: the measurements of CHANGELOG 0.1.

    python benchmarks/first_light.py [--output benchmarks/results]

Prints a table and writes it, with the raw figures as JSON, into the output folder. Two cores are assumed for the
exact runs, one for the samplers' speed. Times of single runs on a shared machine are indications; ratios are taken
within this one run.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.numpy_gibbs import gibbs_twin

from dmcmc import Problem
from dmcmc.config.configuration import parse
from dmcmc.generators import registry as generators
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.arithmetic import choose_arithmetic
from dmcmc.results.provenance import versions
from dmcmc.results.result import Result
from dmcmc.run.solve import solve
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import Settings
from dmcmc.samplers.model.chain_model import build_model
from dmcmc.samplers.model.schedule import Temperature

INSTANCES = 10
SAMPLERS = [
    ("gibbs", "auto"),
    ("gibbs", 1.0),
    ("metropolis-hastings-single", "auto"),
    ("metropolis-hastings", "auto"),
    ("metropolis-hastings", 1.0),
]


def meetings(seed: int, **changes: object) -> Problem:
    """Return a meeting-scheduling problem of the paper's default size."""
    return generators.generate("meeting-scheduling", {"seed": seed, **changes})


def run(problem: Problem, **local: object) -> Result:
    """Solve in this process on all its cores."""
    result = solve(problem, parse({"problem": {"file": "-"}, "local": local, "seed": 7}))
    assert result is not None
    return result


def exact_and_sampled(tables: str) -> dict[str, object]:
    """Solve the default size exactly, and by every sampler with R=10, S=100."""
    problems = [meetings(seed, tables=tables) for seed in range(INSTANCES)]
    exact = [run(p, method="exact") for p in problems]
    assert all(r.status == "optimal" for r in exact)
    rows: dict[str, object] = {"exact seconds": [r.time for r in exact], "optima": [r.objective for r in exact]}
    for method, temperature in SAMPLERS:
        results = [run(p, method=method, temperature=temperature, runs=10, samples=100) for p in problems]
        ratios = [r.objective / e.objective for r, e in zip(results, exact, strict=True)]
        rows[f"{method}, temperature {temperature}"] = {
            "ratio mean": statistics.mean(ratios),
            "ratio least": min(ratios),
            "seconds median": statistics.median(r.time for r in results),
        }
    return rows


def gibbs_speed(events: int) -> dict[str, float]:
    """Time the Gibbs kernel on one thread, and its NumPy twin on a part of the same chains."""
    problem = meetings(0, agents=1, variables_per_agent=events)
    (local,) = divide(problem).locals
    samples, runs = 200, 4_000_000 // (200 * events)
    arithmetic = choose_arithmetic(problem.factors)
    settings = Settings(arithmetic, seed=1, runs=runs, samples=samples)
    solver = registry.get("gibbs")
    speeds = []
    for _ in range(5):
        start = time.perf_counter()
        (table,) = solver.solve([local], settings)
        speeds.append(table.updates / (time.perf_counter() - start))
    model = build_model(local)
    temperatures = Temperature().of_trials(model, samples)[:: max(1, events // 2)]
    start = time.perf_counter()
    sweeps = sum(1 for _ in gibbs_twin(local, model, {}, 1, 0, 0, temperatures)) - 1
    twin = sweeps * events / (time.perf_counter() - start)
    return {
        "updates/s median": statistics.median(speeds),
        "updates/s least": min(speeds),
        "updates/s most": max(speeds),
        "NumPy twin updates/s": twin,
        "ratio": statistics.median(speeds) / twin,
    }


def ranks_agree(folder: Path) -> dict[str, object]:
    """Run the default through mpirun on 1 to 8 ranks; compare the answers and time the start-up."""
    config = folder / "meetings.yaml"
    config.write_text("problem: {generator: meeting-scheduling, seed: 0}\nlocal: {method: gibbs}\nseed: 7\n")
    mpirun = Path(sys.executable).parent / "mpirun"
    answers = {}
    rows: dict[str, object] = {}
    for ranks in (1, 1, 2, 3, 4, 8):
        start = time.perf_counter()
        command = [str(mpirun), "-n", str(ranks), sys.executable, "-m", "dmcmc", "run", str(config), "--json"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        wall = time.perf_counter() - start
        answers[ranks] = (result["objective"], result["assignment"], result["msg_count"], result["msg_size"])
        rows[f"{ranks} ranks"] = {"objective": result["objective"], "messages": result["msg_count"]}
        if ranks == 1:
            rows["seconds from the command to the start of the solve (1 rank, warm)"] = wall - result["time"]
    rows["identical"] = all(a == answers[1] for a in answers.values())
    config.unlink()
    return rows


def lines_of(rows: dict[str, object], indent: str = "") -> list[str]:
    """Return nested figures as indented lines."""
    lines = []
    for name, value in rows.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}", *lines_of(value, indent + "  ")]
            continue
        values = value if isinstance(value, list) else [value]
        shown = " ".join(f"{v:,.4g}" if isinstance(v, float) else str(v) for v in values)
        lines.append(f"{indent}{name}: {shown}")
    return lines


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    folder = parser.parse_args().output
    folder.mkdir(parents=True, exist_ok=True)
    run(meetings(99), method="auto")  # compile
    for method, _ in SAMPLERS:
        run(meetings(99, agents=2), method=method, samples=2)
    cores = len(os.sched_getaffinity(0))
    figures: dict[str, object] = {
        "machine": f"{platform.machine()}, {cores} cores, " + ", ".join(f"{k} {v}" for k, v in versions().items()),
        "command": "python benchmarks/first_light.py",
        "default size, preferences (10 instances, R=10, S=100)": exact_and_sampled("preferences"),
        "default size, uniform (10 instances, R=10, S=100)": exact_and_sampled("uniform"),
        "Gibbs, one thread, |L|=10, |D|=24": gibbs_speed(10),
        "Gibbs, one thread, |L|=50, |D|=24": gibbs_speed(50),
        "ranks": ranks_agree(folder),
    }
    text = "\n".join(lines_of(figures))
    print(text)
    (folder / "first_light.txt").write_text(text + "\n")
    (folder / "first_light.json").write_text(json.dumps(figures, indent=1, default=np.generic.item) + "\n")


if __name__ == "__main__":
    main()
