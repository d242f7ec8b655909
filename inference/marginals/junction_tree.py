"""Marginals, maxima and best assignments from a junction tree.

Posterior marginals, max-marginals and samples of all variables, for evidence that changes between queries.

Find the k best assignments from a junction tree of maxima (Nilsson 1998).

Lawler's partition: the assignments that are not found yet are divided into subsets, each with a prefix of fixed values
and a set of excluded values of the next variable. Max-marginals given the prefix are the best objective of each subset,
so that the next best assignment is in the subset with the best one.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import index
from typing import Any, SupportsIndex, get_args, overload

import numpy as np

from dmcmc.inference.building.builder import Builder, as_problem
from dmcmc.inference.marginals.tables import SparseTreeTables, TableFormat, TreeResources, build_tables
from dmcmc.inference.marginals.tree_marginals import TreeMarginals, TreeMessages
from dmcmc.inference.model.arithmetic import nearest
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ConfigError, ProblemError
from dmcmc.inference.runtime.types import Ints, Label, Number

_DEVICES = ("auto", "cpu", "cuda")


class JunctionTree:
    """A junction tree that is planned once and answers many queries with different evidence.

    New evidence invalidates only the messages that depend on it.

    Parameters
    ----------
    problem : Problem or Builder
        Any problem, or the builder of one.
    maximise : bool
        False computes sums, for posterior marginals; utilities are natural logarithms. True computes maxima, for
        max-marginals.
    memory : int or None
        Limit on the bytes of all tables; None for no limit.
    stop : Deadline
        When to give up with ``OutOfTime``.
    device : {"auto", "cpu", "cuda"}
        Where messages are computed; "auto" uses a GPU for large trees if there is one.
    tables : {"auto", "dense", "incomplete"}
        Representation of the tables: "dense" stores all entries, "incomplete" only the allowed ones (sparse tables).
        "auto" uses sparse tables if dense ones do not fit the memory.

    Raises
    ------
    ResourceError
        If the tables do not fit the memory.
    ConfigError
        If ``device`` or ``tables`` is none of the values above.

    Examples
    --------
    >>> p = Problem.build()
    >>> p.variable("rain", ["no", "yes"]), p.variable("wet", ["no", "yes"])
    ('rain', 'wet')
    >>> p = p.factor(("rain",), np.log([0.8, 0.2])).factor(("rain", "wet"), np.log([[0.9, 0.1], [0.2, 0.8]])).problem()
    >>> tree = JunctionTree(p)
    >>> round(tree.marginal("wet")["yes"], 6)
    0.24
    >>> tree.set_evidence({"wet": "yes"})
    >>> round(tree.marginal("rain")["yes"], 6), round(math.exp(tree.total()), 6)
    (0.666667, 0.24)
    """

    def __init__(
        self,
        problem: Problem | Builder,
        maximise: bool = False,
        memory: int | None = None,
        stop: Deadline = NO_DEADLINE,
        device: str = "auto",
        tables: TableFormat = "auto",
    ) -> None:
        problem = as_problem(problem)
        _check_choice("tables", tables, get_args(TableFormat))
        _check_choice("device", device, _DEVICES)
        self.problem, self._maximise = problem, maximise
        self._tables = build_tables(problem, maximise, TreeResources(memory, stop, device), tables)
        self._messages = TreeMessages(self._tables)
        self._marginals = TreeMarginals(problem, maximise, self._tables, self._messages)
        self.tree = self._tables.tree

    @property
    def width(self) -> int:
        """The induced width of the tree."""
        return self.tree.width

    @property
    def cells(self) -> int:
        """The number of entries (of rows, for sparse tables) of all cliques together, the work of one pass."""
        return self._tables.cells

    @property
    def incomplete(self) -> bool:
        """Whether the tables are sparse and hold only allowed entries."""
        return isinstance(self._tables, SparseTreeTables)

    def set_evidence(self, evidence: Mapping[str, Label]) -> None:
        """Replace the evidence.

        Parameters
        ----------
        evidence : mapping from str to label
            The observed value of each observed variable: its label, or its index for a variable without labels. All
            other variables become unobserved.

        Raises
        ------
        ProblemError
            If a variable or a label does not exist.
        """
        self._messages.observe(_observed_values(self.problem, evidence, self._tables.observed.size))

    def forget(self) -> None:
        """Invalidate all messages and tables, so that the next query computes them again."""
        self._messages.forget()

    def propagate(self) -> None:
        """Compute all messages and tables that are not up to date."""
        self._messages.update_all()

    @overload
    def marginal(self, variable: str) -> dict[Label, Number | None]: ...

    @overload
    def marginal(self, variable: tuple[str, ...] | list[str]) -> dict[tuple[Label, ...], Number | None]: ...

    def marginal(self, variable: str | tuple[str, ...] | list[str]) -> Mapping[Any, Number | None]:
        """Return the marginal or max-marginal of a variable, or of several jointly, given the evidence.

        Only the messages that these variables need are computed. Several variables need not share a clique: all but the
        last are clamped to each of their values in turn, which costs one query per combination of values.

        Parameters
        ----------
        variable : str, tuple of str or list of str
            Name of the variable, or names of distinct variables.

        Returns
        -------
        dict from label, or from tuple of label, to float, int or None
            For sums the posterior probability of each value (combination of values). For maxima the best objective with
            it; None if every assignment with it violates a hard constraint.

        Raises
        ------
        ProblemError
            If a variable does not exist or is given twice, or if no assignment is consistent with the evidence (sums
            only).
        """
        names = (variable,) if isinstance(variable, str) else tuple(variable)
        variables = _distinct_variables(self.problem, names)
        labels = [_labels(self.problem, v) for v in variables]
        if isinstance(variable, str):
            return dict(zip(labels[0], self._marginals.marginal(variables[0]), strict=True))
        return dict(zip(product(*labels), self._marginals.joint_marginal(variables), strict=True))

    def sample(self, n: int, seed: int = 0) -> list[dict[str, Label]]:
        """Draw independent assignments from the posterior distribution given the evidence.

        The samples are exact: cliques are drawn one after the other, from the roots to the leaves, each given the
        values that its parent has.

        Parameters
        ----------
        n : int
            Number of samples.
        seed : int
            Seed of the random numbers.

        Returns
        -------
        list of dict from str to label
            The assignments: the label of each variable's value, by name.

        Raises
        ------
        ConfigError
            If the tree computes maxima, or ``n`` is negative.
        ProblemError
            If no assignment is consistent with the evidence.
        """
        if self._maximise:
            raise ConfigError("sample: a tree of maxima has no probabilities; use JunctionTree(problem)")
        for name, number in (("n", n), ("seed", seed)):
            if isinstance(number, bool) or not isinstance(number, SupportsIndex) or index(number) < 0:
                raise ConfigError(f"{name}: expected a whole number of at least 0, got {number!r}")
        if self.total() == -math.inf:
            raise ProblemError("no assignment agrees with the evidence: there are no samples")
        values = self._tables.sample(index(n), np.random.default_rng(index(seed)))
        return [self.problem.assignment(row) for row in values]

    def marginals(self) -> dict[str, dict[Label, Number | None]]:
        """Return the marginals or max-marginals of all variables given the evidence.

        Returns
        -------
        dict from str to dict
            The result of ``marginal`` for each variable, by name.

        Raises
        ------
        ProblemError
            If no assignment is consistent with the evidence (sums only).
        """
        tables = enumerate(self._marginals.all())
        return {self.problem.variables[v]: dict(zip(_labels(self.problem, v), t, strict=True)) for v, t in tables}

    def total(self) -> Number:
        """Return ln Σ exp(utility) over all assignments consistent with the evidence, or the best objective of one.

        Returns
        -------
        int or float
            The logarithm (sums), or the best objective in the problem's sense (maxima). −∞, or +∞ for costs, if no
            assignment is consistent with the evidence and the hard constraints.
        """
        total = self._marginals.total()
        if total is None:
            return math.inf if self._maximise and self.problem.sense == "min" else -math.inf
        return self.problem.to_own_sense(nearest(total)) if self._maximise else nearest(total)


def _check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise ConfigError if an argument has none of its known values."""
    if value not in known:
        raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {value!r}")


