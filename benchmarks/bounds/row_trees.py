"""Measure how the bound of a row falls with the number of nodes of its tree of per-row relaxations, on the CPU.

    DMCMC_INSTANCES=FOLDER python -m benchmarks.bounds.row_trees [--only NAME] [--agents 0,4] [--nodes N]
                                                                 [--buffers N] [--shared STEPS]

FOLDER holds meetings/. The result does not depend on how fast a GPU is, so schedules can be tried without one. For each
agent, the row with the highest bound after some steps of the shared relaxation gets a tree of N nodes or a few more, by
the same code as in a solve. Prints the proven bound of the row after the first node, and each time that the number of
nodes has grown by a half; the leaves by the number of fixed variables; and the numbers of per-row relaxations by stage:
of whole rows, of rows continued for longer, and of branches. The schedules are in ``per_row/nodes.py``.
"""

import math
import time
from collections import Counter

import numpy as np

import dmcmc
from benchmarks.bounds.numba_node_arrays import NumbaNodeArrays
from benchmarks.harness import Report, meeting, options
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.semidefinite.per_row.bound_rows import PerRowBounding
from dmcmc.inference.bounds.semidefinite.per_row.device_buffers import AgentBuffers
from dmcmc.inference.bounds.semidefinite.relaxation import ActiveRelaxation, SemidefiniteRelaxation
from dmcmc.inference.dpop.division import LocalProblem, divide

NAMES = ("ms_A10_n10_D24", "ms_A10_n25_D24", "mu_A10_n25_D24", "ms_A10_n50_D24", "mu_A10_n50_D24")
MAX_NODES_PER_BATCH = 24
NODE_GROWTH = 1.5  # growth of the number of nodes between two printed bounds


def measure(local: LocalProblem, nodes: int, entries: int, shared: int, report: Report) -> None:
    """Grow the tree of the row of an agent with the highest bound."""
    relaxation = SemidefiniteRelaxation(DualState(local, triangles=False))
    start = time.perf_counter()
    relaxation.improve(steps=shared)
    unit, row = 2.0**-relaxation.state.layout.scale.shift, int(relaxation.state.bounds.argmax())
    prepared = relaxation.prepare(np.array([row]))
    assert prepared is not None, "no row of the agent is above its cutoff"
    active = [ActiveRelaxation(relaxation, prepared)]
    buffers = AgentBuffers([prepared.descent], NumbaNodeArrays(), entries)
    relaxation.per_row.buffers, relaxation.per_row.agent = buffers, 0
    target, bounds = 1, list[str]()
    tree = PerRowBounding(
        active, buffers, MAX_NODES_PER_BATCH, lambda: math.inf if relaxation.per_row.nodes_solved < target else 0.0
    )
    first = unit * int(relaxation.state.bounds[row])
    seconds = time.perf_counter() - start
    report(f"  agent {local.agent}, row {row}: {first:.10g} after {shared} shared steps, {seconds:.0f} s")
    start = time.perf_counter()
    while relaxation.per_row.nodes_solved < nodes and not relaxation.exhausted:
        tree.run()
        bounds.append(f"{relaxation.per_row.nodes_solved}: {unit * int(relaxation.state.bounds[row]):.10g}")
        target = min(nodes, math.ceil(NODE_GROWTH * relaxation.per_row.nodes_solved))
    leaves = Counter(len(leaf.fixed) for leaf in relaxation.per_row.trees[row].leaves)
    report(f"    {', '.join(bounds)}")
    seconds = time.perf_counter() - start
    report(f"    leaves {dict(sorted(leaves.items()))}, per-row relaxations {tree.nodes_by_stage}; {seconds:.0f} s")


def main() -> None:
    """Measure and print."""
    parser = options(__file__, __doc__, only=True)
    parser.add_argument("--agents", default="0", metavar="NUMBERS", help="comma-separated")
    parser.add_argument("--nodes", type=int, default=200, help="nodes of a tree")
    parser.add_argument("--buffers", type=int, default=1000, help="factor vectors of nodes that are stored")
    parser.add_argument("--shared", type=int, default=600, metavar="STEPS", help="steps of the shared relaxation")
    given = parser.parse_args()
    report = Report(__file__, given)
    for name in NAMES:
        if given.only in name:
            report(name)
            local_problems = divide(dmcmc.load(meeting(name))).locals
            for agent in map(int, given.agents.split(",")):
                measure(local_problems[agent], given.nodes, given.buffers, given.shared, report)
    report.keep()


if __name__ == "__main__":
    main()
