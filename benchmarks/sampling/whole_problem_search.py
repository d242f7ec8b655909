"""Measure the local search over all variables over time: on all cores, by chains on a GPU, and by both concurrently.

    python -m benchmarks.sampling.whole_problem_search [--seconds 4] [--threads N] [--only TEXT] [--output FILE]

All begin at the same greedy assignment, without tables; the assignments that they find are made 1-optimal. Times start
when the kernels are loaded, and include the layout of the problem for the chains. Each has one run with seed 0. scen06
needs DMCMC_INSTANCES.
"""

import os
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import config

from benchmarks.harness import Columns, Report, options
from dmcmc import Problem, generate, load
from dmcmc.inference.model.densify import densify
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.samplers.local_search.block_moves import BlockMoves
from dmcmc.samplers.local_search.cuda.background_search import BackgroundChains, IncumbentObserver
from dmcmc.samplers.local_search.cuda.chains import DeviceAnnealingChains, load_kernels
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.rng import chain_key

AFTER = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds
_NEVER = 1e6  # seconds: later than any run ends
_SWEEPS = 300  # sweeps of all chains when kernels are compiled
_BLOCK_MOVE_SECONDS = 0.001  # seconds of chains after which block moves get a time quantum


class Improvement(NamedTuple):
    """An improvement of the best assignment.

    Attributes
    ----------
    seconds : float
        When it was found.
    quality : (int, float)
        Negated violations, and the objective as a utility; more is better.
    """

    seconds: float
    quality: tuple[int, float]


def problems() -> dict[str, Callable[[], Problem]]:
    """Return functions that draw or read the problems, by name."""
    meetings = partial(generate, "meeting-scheduling", domain_size=24, local_density=0.5, seed=0)
    drawn = partial(generate, "random", variables_per_agent=1, domain_size=10)
    found: dict[str, Callable[[], Problem]] = {
        "random n20 d10": partial(drawn, agents=20, global_density=0.5, seed=1),
        "random n200 d10": partial(drawn, agents=200, global_density=0.03, seed=2),
        "configs/large.yaml": partial(meetings, agents=50, variables_per_agent=50),
        "100 agents x 50": partial(meetings, agents=100, variables_per_agent=50),
    }
    path = next(Path(os.environ.get("DMCMC_INSTANCES", "nowhere")).glob("instances/celar/[sS][cC][eE][nN]06.*"), None)
    if path is not None:
        found["scen06"] = partial(load, str(path))
    return found


class SearchProblem:
    """A problem, and the initial assignment of every search.

    Parameters
    ----------
    problem : Problem
        The problem.
    threads : int
        Threads of the search on cores.
    """

    def __init__(self, problem: Problem, threads: int) -> None:
        self.problem, self.threads = problem, threads
        self.dense = densify(problem, 1 << 30).problem
        self.first = self._search(Deadline(time.perf_counter() + _NEVER)).first()

    def compile_kernels(self) -> None:
        """Compile and load the kernels by a fixed amount of work; in a timed run some might not be called."""
        search = self._search(NO_DEADLINE)
        search.improve(self.first, None, _SWEEPS)
        block_moves = BlockMoves(search.graph_from(self.first), 0, 1)
        block_moves.add_chain_time(_BLOCK_MOVE_SECONDS, gained=False)
        block_moves.run(self.first[: self.problem.n_variables], timed=False, stop=NO_DEADLINE)
        self.run(0.3, True, True)

    def _search(self, stop: Deadline) -> LocalSearch:
        """Return a local search of the problem."""
        return LocalSearch(self.problem, self.dense, 0, self.threads, stop)

    def _quality(self, values: np.ndarray) -> tuple[int, float]:
        """Return the quality of an assignment."""
        found = self.problem.evaluate(values[: self.problem.n_variables])
        return -found.violation, float(found.objective) * (1 if self.problem.sense == "max" else -1)

    def run(self, seconds: float, cores: bool, gpu: bool) -> tuple[list[Improvement], str]:
        """Search for some seconds on cores or on a GPU or both; return the improvements, and a text about the GPU."""
        start = time.perf_counter()
        stop, best, found = Deadline(start + seconds), self.first, [Improvement(0.0, self._quality(self.first))]
        search, n, background = self._search(stop), self.problem.n_variables, None
        device_chains = list[DeviceAnnealingChains]()

        def record(values: np.ndarray) -> None:
            nonlocal best
            quality = self._quality(values)
            if quality > found[-1].quality:
                best = values
                found.append(Improvement(time.perf_counter() - start, quality))

        def make_chains() -> DeviceAnnealingChains:
            key = np.array(chain_key(0, -1), dtype=np.uint64)
            device_chains.append(DeviceAnnealingChains(search.graph_from(self.first), key))
            return device_chains[0]

        if gpu:
            observer = IncumbentObserver(lambda: best[:n], lambda values: record(search.one_opt(values)))
            background = BackgroundChains(make_chains, observer, stop)
            background.set_device_time(_NEVER)
        while cores and not stop.over:
            search.improve(best, min(1.0, stop.left), 0, record)
        while not stop.over:
            time.sleep(0.01)
        if background is None:
            return found, ""
        background.end()
        return found, _describe_gpu_work(background, device_chains)


def _describe_gpu_work(background: BackgroundChains, device_chains: list[DeviceAnnealingChains]) -> str:
    """Return a description of the GPU's work."""
    if background.failed or not device_chains:
        return background.failed or "the problem does not fit the device"
    chains = device_chains[0]
    shape = f"{chains.chains} chains of {chains.layout.groups} x {chains.layout.lanes} threads"
    work = f"{chains.layout.parts} parts, {background.rounds} rounds"
    if background.seconds_per_sweep:
        work += f", a sweep of all chains {1e3 * background.seconds_per_sweep:.3g} ms"
        work += f", {chains.chains * chains.n / background.seconds_per_sweep:.3g} draws/s"
    return f"{shape}, {work}, device {background.seconds:.2f} s"


def measure(given: Namespace, report: Report) -> None:
    """Print the tables."""
    after = [t for t in AFTER if t <= given.seconds]
    table = Columns(("problem", "20s"), ("search", "12s"), *((f"{t:g} s", ">14.10g") for t in after))
    report(table.head)
    for name, draw in problems().items():
        if given.only not in name:
            continue
        case = SearchProblem(draw(), given.threads)
        load_kernels(case._search(Deadline()).ascent.graph)
        case.compile_kernels()
        notes = []
        for title, where in (("cores", (True, False)), ("GPU", (False, True)), ("both", (True, True))):
            found, work = case.run(given.seconds, *where)
            at = [max(one.quality for one in found if one.seconds <= t) for t in after]
            cells = [
                utility if negated_violations == 0 else f"{-negated_violations} violated"
                for negated_violations, utility in at
            ]
            report(table.line(name, title, *cells))
            notes += [f"    {title}: {work}"] if work else []
        for note in notes:
            report(note)


def main() -> None:
    """Measure, and save the tables."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    given.device = "cuda" if not config.ENABLE_CUDASIM else "cpu"  # for the header of the result
    report = Report(__file__, given, threads=given.threads, seconds=given.seconds)
    measure(given, report)
    report.keep()


if __name__ == "__main__":
    main()
