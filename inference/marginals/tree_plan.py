"""The plan of a junction tree: its resources, its cliques, and the number type of its tables."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dmcmc.inference.junction_tree.cliques import CliqueTree, clique_tree
from dmcmc.inference.model.arithmetic import Arithmetic, narrowest
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders.best_order import best_order
from dmcmc.inference.orders.tuning import LONG_BUDGET
from dmcmc.inference.runtime.deadline import NO_DEADLINE, Deadline
from dmcmc.inference.runtime.types import Ints

_DEFAULT_FACTOR_BYTES = 1 << 33  # limit on a factor's expanded table if no memory limit is given


class TreeResources(NamedTuple):
    """The resources of a junction tree.

    Attributes
    ----------
    memory : int or None
        Limit on the bytes of all tables; None for no limit.
    stop : Deadline
        When to give up.
    device : {"auto", "cpu", "cuda"}
        Where messages are computed.
    """

    memory: int | None = None
    stop: Deadline = NO_DEADLINE
    device: str = "auto"

    @property
    def factor_bytes(self) -> int:
        """Limit on the bytes of a factor's expanded table."""
        return _DEFAULT_FACTOR_BYTES if self.memory is None else self.memory


def plan_tree(scopes: Sequence[tuple[int, ...]], domains: Ints, stop: Deadline) -> CliqueTree:
    """Return the clique tree of the best elimination order found within the search budget."""
    order = best_order(scopes, domains, range(domains.size), budget=LONG_BUDGET, stop=stop).variables
    return clique_tree(scopes, domains, order)


def isolated_variables(problem: Problem) -> list[int]:
    """Return the variables that are in no factor's scope."""
    return sorted(set(range(problem.n_variables)) - {v for f in problem.factors for v in f.scope})


def choose_numbers(factors: Sequence[Factor], maximise: bool) -> Arithmetic:
    """Return int64 arithmetic if maxima are computed and it is exact, otherwise float64.

    Sums are over exponentials, so they need float64. In int64, −∞ is −2^61, a quarter of the smallest number, so that
    four such numbers can be added without overflow.
    """
    utility_arrays = [f.arrays()[-1] for f in factors if f.scope]
    all_integers = all(array.dtype.kind == "i" for array in utility_arrays)
    chosen = narrowest(sum(magnitude(array) for array in utility_arrays), all_integers)
    if not maximise:
        return Arithmetic(np.dtype(np.float64), -np.inf, float(chosen.total))
    return Arithmetic(np.dtype(np.int64), -(1 << 61), chosen.total, True) if chosen.dtype == np.int32 else chosen
