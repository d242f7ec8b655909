"""Compare branch and bound with soft arc consistency alone and after soft path consistency (GPU-DBE, §6).

    DMCMC_INSTANCES=FOLDER python -m benchmarks.papers.path_consistency [--seconds 10] [--only TEXT] [--output FILE]

Each problem is searched twice by our depth-first engine on one core: with existential directional arc consistency
alone, and after costs of pairs and triples have moved to values and to the bound (columns that begin with "path").
``bound`` is the lower bound of the cost at the root, ``best`` the smallest cost found. ``nodes`` and ``s`` are those of
the proof, with the time of path consistency; where a search does not end within ``--seconds``, they have a ``>``.
Problems are grids, linkage analysis and random networks; files that are missing are left out.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import Columns, Report, options
from dmcmc import Problem, generate, load
from dmcmc.samplers.branch_and_bound.cost_network import FOUND, LOWER, NODES, TOP, cost_tables, network_of
from dmcmc.samplers.branch_and_bound.engine import compile_search, make_path_consistent
from dmcmc.samplers.branch_and_bound.search_kernels import COMPLETE, search
from dmcmc.samplers.toulbar2.compact_problem import costs_of_problem
from dmcmc.samplers.toulbar2.costs import CostProblem

_FILES = tuple(f"grids/{name}.uai" for name in ("50-14-5", "75-26-5", "90-20-5"))
_FILES += tuple(f"linkage/{name}.uai" for name in ("pedigree1", "pedigree13", "pedigree20"))
_NETWORKS: tuple[dict[str, Any], ...] = (
    {"nodes": 20, "density": 0.3, "domain_size": 10},
    {"nodes": 40, "density": 0.15, "domain_size": 4},
    {"nodes": 60, "density": 0.1, "domain_size": 3},
    {"nodes": 20, "density": 0.6, "domain_size": 4},
    {"nodes": 15, "density": 1.0, "domain_size": 4},
    {"nodes": 20, "density": 1.0, "domain_size": 3},
)
_NODES_PER_CALL = 500  # nodes between two looks at the clock
_MEMORY = 2 << 30  # bytes that the tables of a problem may take
_TABLE = Columns(
    ("problem", "<22"), ("pairs", ">5d"), ("triples", ">7d"), ("bound", ">15d"), ("nodes", ">9"), ("s", ">7"),
    ("path bound", ">15d"), ("path nodes", ">10"), ("path s", ">7"), ("best", ">15d"),
)  # fmt: skip


class Proof(NamedTuple):
    """A search.

    Attributes
    ----------
    bound : int
        Lower bound at the root.
    nodes : int
        Number of nodes.
    seconds : float
        Seconds of the search, including path consistency.
    complete : bool
        Whether it has ended.
    best : int or None
        Smallest cost found; None without a solution.
    triples : int
        Number of triples with costs.
    """

    bound: int
    nodes: int
    seconds: float
    complete: bool
    best: int | None
    triples: int

    @property
    def texts(self) -> tuple[str, str]:
        """The nodes and the seconds as text."""
        mark = "" if self.complete else ">"
        return f"{mark}{self.nodes}", f"{mark}{self.seconds:.2f}"


def prove(costs: CostProblem, paths: bool, seconds: float) -> Proof:
    """Search a problem, with or without path consistency."""
    begun = time.perf_counter()
    tables = make_path_consistent(cost_tables(costs)) if paths else cost_tables(costs)
    (network, state), halt, code, begin = network_of(tables), np.zeros(1, dtype=np.uint8), -1, True
    root = 0
    while code != COMPLETE and time.perf_counter() - begun < seconds:
        code = search(network, state, begin, 0 if begin else _NODES_PER_CALL, halt)
        root, begin = int(state.head[LOWER]) if begin else root, False
        state = state._replace(trail=np.concatenate([state.trail, state.trail])) if code not in (0, COMPLETE) else state
    found = int(state.head[TOP]) if state.head[FOUND] else None
    spent = time.perf_counter() - begun
    return Proof(root, int(state.head[NODES]), spent, code == COMPLETE, found, len(tables.triples))


def problems() -> Iterator[tuple[str, Problem]]:
    """Yield the problems with their names."""
    folder = Path(os.environ.get("DMCMC_INSTANCES", ""), "instances")
    for name in _FILES:
        if (folder / name).is_file():
            yield Path(name).stem, load(folder / name)
    for sizes in _NETWORKS:
        yield "random {nodes} {density} {domain_size}".format(**sizes), generate("random-network", tightness=0, **sizes)


def main() -> None:
    """Print the table."""
    parser = options(__file__, __doc__ or "")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=10.0, help="time limit of a search")
    parser.add_argument("--only", default="", metavar="TEXT", help="only problems whose name contains TEXT")
    given = parser.parse_args()
    report = Report(__file__, given)
    report(_TABLE.head)
    compile_search()
    for name, problem in problems():
        if given.only in name:
            costs = costs_of_problem(problem, _MEMORY, dense_only=True)
            arcs, paths = (prove(costs, consistent, given.seconds) for consistent in (False, True))
            found = [proof.best for proof in (arcs, paths) if proof.best is not None]
            pairs = len(cost_tables(costs).pairs)
            best = min(found) if found else None
            report(_TABLE.line(name, pairs, paths.triples, arcs.bound, *arcs.texts, paths.bound, *paths.texts, best))
    report.keep()


if __name__ == "__main__":
    main()