def _distinct_variables(problem: Problem, names: Sequence[str]) -> list[int]:
    """Return the indices of at least one variable; raise ProblemError if one is unknown or repeated."""
    for name in names:
        if name not in problem.variables:
            raise ProblemError(f"variable {name!r} does not exist")
    if not names or len(set(names)) < len(names):
        raise ProblemError(f"marginal: expected the names of distinct variables, got {names!r}")
    return [problem.variables.index(name) for name in names]


def _labels(problem: Problem, v: int) -> Sequence[Label]:
    """Return the labels of a variable, or its value indices if it has none."""
    return problem.labels[v] or range(int(problem.domains[v]))


def _observed_values(problem: Problem, evidence: Mapping[str, Label], size: int) -> Ints:
    """Return an array of some size with the observed value index of each variable, −1 for an unobserved one."""
    if not isinstance(evidence, Mapping):
        raise ProblemError(f"evidence: expected a mapping from names of variables to values, got {evidence!r}")
    index = {name: v for v, name in enumerate(problem.variables)}
    values = np.full(size, -1)
    for name, label in evidence.items():
        if name not in index:
            raise ProblemError(f"evidence: variable {name!r} does not exist")
        labels = _labels(problem, index[name])
        if label not in labels:
            raise ProblemError(f"evidence: variable {name!r} has no value {label!r}")
        values[index[name]] = labels.index(label)
    return values


