"""Measure elimination orders of real and random instances: width, cells, and processor time.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.elimination.orders [--only TEXT] [--output FILE]

FOLDER holds instances/ and generated/. ``solve`` is the order as a solve of the whole problem computes it; its time
limit grows with the expected number of cells. ``long`` is the order for an expected 10^10 cells. If ``goatd`` is
installed (its portfolio has a time limit, and ignores domain sizes), its order follows, scored by the same cells; the
last column marks files where ``long`` has more cells than goatd's order. Times are seconds of one core, with compiled
kernels.
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
from dmcmc.inference.orders.best_order import Order, best_order
from dmcmc.inference.orders.reorder_subtrees import compile_subtree_search
from dmcmc.inference.runtime.errors import DmcmcError
from dmcmc.inference.tuning import LONG_BUDGET

TABLE = Columns(
    ("file", "<34"), ("n", ">5"),
    ("solve w", ">7"), ("log10 cells", ">11.3f"), ("s", ">6.2f"),
    ("long w", ">7"), ("log10 cells", ">11.3f"), ("s", ">6.2f"),
    ("goatd w", ">7"), ("log10 cells", ">11.3f"), ("s", ">6.2f"), ("", "<"),
)  # fmt: skip
_EXPECTED_CELLS = 1e10
_NOT_PROBLEMS = (".csv", ".md", ".evid")


def timed_order(make: Callable[[], Order]) -> tuple[int, float, float]:
    """Return an order's width, log10 of its cells, and its processor time."""
    start = time.process_time()
    order = make()
    return order.width, math.log10(max(order.cells, 1.0)), time.process_time() - start


def order_of_bags(bags: Sequence[Sequence[int]], edges: Sequence[tuple[int, int]], n: int) -> list[int]:
    """Return the elimination order of a tree decomposition: leaves of the tree first."""
    adjacent: list[list[int]] = [[] for _ in bags]
    for a, b in edges:
        adjacent[a].append(b)
        adjacent[b].append(a)
    parent: dict[int, int] = {}
    preorder: list[int] = []
    for root in range(len(bags)):
        if root not in parent:
            parent[root] = -1
            stack = [root]
            while stack:
                bag = stack.pop()
                preorder.append(bag)
                for child in adjacent[bag]:
                    if child not in parent:
                        parent[child] = bag
                        stack.append(child)
    order: dict[int, None] = {}
    for bag in reversed(preorder):
        in_parent = set(bags[parent[bag]]) if parent[bag] >= 0 else set()
        order.update(dict.fromkeys(v for v in bags[bag] if v not in in_parent))
    order.update(dict.fromkeys(range(n)))
    return list(order)


def score(scopes: Sequence[Sequence[int]], domains: Any, order: Sequence[int]) -> tuple[int, float]:
    """Return the width, and log10 of the cells, of an elimination order, computed with plain sets."""
    neighbours: list[set[int]] = [set() for _ in domains]
    for scope in scopes:
        for v in scope:
            neighbours[v].update(scope)
    width, logs = 0, []
    for v in order:
        others = neighbours[v] - {v}
        width = max(width, len(others))
        logs.append(float(np.log10(domains[v]) + sum(np.log10(domains[u]) for u in others)))
        for u in others:
            neighbours[u] = (neighbours[u] | others) - {u, v}
    largest = max(logs)
    return width, largest + math.log10(sum(10 ** (x - largest) for x in logs))


def by_goatd(library: Any, problem: Problem, scopes: Sequence[Sequence[int]], seconds: float) -> tuple[float, ...]:
    """Return the width, log10 of the cells, and processor time of goatd's portfolio."""
    edges = sorted({(min(e), max(e)) for scope in scopes for e in combinations(scope, 2)})
    graph = library.Graph(problem.n_variables, edges)
    start = time.process_time()
    found = library.decompose(graph, budget_ms=int(1000 * seconds))
    taken = time.process_time() - start
    width, cells = score(scopes, problem.domains, order_of_bags(found.bags, found.edges, problem.n_variables))
    return width, cells, taken


def measure(file: Path, library: Any, seconds: float) -> tuple[str, float, bool]:
    """Return one line about a file, the seconds of our longer search, and whether its order is worse than goatd's."""
    try:
        problem = densify(dmcmc.load(file), 1 << 33).problem
    except DmcmcError as error:
        return f"{file.name:34} {str(error).replace(str(file), '').strip(': ')}", math.nan, False
    scopes = sorted({tuple(sorted(f.scope)) for f in problem.factors if f.scope})
    variables = range(problem.n_variables)
    default = timed_order(lambda: best_order(scopes, problem.domains, variables, budget=LONG_BUDGET))
    longer = timed_order(
        lambda: best_order(scopes, problem.domains, variables, budget=LONG_BUDGET, expected_cells=_EXPECTED_CELLS)
    )
    goatd = by_goatd(library, problem, scopes, seconds) if library else ()
    worse = bool(goatd) and longer[1] > goatd[1] + 1e-9
    return TABLE.line(file.name, len(variables), *default, *longer, *goatd, "MORE" if worse else ""), longer[2], worse


def main() -> None:
    """Measure every file whose name contains the text of ``--only``."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--seconds", type=float, default=2.0, help="time limit of goatd")
    given = parser.parse_args()
    try:
        library: Any = importlib.import_module("goatd")
    except ImportError:
        library = None
    found = [f for part in ("generated", "instances") for f in sorted(instances(part).rglob("*")) if f.is_file()]
    version = getattr(library, "__version__", "not installed")
    report = Report(__file__, given, times="one core", goatd=version, goatd_seconds=given.seconds)
    report(TABLE.head)
    best_order([(0, 1), (1, 2), (2, 3), (3, 0)], np.full(4, 2), range(4))
    compile_subtree_search()
    taken, worse = [], 0
    for file in found:
        if given.only in file.name and file.suffix not in _NOT_PROBLEMS:
            line, seconds, more = measure(file, library, given.seconds)
            report(line)
            worse += more
            taken += [] if math.isnan(seconds) else [seconds]
    if taken:
        report(
            f"long: median {statistics.median(taken):.2f} s, most {max(taken):.2f} s; more cells than goatd: {worse}"
        )
    report.keep()


if __name__ == "__main__":
    main()
