"""Bayesian networks as problems: readers build a problem from conditional probability tables, writers extract them.

A probability p becomes the utility ln p, and p = 0 is forbidden, so the best assignment is the most probable
explanation.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.factor_entries import check_missing, labels_of, missing_features
from dmcmc.formats.common.tokens import Tokens, shown
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError, ResourceError

_NUMBER = re.compile(rb"\+?(?:\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,9})?|\.\d{1,400}(?:[eE][+-]?\d{1,9})?)")
_MAX_SCOPE = 63  # variables of a table; NumPy's limit on dimensions is 64
_MAX_TABLE_ENTRIES = 2**28  # entries of a table that is written; each is written as text
_ONLY_NETWORKS = "the format holds Bayesian networks; .uai and .npz hold any problem"
_MAX_SUM_ERROR = 1e-3  # distance from 1 of the sum of a distribution that was written with few decimals


def take_probability(tokens: Tokens, what: str) -> float:
    """Consume a number from 0 on, or fail with ``what`` was expected."""
    token = tokens.take()
    if tokens.quoted or not _NUMBER.fullmatch(token):
        tokens.expected(what, token)
    number = float(token)
    if number == math.inf:
        tokens.fail(f"{shown(token)} is too large")
    return number


class NetworkVariable(NamedTuple):
    """A variable of a network.

    Attributes
    ----------
    position : int
        Its index in the problem.
    values : dict of str to int
        The index of each value by label.
    """

    position: int
    values: dict[str, int]


class NetworkBuilder:
    """Variables and tables of a Bayesian network as a reader finds them; errors name the line.

    Attributes
    ----------
    source : SourceFile
        The file.
    variables : dict of str to NetworkVariable
        The variables by name, in the order of the file.
    declared : list of int
        Byte offset of each variable's declaration.
    factors : dict of int to Factor
        The table of each variable that has one, by the variable's index.
    """

    def __init__(self, source: SourceFile) -> None:
        """Start without variables."""
        self.source = source
        self.variables: dict[str, NetworkVariable] = {}
        self.declared: list[int] = []
        self.factors: dict[int, Factor] = {}

    def declare(self, name: str, labels: Sequence[str], at: int) -> None:
        """Add a variable with these labels, declared at byte ``at``."""
        if name in self.variables:
            self.fail(f"variable {name!r} is declared twice", at)
        if not labels:
            self.fail(f"variable {name!r} has no values", at)
        values: dict[str, int] = {}
        for label in labels:
            if label in values:
                self.fail(f"variable {name!r}: value {label!r} occurs twice", at)
            values[label] = len(values)
        self.variables[name] = NetworkVariable(len(self.variables), values)
        self.declared.append(at)

    def find(self, name: str, at: int) -> NetworkVariable:
        """Return a declared variable, or fail with its name."""
        if name not in self.variables:
            self.fail(f"variable {name!r} is not declared", at)
        return self.variables[name]

    def scope(self, child: str, parents: Sequence[str], at: int) -> tuple[int, ...]:
        """Return the scope (parents, child) of a table, or fail if it cannot be the child's table."""
        scope = (*(self.find(parent, at).position for parent in parents), self.find(child, at).position)
        if len(set(scope)) < len(scope):
            self.fail("a variable occurs twice in this table", at)
        if len(scope) > _MAX_SCOPE:
            self.fail(f"a table over {len(scope)} variables; at most {_MAX_SCOPE} are read", at)
        if scope[-1] in self.factors:
            self.fail(f"variable {child!r} has two tables of probabilities", at)
        return scope

    def add(self, child: str, scope: tuple[int, ...], probabilities: NDArray[np.float64]) -> None:
        """Add the table of a child, with axes in the order of ``scope`` = (parents, child)."""
        with np.errstate(divide="ignore"):
            self.factors[scope[-1]] = Factor.of(scope, np.log(probabilities), name=child)

    def problem(self, name: str) -> Problem:
        """Return the problem: one agent, ``all``, owns every variable; each factor has the name of its child.

        Raises
        ------
        FileError
            If a variable has no table, or if variables depend on each other in a cycle.
        """
        if not self.variables:
            self.fail("expected a variable, but the file ends", len(self.source.data.rstrip()))
        for variable, (position, _) in self.variables.items():
            if position not in self.factors:
                self.fail(f"variable {variable!r} has no table of probabilities", self.declared[position])
        factors = tuple(self.factors.values())
        cycle = _cycle((f.scope[-1], f.scope[:-1]) for f in factors)
        if cycle:
            names = list(self.variables)
            shown = " -> ".join(names[v] for v in cycle[:8])
            self.fail(f"variables depend on each other in a cycle: {shown}", self.declared[cycle[0]])
        known = self.variables.values()
        return Problem(
            variables=tuple(self.variables),
            domains=np.array([len(v.values) for v in known], dtype=np.int64),
            agents=("all",),
            owner=np.zeros(len(known), dtype=np.int64),
            factors=factors,
            labels=tuple(tuple(v.values) for v in known),
            sense="max",
            name=name,
        )

    def fail(self, message: str, at: int) -> NoReturn:
        """Raise an error that names the line of byte ``at``."""
        raise self.source.error(at, message)


