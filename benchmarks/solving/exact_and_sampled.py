"""Solve meeting scheduling problems on CPUs, exactly and by sampling: the measurements of version 0.1.

    python -m benchmarks.solving.exact_and_sampled [--problems 10] [--output FILE.txt]

FILE.txt contains the printed lines, FILE.json the raw figures. The exact runs are meant for two cores, the speed of the
samplers is that of one. Times of single runs on a shared machine are only indications; ratios are within this run.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from support.numpy_gibbs import gibbs_twin

import dmcmc
from benchmarks.harness import Report, options, timed
from dmcmc import Problem
from dmcmc.files.write import replace_file
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.problem import choose_arithmetic
from dmcmc.results.result import Result
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.model.chain_model import build_model
from dmcmc.samplers.model.schedule import Temperature

SAMPLERS = [
    ("gibbs", "auto"),
    ("gibbs", 1.0),
    ("metropolis-hastings-single", "auto"),
    ("metropolis-hastings", "auto"),
    ("metropolis-hastings", 1.0),
]


def meetings(seed: int, **changes: object) -> Problem:
    """Return a meeting scheduling problem of the paper's default size, with some parameters changed."""
    return dmcmc.generate("meeting-scheduling", seed=seed, **changes)


def run(problem: Problem, **local: object) -> Result:
    """Solve a problem in this process on all cores."""
    return dmcmc.solve(problem, local=local, seed=7)


def utility_of(result: Result) -> float:
    """Return the objective of a feasible result."""
    assert result.objective is not None
    return float(result.objective)


def exact_and_sampled(tables: str, count: int) -> dict[str, object]:
    """Solve the default size exactly, and by every sampler with R = 10, S = 100."""
    problems = [meetings(seed, tables=tables) for seed in range(count)]
    exact = [run(p, method="exact") for p in problems]
    assert all(r.status == "optimal" for r in exact)
    rows: dict[str, object] = {"exact seconds": [r.time for r in exact], "optima": [r.objective for r in exact]}
    for method, temperature in SAMPLERS:
        results = [run(p, method=method, temperature=temperature, runs=10, samples=100) for p in problems]
        ratios = [utility_of(r) / utility_of(e) for r, e in zip(results, exact, strict=True)]
        rows[f"{method}, temperature {temperature}"] = {
            "ratio mean": statistics.mean(ratios),
            "ratio least": min(ratios),
            "seconds median": statistics.median(r.time for r in results),
        }
    return rows


def gibbs_speed(events: int) -> dict[str, float]:
    """Time the Gibbs kernel on one thread, and its NumPy implementation on a part of the same chains."""
    problem = meetings(0, agents=1, variables_per_agent=events)
    (local,) = divide(problem).locals
    samples, runs = 200, 4_000_000 // (200 * events)
    arithmetic = choose_arithmetic(problem.factors)
    settings = Sampling(arithmetic, seed=1, runs=runs, samples=samples)
    solver = registry.get("gibbs")
    (table,), times = timed(lambda: solver.solve([local], settings), untimed=0)
    speeds = [table.updates / seconds for seconds in times.seconds]
    model = build_model(local)
    temperatures = Temperature().of_trials(model, samples)[:: max(1, events // 2)]
    start = time.perf_counter()
    sweeps = sum(1 for _ in gibbs_twin(local, model, {}, 1, 0, 0, temperatures)) - 1
    numpy_rate = sweeps * events / (time.perf_counter() - start)
    return {
        "updates/s median": statistics.median(speeds),
        "updates/s least": min(speeds),
        "updates/s most": max(speeds),
        "NumPy updates/s": numpy_rate,
        "ratio": statistics.median(speeds) / numpy_rate,
    }


def ranks_agree(folder: Path, most: int) -> dict[str, object]:
    """Solve the default problem through mpirun on 1 to ``most`` ranks, compare the answers, and time the start-up."""
    config = folder / "meetings.yaml"
    config.write_text("problem: {generator: meeting-scheduling, seed: 0}\nlocal: {method: gibbs}\nseed: 7\n")
    mpirun = Path(sys.executable).parent / "mpirun"
    answers = {}
    rows: dict[str, object] = {}
    for ranks in (r for r in (1, 1, 2, 3, 4, 8) if r <= most):
        start = time.perf_counter()
        command = [str(mpirun), "-n", str(ranks), sys.executable, "-m", "dmcmc", "run", str(config), "--json"]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        wall = time.perf_counter() - start
        answers[ranks] = (result["objective"], result["assignment"], result["msg_count"], result["msg_size"])
        rows[f"{ranks} ranks"] = {"objective": result["objective"], "messages": result["msg_count"]}
        if ranks == 1:
            rows["seconds from the command to the start of the solve (1 rank, kernels compiled)"] = (
                wall - result["time"]
            )
    rows["identical"] = all(a == answers[1] for a in answers.values())
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
    parser = options(__file__, __doc__)
    parser.add_argument("--problems", type=int, default=10, help="problems per set")
    parser.add_argument("--ranks", type=int, default=8, help="largest number of ranks")
    given = parser.parse_args()
    report = Report(__file__, given)
    machine = list(report.lines)
    run(meetings(99), method="auto")  # compile
    for method, _ in SAMPLERS:
        run(meetings(99, agents=2), method=method, samples=2)
    size = f"({given.problems} instances, R=10, S=100)"
    figures: dict[str, object] = {
        f"default size, preferences {size}": exact_and_sampled("preferences", given.problems),
        f"default size, uniform {size}": exact_and_sampled("uniform", given.problems),
        "Gibbs, one thread, |L|=10, |D|=24": gibbs_speed(10),
        "Gibbs, one thread, |L|=50, |D|=24": gibbs_speed(50),
    }
    with tempfile.TemporaryDirectory() as folder:
        figures["ranks"] = ranks_agree(Path(folder), given.ranks)
    for line in lines_of(figures):
        report(line)
    report.keep()
    if given.output:
        raw = json.dumps({"machine": machine, **figures}, indent=1, default=np.generic.item)
        replace_file(given.output.with_suffix(".json"), [raw, "\n"])


if __name__ == "__main__":
    main()
