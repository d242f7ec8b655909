"""Measure when large problems have their first answer, how often it improves, and whether the run ends in time.

    python -m benchmarks.solving.first_answer [--variables 5000 100000] [--seconds 10] [--only TEXT] [--output FILE]

Each problem is a sparse graph with one table per edge: random graphs of mean degree 3 and 6, grids, and scale-free
graphs. Domains have 3 to 10 values. Agents own one variable, or 10 to 20 variables that lie next to each other in a
breadth-first order. Kernels are compiled beforehand by a small problem of each kind. Columns:

build     seconds to build the problem, before the run
first     time of the first trace point, on the clock of the run
points    number of trace points, and of those with a better objective
late      seconds by which the result's time exceeds the time budget (negative: the run ended earlier)
call      seconds of the whole call of ``dmcmc.solve``, with compilation and everything outside the clock
first, last objective, bound   of the first and the last trace point

``--load N`` runs N computing processes during the measurement. ``--stages`` adds the functions in which the
main thread was most often found until the first trace point, and afterwards.
"""

import itertools
import multiprocessing
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

import dmcmc
from benchmarks.harness import Columns, Report, options
from benchmarks.solving.deadline_checks import SAMPLE_SECONDS, frames_of
from dmcmc import Problem
from dmcmc.generators.graphs import connected
from dmcmc.inference.model.problem import Factor
from dmcmc.results.result import TracePoint

SMALLEST_DOMAIN, LARGEST_DOMAIN = 3, 10  # values of a variable
FEWEST_VARIABLES, MOST_VARIABLES = 10, 20  # variables of an agent that owns several
MAX_UTILITY = 1000  # of a table's entry
WARM_UP_VARIABLES, WARM_UP_SECONDS = 300, 3.0  # of the runs that compile the kernels
SHOWN_STACKS, SHOWN_FRAMES = 6, 5  # of ``--stages``
GRAPHS = ("degree 3", "degree 6", "grid", "scale-free")
AGENTS = ("one each", "10 to 20")

COLUMNS = Columns(
    ("graph", "<10s"),
    ("agents", "<8s"),
    ("variables", ">9d"),
    ("factors", ">8d"),
    ("build", ">6.2f"),
    ("first", ">6.2f"),
    ("points", ">6d"),
    ("better", ">6d"),
    ("late", ">6.2f"),
    ("call", ">6.2f"),
    ("first objective", ">15d"),
    ("last objective", ">14d"),
    ("bound", ">12d"),
)


