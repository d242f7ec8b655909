"""Posterior marginals, max-marginals and samples of all variables, for evidence that changes between queries."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from operator import index
from typing import Any, SupportsIndex, get_args, overload

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.junction_tree.message_kernels import DOWN, MARGINAL, SEPARATOR_MARGINAL, UP
from dmcmc.inference.junction_tree.passes import ProductUnderflow
from dmcmc.inference.marginals.tables import SparseTreeTables, TableFormat, TreeResources, build_tables
from dmcmc.inference.model.builder import Builder, as_problem
from dmcmc.inference.model.exact_sum import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.errors import ConfigError, ProblemError
from dmcmc.inference.runtime.types import Ints, Number

_DEVICES = ("auto", "cpu", "cuda")


class JunctionTree:
    """A junction tree that is planned once and answers many queries with different evidence.

    Messages go up to the roots and down again (CUBE §III). Each message is computed from the other incoming messages of
    its sender, so it needs no division and evidence can be retracted. New evidence invalidates only the messages that
    depend on it.

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
        for name, value, known in (("tables", tables, get_args(TableFormat)), ("device", device, _DEVICES)):
            if value not in known:
                raise ConfigError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
        self.problem, self._maximise = problem, maximise
        constants = [f.table for f in problem.factors if not f.scope]
        self._constant = None if any(map(forbidden, constants)) else exact_sum(t.item() for t in constants)
        self._tables = build_tables(problem, maximise, TreeResources(memory, stop, device), tables)
        self.tree, self._numbers, self._observed = self._tables.tree, self._tables.numbers, self._tables.observed
        cliques = len(self.tree.scopes)
        self._has_up, self._has_down, self._has_table = (np.zeros(cliques, dtype=np.bool_) for _ in range(3))
        self._cliques_of: list[list[int]] = [[] for _ in range(self._observed.size)]
        for clique, scope in enumerate(self.tree.scopes):
            for v in scope:
                self._cliques_of[v].append(clique)

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
        if not isinstance(evidence, Mapping):
            raise ProblemError(f"evidence: expected a mapping from names of variables to values, got {evidence!r}")
        index = {name: v for v, name in enumerate(self.problem.variables)}
        observed = {}
        for name, label in evidence.items():
            if name not in index:
                raise ProblemError(f"evidence: variable {name!r} does not exist")
            labels = self._labels(index[name])
            if label not in labels:
                raise ProblemError(f"evidence: variable {name!r} has no value {label!r}")
            observed[index[name]] = labels.index(label)
        values = np.full(self._observed.size, -1)
        values[list(observed)] = list(observed.values())
        self._observe(values)

    def forget(self) -> None:
        """Invalidate all messages and tables, so that the next query computes them again."""
        for is_valid in (self._has_up, self._has_down, self._has_table):
            is_valid[:] = False

    def propagate(self) -> None:
        """Compute all messages and tables that are not up to date."""
        self._update(np.arange(len(self.tree.scopes)), np.arange(len(self.tree.scopes)))

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
        for name in names:
            if name not in self.problem.variables:
                raise ProblemError(f"variable {name!r} does not exist")
        if not names or len(set(names)) < len(names):
            raise ProblemError(f"marginal: expected the names of distinct variables, got {variable!r}")
        variables = [self.problem.variables.index(name) for name in names]
        if isinstance(variable, str):
            return self._single_marginal(variables[0])
        evidence = self._observed.copy()
        try:
            return self._joint_marginal(variables)
        finally:
            self._observe(evidence)

    def _single_marginal(self, v: int) -> dict[Label, Number | None]:
        """Return the marginal or max-marginal of one variable given the evidence."""
        home = int(self._tables.home[v])
        self._update(np.array(self._path(home)), np.array([home]))
        return self._read([v])[0]

    def _joint_marginal(self, variables: Sequence[int]) -> dict[tuple[Label, ...], Number | None]:
        """Return the joint marginal of variables by the chain rule; the evidence is changed.

        P(a, b) = P(a) P(b | a). The max-marginal of (a, b) is that of b given a.
        """
        v, *others = variables
        single = self._single_marginal(v)
        if not others:
            return {(label,): number for label, number in single.items()}
        joint: dict[tuple[Label, ...], Number | None] = {}
        evidence = self._observed.copy()
        for value, (label, number) in enumerate(single.items()):
            if number is None or (number == 0 and not self._maximise):
                rest = product(*(self._labels(u) for u in others))
                joint |= {(label, *labels): number for labels in rest}
                continue
            observed = evidence.copy()
            observed[v] = value
            self._observe(observed)
            given_value = self._joint_marginal(others).items()
            joint |= {
                (label, *labels): entry if self._maximise or entry is None else number * entry
                for labels, entry in given_value
            }
        return joint

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
            if not isinstance(number, SupportsIndex) or index(number) < 0:
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
        self.propagate()
        return dict(zip(self.problem.variables, self._read(range(self.problem.n_variables)), strict=True))

    def total(self) -> Number:
        """Return ln Σ exp(utility) over all assignments consistent with the evidence, or the best objective of one.

        Returns
        -------
        int or float
            The logarithm (sums), or the best objective in the problem's sense (maxima). −∞, or +∞ for costs, if no
            assignment is consistent with the evidence and the hard constraints.
        """
        no_cliques = np.zeros(0, dtype=np.int64)
        self._update(no_cliques, no_cliques)
        total = self._sum(self._totals().values())
        if total is None:
            return math.inf if self._maximise and self.problem.sense == "min" else -math.inf
        return self.problem.to_own_sense(nearest(total)) if self._maximise else nearest(total)

    def _totals(self) -> dict[int, Exact | None]:
        """Return each connected component's total by its root clique; None if it has no allowed assignment."""
        values = {root: self._tables.total(root) for root in self.tree.roots}
        return {root: None if self._numbers.is_lowest(v) else exact_sum([v]) for root, v in values.items()}

    def _sum(self, totals: Iterable[Exact | None]) -> Exact | None:
        """Return the sum of the totals and the constants; None if one of them is None."""
        total = self._constant
        for component in totals:
            total = None if total is None or component is None else total + component
        return total

    def _read(self, variables: Iterable[int]) -> list[dict[Label, Number | None]]:
        """Return the tables of variables, combined with the totals of all other components."""
        totals = self._totals()
        if not self._maximise and self._sum(totals.values()) is None:
            raise ProblemError("no assignment agrees with the evidence: there are no probabilities")
        infeasible_roots = [root for root, total in totals.items() if total is None]
        feasible_total = self._sum(total for total in totals.values() if total is not None)
        results: list[dict[Label, Number | None]] = []
        for v in variables:
            values, labels = self._tables.marginal(v).tolist(), self._labels(v)
            if self._maximise:
                root = self._path(int(self._tables.home[v]))[-1]
                component_total = totals[root]
                other_total = (
                    None
                    if feasible_total is None or component_total is None or infeasible_roots
                    else feasible_total - component_total
                )
                values = [self._objective(value, other_total) for value in values]
            results.append(dict(zip(labels, values, strict=True)))
        return results

    def _objective(self, value: Number, other_total: Exact | None) -> Number | None:
        """Return the objective of a component's utility plus the total of the others; None if either is forbidden."""
        if other_total is None or self._numbers.is_lowest(value):
            return None
        return self.problem.to_own_sense(nearest(exact_sum([value]) + other_total))

    def _labels(self, v: int) -> Sequence[Label]:
        """Return the labels of a variable, or its value indices if it has none."""
        return self.problem.labels[v] or range(int(self.problem.domains[v]))

    def _observe(self, values: Ints) -> None:
        """Replace the observed values, (variables,) int64; −1 for an unobserved variable."""
        changed = np.flatnonzero(values != self._observed)
        self._observed[:] = values
        self._invalidate(changed.tolist())

    def _invalidate(self, changed: Iterable[int]) -> None:
        """Mark the messages and tables that depend on the observations of some variables as not up to date."""
        for clique in sorted({clique for v in changed for clique in self._cliques_of[v]}):
            path = self._path(clique)
            still_valid = np.zeros(self._has_down.size, dtype=np.bool_)
            still_valid[path] = True  # messages down into the path's cliques do not depend on this clique
            self._has_up[path] = False
            self._has_down &= still_valid
            self._has_table[:] = False

    def _update(self, down_cliques: Ints, table_cliques: Ints) -> None:
        """Compute all upward messages, the downward messages to some cliques, and the tables at some cliques.

        Only what is outdated is computed: ``_has_up``, ``_has_down`` and ``_has_table`` mark the cliques whose message
        to the parent, message from the parent, and variable tables are valid. If a product underflows on the device,
        everything is computed again on the CPU, permanently.
        """
        try:
            self._collect()
            self._distribute(down_cliques)
            self._compute_tables(table_cliques)
        except ProductUnderflow:
            self._tables.leave_device()
            self.forget()
            self._update(down_cliques, table_cliques)

    def _collect(self) -> None:
        """Compute the outdated upward messages."""
        self._run(UP, np.flatnonzero(~self._has_up), self._has_up)

    def _distribute(self, cliques: Ints) -> None:
        """Compute the outdated downward messages to some cliques, parents first."""
        self._run(DOWN, np.sort(cliques[~self._has_down[cliques]])[::-1].copy(), self._has_down)

    def _compute_tables(self, cliques: Ints) -> None:
        """Compute the outdated variable tables whose home is one of these cliques.

        SEPARATOR_MARGINAL computes the tables of variables that are read from the separator above the clique, MARGINAL
        those of the clique's other variables.
        """
        outdated = cliques[~self._has_table[cliques]]
        self._tables.passes.run(SEPARATOR_MARGINAL, outdated)
        self._run(MARGINAL, outdated, self._has_table)

    def _run(self, table_kind: int, cliques: Ints, is_valid: NDArray[np.bool_]) -> None:
        """Compute tables of one kind for some cliques, in their order, and mark them as valid.

        Kinds: UP (message to the parent), DOWN (message from the parent), MARGINAL (variable tables).
        """
        self._tables.passes.run(table_kind, cliques)
        is_valid[cliques] = True

    def _path(self, clique: int) -> list[int]:
        """Return the path from a clique to its root."""
        path = [clique]
        while self.tree.parent[path[-1]] >= 0:
            path.append(self.tree.parent[path[-1]])
        return path
