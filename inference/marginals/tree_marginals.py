"""Marginals, max-marginals and totals of a junction tree, by the indices of variables and values."""

import math
from collections.abc import Iterable, Iterator, Sequence

from dmcmc.inference.marginals.tables import JunctionTreeTables
from dmcmc.inference.marginals.tree_messages import TreeMessages
from dmcmc.inference.model.arithmetic import Exact, exact_sum, nearest
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden
from dmcmc.inference.runtime.errors import ProblemError
from dmcmc.inference.runtime.types import Number


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
