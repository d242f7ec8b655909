"""Measure the samplers on a GPU: updates per second, the default problem, equality with the CPU, and many rows.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.sampling.gpu_samplers [speed default papers same rows meetings]

The limits are those of a GPU of compute capability 9.0: 132 multiprocessors, each of which reads 128 bytes of shared
memory and issues 4 instructions for 32 threads per cycle. ``--instructions N`` takes the instructions per update (of a
warp, per chain) that a profiler has measured, and adds the fraction of the instruction limit.
"""

import os
import sys
import time
from collections.abc import Sequence
from types import FunctionType
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Report, meeting, options, timed
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.problem import Factor, choose_arithmetic
from dmcmc.inference.runtime.device import gpu_limits, gpu_problem
from dmcmc.samplers import registry
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.cuda.batch import choose_launch, pack_models
from dmcmc.samplers.cuda.launch import sample_rows
from dmcmc.samplers.methods import gibbs, metropolis
from dmcmc.samplers.model.chain_model import build_model
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.rounds import one_round
from dmcmc.samplers.model.schedule import Temperature

CLOCK = 1.98e9  # Hz
PROCESSORS = 132
SIZES = ((10, 24, 400, 400), (10, 96, 100, 400), (50, 24, 400, 100), (200, 10, 1500, 20))  # |L|, |D|, R, S
PROBES = {(10, 24): 8.0, (50, 24): 2.2}  # 10^9 updates per second of a CUDA C++ kernel that keeps the scores up to date
MEETINGS = ("A10_n10_D24", "A10_n25_D24", "A10_n50_D24", "A10_n10_D96", "A50_n10_D24")
PAPER = (  # |A|, |X|, |D|, R, S
    (10, 10, 24, 10, 100), (50, 10, 24, 10, 100), (10, 5, 24, 10, 100), (10, 25, 24, 10, 100), (10, 50, 24, 10, 100),
    (10, 10, 96, 10, 100), (10, 10, 24, 100, 10_000),
)  # fmt: skip
BEST = {  # best utilities known: the optimum, or the best of toulbar2 and a prototype
    "ms_A10_n10_D24": 4020, "ms_A10_n25_D24": 24153, "ms_A10_n50_D24": 92526, "ms_A10_n10_D96": 18510,
    "ms_A50_n10_D24": 20731, "mu_A10_n10_D24": 205017, "mu_A10_n25_D24": 1156515, "mu_A10_n50_D24": 4259492,
    "mu_A10_n10_D96": 215436,
}  # fmt: skip
WORK = {"n10_D24": (100, 200), "n25_D24": (128, 400), "n50_D24": (128, 240), "n10_D96": (64, 400)}  # R, S


