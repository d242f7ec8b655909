"""Measure the rates of a GPU for the choices of ``auto``, and where the time of the default problem goes.

    python -m benchmarks.solving.gpu_rates --output benchmarks/results/h200_rates.txt

First, the constants of ``samplers/auto/rates.py`` and ``inference/execution/cost_model.py`` are measured and printed
with their current values: random agents of several sizes are eliminated and sampled, and seconds = trip + buckets ·
bucket + cells · cell is fitted by least squares of relative errors. Then the default problem is solved exactly with
compiled kernels, and profiled. ``--quick`` takes tiny agents, to test the script.
"""

import argparse
import cProfile
import json
import pstats
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import ROOT, Report, options, timed
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.cuda.batch import eliminate_batch
from dmcmc.inference.elimination.cuda.bucket_group_kernels import best_threshold
from dmcmc.inference.elimination.cuda.divide_work import divide_work
from dmcmc.inference.elimination.cuda.eliminate import eliminate_hybrid
from dmcmc.inference.elimination.eliminate import eliminate, merge_plans
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.execution import cost_model, tuning
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.device import gpu_problem, shared_device
from dmcmc.results.result import Result
from dmcmc.samplers import registry
from dmcmc.samplers.auto.rates import NOMINAL
from dmcmc.samplers.contract.protocol import Sampling

INT32 = Arithmetic(np.dtype(np.int32), -(2**29), 2**20)
SIZES = ((9, 24), (10, 16), (10, 24), (10, 32), (11, 24), (12, 20), (12, 24))  # variables and values of an agent
TINY = ((3, 2), (4, 2), (4, 3), (5, 2))
AGENTS_PER_BATCH = 10  # agents per batch
SHOWN_FUNCTIONS = 15  # functions of the profile that are printed


