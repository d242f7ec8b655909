"""Elimination orders on real and random instances: width, cells, and the processor time that they take.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.orders [--only TEXT] [--output FILE]

FOLDER holds instances/ and generated/. ``solve`` is the order as a solve of the whole problem takes it: time grows
with the cells at stake. ``stake`` is the same as if 10^10 cells were at stake everywhere. Where ``goatd`` is installed
(its portfolio goes by the clock, and knows no domain sizes), its order stands beside, given so many seconds, scored by
the same cells; the last column says whether ``stake`` has more cells than it. Times are seconds of one core, warm.
"""

import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import dmcmc
from benchmarks.harness import Columns, Report, instances, options
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.orders.best_order import SEARCH_LONG, Order, best_order
from dmcmc.inference.orders.reorder_subtrees import compile_pieces
from dmcmc.inference.runtime.errors import DmcmcError

TABLE = Columns(
    ("file", "<34"), ("n", ">5"),
    ("solve w", ">7"), ("log10 cells", ">11.3f"), ("s", ">6.2f"),
    ("stake w", ">7"), ("log10 cells", ">11.3f"), ("s", ">6.2f"),
    ("goatd w", ">7"), ("log10 cells", ">11.3f"), ("s", ">6.2f"), ("", "<"),
)  # fmt: skip
_STAKE = 1e10
_NOT_PROBLEMS = (".csv", ".md", ".evid")


def timed_order(make: Callable[[], Order]) -> tuple[int, float, float]:
    """Return an order's width, log10 of its cells, and the processor time that it took."""
    start = time.process_time()
    order = make()
    return order.width, math.log10(max(order.cells, 1.0)), time.process_time() - start


def order_of_bags(bags: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]], n: int) -> list[int]:
    """Return an elimination order that a tree decomposition stands for: leaves of the tree first."""
    near: list[list[int]] = [[] for _ in bags]
    for a, b in edges:
        near[a].append(b)
        near[b].append(a)
    above: dict[int, int] = {}
    walk: list[int] = []
    for root in range(len(bags)):
        if root not in above:
            above[root] = -1
            waiting = [root]
            while waiting:
                bag = waiting.pop()
                walk.append(bag)
                for child in near[bag]:
                    if child not in above:
                        above[child] = bag
                        waiting.append(child)
    order: dict[int, None] = {}
    for bag in reversed(walk):
        kept = set(bags[above[bag]]) if above[bag] >= 0 else set()
        order.update(dict.fromkeys(v for v in bags[bag] if v not in kept))
    order.update(dict.fromkeys(range(n)))
    return list(order)


def score(scopes: Sequence[Sequence[int]], domains: Any, order: Sequence[int]) -> tuple[int, float]:
    """Return the width and log10 of the cells of eliminating in this order; plain sets, to check by."""
    neighbours: list[set[int]] = [set() for _ in domains]
    for scope in scopes:
        for v in scope:
            neighbours[v].update(scope)
    width, logs = 0, []
    for v in order:
        around = neighbours[v] - {v}
        width = max(width, len(around))
        logs.append(float(np.log10(domains[v]) + sum(np.log10(domains[u]) for u in around)))
        for u in around:
            neighbours[u] = (neighbours[u] | around) - {u, v}
    most = max(logs)
    return width, most + math.log10(sum(10 ** (x - most) for x in logs))


def by_goatd(library: Any, problem: Problem, scopes: Sequence[Sequence[int]], seconds: float) -> tuple[float, ...]:
    """Return width, log10 cells and processor time of goatd's portfolio."""
    edges = sorted({(min(e), max(e)) for scope in scopes for e in combinations(scope, 2)})
    graph = library.Graph(problem.n_variables, edges)
    start = time.process_time()
    found = library.decompose(graph, budget_ms=int(1000 * seconds))
    taken = time.process_time() - start
    width, cells = score(scopes, problem.domains, order_of_bags(found.bags, found.edges, problem.n_variables))
    return width, cells, taken


def measure(file: Path, library: Any, seconds: float) -> tuple[str, float, bool]:
    """Return one line about a file, the seconds of our longer search, and whether it is worse than goatd's."""
    try:
        problem = densify(dmcmc.load(file), 1 << 33).problem
    except DmcmcError as error:
        return f"{file.name:34} {str(error).replace(str(file), '').strip(': ')}", math.nan, False
    scopes = sorted({tuple(sorted(f.scope)) for f in problem.factors if f.scope})
    everyone = range(problem.n_variables)
    own = timed_order(lambda: best_order(scopes, problem.domains, everyone, budget=SEARCH_LONG))
    more = timed_order(lambda: best_order(scopes, problem.domains, everyone, budget=SEARCH_LONG, stake=_STAKE))
    theirs = by_goatd(library, problem, scopes, seconds) if library else ()
    worse = bool(theirs) and more[1] > theirs[1] + 1e-9
    return TABLE.line(file.name, len(everyone), *own, *more, *theirs, "MORE" if worse else ""), more[2], worse


def main() -> None:
    """Measure every file whose name has the text in it."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=2.0, help="that goatd is given")
    given = parser.parse_args()
    try:
        library: Any = importlib.import_module("goatd")
    except ImportError:
        library = None
    found = [f for part in ("generated", "instances") for f in sorted(instances(part).rglob("*")) if f.is_file()]
    version = getattr(library, "__version__", "not installed")
    say = Report(__file__, given, times_of="one core", goatd=version, seconds_given_to_goatd=given.seconds)
    say(TABLE.head)
    best_order([(0, 1), (1, 2), (2, 3), (3, 0)], np.full(4, 2), range(4))
    compile_pieces()
    taken, worse = [], 0
    for file in found:
        if given.only in file.name and file.suffix not in _NOT_PROBLEMS:
            line, seconds, more = measure(file, library, given.seconds)
            say(line)
            worse += more
            taken += [] if math.isnan(seconds) else [seconds]
    if taken:
        say(f"stake: median {statistics.median(taken):.2f} s, most {max(taken):.2f} s; more cells than goatd: {worse}")
    say.keep()


if __name__ == "__main__":
    main()
