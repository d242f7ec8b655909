"""Record bounds after fixed numbers of nodes and steps, without a clock: references for changes of the searches.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.counted_nodes [--only NAME] [--nodes N] [--batches N]

FOLDER holds generated/ and meetings/. Each problem is one agent: a whole problem, whose interface is empty, or the
first agent of a meeting problem. Prints three lines a problem: the largest bound of its rows after batches of the
branch and bound with dual ascent; after steps of semidefinite descents that all rows share; and, for the row with the
highest bound, after nodes of the branch and bound with semidefinite bounds (NumPy arrays). Each line ends with a hash
of the bounds of all rows. A bound is an upper bound on a utility, so smaller is better.
"""

import hashlib
import math
from collections.abc import Iterator

import numpy as np

import dmcmc
from benchmarks.harness import Report, instances, meeting, options
from dmcmc.generators.registry import generate
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    run_boundary_searches,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import create_boundary_search
from dmcmc.inference.bounds.semidefinite.agent_buffers import CpuArrays
from dmcmc.inference.bounds.semidefinite.bounder import SemidefiniteRunner
from dmcmc.inference.bounds.semidefinite.relaxation import SemidefiniteRelaxation, bound_single_rows
from dmcmc.inference.dpop.division import LocalProblem, divide
from dmcmc.inference.model.problem import Problem

SHARED_STEPS = (40, 45, 45, 45)  # steps of the descents that all rows share; its bound is printed after each
MAX_NODES_PER_BATCH = 24
MIN_ENTRIES = 24  # buffer entries of a tree with semidefinite bounds
NODE_GROWTH = 1.5  # growth of the number of nodes between two printed bounds
MEMORY = 1 << 30  # bytes for the tables of nodes


def whole(problem: Problem) -> LocalProblem:
    """Return a whole problem as one agent without boundary variables."""
    return LocalProblem(0, (), tuple(range(len(problem.domains))), problem.factors, np.asarray(problem.domains))


def problems(only: str) -> Iterator[tuple[str, LocalProblem]]:
    """Yield the names and local problems whose names contain ``only``."""
    for nodes, values, density in ((25, 10, 0.4), (40, 5, 0.25)):
        if only in (name := f"random_{nodes}_{values}"):
            parameters = {"nodes": nodes, "domain_size": values, "density": density, "tightness": 0, "seed": 101}
            yield name, whole(generate("random-network", parameters))
    for name in ("r20d10", "a_r50_1"):
        if only in name:
            yield name, whole(dmcmc.load(instances("generated") / f"{name}.wcsp"))
    for name in ("ms_A10_n10_D24", "mu_A10_n25_D24"):
        if only in name:
            yield name, divide(dmcmc.load(meeting(name))).locals[0]


class Line:
    """One line of the output: bounds by an amount of work."""

    def __init__(self, name: str, state: DualState) -> None:
        self._name, self._state, self._parts = name, state, list[str]()

    def add(self, work: int, row: int | None = None) -> None:
        """Add the bound of a row, or the largest one, after an amount of work."""
        bound = self._state.bounds.max() if row is None else self._state.bounds[row]
        self._parts.append(f"{work}: {self._state.layout.scale.decode(int(bound)):.10g}")

    def __str__(self) -> str:
        digest = hashlib.sha256(self._state.bounds.tobytes()).hexdigest()[:12]
        return f"  {self._name:<12} {', '.join(self._parts)}  [{digest}]"


def dual_tree(local: LocalProblem, batches: int) -> Line:
    """Run the branch and bound with dual ascent."""
    state = DualState(local, triangles=True)
    state.improve(sweeps=2)
    search, cutoffs, line = create_boundary_search(state, MEMORY), np.full(local.rows, -math.inf), Line("dual", state)
    line.add(0)
    made, group = 0, 1
    while made < batches and not (made and search.exhausted):
        run_boundary_searches([BoundarySearchRequest(search, cutoffs, cutoffs)], batches=group)
        line.add(search.nodes)
        made, group = made + group, 2 * group
    return line


def shared_descent(local: LocalProblem) -> tuple[Line, SemidefiniteRelaxation]:
    """Run some descents for the term that all rows share."""
    relaxation = SemidefiniteRelaxation(DualState(local, triangles=False))
    line = Line("shared", relaxation.state)
    line.add(0)
    for steps in SHARED_STEPS:
        relaxation.improve(steps=steps)
        line.add(relaxation.steps)
    return line, relaxation


def semidefinite_tree(relaxation: SemidefiniteRelaxation, nodes: int) -> Line:
    """Run the branch and bound with semidefinite bounds on the row with the highest bound."""
    row, line = int(relaxation.state.bounds.argmax()), Line("semidefinite", relaxation.state)
    task = relaxation.prepare(np.array([row]))
    assert task is not None, "no row of the agent is above its cutoff"
    runner = SemidefiniteRunner([task.term], CpuArrays(), max(nodes, MIN_ENTRIES), MAX_NODES_PER_BATCH)
    relaxation.per_row.search = BoundarySearch(relaxation.state, runner.bounders[0])
    target = 1
    while relaxation.per_row.nodes < nodes and not relaxation.exhausted:
        while relaxation.per_row.nodes < target and not relaxation.exhausted:
            bound_single_rows([task], batches=1)
        line.add(relaxation.per_row.nodes, row)
        target = min(nodes, math.ceil(NODE_GROWTH * relaxation.per_row.nodes))
    return line


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--nodes", type=int, default=150, help="nodes of a tree with semidefinite bounds")
    parser.add_argument("--batches", type=int, default=8, help="batches of 64 nodes of a tree with dual ascent")
    given = parser.parse_args()
    report = Report(__file__, given)
    for name, local in problems(given.only):
        report(f"{name}: {len(local.hidden)} variables, {local.rows} rows")
        report(str(dual_tree(local, given.batches)))
        line, relaxation = shared_descent(local)
        report(str(line))
        if not relaxation.exhausted:
            report(str(semidefinite_tree(relaxation, given.nodes)))
    report.keep()


if __name__ == "__main__":
    main()
