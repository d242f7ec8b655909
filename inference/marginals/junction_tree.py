"""Posterior marginals and max-marginals of all variables, with evidence that may change."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.junction_tree.message_kernels import DOWN, SEPARATOR, SHOW, UP
from dmcmc.inference.junction_tree.passes import FarApart
from dmcmc.inference.marginals.tables import Kind, ListedTables, Means, tables_of
from dmcmc.inference.model.exact_sum import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Ints, Number


class JunctionTree:
    """A problem planned once, to be asked again and again.

    Messages go up to the roots and down again (CUBE §III); each is a product of what its sender has from elsewhere, so
    nothing is ever divided and evidence may be taken back. New evidence makes anew only the messages that depend on it.

    Parameters
    ----------
    problem
        Any.
    maximise
        False: sums, for posterior marginals; utilities are logarithms. True: maxima, for max-marginals.
    memory
        Bytes that the tables may take; None for no limit.
    stop
        When to give up (:class:`.OutOfTime`).
    device
        Where: ``auto`` takes a GPU, if there is one, for large trees.
    tables
        ``dense``; ``incomplete``: only what is possible is listed; ``auto``: that where dense tables do not fit the
        memory.

    Raises
    ------
    ResourceError
        If they do not fit.

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
        problem: Problem,
        maximise: bool = False,
        memory: int | None = None,
        stop: Stop = NO_STOP,
        device: str = "auto",
        tables: Kind = "auto",
    ) -> None:
        self.problem, self._maximise = problem, maximise
        constants = [f.table for f in problem.factors if not f.scope]
        self._constant = None if any(map(forbidden, constants)) else exact_sum(t.item() for t in constants)
        self._tables = tables_of(problem, maximise, Means(memory, stop, device), tables)
        self.tree, self._numbers, self._seen = self._tables.tree, self._tables.numbers, self._tables.observed
        cliques = len(self.tree.scopes)
        self._up, self._down, self._shown = (np.zeros(cliques, dtype=np.bool_) for _ in range(3))
        self._inside: list[list[int]] = [[] for _ in range(self._seen.size)]
        for clique, scope in enumerate(self.tree.scopes):
            for v in scope:
                self._inside[v].append(clique)

    @property
    def width(self) -> int:
        """The induced width."""
        return self.tree.width

    @property
    def cells(self) -> int:
        """Entries of all cliques together, or rows: what one pass works through."""
        return self._tables.cells

    @property
    def incomplete(self) -> bool:
        """Whether only what is possible is listed."""
        return isinstance(self._tables, ListedTables)

    def set_evidence(self, evidence: Mapping[str, Label]) -> None:
        """Say what is observed, by names and labels (numbers where a variable has none); nothing else is.

        Raises
        ------
        ProblemError
            If a variable or a label does not exist.
        """
        index = {name: v for v, name in enumerate(self.problem.variables)}
        observed = {}
        for name, label in evidence.items():
            if name not in index:
                raise ProblemError(f"evidence: variable {name!r} does not exist")
            labels = self._labels(index[name])
            if label not in labels:
                raise ProblemError(f"evidence: variable {name!r} has no value {label!r}")
            observed[index[name]] = labels.index(label)
        values = np.full(self._seen.size, -1)
        values[list(observed)] = list(observed.values())
        changed = np.flatnonzero(values != self._seen)
        self._seen[:] = values
        self._outdate(changed.tolist())

    def forget(self) -> None:
        """Let all messages and tables be made anew when they are next asked for."""
        for made in (self._up, self._down, self._shown):
            made[:] = False

    def propagate(self) -> None:
        """Make all messages and tables that are not up to date."""
        self._make(np.arange(len(self.tree.scopes)), np.arange(len(self.tree.scopes)))

    def marginal(self, variable: str) -> dict[Label, Number | None]:
        """Return what a variable's values are worth, given the evidence; makes only what that needs.

        Sums: their probabilities. Maxima: the best objective that each allows; None where none is possible.

        Raises
        ------
        ProblemError
            If no assignment agrees with the evidence (of probabilities), or the variable does not exist.
        """
        if variable not in self.problem.variables:
            raise ProblemError(f"variable {variable!r} does not exist")
        v = self.problem.variables.index(variable)
        home = int(self._tables.home[v])
        self._make(np.array(self._path(home)), np.array([home]))
        return self._read([v])[0]

    def marginals(self) -> dict[str, dict[Label, Number | None]]:
        """Return :meth:`marginal` of all variables."""
        self.propagate()
        return dict(zip(self.problem.variables, self._read(range(self.problem.n_variables)), strict=True))

    def total(self) -> Number:
        """Return ln Σ exp(utility) over all assignments that agree with the evidence, or the best objective of one.

        −∞ (of a cost: ∞) if there is none.
        """
        none = np.zeros(0, dtype=np.int64)
        self._make(none, none)
        total = self._sum(self._totals().values())
        if total is None:
            return math.inf if self._maximise and self.problem.sense == "min" else -math.inf
        return self.problem.to_own_sense(nearest(total)) if self._maximise else nearest(total)

    def _totals(self) -> dict[int, Exact | None]:
        """Return what each component adds up to, by its root; None if nothing is allowed in it."""
        values = {root: self._tables.total(root) for root in self.tree.roots}
        return {root: None if self._numbers.is_lowest(v) else exact_sum([v]) for root, v in values.items()}

    def _sum(self, totals: Iterable[Exact | None]) -> Exact | None:
        """Return the sum with the constants; None if one of them is."""
        total = self._constant
        for one in totals:
            total = None if total is None or one is None else total + one
        return total

    def _read(self, variables: Iterable[int]) -> list[dict[Label, Number | None]]:
        """Return variables' tables, which are up to date, with what all other components are worth."""
        totals = self._totals()
        if not self._maximise and self._sum(totals.values()) is None:
            raise ProblemError("no assignment agrees with the evidence: there are no probabilities")
        impossible = [root for root, total in totals.items() if total is None]
        possible = self._sum(total for total in totals.values() if total is not None)
        found: list[dict[Label, Number | None]] = []
        for v in variables:
            values, labels = self._tables.shown(v).tolist(), self._labels(v)
            if self._maximise:
                root = self._path(int(self._tables.home[v]))[-1]
                own = totals[root]
                rest = None if possible is None or own is None or impossible else possible - own
                values = [self._objective(value, rest) for value in values]
            found.append(dict(zip(labels, values, strict=True)))
        return found

    def _objective(self, value: Number, rest: Exact | None) -> Number | None:
        """Return the objective of a component's best and the rest's; None if either is not possible."""
        if rest is None or self._numbers.is_lowest(value):
            return None
        return self.problem.to_own_sense(nearest(exact_sum([value]) + rest))

    def _labels(self, v: int) -> Sequence[Label]:
        return self.problem.labels[v] or range(int(self.problem.domains[v]))

    def _outdate(self, changed: Iterable[int]) -> None:
        """Note what has to be made again when other values of some variables are possible."""
        for clique in sorted({clique for v in changed for clique in self._inside[v]}):
            above = self._path(clique)
            kept = np.zeros(self._down.size, dtype=np.bool_)
            kept[above] = True  # what comes from outside of their subtrees has not changed
            self._up[above] = False
            self._down &= kept
            self._shown[:] = False

    def _make(self, above: Ints, shown: Ints) -> None:
        """Make messages up, those down to some cliques, and tables of some."""
        try:
            self._collect()
            self._distribute(above)
            self._show(shown)
        except FarApart:
            self._tables.leave_device()
            self.forget()
            self._make(above, shown)

    def _collect(self) -> None:
        self._run(UP, np.flatnonzero(~self._up), self._up)

    def _distribute(self, cliques: Ints) -> None:
        self._run(DOWN, np.sort(cliques[~self._down[cliques]])[::-1].copy(), self._down)

    def _show(self, cliques: Ints) -> None:
        stale = cliques[~self._shown[cliques]]
        self._tables.passes.run(SEPARATOR, stale)
        self._run(SHOW, stale, self._shown)

    def _run(self, what: int, cliques: Ints, done: NDArray[np.bool_]) -> None:
        """Make something for some cliques, in their order."""
        self._tables.passes.run(what, cliques)
        done[cliques] = True

    def _path(self, clique: int) -> list[int]:
        """Return a clique and all above it."""
        path = [clique]
        while self.tree.parent[path[-1]] >= 0:
            path.append(self.tree.parent[path[-1]])
        return path