@dataclass(order=True)
class _Subset:
    """Assignments with a prefix of fixed values, without some values of the next variable.

    Attributes
    ----------
    loss : int or float
        The negative of the best utility of its assignments.
    number : int
        Subsets with equal utility are searched in the order of their numbers.
    prefix : tuple of label
        The values of the first variables.
    utilities : dict
        The best utility with each value of the next variable that is not excluded.
    """

    loss: Number
    number: int
    prefix: tuple[Label, ...] = field(compare=False)
    utilities: dict[Label, Number] = field(compare=False)


def best_assignments(tree: JunctionTree) -> Iterator[Ints]:
    """Yield all assignments that break no hard constraint, the best first.

    Each takes at most one query per variable. The evidence of the tree is replaced.

    Parameters
    ----------
    tree : JunctionTree
        A tree of maxima (``maximise=True``).

    Yields
    ------
    (variables,) int64
        The value indices of the next best assignment. Ties are broken by the order of variables and values.

    Raises
    ------
    OutOfTime
        If the tree's deadline passes.

    Examples
    --------
    >>> from dmcmc import Factor, Problem
    >>> problem = Problem(("a", "b"), [2, 2], ("me",), [0, 0], (Factor.of((0, 1), [[1, 7], [5, float("-inf")]]),))
    >>> [values.tolist() for values in best_assignments(JunctionTree(problem, maximise=True))]
    [[0, 1], [1, 0], [0, 0]]
    """
    names = tree.problem.variables
    if not names and math.isfinite(tree.total()):
        yield np.zeros(0, dtype=np.int64)
    if not names:
        return
    tree.set_evidence({})
    queue, number = list[_Subset](), 0
    if utilities := _utilities(tree, names[0]):
        queue.append(_Subset(-max(utilities.values()), number, (), utilities))
    while queue:
        subset = heapq.heappop(queue)
        prefix, utilities = subset.prefix, subset.utilities
        while True:
            value = max(utilities, key=utilities.__getitem__)
            others = {other: utility for other, utility in utilities.items() if other != value}
            if others:
                number += 1
                heapq.heappush(queue, _Subset(-max(others.values()), number, prefix, others))
            prefix = (*prefix, value)
            tree.set_evidence(dict(zip(names, prefix, strict=False)))
            if len(prefix) == len(names):
                break
            utilities = _utilities(tree, names[len(prefix)])
        yield tree.problem.values_of(dict(zip(names, prefix, strict=True)))


def _utilities(tree: JunctionTree, name: str) -> dict[Label, Number]:
    """Return the best utility with each value of a variable, without values that no allowed assignment has."""
    to_utility = tree.problem.to_own_sense  # its own inverse
    return {label: to_utility(number) for label, number in tree.marginal(name).items() if number is not None}
