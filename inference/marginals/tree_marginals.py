"""Messages in a junction tree, and the marginals that they give.

Marginals, max-marginals and totals of a junction tree, by the indices of variables and values.

Which messages and tables of a junction tree are up to date, and their computation.
"""

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.junction_tree.message_kernels import DOWN, MARGINAL, SEPARATOR_MARGINAL, UP
from dmcmc.inference.junction_tree.passes import ProductUnderflow
from dmcmc.inference.marginals.tables import JunctionTreeTables
from dmcmc.inference.model.arithmetic import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Ints, Number


class TreeMessages:
    """The messages of a junction tree, of which only those that new evidence concerns are computed again.

    Messages go up to the roots and down again (CUBE §III). Each message is computed from the other incoming messages of
    its sender, so it needs no division and evidence can be retracted.

    Parameters
    ----------
    tables : JunctionTreeTables
        The tables, without messages.
    """

    def __init__(self, tables: JunctionTreeTables) -> None:
        self._tables, self._tree = tables, tables.tree
        self._observed, cliques = tables.observed, len(tables.tree.scopes)
        self._has_up, self._has_down, self._has_table = (np.zeros(cliques, dtype=np.bool_) for _ in range(3))
        self._cliques_of: list[list[int]] = [[] for _ in range(self._observed.size)]
        for clique, scope in enumerate(self._tree.scopes):
            for v in scope:
                self._cliques_of[v].append(clique)

    def observe(self, values: Ints) -> None:
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

    def forget(self) -> None:
        """Invalidate all messages and tables, so that the next query computes them again."""
        for is_valid in (self._has_up, self._has_down, self._has_table):
            is_valid[:] = False

    def update_all(self) -> None:
        """Compute all messages and tables that are not up to date."""
        cliques = np.arange(len(self._tree.scopes))
        self._update(cliques, cliques)

    def update_upward(self) -> None:
        """Compute the messages to the parents that are not up to date, on which the totals depend."""
        none = np.zeros(0, dtype=np.int64)
        self._update(none, none)

    def update_table(self, v: int) -> None:
        """Compute the table of a variable if it is not up to date, and the messages on which it depends."""
        home = int(self._tables.home[v])
        self._update(np.array(self._path(home)), np.array([home]))

    def root_of(self, v: int) -> int:
        """Return the root clique of a variable's connected component."""
        return self._path(int(self._tables.home[v]))[-1]

    def _update(self, down_cliques: Ints, table_cliques: Ints) -> None:
        """Compute all upward messages, the downward messages to some cliques, and the tables at some cliques.

        Only what is outdated is computed: ``_has_up``, ``_has_down`` and ``_has_table`` mark the cliques whose message
        to the parent, message from the parent, and variable tables are valid. If a product underflows on the device, or
        the device fails, everything is computed again on the CPU, permanently.
        """
        try:
            self._collect()
            self._distribute(down_cliques)
            self._compute_tables(table_cliques)
        except Exception as error:
            if not isinstance(error, ProductUnderflow) and gpu_fault(error) is None:
                raise
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
        while self._tree.parent[path[-1]] >= 0:
            path.append(self._tree.parent[path[-1]])
        return path


class TreeMarginals:
    """Marginals or max-marginals given the evidence, computed from the tables of a junction tree.

    Parameters
    ----------
    problem : Problem
        The problem.
    maximise : bool
        Whether the tables hold maxima instead of sums.
    tables : JunctionTreeTables
        The tables.
    messages : TreeMessages
        Computes what is not up to date.
    """

    def __init__(self, problem: Problem, maximise: bool, tables: JunctionTreeTables, messages: TreeMessages) -> None:
        self._problem, self._maximise, self._tables, self._messages = problem, maximise, tables, messages
        constants = [f.table for f in problem.factors if not f.scope]
        self._constant = None if any(map(forbidden, constants)) else exact_sum(t.item() for t in constants)

    def total(self) -> Exact | None:
        """Return the sum of all connected components' totals; None if no assignment is allowed."""
        self._messages.update_upward()
        return self._sum(self._totals().values())

    def all(self) -> list[list[Number | None]]:
        """Return the marginal or max-marginal of each variable; see ``marginal``."""
        self._messages.update_all()
        return self._read(range(self._problem.n_variables))

    def marginal(self, v: int) -> list[Number | None]:
        """Return the marginal or max-marginal of one variable.

        Returns
        -------
        list of float, int or None
            For each value its posterior probability, or the best objective with it; None if there is none.

        Raises
        ------
        ProblemError
            If no assignment is consistent with the evidence (sums only).
        """
        self._messages.update_table(v)
        return self._read([v])[0]

    def joint_marginal(self, variables: Sequence[int]) -> Iterator[Number | None]:
        """Yield the joint marginal of variables; the last one's values change fastest.

        P(a, b) = P(a) P(b | a). The max-marginal of (a, b) is that of b given a. All variables but the last are
        observed in turn; the evidence is restored at the end.
        """
        v, *others = variables
        single = self.marginal(v)
        if not others:
            yield from single
            return
        evidence = self._tables.observed.copy()
        try:
            for value, number in enumerate(single):
                if number is None or (number == 0 and not self._maximise):
                    yield from [number] * math.prod(self._problem.domains[others].tolist())
                    continue
                observed = evidence.copy()
                observed[v] = value
                self._messages.observe(observed)
                for entry in self.joint_marginal(others):
                    yield entry if self._maximise or entry is None else number * entry
        finally:
            self._messages.observe(evidence)

    def _totals(self) -> dict[int, Exact | None]:
        """Return each connected component's total by its root clique; None if it has no allowed assignment."""
        values = {root: self._tables.total(root) for root in self._tables.tree.roots}
        return {root: None if self._tables.numbers.is_lowest(v) else exact_sum([v]) for root, v in values.items()}

    def _sum(self, totals: Iterable[Exact | None]) -> Exact | None:
        """Return the sum of the totals and the constants; None if one of them is None."""
        total = self._constant
        for component in totals:
            total = None if total is None or component is None else total + component
        return total

    def _read(self, variables: Iterable[int]) -> list[list[Number | None]]:
        """Return the tables of variables, combined with the totals of all other components."""
        totals = self._totals()
        if not self._maximise and self._sum(totals.values()) is None:
            raise ProblemError("no assignment agrees with the evidence: there are no probabilities")
        infeasible_roots = [root for root, total in totals.items() if total is None]
        feasible_total = self._sum(total for total in totals.values() if total is not None)
        results: list[list[Number | None]] = []
        for v in variables:
            values = self._tables.marginal(v).tolist()
            if self._maximise:
                root = self._messages.root_of(v)
                component_total = totals[root]
                other_total = (
                    None
                    if feasible_total is None or component_total is None or infeasible_roots
                    else feasible_total - component_total
                )
                values = [self._objective(value, other_total) for value in values]
            results.append(values)
        return results

    def _objective(self, value: Number, other_total: Exact | None) -> Number | None:
        """Return the objective of a component's utility plus the total of the others; None if either is forbidden."""
        if other_total is None or self._tables.numbers.is_lowest(value):
            return None
        return self._problem.to_own_sense(nearest(exact_sum([value]) + other_total))
