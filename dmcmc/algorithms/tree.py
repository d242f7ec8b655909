"""Algorithms on pseudo-trees: the tree of the agents, and DPOP.

Pseudo-trees over variables, for algorithms in which each variable is an agent (DUCT, distributed Gibbs, DPOP).

In a pseudo-tree, two variables that share a factor are ancestor and descendant.

DPOP and ADPOP with one variable per agent, as dmcmc runs on the problem divided in that way.

Sources: Petcu, Faltings: DPOP, IJCAI 2005; ADPOP (DPOP with mini-buckets), CP 2005. An algorithm here only gives the
settings and the division; ``dmcmc.anytime.solve`` does the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dmcmc.algorithms.contract import Parameter, Rewriting, Values
from dmcmc.inference.dpop.division import Division, divide
from dmcmc.inference.dpop.pseudotree import PseudoTree, build_pseudotree
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints


def one_agent_per_variable(problem: Problem) -> Problem:
    """Return the same problem with one agent per variable; the agent has the variable's name."""
    n = problem.n_variables
    if n == 0:
        return problem
    return replace(problem, agents=problem.variables, owner=np.arange(n, dtype=np.int64))


@dataclass(frozen=True)
class VariableTree:
    """A pseudo-tree over variables.

    Attributes
    ----------
    division : Division
        Division of the problem with one agent per variable: agent v owns variable v.
    pseudotree : PseudoTree
        Pseudo-tree of that division.
    top_down : (n,) int64
        Variables, parents before children.
    levels : (n,) int64
        Depth of each variable; 0 for roots. Variables on the same level share no factor.
    """

    division: Division
    pseudotree: PseudoTree
    top_down: Ints
    levels: Ints

    @classmethod
    def of(cls, problem: Problem) -> "VariableTree":
        """Build the pseudo-tree of a problem."""
        single = one_agent_per_variable(problem)
        division = divide(single)
        pseudotree = build_pseudotree(single, division)
        levels = np.zeros(problem.n_variables, dtype=np.int64)
        # A problem without variables keeps its agents, which are no variables.
        top_down = [v for v in reversed(pseudotree.bottom_up) if v < problem.n_variables]
        for v in top_down:
            if pseudotree.parent[v] >= 0:
                levels[v] = levels[pseudotree.parent[v]] + 1
        return cls(division, pseudotree, np.array(top_down, dtype=np.int64), levels)

    def edges_across(self, owner: Ints) -> tuple[Ints, Ints]:
        """Return parents and children of the tree edges between variables of different agents, two arrays of int64.

        ``owner`` (n,) int64 is the agent of each variable in the problem as given. Entry i of both arrays belongs to
        edge i.
        """
        child = np.array([v for v in range(owner.size) if self.pseudotree.parent[v] >= 0], dtype=np.int64)
        parent = np.array([self.pseudotree.parent[v] for v in child], dtype=np.int64)
        across = owner[child] != owner[parent] if child.size else np.zeros(0, dtype=np.bool_)
        return parent[across], child[across]


def _dpop_sections(given: Values) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of DPOP: exact tables and exact combination."""
    return {"local": {"method": "exact"}, "combine": {"method": "exact"}}


def _adpop_sections(given: Values) -> Mapping[str, Mapping[str, Any]]:
    """Return the settings of ADPOP: messages of at most ``z`` variables, split by mini-buckets."""
    return {"local": {"method": "exact"}, "combine": {"method": "mini-bucket", "z": given["z"], "partition": "scope"}}


DPOP = Rewriting(
    "dpop",
    "DPOP with one variable per agent: exact, tables as large as the tree is wide",
    one_agent_per_variable,
    _dpop_sections,
    paper="Petcu, Faltings: A scalable method for multiagent constraint optimization, IJCAI 2005",
)
ADPOP = Rewriting(
    "adpop",
    "ADPOP with one variable per agent: messages of at most z variables, a proven bound",
    one_agent_per_variable,
    _adpop_sections,
    {"z": Parameter(2, 1, 1000, text="largest number of variables of a message")},
    kind="inference with a bound",
    paper="Petcu, Faltings: Approximations in distributed optimization, CP 2005",
)
