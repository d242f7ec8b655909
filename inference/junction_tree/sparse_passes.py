"""Junction trees of incomplete cliques (CUBE §III-IV): of each clique the rows that are possible, listed once.

A clique's rows are a join of its factors and of what its children leave possible; then those go that its parent leaves
without a partner. So every row of a separator has rows on both sides, and a row knows its place in every separator: a
message is one pass over the rows of its sender, whatever is observed. What is not possible takes no memory.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.junction_tree.cliques import CliqueTree
from dmcmc.inference.junction_tree.message_kernels import DOWN, SEPARATOR, UP
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.errors import OutOfMemory
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.inference.runtime.types import Array, Ints
from dmcmc.inference.sparse.join import everything, joined, projected
from dmcmc.inference.sparse.sparse_table import Incomplete, fields_of, size_of

_ROW = 40  # bytes of a row of a clique: key, value, places in separators, and what a join takes


class RowPasses:
    """Passes over listed rows.

    Parameters
    ----------
    tree, tables
        Cliques, and the tables that have their homes there.
    domains : (variables,) int64
    arithmetic
        Of the tables; sums are of exp(utility), maxima of utilities.
    maximise : bool
    memory
        Bytes of all rows; None for no limit.

    Attributes
    ----------
    observed : (variables,) int64
        The value that is observed, −1 for none; may change.
    home : (variables,) int64
        The clique that each variable's table is made from, itself or the separator above it.
    made : list of list of int
        The variables whose tables each clique makes, then those that each separator does.
    cliques : list of Incomplete
        The rows of each.
    separators : list of (rows,) int64
        The packed keys of the separator above each clique, ascending.
    above, below : list of (rows,) int
        The place in that separator of each row of a clique, and of each row of the clique's parent.
    up, down : list of (rows,)
        Messages over each separator.

    Raises
    ------
    OutOfMemory
        If the rows do not fit.
    TooWide
        If a clique has more variables than a key has room for.
    """

    def __init__(
        self,
        tree: CliqueTree,
        tables: Sequence[Incomplete],
        domains: Ints,
        arithmetic: Arithmetic,
        maximise: bool,
        memory: int | None = None,
        stop: Stop = NO_STOP,
    ) -> None:
        self.tree, self.domains, self.arithmetic, self.maximise, self.stop = tree, domains, arithmetic, maximise, stop
        self.observed = np.full(domains.size, -1, dtype=np.int64)
        self._most = (1 << 62 if memory is None else memory) // _ROW
        self.cliques: list[Incomplete] = []
        self.separators: list[Ints] = []
        for clique in range(len(tree.scopes)):
            stop.check()
            own = [table for table, home in zip(tables, tree.home, strict=True) if home == clique]
            self._list(clique, own)
        self._prune()
        self.above = [self._places(c, c) for c in range(len(self.cliques))]
        self.below = [self._places(p, c) if p >= 0 else np.zeros(0, dtype=np.intp) for c, p in enumerate(tree.parent)]
        lowest = arithmetic.lowest
        self.up, self.down = ([np.full(s.size, lowest, arithmetic.dtype) for s in self.separators] for _ in range(2))
        if memory is not None and self.bytes > memory:
            raise OutOfMemory(f"the junction tree's rows take {self.bytes:,} bytes, where there is room for {memory:,}")
        self._shown: dict[int, Array] = {}
        self.home, self.made = self._homes()

    @property
    def rows(self) -> int:
        """Rows of all cliques."""
        return sum(table.rows for table in self.cliques)

    @property
    def bytes(self) -> int:
        """Bytes of all rows and messages."""
        arrays = (*self.separators, *self.above, *self.below, *self.up, *self.down)
        return sum(table.bytes for table in self.cliques) + sum(array.nbytes for array in arrays)

    def total(self, root: int) -> int | float:
        """Return what a component adds up to."""
        found: int | float = self.up[root].item() if self.up[root].size else self.arithmetic.lowest
        return found

    def shown(self, variable: int) -> Array:
        """Return the table over a variable."""
        return self._shown[variable]

    def show(self, variable: int, made: Array) -> None:
        """Take a table over a variable: of maxima as it is, of logarithms of sums as probabilities."""
        if not self.maximise:
            made = np.exp(made - made.max()) if np.isfinite(made.max()) else np.full(made.size, np.nan)
            made /= made.sum()
        self._shown[variable] = made

    def run(self, what: int, cliques: Ints) -> None:
        """Make UP, DOWN, SHOW or SEPARATOR for some cliques, in this order."""
        for clique in cliques.tolist():
            self.stop.check()
            parent = self.tree.parent[clique]
            if what == UP:
                self.up[clique] = self._put(self._worth(clique, up=True), self.above[clique], self.up[clique].size)
            elif what == DOWN and parent >= 0:
                worth = self._worth(parent, but=clique)
                self.down[clique] = self._put(worth, self.below[clique], self.down[clique].size)
            elif what not in (UP, DOWN):
                self._show(clique, what == SEPARATOR)

    def _list(self, clique: int, own: Sequence[Incomplete]) -> None:
        """List a clique's rows: those of its factors and of its children's messages, joined."""
        scope, lowest = self.tree.scopes[clique], self.arithmetic.dtype.type(0)
        parts = list(own)
        for child in self.tree.children[clique]:
            keys = self.separators[child]
            parts.append(Incomplete(self.tree.separators[child], keys, np.full(keys.size, lowest)))
        left = self._most - sum(table.rows for table in self.cliques)
        table = parts.pop(min(range(len(parts)), key=lambda i: parts[i].rows)) if parts else None
        if table is None:
            table = everything(scope[0], self.domains, self.arithmetic)
        while parts:
            here, known = table.rows, set(table.scope)
            shared = [size_of([v for v in one.scope if v in known], self.domains) for one in parts]
            growth = [one.rows / size for one, size in zip(parts, shared, strict=True)]
            table = joined(table, parts.pop(growth.index(min(growth))), self.domains, left)
            ACCOUNT.claim(_ROW * max(0, table.rows - here), "the rows of a junction tree")
        for v in scope:
            if v not in table.scope:
                table = joined(table, everything(v, self.domains, self.arithmetic), self.domains, left)
        self.cliques.append(table.reordered(scope, self.domains))
        self.separators.append(np.unique(projected(self.cliques[clique], self.tree.separators[clique], self.domains)))

    def _prune(self) -> None:
        """Let rows go that have no partner above, parents first."""
        for clique in reversed(range(len(self.cliques))):
            parent, table = self.tree.parent[clique], self.cliques[clique]
            if parent < 0:
                continue
            scope = self.tree.separators[clique]
            keys = np.unique(projected(self.cliques[parent], scope, self.domains))
            stays = np.isin(projected(table, scope, self.domains), keys)
            self.separators[clique] = keys
            if not stays.all():
                self.cliques[clique] = Incomplete(table.scope, table.keys[stays], table.values[stays])

    def _places(self, clique: int, separator: int) -> NDArray[np.intp]:
        """Return the place of each row of a clique in a separator."""
        keys = projected(self.cliques[clique], self.tree.separators[separator], self.domains)
        return self.separators[separator].searchsorted(keys).astype(np.int32 if keys.size < 1 << 31 else np.int64)

    def _homes(self) -> tuple[Ints, list[list[int]]]:
        """Return where each variable's table is made, and the variables of cliques, then of separators above them."""
        count = len(self.cliques)
        sizes = [table.rows for table in self.cliques] + [keys.size for keys in self.separators]
        place = np.zeros(self.domains.size, dtype=np.int64)
        for i in sorted(range(2 * count), key=lambda i: -sizes[i]):
            scope = self.tree.scopes[i] if i < count else self.tree.separators[i - count]
            place[list(scope)] = i
        made: list[list[int]] = [[] for _ in range(2 * count)]
        for v, i in enumerate(place.tolist()):
            made[i].append(v)
        return place % max(1, count), made

    def _worth(self, clique: int, up: bool = False, but: int = -1) -> Array:
        """Return what each row is worth, with what comes from all sides but one; −∞ where it is not as observed."""
        table, lowest = self.cliques[clique], self.arithmetic.dtype.type(self.arithmetic.lowest)
        worth = table.values.copy()
        for child in self.tree.children[clique]:
            if child != but:
                worth += self.up[child][self.below[child]]
                np.maximum(worth, lowest, out=worth)
        if not up and self.tree.parent[clique] >= 0:
            worth += self.down[clique][self.above[clique]]
            np.maximum(worth, lowest, out=worth)
        self._observe(worth, table.keys, table.scope)
        return worth

    def _observe(self, worth: Array, keys: Ints, scope: Sequence[int]) -> None:
        """Let rows be worth nothing that are not as observed."""
        fields = fields_of(scope, self.domains)
        for i, v in enumerate(scope):
            if self.observed[v] >= 0:
                worth[((keys >> fields.shift[i]) & fields.mask[i]) != self.observed[v]] = self.arithmetic.lowest

    def _put(self, worth: Array, place: Ints, size: int) -> Array:
        """Return what rows come to at their places: the largest, or ln Σ exp relative to it."""
        top = np.full(size, self.arithmetic.lowest, dtype=self.arithmetic.dtype)
        np.maximum.at(top, place, worth)
        if self.maximise:
            top[top < self.arithmetic.threshold] = self.arithmetic.lowest
            return top
        finite = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            found: Array = np.log(np.bincount(place, np.exp(worth - finite[place]), minlength=size)) + finite
        return found

    def _show(self, clique: int, above: bool) -> None:
        """Make the tables of some variables from a clique, or from the separator above it."""
        variables = self.made[clique + (len(self.cliques) if above else 0)]
        if not variables:
            return
        if above:
            scope, keys, lowest = self.tree.separators[clique], self.separators[clique], self.arithmetic.lowest
            worth = np.maximum(self.up[clique] + self.down[clique], self.arithmetic.dtype.type(lowest))
            self._observe(worth, keys, scope)
        else:
            scope, keys, worth = self.cliques[clique].scope, self.cliques[clique].keys, self._worth(clique)
        for v in variables:
            values = values_of(v, scope, keys, self.domains)
            self.show(v, self._put(worth, values, int(self.domains[v])))


def values_of(variable: int, scope: Sequence[int], keys: Ints, domains: Ints) -> Ints:
    """Return what packed rows say of a variable."""
    fields, i = fields_of(scope, domains), list(scope).index(variable)
    values: Ints = (keys >> fields.shift[i]) & fields.mask[i]
    return values
