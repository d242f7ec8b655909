"""Utility over time of the search of the whole assignment: on all cores, by chains on a GPU, by both at once.

    python -m benchmarks.sampling.whole_chains [--seconds 4] [--threads N] [--only TEXT] [--output FILE]

All begin at the same greedy assignment, without tables; what they find is made 1-optimal. Times begin when kernels are
loaded, and what lays out a problem for chains counts. Each has one run with seed 0. scen06 needs DMCMC_INSTANCES.
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
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.samplers.local_search.block_moves import BlockTurns
from dmcmc.samplers.local_search.cuda.background_search import Beside, Listener
from dmcmc.samplers.local_search.cuda.chains import DeviceChains, load_kernels
from dmcmc.samplers.local_search.local_search import LocalSearch
from dmcmc.samplers.model.rng import chain_key

AFTER = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # seconds
FAR = 1e6  # seconds
_SWEEPS, _TURN = 300, 0.001  # of all chains; seconds that earn block moves a turn


class Found(NamedTuple):
    """A better assignment: after how many seconds, and what it is worth; more is better."""

    seconds: float
    worth: tuple[int, float]


def problems() -> dict[str, Callable[[], Problem]]:
    """Return what draws or reads each problem, by name."""
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


class Case:
    """A problem, and the same start for every search.

    Parameters
    ----------
    threads : int
        Of the search on cores.
    """

    def __init__(self, problem: Problem, threads: int) -> None:
        self.problem, self.threads = problem, threads
        self.dense = densify(problem, 1 << 30).problem
        self.first = self._search(Stop(time.perf_counter() + FAR)).first()

    def warm_up(self) -> None:
        """Compile and load what the runs use, by fixed work: by the clock not all of it would have its turn."""
        search = self._search(NO_STOP)
        search.improve(self.first, None, _SWEEPS)
        turns = BlockTurns(search.graph_from(self.first), 0, 1)
        turns.earn(_TURN, gained=False)
        turns.turn(self.first[: self.problem.n_variables], timed=False, stop=NO_STOP)
        self.run(0.3, True, True)

    def _search(self, stop: Stop) -> LocalSearch:
        return LocalSearch(self.problem, self.dense, 0, self.threads, stop)

    def _worth(self, values: np.ndarray) -> tuple[int, float]:
        found = self.problem.evaluate(values[: self.problem.n_variables])
        return -found.violation, float(found.objective) * (1 if self.problem.sense == "max" else -1)

    def run(self, seconds: float, cores: bool, gpu: bool) -> tuple[list[Found], str]:
        """Search for some seconds; return what was found when, and what the GPU did."""
        begun = time.perf_counter()
        stop, best, found = Stop(begun + seconds), self.first, [Found(0.0, self._worth(self.first))]
        search, n, beside, held = self._search(stop), self.problem.n_variables, None, list[DeviceChains]()

        def take(values: np.ndarray) -> None:
            nonlocal best
            worth = self._worth(values)
            if worth > found[-1].worth:
                best = values
                found.append(Found(time.perf_counter() - begun, worth))

        def make() -> DeviceChains:
            key = np.array(chain_key(0, -1), dtype=np.uint64)
            held.append(DeviceChains(search.graph_from(self.first), key))
            return held[0]

        if gpu:
            listener = Listener(lambda: best[:n], lambda values: take(search.polish(values)))
            beside = Beside(make, listener, stop)
            beside.allow(FAR)
        while cores and not stop.over:
            search.improve(best, min(1.0, stop.left), 0, take)
        while not stop.over:
            time.sleep(0.01)
        if beside is None:
            return found, ""
        beside.end()
        return found, _work(beside, held)


def _work(beside: Beside, held: list[DeviceChains]) -> str:
    """Return what the GPU did."""
    if beside.failed or not held:
        return beside.failed or "the device has no room"
    chains = held[0]
    shape = f"{chains.chains} chains of {chains.layout.groups} x {chains.layout.lanes} threads"
    sweeps = "" if not beside.pace else f", a sweep of all {1e3 * beside.pace:.3g} ms"
    rate = "" if not beside.pace else f", {chains.chains * chains.n / beside.pace:.3g} draws/s"
    return f"{shape}, {chains.layout.parts} parts, {beside.heats} heats{sweeps}{rate}, device {beside.seconds:.2f} s"


def measure(given: Namespace, say: Report) -> None:
    """Print the tables."""
    after = [t for t in AFTER if t <= given.seconds]
    table = Columns(("problem", "20s"), ("search", "12s"), *((f"{t:g} s", ">14.10g") for t in after))
    say(table.head)
    for name, draw in problems().items():
        if given.only not in name:
            continue
        case = Case(draw(), given.threads)
        load_kernels(case._search(Stop()).ascent.graph)
        case.warm_up()
        notes = []
        for what, where in (("cores", (True, False)), ("GPU", (False, True)), ("both", (True, True))):
            found, work = case.run(given.seconds, *where)
            at = [max(one.worth for one in found if one.seconds <= t) for t in after]
            cells = [utility if kept == 0 else f"{-kept} broken" for kept, utility in at]
            say(table.line(name, what, *cells))
            notes += [f"    {what}: {work}"] if work else []
        for note in notes:
            say(note)


def main() -> None:
    """Measure, and keep the tables."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args()
    given.device = "cuda" if not config.ENABLE_CUDASIM else "cpu"  # for the head
    say = Report(__file__, given, threads=given.threads, seconds=given.seconds)
    measure(given, say)
    say.keep()


if __name__ == "__main__":
    main()