def agents_of(size: int, domain: int, count: int) -> list[LocalProblem]:
    """Return agents with one boundary variable each, half of all pairs linked, utilities 1 to 100."""
    rng = np.random.default_rng(size * domain)
    pairs = [(i, j) for i in range(size) for j in range(i)]
    domains, agents = np.full(size * count, domain, dtype=np.int64), []
    for agent in range(count):
        at = agent * size
        chosen = [pairs[k] for k in rng.permutation(len(pairs))[: len(pairs) // 2]]
        factors = tuple(Factor.of((at + i, at + j), rng.integers(1, 101, (domain, domain))) for i, j in chosen)
        agents.append(LocalProblem(agent, (at,), tuple(range(at + 1, at + size)), factors, domains))
    return agents


def flat_of(agents: Sequence[LocalProblem]) -> FlatTables:
    """Return all encoded tables."""
    factors = [f for local in agents for f in local.factors]
    return INT32.encode_flat(flatten([f.scope for f in factors], [f.table for f in factors]))


def median(work: Callable[[], object], repeats: int = 9) -> float:
    """Return the median seconds of some calls, after two that may compile and allocate."""
    return timed(work, repeats, untimed=2)[1].median


def fit(rows: Sequence[Sequence[float]], seconds: Sequence[float]) -> tuple[list[float], float]:
    """Return non-negative coefficients of the columns, and the largest relative error."""
    a, y = np.array(rows, dtype=np.float64), np.array(seconds)
    scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
    matrix, used = a / scale / y[:, None], list(range(a.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, used], np.ones(y.size), rcond=None)
        if (found >= 0).all() or len(used) == 1:
            break
        used.remove(used[int(found.argmin())])
    factors = np.zeros(a.shape[1])
    factors[used] = found
    error = float(np.abs(matrix @ factors - 1).max())
    return (factors / scale).tolist(), error


def measure_elimination(sizes: Sequence[tuple[int, int]], count: int, report: Report) -> tuple[list[float], float]:
    """Fit the seconds per trip, bucket and cell of an agent that is eliminated in batches of ``count``."""
    rows, seconds = [], []
    for size, domain in sizes:
        agents = agents_of(size, domain, count)
        plans, flat = [local.plan for local in agents], flat_of(agents)
        merged = merge_plans(plans)
        program = merged.plan.program

        def work(plans=plans, flat=flat, merged=merged, program=program):  # type: ignore[no-untyped-def]
            threshold, _ = best_threshold(
                program.variable, program.input_start, program.inputs, program.cells,
                merged.plan.tables - merged.plan.buckets, tuning.GPU_THRESHOLDS,
                cost_model.COSTS.seconds_per_cell, cost_model.COSTS.seconds_per_wave,
            )  # fmt: skip
            hybrid = divide_work(merged.plan, int(threshold))
            for done in eliminate_batch(flat, plans, merged, hybrid, INT32):
                done.remaining()

        agent_seconds = median(work) / count
        large = program.cells[program.cells >= tuning.GPU_THRESHOLDS[0]]
        rows.append([1.0, large.size / count, float(large.sum(dtype=float)) / count])
        seconds.append(agent_seconds)
        report(f"  {count:3d} agents |L| {size:2d} |D| {domain:2d}: {rows[-1][1]:5.1f} buckets,"
            f" {rows[-1][2]:9.3g} cells per agent, {1e3 * agent_seconds:8.3f} ms per agent")  # fmt: skip
    return fit(rows, seconds)


def measure_waves(lengths: Sequence[int]) -> tuple[float, float]:
    """Return the seconds of a round trip to the GPU, and of a wave, by chains of tiny buckets on the GPU."""
    rows, seconds = [], []
    for length in lengths:
        domains = np.full(length + 1, 4, dtype=np.int64)
        scopes = [(i, i + 1) for i in range(length)]
        flat = flatten(scopes, [np.ones((4, 4), dtype=np.int32) for _ in scopes], INT32.dtype)
        hybrid = divide_work(plan_elimination(scopes, domains, range(length), [length]), 0)
        rows.append([1.0, float(length)])
        seconds.append(median(lambda: eliminate_hybrid(flat, hybrid, INT32).remaining()))  # noqa: B023
    (trip, wave), _ = fit(rows, seconds)
    return trip, wave


def measure_draws(device: str, size: int, domain: int, samples: Sequence[int]) -> tuple[float, float]:
    """Return the seconds of an agent's start and of a draw."""
    agents = agents_of(size, domain, AGENTS_PER_BATCH)
    rows, seconds = [], []
    for count in samples:
        settings = Sampling(INT32, runs=10 if device == "cpu" else 100, samples=count, backend=Backend(device, 1))
        tables: list[Any] = []

        def work(settings=settings, tables=tables):  # type: ignore[no-untyped-def]
            tables[:] = registry.get("annealing").solve(agents, settings)

        taken = median(work, 3)
        rows.append([1.0, float(sum(table.updates for table in tables)) / AGENTS_PER_BATCH])
        seconds.append(taken / AGENTS_PER_BATCH)
    (start, draw), _ = fit(rows, seconds)
    return start, draw


def open_device() -> None:
    """Print as JSON the seconds until a new process has opened the GPU, eliminated and sampled, with loaded kernels."""
    agents = agents_of(6, 8, 2)
    plans, flat = [local.plan for local in agents], flat_of(agents)
    merged = merge_plans(plans)
    settings = Sampling(INT32, runs=10, samples=5, backend=Backend("cuda", 1))
    steps: list[Callable[[], Any]] = [
        lambda: (gpu_problem(), shared_device().limit),
        lambda: eliminate_batch(flat, plans, merged, divide_work(merged.plan, 0), INT32)[0].maximise({0: 0}),
        lambda: registry.get("annealing").solve(agents, settings),
    ]
    for local in agents:
        eliminate(flat, merged.plan, INT32)  # the CPU's kernels come from the cache
        registry.get("annealing").solve([local], Sampling(INT32, runs=1, samples=1))
    seconds = []
    for step in steps:
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


def measure_default(repeats: int, parameters: dict[str, int], report: Report) -> None:
    """Print the time of an exact solve with compiled kernels, and its profile."""
    problem = dmcmc.generate("meeting-scheduling", agents=10, seed=0, **parameters)

    def work() -> Result:
        return dmcmc.solve(problem, local={"method": "exact"}, device="cuda")

    result, times = timed(work, repeats, untimed=3)
    report()
    report(f"solve, default meeting problem {parameters or ''}, device cuda, kernels compiled, {repeats} repeats, ms")
    report(f"{result.status}: {result.objective}, bound {result.bound}")
    report(f"least {1e3 * times.least:7.2f}   median {1e3 * times.median:7.2f}   most {1e3 * times.most:7.2f}")
    report(
        f"one solve under a profiler, {SHOWN_FUNCTIONS} functions that took longest, with the functions that they call:"
    )
    profile = cProfile.Profile()
    profile.runcall(work)
    found = sorted(pstats.Stats(profile).stats.items(), key=lambda item: -item[1][3])  # type: ignore[attr-defined]
    own_functions = [
        (Path(file), name, spent[3]) for (file, _, name), spent in found if ROOT in Path(file).resolve().parents
    ]
    for file, name, seconds in own_functions[:SHOWN_FUNCTIONS]:
        report(f"  {1e3 * seconds:8.2f}  {file.resolve().relative_to(ROOT)}:{name}")


def row(name: str, current: float, measured: float, note: str = "") -> str:
    """Return the line of a constant: its current value and the measured one."""
    return f"{name:32s} {current:10.3g} {measured:10.3g}   {note}"


def main() -> None:
    """Measure everything."""
    parser = options(__file__, __doc__)
    parser.add_argument("--repeats", type=int, default=20, help="repeats of the solve")
    parser.add_argument("--quick", action="store_true", help="tiny agents, to test the script")
    parser.add_argument("--open", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if gpu_problem() is not None:
        sys.exit(f"no GPU: {gpu_problem()}")
    if given.open:
        open_device()
        return
    report = Report(__file__, given, device="cuda")
    if given.quick:  # even tiny buckets go to the GPU
        tuning.GPU_THRESHOLDS, cost_model.COSTS = np.array([1]), cost_model.CostModel(seconds_per_cell=1.0)
    constants(given.quick, report)
    measure_default(given.repeats, {"domain_size": 2, "variables_per_agent": 3} if given.quick else {}, report)
    report.keep()


def constants(quick: bool, report: Report) -> None:
    """Measure the constants of the cost model, and print them with their current values."""
    sizes = TINY if quick else SIZES
    size, domain, samples = (3, 2, (2, 4)) if quick else (10, 24, (50, 200, 800))
    report("eliminations, int32")
    alone, alone_error = measure_elimination(sizes, 1, report)
    batch, batch_error = measure_elimination(sizes, AGENTS_PER_BATCH if not quick else 2, report)
    trip, wave = measure_waves((2, 4) if quick else (5, 20, 80, 200))
    agent = agents_of(size, domain, 1)[0]
    flat = flat_of([agent])
    cell = median(lambda: eliminate(flat, agent.plan, INT32), 3) / max(1, agent.plan.cells)
    _, draw = measure_draws("cuda", size, domain, samples)
    start, cpu_draw = measure_draws("cpu", size, domain, samples[:2])
    command = [sys.executable, "-m", "benchmarks.solving.gpu_rates", "--open"]
    opening = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    report()
    report("seconds                             current   measured")
    for i, name in enumerate(("gpu_trip", "gpu_bucket", "gpu_cell")):
        note = f"in a batch of {AGENTS_PER_BATCH}: {batch[i]:.3g}"
        report(row(f"rates.{name}, agent alone", getattr(NOMINAL, name), alone[i], note))
    report(f"  largest error of the fits: alone {alone_error:.0%}, in a batch {batch_error:.0%}")
    note = "context {:.2f}, elimination kernels {:.2f}, samplers {:.2f}".format(*opening)
    report(row("rates.gpu_open", NOMINAL.gpu_open, sum(opening[:2]), note))
    report(row("rates.gpu_update", NOMINAL.gpu_update, draw))
    report(row("costs.trip", cost_model.COSTS.gpu_round_trip, trip))
    report(row("costs.wave", cost_model.COSTS.seconds_per_wave, wave))
    report(row("costs.cell", cost_model.COSTS.seconds_per_cell, cell, "one core"))
    report(
        row(
            "costs.update",
            cost_model.COSTS.seconds_per_draw,
            cpu_draw,
            f"one core; {1e3 * start:.2f} ms per start of an agent",
        )
    )
    report(row("costs.opening", cost_model.COSTS.gpu_start, sum(opening[:2])))


if __name__ == "__main__":
    main()
