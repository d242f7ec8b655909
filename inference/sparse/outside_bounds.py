"""Bound what lies outside a bucket's subtree: mini-bucket messages up and down the bucket tree.

Function filtering drops a row of a bucket's message if its utility plus a bound on all tables outside the bucket's
subtree does not exceed the incumbent (Sánchez, Larrosa and Meseguer, CP 2005). This file computes these bounds.

Mini-buckets: a bucket's tables are split into groups with at most z variables besides the eliminated one, and each
group is maximised by itself; the sum of these maxima is an upper bound on the bucket's message. Cost shifts move
utility between the groups of a bucket (moment matching), which tightens the bound.

The upward messages are those of one mini-bucket elimination of the whole problem. The downward message from a bucket p
to its child c bounds everything outside c's subtree, as a function of c's separator. It sums p's input tables, the
upward messages of p's other children and the downward message to p, and eliminates the variables that are not in c's
separator (mini-cluster-tree elimination: Dechter, Kask and Larrosa, CP 2001).
"""

from collections.abc import Sequence

from dmcmc.inference.elimination.eliminate import absorb, eliminate
from dmcmc.inference.elimination.plan import EliminationPlan, EliminationQuery
from dmcmc.inference.minibuckets.moment_matching import eliminate_matched, with_headroom
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Ints

ROOT = -1  # the parent of buckets without a separator


class MiniBucketRelaxation:
    """Eliminate variables with mini-buckets of at most z variables, or of as many as the widest table needs.

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
        """Return tables whose sum is an upper bound on the maximum of the given tables' sum over one variable."""
        self.stop.check()
        scopes = [t.scope for t in tables]
        keep = sorted({v for s in scopes for v in s} - {variable})
        z = max(self.z, least_z(scopes, [variable]))
        plan = plan_mini_buckets(scopes, self.domains, [variable], keep, z, shifts=len(keep) > z)
        if len(keep) <= z:
            elimination = eliminate(tables, plan, self.arithmetic, self.threads, stop=self.stop)
        else:
            matched = eliminate_matched(tables, plan, self.arithmetic, self.threads, stop=self.stop)
            elimination, self.margin = matched.elimination, self.margin + matched.margin
        return [elimination.table(plan.output(b)) for b in range(plan.buckets)]


def _min_degree_order(tables: Sequence[EncodedTable], variables: Sequence[int]) -> list[int]:
    """Return a min-degree elimination order: the next variable always has the fewest neighbours; fill edges count."""
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
    """Upper bounds on what the tables outside each bucket's subtree can add to its message; computed on demand.

    Buckets are numbered in elimination order; all bounds are lists of encoded tables, to be summed.

    Parameters
    ----------
    query
        The query; all variables are eliminated.
    exact
        The plan of the same elimination with exact (undivided) buckets.
    relaxation
        The mini-bucket elimination that computes the downward messages.

    Attributes
    ----------
    parent : list of int
        The bucket that receives each bucket's message; ``ROOT`` if the message is a number.
    total : number
        Upper bound on the optimum of the whole problem (encoded).
    """

    def __init__(self, query: EliminationQuery, exact: EliminationPlan, relaxation: MiniBucketRelaxation) -> None:
        self.exact, self.relaxation = exact, relaxation
        position = {v: b for b, v in enumerate(query.order)}
        self.parent = [position[s[0]] if (s := self.separator(b)) else ROOT for b in range(exact.buckets)]
        self._children: dict[int, list[int]] = {}
        for b, parent in enumerate(self.parent):
            self._children.setdefault(parent, []).append(b)
        self._input_tables: list[list[EncodedTable]] = [[] for _ in self.parent]
        for table in query.tables:
            if table.scope:
                self._input_tables[min(position[v] for v in table.scope)].append(table)
        self._upward_messages: list[list[EncodedTable]] = [[] for _ in self.parent]
        self.total = self._pass_up(query, position)
        self._downward_messages: dict[int, list[EncodedTable]] = {}

    def _pass_up(self, query: EliminationQuery, position: dict[int, int]) -> int | float:
        """Run the mini-bucket elimination of the whole problem and return its upper bound on the optimum.

        Each message is stored at every bucket whose edge to its parent it crosses, from its sender up to its receiver.
        """
        relaxation = self.relaxation
        z = max(relaxation.z, least_z(query.scopes, query.order))
        plan = plan_mini_buckets(query.scopes, query.domains, query.order, (), z, shifts=True)
        matched = eliminate_matched(query.tables, plan, relaxation.arithmetic, relaxation.threads, stop=relaxation.stop)
        relaxation.margin += matched.margin
        for b in range(plan.buckets):
            table = matched.elimination.table(plan.output(b))
            bucket = position[int(plan.program.variable[b])]
            receiver = min((position[v] for v in table.scope), default=len(self.parent))
            while bucket != ROOT and bucket < receiver:
                self._upward_messages[bucket].append(table)
                bucket = self.parent[bucket]
        return matched.elimination.total()

    def separator(self, b: int) -> tuple[int, ...]:
        """Return the scope of a bucket's message."""
        return self.exact.scope(self.exact.output(b))

    def inside_bounds(self, b: int) -> tuple[EncodedTable, ...]:
        """Return tables over subsets of a bucket's separator whose sum bounds its message."""
        return tuple(self._upward_messages[b])

    def bounds_of(self, b: int) -> list[EncodedTable]:
        """Return tables over subsets of a bucket's separator whose sum bounds everything outside its subtree."""
        path = [b]
        while self.parent[path[-1]] != ROOT and path[-1] not in self._downward_messages:
            path.append(self.parent[path[-1]])
        for c in reversed(path):
            if c not in self._downward_messages:
                self._downward_messages[c] = self._bounds_from_parent(c)
        return self._downward_messages[b]

    def _bounds_from_parent(self, c: int) -> list[EncodedTable]:
        """Return the downward message to bucket c: tables that bound everything outside its subtree."""
        p = self.parent[c]
        tables = [table for sibling in self._children[p] if sibling != c for table in self._upward_messages[sibling]]
        if p != ROOT:
            tables += [*self._input_tables[p], *self._downward_messages[p]]
        eliminated = {v for table in tables for v in table.scope} - set(self.separator(c))
        return self.relaxation(tables, sorted(eliminated))


def with_wider_numbers(query: EliminationQuery) -> EliminationQuery:
    """Return the query in an arithmetic that can hold cost shifts."""
    old, new = query.arithmetic, with_headroom(query.arithmetic)
    if new.dtype == old.dtype:
        return query
    tables = []
    for scope, values in query.tables:
        entries = values.astype(new.dtype)
        entries[values < old.forbidden_below] = new.lowest
        tables.append(EncodedTable(scope, entries))
    return EliminationQuery(tables, query.domains, query.order, query.keep, new)
