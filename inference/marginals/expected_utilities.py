"""Replace random variables by expectations: the problem of choosing before the outcome of chance is known.

A random variable (weather, demand, a delay) is chosen by nobody. A decision that is taken before its outcome is known
maximises the expected utility E_r[Σ_f u_f(x, r)] = Σ_f E_r[u_f(x, r)], a sum over the same factors without the random
variables (DCOPs under stochastic uncertainty; Léauté and Faltings, AAAI 2011, risk-neutral case). So each factor is
replaced by its expectation, and every method of the package solves the result, also when random variables depend on
each other. What is forbidden in an outcome that may happen is forbidden.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.names import suggest_name
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.sparse_factor import SparseFactor
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Floats, Label

_TOLERANCE = 1e-6  # difference from 1 that a sum of probabilities may have

Outcomes = Mapping[str, Sequence[float]] | Sequence[Mapping[str, Label]]


def expected(problem: Problem, outcomes: Outcomes) -> Problem:
    """Return the problem of maximising expected utilities, without the random variables.

    Parameters
    ----------
    problem : Problem
        A problem, some of whose variables are random. It does not matter which agents own these.
    outcomes : mapping of str to sequence of float, or sequence of mappings
        The probabilities of each random variable's values, which are then independent of each other; or scenarios that
        were observed or sampled: each a value for every random variable, all of equal probability.

    Returns
    -------
    Problem
        A problem over the other variables. Factors over random variables have fractional utilities.

    Raises
    ------
    ProblemError
        If a name or value is unknown, probabilities are negative or do not add up to 1, a scenario is incomplete, a
        global constraint contains a random variable, or the objective has levels.

    Examples
    --------
    >>> from dmcmc import Builder, solve
    >>> builder = Builder()
    >>> _ = builder.variable("trip", ["beach", "museum"])
    >>> _ = builder.variable("weather", ["sun", "rain"])
    >>> _ = builder.factor(["trip", "weather"], [[10, 0], [6, 7]])
    >>> solve(expected(builder.problem(), {"weather": [0.5, 0.5]})).assignment
    {'trip': 'museum'}
    """
    if problem.levels:
        raise ProblemError("expected utilities are fractions, which the levels of an objective do not compare")
    given = _Outcomes(problem, outcomes)
    kept = [v for v in range(problem.n_variables) if v not in given.random]
    number = {variable: position for position, variable in enumerate(kept)}
    factors = [
        factor if given.random.isdisjoint(factor.scope) else given.expected_factor(factor) for factor in problem.factors
    ]
    names = [problem.variables[v] for v in kept]
    initial = problem.initial_values
    return replace(
        problem,
        variables=tuple(names),
        domains=problem.domains[kept],
        owner=problem.owner[kept],
        factors=tuple([factor.renamed([number[v] for v in factor.scope], factor.name) for factor in factors]),
        labels=tuple([problem.labels[v] for v in kept]),
        initial_values=None if initial is None else {name: initial[name] for name in names if name in initial},
    )


class _Outcomes:
    """The probabilities of the outcomes of a problem's random variables.

    Attributes
    ----------
    random : set of int
        The random variables.
    """

    def __init__(self, problem: Problem, outcomes: Outcomes) -> None:
        self._problem, self._position = problem, {name: v for v, name in enumerate(problem.variables)}
        self._probabilities, self._scenarios = dict[int, Floats](), dict[int, list[int]]()
        if isinstance(outcomes, Mapping):
            self._probabilities = {self._variable(name): self._checked(name, p) for name, p in outcomes.items()}
            self.random = set(self._probabilities)
            return
        if not outcomes:
            raise ProblemError("outcomes: at least one scenario is needed")
        for name in outcomes[0]:
            self._scenarios[self._variable(name)] = [
                self._value(name, scenario, number) for number, scenario in enumerate(outcomes, 1)
            ]
        self.random = set(self._scenarios)

    def expected_factor(self, factor: Factor) -> Factor:
        """Return the expectation of a factor over its random variables."""
        name = factor.name or str([self._problem.variables[v] for v in factor.scope])
        if not (type(factor) is Factor or isinstance(factor, SparseFactor)):
            raise ProblemError(f"factor {name}: a global constraint cannot contain a random variable")
        random = [v for v in factor.scope if v in self.random]
        others = [v for v in factor.scope if v not in self.random]
        axes = [factor.scope.index(v) for v in (*others, *random)]
        table = factor.table.transpose(axes)
        probabilities, is_forbidden = self._joint(random), forbidden(table)
        values = np.tensordot(np.where(is_forbidden, 0.0, table), probabilities, axes=len(random))
        may_happen = is_forbidden & (probabilities > 0)
        values = np.where(may_happen.any(axis=tuple(range(len(others), table.ndim))), -np.inf, values)
        return Factor.of(others, values, name=factor.name)

    def _joint(self, random: list[int]) -> Floats:
        """Return the probabilities of all values of some random variables, an array with an axis for each."""
        if not self._scenarios:
            product: Floats = reduce(np.multiply.outer, [self._probabilities[v] for v in random])
            return product
        counts = np.zeros([int(self._problem.domains[v]) for v in random])
        np.add.at(counts, tuple(self._scenarios[v] for v in random), 1.0)
        return counts / len(self._scenarios[random[0]])

    def _variable(self, name: str) -> int:
        """Return the index of a variable."""
        if name not in self._position:
            raise ProblemError(f"outcomes: unknown variable {name!r}{suggest_name(name, self._position)}")
        return self._position[name]

    def _checked(self, name: str, probabilities: Sequence[float]) -> Floats:
        """Return the probabilities of a variable's values, which add up to 1."""
        given, size = np.asarray(probabilities, dtype=np.float64), int(self._problem.domains[self._position[name]])
        if given.shape != (size,):
            raise ProblemError(f"outcomes: variable {name!r} has {size} values, so it needs {size} probabilities")
        if not (given >= 0).all() or abs(given.sum() - 1) > _TOLERANCE:
            raise ProblemError(f"outcomes: the probabilities of {name!r} are not at least 0 with the sum 1")
        exact: Floats = given / given.sum()
        return exact

    def _value(self, name: str, scenario: Mapping[str, Label], number: int) -> int:
        """Return the position of a random variable's value in a scenario."""
        variable = self._position[name]
        if name not in scenario:
            raise ProblemError(f"outcomes: scenario {number} has no value for {name!r}")
        labels = self._problem.labels[variable] or tuple(range(int(self._problem.domains[variable])))
        if scenario[name] not in labels:
            raise ProblemError(f"outcomes: scenario {number}: {scenario[name]!r} is not a value of {name!r}")
        return labels.index(scenario[name])