class ConditionalTable(NamedTuple):
    """The conditional distribution of a variable.

    Attributes
    ----------
    child : int
        The variable's index.
    parents : tuple of int
        Indices of the variables on which it depends.
    probabilities : (values of the parents, ..., values of the child) float64
        The distribution of the child for each assignment of the parents; all 0 for an impossible assignment.
    """

    child: int
    parents: tuple[int, ...]
    probabilities: NDArray[np.float64]


def conditional_tables(problem: Problem, missing: Mapping[str, str]) -> list[ConditionalTable]:
    """Return the conditional distribution of every variable, in the order of the variables.

    Parameters
    ----------
    problem
        The problem.
    missing
        Names and labels that the format does not have, as :func:`unwritable` returns them.

    Raises
    ------
    Inexpressible
        If the format does not have some names or labels, or the problem has several agents or is minimised.
    ProblemError
        If the problem is not a Bayesian network: a factor is not a conditional distribution, or a variable has none or
        more than one.
    """
    check_missing(missing_features(problem, "labels", "names", sense="max") | dict(missing))
    by_child: dict[int, ConditionalTable] = {}
    for position, factor in enumerate(problem.factors):
        if not factor.scope and not factor.table.any():
            continue  # the constant 0
        table = _conditional(problem, factor, factor.name or str(position))
        if table.child in by_child:
            raise ProblemError(f"variable {problem.variables[table.child]!r} has two conditional distributions")
        by_child[table.child] = table
    for v, name in enumerate(problem.variables):
        if v not in by_child:
            raise ProblemError(f"variable {name!r} has no conditional distribution; {_ONLY_NETWORKS}")
    if _cycle((table.child, table.parents) for table in by_child.values()):
        raise ProblemError(f"the conditional distributions depend on each other in a cycle; {_ONLY_NETWORKS}")
    return [by_child[v] for v in range(problem.n_variables)]


def unwritable(problem: Problem, is_name: Callable[[str], object], is_label: Callable[[str], object]) -> dict[str, str]:
    """Return the features ``names`` and ``labels``, with a description, if the format does not have some of them.

    Parameters
    ----------
    problem
        The problem.
    is_name, is_label
        Return whether the format has a name of a variable, and a label, given as text.
    """
    missing = {}
    for name in problem.variables:
        if not is_name(name):
            missing["names"] = f"no names of variables such as {name[:40]!a}"
            break
    for v in range(problem.n_variables):
        labels = label_texts(problem, v)
        bad = next((x for i, x in enumerate(labels) if not is_label(x) or x in labels[:i]), None)
        if bad is not None:
            missing["labels"] = f"no value labels such as {bad[:40]!a}{' twice' if labels.count(bad) > 1 else ''}"
            break
    return missing


def label_texts(problem: Problem, variable: int) -> list[str]:
    """Return the labels of a variable as text."""
    return [str(label) for label in labels_of(problem, variable)]


def _conditional(problem: Problem, factor: Factor, name: str) -> ConditionalTable:
    """Return a factor as the conditional distribution of one variable of its scope.

    If the factor is a distribution of several variables, the one with the factor's name is taken, else the last.
    """
    if math.prod(factor.shape) > _MAX_TABLE_ENTRIES:
        raise ResourceError(
            f"factor {name!r}: a table of {math.prod(factor.shape):.3g} entries; at most {_MAX_TABLE_ENTRIES:,} are"
            " written"
        )
    utilities = factor.table.astype(np.float64)
    utilities[forbidden(factor.table)] = -np.inf
    with np.errstate(over="ignore"):
        probabilities = np.exp(utilities)
    axes = [axis for axis in range(len(factor.scope)) if _is_distribution(probabilities, axis)]
    if not axes:
        raise ProblemError(f"factor {name!r} is not a conditional distribution, with sums of 1; {_ONLY_NETWORKS}")
    axis = next((i for i in axes if problem.variables[factor.scope[i]] == factor.name), axes[-1])
    parents = tuple(v for i, v in enumerate(factor.scope) if i != axis)
    return ConditionalTable(factor.scope[axis], parents, np.moveaxis(probabilities, axis, -1))


def _is_distribution(probabilities: NDArray[np.float64], axis: int) -> bool:
    """Return whether all sums along an axis are 1, or 0 for impossible assignments, and not all are 0."""
    sums = probabilities.sum(axis=axis)
    is_one = np.abs(sums - 1) <= _MAX_SUM_ERROR
    return bool((is_one | (sums == 0)).all() and is_one.any())


def _cycle(tables: Iterable[tuple[int, Sequence[int]]]) -> Sequence[int]:
    """Return variables that form a cycle of dependences, given each child with its parents; empty if there is none."""
    try:
        TopologicalSorter(dict(tables)).prepare()
    except CycleError as error:
        cycle: Sequence[int] = error.args[1]
        return cycle
    return ()
