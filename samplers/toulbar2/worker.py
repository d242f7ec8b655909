"""The functions of toulbar2's search process (``dmcmc.samplers.external.worker``): load a problem, and search it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAX_TABLE_ARITY = 3  # toulbar2 stores cost functions over more variables as lists of tuples

_Array = NDArray[Any]


def prepare() -> None:
    """Import toulbar2."""
    import pytoulbar2  # noqa: F401


def search(job: dict[str, Any], arrays: dict[str, _Array]) -> None:
    """Search one problem; toulbar2 prints assignments and bounds.

    Parameters
    ----------
    job : dict
        ``top``: the cost to beat; ``seconds``: the limit of processor time; ``known``: a solution whose values
        are tried first, or None.
    arrays : dict of ndarray
        The arrays of ``CostProblem.save``.
    """
    import pytoulbar2

    network = pytoulbar2.CFN(ubinit=job["top"], seed=1, verbose=0)
    try:
        _load(network, arrays)
        arrays.clear()
        for v, value in enumerate(job["known"] or ()):
            network.CFN.wcsp.setBestValue(v, value)  # the value that branching tries first
        network.Solve(showSolutions=1, timeLimit=job["seconds"])
    except pytoulbar2.tb2.Contradiction:
        pass  # propagation alone proves infeasibility


def _load(network: Any, parts: dict[str, _Array]) -> None:
    """Add the variables and cost functions of a problem to a network."""
    domains = parts["domains"]
    for v, size in enumerate(domains.tolist()):
        network.AddVariable(f"x{v}", range(size))
    for scope, cost in zip(_split(parts["scope"], parts["arity"]), _split(parts["cost"], parts["size"]), strict=True):
        if scope.size > _MAX_TABLE_ARITY and cost.any():
            _add_wide_table(network.CFN.wcsp, scope, cost, domains)
        elif scope.size:
            network.AddFunction(scope.tolist(), cost.tolist())
    arity, tuples = parts["listed_arity"], parts["listed_tuples"]
    for scope, values, costs in zip(
        _split(parts["listed_scope"], arity),
        _split(parts["listed_value"], tuples * arity),
        _split(parts["listed_cost"], tuples + 1),
        strict=True,
    ):
        _add_tuples(network.CFN.wcsp, scope, values.reshape(-1, scope.size), costs[:-1], int(costs[-1]))
    for terms, minimum in zip(_split(parts["term"], parts["terms"]), parts["minimum"].tolist(), strict=True):
        network.AddGeneralizedLinearConstraint([tuple(term) for term in terms.tolist()], ">=", minimum)


def _split(array: _Array, sizes: _Array) -> list[_Array]:
    """Return consecutive parts of an array with the given sizes."""
    return np.split(array, np.cumsum(sizes)[:-1]) if sizes.size else []


def _add_wide_table(network: Any, scope: _Array, cost: _Array, domains: _Array) -> None:
    """Add a table over many variables by its tuples: those whose cost is not the most frequent one, the default."""
    distinct, counts = np.unique(cost, return_counts=True)
    default = int(distinct[counts.argmax()])
    indices = np.flatnonzero(cost != default)
    tuples = np.stack(np.unravel_index(indices, tuple(domains[scope])), axis=1)
    _add_tuples(network, scope, tuples, cost[indices], default)


def _add_tuples(network: Any, scope: _Array, tuples: _Array, costs: _Array, default: int) -> None:
    """Add a cost function given by tuples and the cost of all others."""
    number = network.postNaryConstraintBegin(scope.tolist(), default, len(tuples))
    for values, cost in zip(tuples.tolist(), costs.tolist(), strict=True):
        network.postNaryConstraintTuple(number, values, cost)
    network.postNaryConstraintEnd(number)