def agents_of(size: int, domain: int, count: int = 10) -> list[LocalProblem]:
    """Return agents with one boundary variable, half of all pairs linked, utilities 1 to 100."""
    rng = np.random.default_rng(1)
    pairs = [(i, j) for i in range(size) for j in range(i)]
    agents = []
    for agent in range(count):
        chosen = rng.permutation(len(pairs))[: len(pairs) // 2]
        factors = tuple(Factor.of(pairs[k], rng.integers(1, 101, (domain, domain))) for k in chosen)
        agents.append(LocalProblem(agent, (0,), tuple(range(1, size)), factors, np.full(size, domain, dtype=np.int64)))
    return agents


def settings_of(device: str, runs: int, samples: int, threads: int, arithmetic: Any) -> Sampling:
    """Return the sampling settings for one device."""
    return Sampling(arithmetic=arithmetic, seed=3, runs=runs, samples=samples, backend=Backend(device, threads))


def speed(instructions: Sequence[float], report: Report) -> None:
    """Measure the Gibbs updates per second, annealed from hot to cold, and their limits."""
    report()
    report("Gibbs, 10 agents, annealed; including launches and the transfer of the states")
    report("|L|  |D|    R    S        ms   G upd/s  probe  staged       threads  shared-memory look-ups  instructions")
    for number, (size, domain, runs, samples) in enumerate(SIZES):
        models = [build_model(local) for local in agents_of(size, domain)]
        keys = [chain_key(1, agent) for agent in range(len(models))]
        rounds = [one_round(model, samples, Temperature()) for model in models]
        batch = pack_models(models, keys, runs)
        launch = choose_launch(batch, runs, 1, *gpu_limits(80))
        assert launch is not None
        _, times = timed(lambda: sample_rows(gibbs.SAMPLER, models, keys, rounds, runs), 3)  # noqa: B023
        updates = len(models) * domain * runs * samples * (size - 1)
        rate = updates / times.least
        columns = float(np.mean([m.column_start[-1] / m.hidden for m in models]))
        words = -(-domain // 4)
        looked_up = columns * (8 * words + 8 + 1)  # bytes per update: rows of tables, records, and values of neighbours
        limit = rate * looked_up / (PROCESSORS * 128 * CLOCK)
        issue = f"{rate * instructions[number] / (PROCESSORS * 4 * CLOCK):.0%}" if number < len(instructions) else "-"
        stage = ("device memory", "one variable", "two alternately", "whole agent")[launch.shape.stage]
        probe = f"{PROBES[size, domain]:5.1f}" if (size, domain) in PROBES else "    -"
        report(
            f"{size:3d} {domain:4d} {runs:4d} {samples:4d} {1e3 * times.least:9.2f} {rate / 1e9:9.2f}  {probe}"
            f"  {stage:12s} {launch.threads:7d} {limit:15.0%} (without conflicts)   {issue:>8s}"
        )


def default_problem(threads: int, report: Report) -> None:
    """Measure a problem of the paper's default size: 10 agents, R = S = 100."""
    problem = dmcmc.generate("meeting-scheduling", agents=10)
    division, arithmetic = divide(problem), choose_arithmetic(problem.factors)
    models = [build_model(local) for local in division.locals]
    keys = [chain_key(3, agent) for agent in range(len(models))]
    rounds = [one_round(model, 100, Temperature()) for model in models]
    _, times = timed(lambda: sample_rows(gibbs.SAMPLER, models, keys, rounds, 100), 20)
    report()
    report("the default problem (10 agents, |X| = 10, |D| = 24), R = S = 100, gibbs")
    report(f"sampling, from models in host memory to states in host memory: {1e3 * times.least:.2f} ms")
    for device, workers in (("cuda", threads), ("cpu", threads), ("cpu", 1)):
        settings = settings_of(device, 100, 100, workers, arithmetic)
        _, times = timed(lambda: registry.get("gibbs").solve(division.locals, settings), 5)  # noqa: B023
        report(f"models, sampling and table values: {device}, {workers:2d} threads {1e3 * times.least:8.2f} ms")


def _copy_of(function: Any) -> Any:
    """Return a copy of a function."""
    return FunctionType(function.__code__, function.__globals__, function.__name__)


def papers(threads: int, report: Report) -> None:
    """Measure Gibbs and joint Metropolis-Hastings as in the DMCMC paper (temperature 1), alone and in solves."""
    report()
    report("settings of the paper's Table 1 (R = 10, S = 100) and Fig. 5 (100, 10,000), temperature 1, meetings")
    report("|A|  |X|  |D|    R      S   method              sampling ms   M samples/s   run ms  S = 1: GPU, CPU")
    # the general kernel calls a sampler's functions; a copied step function is not recognised by the special one
    general = metropolis.SAMPLER._replace(step=_copy_of(metropolis.step))
    plain_run: dict[str, Any] = {"search": "none", "local_search": "none"}
    for agents, size, domain, runs, samples in PAPER:
        parameters = {"agents": agents, "variables_per_agent": size, "domain_size": domain}
        problem = dmcmc.generate("meeting-scheduling", **parameters)
        models = [build_model(local) for local in divide(problem).locals]
        keys = [chain_key(0, agent) for agent in range(len(models))]
        rounds = [one_round(model, samples, Temperature.constant(1.0)) for model in models]
        rows = sum(int(np.prod(m.domains[m.hidden :])) for m in models)
        for name, sampler in (("gibbs", gibbs.SAMPLER), ("metropolis-hastings", metropolis.SAMPLER), ("", general)):
            _, times = timed(lambda: sample_rows(sampler, models, keys, rounds, runs), 5)  # noqa: B023
            row = f"{agents:3d} {size:4d} {domain:4d} {runs:4d} {samples:6d}   {name or '(general kernel)':19s}"
            row += f" {1e3 * times.least:11.2f} {rows * runs * samples / times.least / 1e6:13.2f}"
            for device, drawn in (("cuda", samples), ("cuda", 1), ("cpu", 1)) if name else ():
                local = {"method": name, "runs": runs, "samples": drawn, "temperature": 1, "bound": "none"}
                _, times = timed(
                    lambda: dmcmc.solve(problem, local=local, device=device, **plain_run),  # noqa: B023
                    5,
                )
                row += f" {1e3 * times.least:8.2f}{'' if drawn > 1 else '    '}"
            report(row)


def same(threads: int, report: Report) -> None:
    """Count the rows whose states differ between CPU and GPU."""
    report()
    report("the same seed on CPU and GPU: rows whose state differs (and the time of each, models included)")
    for size, domain, runs, samples in ((10, 24, 100, 100), (50, 24, 20, 50), (10, 96, 20, 50)):
        agents = agents_of(size, domain)
        arithmetic = choose_arithmetic([f for a in agents for f in a.factors])
        for name in ("gibbs", "annealing", "tempering", "metropolis-hastings-single", "metropolis-hastings"):
            tables, times = {}, {}
            for device in ("cuda", "cpu"):
                settings = settings_of(device, runs, samples, threads, arithmetic)
                tables[device], taken = timed(lambda: registry.get(name).solve(agents, settings), 2)  # noqa: B023
                times[device] = taken.least
            differ = rows = 0
            for one, other in zip(tables["cuda"], tables["cpu"], strict=True):
                for value in range(domain):
                    rows += 1
                    differ += one.witness({0: value}) != other.witness({0: value})
            updates = sum(t.updates for t in tables["cuda"])
            rate, times_faster = updates / times["cuda"] / 1e9, times["cpu"] / times["cuda"]
            report(
                f"|L| {size:3d} |D| {domain:3d} R {runs:3d} S {samples:3d} {name:27s} {differ} of {rows}"
                f"   {rate:6.2f} G upd/s, {times_faster:5.1f} times {threads} threads"
            )


def many_rows(threads: int, report: Report) -> None:
    """Measure 100 agents with 13,824 rows each."""
    from numba import cuda

    parameters = {"agents": 100, "variables_per_agent": 10, "domain_size": 24, "interface_variables": 3}
    problem = dmcmc.generate("random", **parameters)
    division, arithmetic = divide(problem), choose_arithmetic(problem.factors)
    rows = sum(local.rows for local in division.locals)
    report()
    report(f"100 agents, |B| = 3, |D| = 24: {rows:,} rows in all, annealing, R = 10, S = 20")
    settings = settings_of("cuda", 10, 20, threads, arithmetic)
    free = cuda.current_context().get_memory_info().free
    start = time.perf_counter()
    tables = registry.get("annealing").solve(division.locals, settings)
    first = time.perf_counter() - start
    used = free - cuda.current_context().get_memory_info().free
    start = time.perf_counter()
    tables = registry.get("annealing").solve(division.locals, settings)
    second = time.perf_counter() - start
    updates = sum(t.updates for t in tables)
    report(
        f"{first:.2f} s, again {second:.2f} s ({updates / second / 1e9:.2f} G upd/s);"
        f" {used / 2**30:.2f} GiB of device memory"
    )


def meetings(_: int, report: Report) -> None:
    """Print the best utility within 100 ms of sampling on each reference instance."""
    report()
    report("reference meeting problems: annealing on the GPU")
    report("instance             R    S   sampling ms   utility   best known")
    for kind in ("ms", "mu"):
        for size in MEETINGS:
            file = meeting(f"{kind}_{size}")
            if not file.exists():
                continue
            problem = dmcmc.load(file)
            division = divide(problem)
            runs, samples = WORK[size.partition("_")[2]]
            models = [build_model(local) for local in division.locals]
            keys = [chain_key(0, agent) for agent in range(len(models))]
            sampler = registry.get("annealing").sampler  # type: ignore[attr-defined]
            rounds = [sampler.rounds(model, samples, Temperature()) for model in models]
            _, times = timed(lambda: sample_rows(sampler, models, keys, rounds, runs), 3)  # noqa: B023
            local = {"method": "annealing", "runs": runs, "samples": samples, "bound": "none"}
            result = dmcmc.solve(problem, local=local, device="cuda")
            known = BEST[f"{kind}_{size}"]
            row = f"{kind}_{size:15s} {runs:4d} {samples:4d} {1e3 * times.least:11.1f}"
            mark = "=" if result.objective == known else (">" if (result.objective or 0) > known else "<")
            report(f"{row} {result.objective:11}   {mark} {known}")


def main() -> None:
    """Run the selected parts."""
    parser = options(__file__, __doc__)
    parser.add_argument("parts", nargs="*", default=["speed", "default", "papers", "same", "rows", "meetings"])
    parser.add_argument("--instructions", type=float, nargs="*", default=[])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if gpu_problem() is not None:
        sys.exit(f"no GPU: {gpu_problem()}")
    report = Report(__file__, given, device="cuda", CPU_threads=given.threads)
    for part in given.parts:
        if part == "speed":
            speed(given.instructions, report)
        else:
            parts = {
                "default": default_problem,
                "papers": papers,
                "same": same,
                "rows": many_rows,
                "meetings": meetings,
            }
            parts[part](given.threads, report)
    report.keep()


if __name__ == "__main__":
    main()
