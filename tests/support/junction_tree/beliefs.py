"""Junction trees over random tables, and the beliefs of their cliques and separators by brute force."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from hypothesis import strategies as st

from dmcmc.inference.elimination.semirings import LOG_SUM_EXP, MAX_PLUS
from dmcmc.inference.junction_tree.cliques import CliqueTree, clique_tree, lay_out
from dmcmc.inference.junction_tree.passes import CliqueTreePasses
from dmcmc.inference.model.arithmetic import Arithmetic, EncodedTable
from support import naive

MAXIMA = Arithmetic(np.dtype(np.int64), -(2**61), 2**60 - 1)
SUMS = Arithmetic(np.dtype(np.float64), -np.inf, 1e6)


@dataclass(frozen=True)
class TreeCase:
    """A junction tree over encoded tables; utilities are maximised, or their exponentials are summed."""

    tree: CliqueTree
    tables: list[EncodedTable]
    domains: np.ndarray
    maximise: bool

    @property
    def arithmetic(self):
        return MAXIMA if self.maximise else SUMS

    @cached_property
    def passes(self):
        """The passes over the tree on the CPU, without messages."""
        layout = lay_out(self.tree, self.tables, self.domains, self.arithmetic)
        arena = np.zeros(layout.entries, dtype=self.arithmetic.dtype)
        for at, factor in zip(layout.program.at, layout.factors, strict=False):
            arena[at : at + factor.values.size] = factor.values.reshape(-1)
        return CliqueTreePasses(layout, arena, self.arithmetic, MAX_PLUS if self.maximise else LOG_SUM_EXP)

    def belief(self, scope, evidence, homes=None):
        """Return the maximum, or ln Σ exp, of the tables over all variables outside a scope, as float64.

        ``homes`` are the cliques whose tables are used, None for all. Assignments that contradict the evidence are
        forbidden.
        """
        tables = [t for t, home in zip(self.tables, self.tree.home, strict=True) if homes is None or home in homes]
        variables = [*scope, *sorted({v for t in tables for v in t.scope} - set(scope))]
        total = np.zeros(self.domains[variables])
        for table in tables:
            axes = sorted(range(len(table.scope)), key=lambda axis: variables.index(table.scope[axis]))
            shape = [self.domains[v] if v in table.scope else 1 for v in variables]
            total = total + naive.decoded(table.values, self.arithmetic).astype(float).transpose(axes).reshape(shape)
        for axis, v in enumerate(variables):
            if v in evidence:
                others = [i for i in range(self.domains[v]) if i != evidence[v]]
                total[(*(slice(None),) * axis, others)] = -np.inf
        rest = tuple(range(len(scope), total.ndim))
        return (
            total.max(axis=rest)
            if self.maximise
            else np.logaddexp.reduce(total.reshape(*total.shape[: len(scope)], -1), axis=-1)
        )

    def subtree(self, clique):
        """Return a clique and its descendants."""
        return {clique}.union(*(self.subtree(child) for child in self.tree.children[clique]))


@st.composite
def tree_cases(draw, maximise=None, hard=(0.0, 0.3, 0.8), wide=False):
    """Draw a junction tree over a few variables; with ``wide``, some cliques have more entries than a row."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    maximise = draw(st.booleans()) if maximise is None else maximise
    n, sizes = (4, (1, 14)) if wide and draw(st.booleans()) else (6, (1, 4))
    domains = rng.integers(*sizes, n)
    scopes = [tuple(rng.permutation(n)[: rng.integers(1, 4)].tolist()) for _ in range(rng.integers(1, 7))]
    scopes += [(v,) for v in sorted(set(range(n)) - {v for s in scopes for v in s})]
    numbers, forbidden, tables = MAXIMA if maximise else SUMS, draw(st.sampled_from(hard)), []
    magnitude = 9 if maximise else draw(st.sampled_from([3, 200]))  # products of the second underflow
    for scope in scopes:
        values = rng.integers(-magnitude, magnitude + 1, tuple(domains[list(scope)]))
        allowed = rng.random(values.shape) >= forbidden
        tables.append(EncodedTable(scope, np.where(allowed, values, numbers.lowest).astype(numbers.dtype)))
    return TreeCase(clique_tree(scopes, domains, rng.permutation(n).tolist()), tables, domains, maximise)


@st.composite
def evidence(draw, case):
    """Draw observed values of up to three variables of a case."""
    variables = draw(st.lists(st.integers(0, case.domains.size - 1), max_size=3, unique=True))
    return {v: draw(st.integers(0, int(case.domains[v]) - 1)) for v in variables}
