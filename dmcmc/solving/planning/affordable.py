"""Decide whether a run has time for the agents' tables at all, by lower estimates that take time linear in the problem.

The separators of a pseudo-tree can have as many variables in total as the square of the number of agents. Neither
building them nor a Python step per agent can end in a time budget that is far too short for them, and the local search
uses all cores if nothing is planned in vain.
"""

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.pseudotree import neighbours_of
from dmcmc.inference.dpop.trees.depth_first import depth_first
from dmcmc.inference.model.compact_sequences import flatten_groups
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime
from dmcmc.solving.tuning import MIN_ESTIMATED_AGENTS, SECONDS_PER_PLANNED_AGENT, SECONDS_PER_SEPARATOR_VARIABLE


def check_time_for_tables(problem: Problem, division: Division, ranks: int, stop: Deadline) -> None:
    """Raise an error if the agents' tables cannot be planned and combined before the deadline.

    Parameters
    ----------
    problem, division
        The problem and its division among agents.
    ranks
        Number of ranks, among which the agents are divided.
    stop
        The deadline; without one nothing is estimated.

    Raises
    ------
    OutOfTime
        If the estimate exceeds the time that is left.
    """
    left, agents = stop.left, len(division.locals)
    if agents < MIN_ESTIMATED_AGENTS or left == float("inf"):
        return
    needed = SECONDS_PER_PLANNED_AGENT * agents / ranks
    if needed <= left:
        needed += SECONDS_PER_SEPARATOR_VARIABLE * separator_variables(problem, division)
    if needed > left:
        raise OutOfTime("the time budget is too short for the agents' tables")


def separator_variables(problem: Problem, division: Division) -> int:
    """Return a lower bound on the total number of variables of all separators of the depth-first pseudo-tree.

    A variable is in the separators of all agents on the path from the deepest agent that shares a factor with it up to
    its owner, which is not counted.
    """
    neighbours = neighbours_of(problem, division)
    by_degree = np.argsort(-np.diff(neighbours.start), kind="stable").tolist()
    depth = _depths(np.array(depth_first(neighbours, by_degree), dtype=np.int64))
    start, variables = flatten_groups(division.scopes)
    lengths = np.diff(start)
    if not lengths.size:
        return 0
    depths = depth[problem.owner[variables]]
    path = np.repeat(np.maximum.reduceat(depths, start[:-1]), lengths) - depths
    longest = np.zeros(problem.n_variables, dtype=np.int64)
    np.maximum.at(longest, variables, path)
    return int(longest.sum())


def _depths(parent: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the depth of each node of a forest, 0 for roots, by doubling the lengths of the paths to ancestors."""
    is_root = parent < 0
    ancestor, depth = np.where(is_root, np.arange(parent.size), parent), (~is_root).astype(np.int64)
    while not is_root[ancestor].all():
        depth += depth[ancestor]
        ancestor = ancestor[ancestor]
    return depth
