"""Pseudo-trees over variables, for algorithms in which each variable is an agent of its own."""

from dataclasses import dataclass, replace

import numpy as np

from dmcmc.inference.dpop.division import Division, divide
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints


def apart(problem: Problem) -> Problem:
    """Return the problem in which every variable has an agent of its own, of its own name."""
    n = problem.n_variables
    if n == 0:
        return problem
    return replace(problem, agents=problem.variables, owner=np.arange(n, dtype=np.int64))


@dataclass(frozen=True)
class Tree:
    """A pseudo-tree over variables.

    Attributes
    ----------
    division, pseudotree
        Of the problem with an agent a variable: agent v owns variable v.
    top_down : (n,) int64
        Parents before children.
    levels : (n,) int64
        How deep each variable is, 0 for roots; no two of a level share a factor.
    """

    division: Division
    pseudotree: PseudoTree
    top_down: Ints
    levels: Ints

    @classmethod
    def of(cls, problem: Problem) -> "Tree":
        """Build the tree of a problem."""
        single = apart(problem)
        division = divide(single)
        pseudotree = build_pseudotree(single, division)
        levels = np.zeros(problem.n_variables, dtype=np.int64)
        top_down = [v for v in reversed(pseudotree.bottom_up) if v < problem.n_variables]
        for v in top_down:
            if pseudotree.parent[v] >= 0:
                levels[v] = levels[pseudotree.parent[v]] + 1
        return cls(division, pseudotree, np.array(top_down, dtype=np.int64), levels)

    def edges_across(self, owner: Ints) -> tuple[Ints, Ints]:
        """Return (parents, children) of the tree edges between variables of different agents."""
        child = np.array([v for v in range(owner.size) if self.pseudotree.parent[v] >= 0], dtype=np.int64)
        parent = np.array([self.pseudotree.parent[v] for v in child], dtype=np.int64)
        across = owner[child] != owner[parent] if child.size else np.zeros(0, dtype=np.bool_)
        return parent[across], child[across]
