"""A CP-SAT model of a cost problem: its variables, expressions of them, and the cost."""

from dataclasses import dataclass, field
from typing import Any

from dmcmc.samplers.cp_sat.expressions import Expressions
from dmcmc.samplers.cp_sat.variables import ModelVariables


@dataclass
class Cost:
    """The cost of an assignment: a constant and a weighted sum of integers and literals.

    Attributes
    ----------
    cp : CpModel
        The model.
    constant : int
        The constant.
    terms : list of (int, expression)
        Weights and what they multiply.
    """

    cp: Any
    constant: int = 0
    terms: list[tuple[int, Any]] = field(default_factory=list)

    def charge(self, degree: Any, cost: int | None) -> None:
        """Add the cost of a degree of violation, or forbid positive degrees."""
        if cost is None:
            self.cp.add(degree <= 0)
        elif isinstance(degree, int):
            self.constant += cost * degree
        else:
            self.terms.append((cost, degree))

    def charge_terms(self, terms: list[tuple[int, Any]], cost: int) -> None:
        """Add the cost of a weighted sum of literals."""
        self.terms += [(cost * weight, literal) for weight, literal in terms]

    def minimise(self, max_cost: int) -> bool:
        """Make the cost the objective, with an upper bound.

        Returns
        -------
        bool
            Whether all weights are equal, so that the problem is an unweighted one.
        """
        cost = sum(unit * term for unit, term in self.terms) + self.constant
        if self.terms:
            self.cp.add(cost <= max_cost)
            self.cp.minimize(cost)
        elif self.constant > max_cost:
            self.cp.add_bool_or([])
        return len({unit for unit, _ in self.terms}) == 1


class CpSatModel:
    """A CP-SAT model of a cost problem.

    Attributes
    ----------
    cp : CpModel
        The model.
    variables : ModelVariables
        The variables of the problem.
    expressions : Expressions
        Literals and integers that are defined by variables.
    cost : Cost
        The cost of an assignment.
    top : int
        The cost from which on an assignment is forbidden.
    has_cliques : bool
        Whether hard tables have become sets of literals of which at most one is true.
    codes : dict
        For the scope of each hard all-different constraint, the codes of the values by variable.
    groups : dict
        Sets of literals, by their indices, with the literal that any of them is true.
    limits : list
        Sets of literals, by their indices, with the largest number of them that may be true.
    """

    def __init__(self, cp_model: Any, sizes: list[int], top: int) -> None:
        self.variables, self.top, self.has_cliques = ModelVariables(cp_model, sizes), top, False
        self.cp, self.expressions = self.variables.cp, Expressions(self.variables)
        self.cost = Cost(self.cp)
        self.codes: dict[frozenset[int], dict[int, list[int]]] = {}
        self.groups: dict[frozenset[int], Any] = {}
        self.limits: list[tuple[frozenset[int], int]] = []
