"""Bound what lies outside a bucket's subtree: mini-buckets up and down the bucket tree.

The messages of one mini-bucket elimination of the whole problem go up the tree. Down the tree, from a bucket p to its
child, goes an elimination of the variables of p's cluster beyond the separator. Its tables are p's own tables, the
messages of p's other children, and what p received itself (mini-cluster-tree elimination: Dechter, Kask and Larrosa,
CP 2001). The downward messages bound what the rest can add to each row of the child's message (function filtering:
Sánchez, Larrosa and Meseguer, CP 2005).
"""

from collections.abc import Sequence

from dmcmc.inference.elimination.eliminate import absorb, eliminate
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.elimination.query import EliminationQuery
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Ints

ROOT = -1  # the parent of buckets without a separator


class MiniBucketRelaxation:
    """Eliminate variables with mini-buckets of z variables, or of as many as the widest table needs.

    Attributes
    ----------
    domains : (variables,) int64
        Domain sizes.
    arithmetic : Arithmetic
        The arithmetic of the tables.
    z : int
        Largest number of variables of a message.
    threads : int
        Number of CPU threads.
    stop : Deadline
        The deadline.
    margin : float
        Upper bound on the rounding error of all bounds so far; 0 for integers.
    """

    def __init__(
        self, domains: Ints, arithmetic: Arithmetic, z: int, threads: int = 1, stop: Deadline = NO_DEADLINE
    ) -> None:
        self.domains, self.arithmetic, self.z = domains, arithmetic, z
        self.threads, self.stop = threads, stop
        self.margin = 0.0

    def __call__(self, tables: Sequence[EncodedTable], variables: Sequence[int]) -> list[EncodedTable]:
        """Return tables over the other variables whose sum is an upper bound on the maximum over ``variables``."""
        remaining = list(tables)
        for v in _min_degree_order(tables, variables):
            with_v = [t for t in remaining if v in t.scope]
            remaining = [t for t in remaining if v not in t.scope]
            if with_v:
                remaining += self._eliminate(with_v, v)
        return list(absorb(remaining, self.arithmetic))

    def _eliminate(self, tables: Sequence[EncodedTable], variable: int) -> list[EncodedTable]:
        """Eliminate one variable."""
        self.stop.check()
        scopes = [t.scope for t in tables]
        keep = sorted({v for s in scopes for v in s} - {variable})
        z = max(self.z, least_z(scopes, [variable]))
        plan = plan_mini_buckets(scopes, self.domains, [variable], keep, z, shifts=len(keep) > z)
        if len(keep) <= z:
            done = eliminate(tables, plan, self.arithmetic, self.threads, stop=self.stop)
        else:
            matched = eliminate_matched(tables, plan, self.arithmetic, self.threads, stop=self.stop)
            done, self.margin = matched.elimination, self.margin + matched.margin
        return [done.table(plan.output(b)) for b in range(plan.buckets)]


def _min_degree_order(tables: Sequence[EncodedTable], variables: Sequence[int]) -> list[int]:
    """Return an elimination order: always a variable with the fewest neighbours."""
    open_variables, scopes, order = set(variables), [set(t.scope) for t in tables], list[int]()
    while open_variables:
        neighbours: dict[int, set[int]] = {v: set() for v in sorted(open_variables)}
        for scope in scopes:
            for v in scope & open_variables:
                neighbours[v] |= scope
        v = min(neighbours, key=lambda u: (len(neighbours[u]), u))
        order.append(v)
        open_variables.remove(v)
        scopes = [s for s in scopes if v not in s] + [neighbours[v] - {v}]
    return order


class OutsideBounds:
    """Upper bounds on what the rest of the problem can add to each bucket's message; computed on demand.

    Attributes
    ----------
    parent : list of int
        The bucket that receives each bucket's message; ``ROOT`` if the message is a number.
    total : number
        Upper bound on the optimum of the whole problem (encoded).
    """

    def __init__(self, query: EliminationQuery, exact: EliminationPlan, relaxation: MiniBucketRelaxation) -> None:
        self.exact, self.relaxing = exact, relaxation
        position = {v: b for b, v in enumerate(query.order)}
        self.parent = [position[s[0]] if (s := self.separator(b)) else ROOT for b in range(exact.buckets)]
        self._children: dict[int, list[int]] = {}
        for b, parent in enumerate(self.parent):
            self._children.setdefault(parent, []).append(b)
        self._own: list[list[EncodedTable]] = [[] for _ in self.parent]
        for table in query.tables:
            if table.scope:
                self._own[min(position[v] for v in table.scope)].append(table)
        self._crossing: list[list[EncodedTable]] = [[] for _ in self.parent]
        self.total = self._pass_up(query, position)
        self._down: dict[int, list[EncodedTable]] = {}

    def _pass_up(self, query: EliminationQuery, position: dict[int, int]) -> int | float:
        """Store the messages that cross the edge above each bucket; return the bound on the whole problem."""
        relaxing = self.relaxing
        z = max(relaxing.z, least_z(query.scopes, query.order))
        plan = plan_mini_buckets(query.scopes, query.domains, query.order, (), z, shifts=True)
        matched = eliminate_matched(query.tables, plan, relaxing.arithmetic, relaxing.threads, stop=relaxing.stop)
        relaxing.margin += matched.margin
        for b in range(plan.buckets):
            table = matched.elimination.table(plan.output(b))
            at = position[int(plan.program.variable[b])]
            until = min((position[v] for v in table.scope), default=len(self.parent))
            while at != ROOT and at < until:
                self._crossing[at].append(table)
                at = self.parent[at]
        return matched.elimination.total()

    def separator(self, b: int) -> tuple[int, ...]:
        """Return the scope of a bucket's message."""
        return self.exact.scope(self.exact.output(b))

    def inside_bounds(self, b: int) -> tuple[EncodedTable, ...]:
        """Return tables over subsets of a bucket's separator whose sum bounds its message."""
        return tuple(self._crossing[b])

    def bounds_of(self, b: int) -> list[EncodedTable]:
        """Return tables over subsets of a bucket's separator whose sum bounds everything outside its subtree."""
        path = [b]
        while self.parent[path[-1]] != ROOT and path[-1] not in self._down:
            path.append(self.parent[path[-1]])
        for c in reversed(path):
            if c not in self._down:
                self._down[c] = self._bounds_from_parent(c)
        return self._down[b]

    def _bounds_from_parent(self, c: int) -> list[EncodedTable]:
        """Return the bounds that a bucket receives from its parent."""
        p = self.parent[c]
        tables = [table for other in self._children[p] if other != c for table in self._crossing[other]]
        if p != ROOT:
            tables += [*self._own[p], *self._down[p]]
        beyond = {v for table in tables for v in table.scope} - set(self.separator(c))
        return self.relaxing(tables, sorted(beyond))
