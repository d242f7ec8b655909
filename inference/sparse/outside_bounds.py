"""Bounds on what is outside of a bucket's subtree: mini-buckets up and down the bucket tree.

Up the tree go the messages of one mini-bucket elimination of everything. Down it goes, from a bucket p to its child, an
elimination of what p's cluster has beyond the separator: from p's own tables, the messages of its other children, and
what p was told itself (mini-cluster-tree elimination: Dechter, Kask and Larrosa, CP 2001). What comes down bounds what
the rest can add to each row of the child's message (function filtering: Sánchez, Larrosa and Meseguer, CP 2005).
"""

from collections.abc import Sequence

from dmcmc.inference.elimination.eliminate import absorb, eliminate
from dmcmc.inference.elimination.plan import Plan
from dmcmc.inference.elimination.query import Query
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, Table
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.types import Ints

ROOT = -1  # the parent of buckets that have no separator


class Relaxing:
    """Eliminates variables from tables with mini-buckets of z variables, or of what the widest table needs.

    Attributes
    ----------
    stop : Stop
        When to give up.
    margin : float
        What all bounds so far may be too low by, through the rounding of shifts; 0 for integers.
    """

    def __init__(self, domains: Ints, arithmetic: Arithmetic, z: int, threads: int = 1, stop: Stop = NO_STOP) -> None:
        self.domains, self.arithmetic, self.z = domains, arithmetic, z
        self.threads, self.stop = threads, stop
        self.margin = 0.0

    def __call__(self, tables: Sequence[Table], variables: Sequence[int]) -> list[Table]:
        """Return tables over the other variables whose sum is at least the maximum over ``variables``."""
        left = list(tables)
        for v in _narrow_first(tables, variables):
            inside = [t for t in left if v in t.scope]
            left = [t for t in left if v not in t.scope]
            if inside:
                left += self._without(inside, v)
        return list(absorb(left, self.arithmetic))

    def _without(self, tables: Sequence[Table], variable: int) -> list[Table]:
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


def _narrow_first(tables: Sequence[Table], variables: Sequence[int]) -> list[int]:
    """Return variables in an order of elimination: always one that has fewest others around it."""
    wanted, scopes, order = set(variables), [set(t.scope) for t in tables], list[int]()
    while wanted:
        around: dict[int, set[int]] = {v: set() for v in sorted(wanted)}
        for scope in scopes:
            for v in scope & wanted:
                around[v] |= scope
        v = min(around, key=lambda u: (len(around[u]), u))
        order.append(v)
        wanted.remove(v)
        scopes = [s for s in scopes if v not in s] + [around[v] - {v}]
    return order


class Outside:
    """What the rest can add to each bucket's message, made when it is first asked for.

    Attributes
    ----------
    parent : list of int
        Of each bucket: the one that its message goes to; :data:`ROOT` if it is a number.
    total : number
        A bound on the whole (encoded).
    """

    def __init__(self, query: Query, exact: Plan, relaxing: Relaxing) -> None:
        self.exact, self.relaxing = exact, relaxing
        position = {v: b for b, v in enumerate(query.order)}
        self.parent = [position[s[0]] if (s := self.separator(b)) else ROOT for b in range(exact.buckets)]
        self._children: dict[int, list[int]] = {}
        for b, parent in enumerate(self.parent):
            self._children.setdefault(parent, []).append(b)
        self._own: list[list[Table]] = [[] for _ in self.parent]
        for table in query.tables:
            if table.scope:
                self._own[min(position[v] for v in table.scope)].append(table)
        self._crossing: list[list[Table]] = [[] for _ in self.parent]
        self.total = self._up(query, position)
        self._down: dict[int, list[Table]] = {}

    def _up(self, query: Query, position: dict[int, int]) -> int | float:
        """Note the mini-buckets' messages that cross the edge above each bucket; return the bound on the whole."""
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

    def inside(self, b: int) -> tuple[Table, ...]:
        """Return tables over parts of a bucket's separator whose sum bounds its message."""
        return tuple(self._crossing[b])

    def of(self, b: int) -> list[Table]:
        """Return tables over parts of a bucket's separator whose sum bounds all that is outside of its subtree."""
        path = [b]
        while self.parent[path[-1]] != ROOT and path[-1] not in self._down:
            path.append(self.parent[path[-1]])
        for c in reversed(path):
            if c not in self._down:
                self._down[c] = self._told(c)
        return self._down[b]

    def _told(self, c: int) -> list[Table]:
        """Return what a bucket is told by its parent."""
        p = self.parent[c]
        tables = [table for other in self._children[p] if other != c for table in self._crossing[other]]
        if p != ROOT:
            tables += [*self._own[p], *self._down[p]]
        beyond = {v for table in tables for v in table.scope} - set(self.separator(c))
        return self.relaxing(tables, sorted(beyond))