def edges_of(graph: str, variables: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the edges of a graph of the named kind, one per row."""
    if graph.startswith("degree"):
        return connected(rng, variables, variables * int(graph.split()[1]) // 2)
    if graph == "grid":
        width = int(np.sqrt(variables))
        cell = np.arange(variables)
        right = np.stack([cell, cell + 1], axis=1)[(cell + 1) % width != 0]
        below = np.stack([cell, cell + width], axis=1)
        edges = np.concatenate([right, below])
        return np.asarray(edges[edges.max(axis=1) < variables])
    ends = [0, 1]  # scale-free: a new variable is joined to the ends of two random edges (Barabási and Albert 1999)
    for v in range(2, variables):
        ends += itertools.chain.from_iterable((u, v) for u in {ends[i] for i in rng.integers(len(ends), size=2)})
    return np.array(ends).reshape(-1, 2)


def owners_of(agents: str, edges: NDArray[np.int64], variables: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the owner of each variable: itself, or an agent of 10 to 20 variables."""
    if agents == "one each":
        return np.arange(variables)
    neighbours: list[list[int]] = [[] for _ in range(variables)]
    for u, v in edges.tolist():
        neighbours[u].append(v)
        neighbours[v].append(u)
    order = dict.fromkeys([0])
    for v in (queue := [0]):
        queue += [u for u in neighbours[v] if u not in order]
        order |= dict.fromkeys(neighbours[v])
    sizes = rng.integers(FEWEST_VARIABLES, MOST_VARIABLES + 1, size=variables)
    owner = np.empty(variables, dtype=np.int64)
    owner[list(order)] = np.repeat(np.arange(variables), sizes)[:variables]
    return owner


def problem_of(graph: str, agents: str, variables: int) -> Problem:
    """Return a problem of the named graph with random utilities."""
    rng = np.random.default_rng(variables)
    edges = edges_of(graph, variables, rng)
    owner = owners_of(agents, edges, variables, rng)
    domains = rng.integers(SMALLEST_DOMAIN, LARGEST_DOMAIN + 1, size=variables)
    sizes = domains.tolist()
    factors = tuple(
        Factor((u, v), rng.integers(0, MAX_UTILITY, size=(sizes[u], sizes[v]), dtype=np.int32))
        for u, v in edges.tolist()
    )
    names = tuple(f"x{v}" for v in range(variables)), tuple(f"a{a}" for a in range(int(owner.max()) + 1))
    return Problem(names[0], domains, names[1], owner, factors)


class Stages:
    """Sample the stack of the main thread, before and after the first trace point."""

    def __init__(self) -> None:
        self.before, self.after = Counter[str](), Counter[str]()
        self.current, self.ended = self.before, threading.Event()
        self._main = threading.main_thread().ident or 0

    def sample(self) -> None:
        """Sample until ``ended`` is set."""
        while not self.ended.wait(SAMPLE_SECONDS):
            self.current[frames_of(sys._current_frames().get(self._main), most=SHOWN_FRAMES)] += 1

    def lines(self) -> Iterator[str]:
        """Yield the most frequent stacks with their seconds."""
        for title, stacks in (("before", self.before), ("after", self.after)):
            for stack, count in stacks.most_common(SHOWN_STACKS):
                yield f"    {title} {count * SAMPLE_SECONDS:5.1f} s  {stack}"


def measure(problem: Problem, seconds: float, stages: Stages) -> tuple[dmcmc.Result, float]:
    """Solve a problem with a time budget; return the result and the seconds of the call."""

    def on_trace(point: TracePoint) -> None:
        stages.current = stages.after

    sampling = threading.Thread(target=stages.sample, daemon=True)
    sampling.start()
    start = time.perf_counter()
    result = dmcmc.solve(problem, timeout=seconds, device="cpu", trace=on_trace)
    taken = time.perf_counter() - start
    stages.ended.set()
    sampling.join()
    return result, taken


def _compute(ended: "multiprocessing.synchronize.Event") -> None:
    """Keep one core busy."""
    while not ended.is_set():
        sum(range(100_000))


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep some other processes busy."""
    context = multiprocessing.get_context("spawn")
    ended = context.Event()
    workers = [context.Process(target=_compute, args=(ended,), daemon=True) for _ in range(processes)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        ended.set()
        for worker in workers:
            worker.join()


def main() -> int:
    """Measure all kinds of problems."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--variables", type=int, nargs="+", default=[5_000, 100_000])
    parser.add_argument("--seconds", type=float, default=10.0, help="time budget of a run")
    parser.add_argument("--load", type=int, default=0, metavar="N", help="busy processes during the measurement")
    parser.add_argument("--stages", action="store_true", help="show where the main thread spent its time")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(COLUMNS.head)
    for variables, graph, agents in itertools.product(given.variables, GRAPHS, AGENTS):
        if given.only not in f"{graph}, {agents}":
            continue
        measure(problem_of(graph, agents, WARM_UP_VARIABLES), WARM_UP_SECONDS, Stages())
        start = time.perf_counter()
        problem = problem_of(graph, agents, variables)
        build, stages = time.perf_counter() - start, Stages()
        with load(given.load):
            result, call = measure(problem, given.seconds, stages)
        first, last = result.trace[0], result.trace[-1]
        better = len({point.objective for point in result.trace})
        report(
            COLUMNS.line(
                *(graph, agents, variables, len(problem.factors), build, first.time, len(result.trace), better),
                *(result.time - given.seconds, call, first.objective, last.objective, last.bound),
            )
        )
        for line in stages.lines() if given.stages else ():
            report(line)
    report.keep()
    return 0


if __name__ == "__main__":
    sys.exit(main())
