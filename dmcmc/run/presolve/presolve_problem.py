"""What is asked made smaller before a run, where that pays."""

from dataclasses import asdict, replace

import numpy as np

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.orders.estimate_cost import AT_A_GLANCE, cells_at_most, takes
from dmcmc.inference.presolve.estimate_gain import promise
from dmcmc.inference.presolve.limits import Limit
from dmcmc.inference.presolve.presolve import Reduction, reduce
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memory import ACCOUNT
from dmcmc.results.result import Reductions

_CHEAP = 1e7  # cells that are eliminated sooner than anything is reduced
_TIME, _MEMORY = 0.1, 0.25  # of the budgets, at most
_BYTES = 24  # of an entry: as it was, wide, and as it is in the end
_MUCH = 0.2  # of what several agents have to themselves, where nothing is forbidden: a sample has to promise so much
_LITTLE = 0.05  # of variables, values or entries: less is not worth being another problem


def reduction_of(original: Problem, dense: Problem, config: Settings, stop: Stop = NO_STOP) -> Reduction | None:
    """Return the problem reduced; None where that is not wanted, or hardly changes it. The same on all ranks.

    A method that was asked for by name works on the problem as it is: what it does is what is to be seen. Of several
    agents, problems without hard constraints are reduced where a sample of their variables promises something.

    Parameters
    ----------
    dense
        The problem as dense tables.
    stop
        When to end besides what the time budget leaves; on several ranks that has to be never.
    """
    asked = config.local.method in ("auto", "exact") and config.combine.method != "mini-bucket"
    if config.reduce == "none" or not asked or config.local.guarantee is not None or not _may_pay(dense):
        return None
    limit = Limit(stop=stop) if config.budget.time is None else Limit(_TIME * config.budget.time, stop)
    reduction = reduce(original, config.budget.bytes, limit, dense, config.reduce == "merge")
    if reduction.infeasible:
        return replace(reduction, problem=_impossible(original))
    return reduction if _matters(original, reduction) else None


def _may_pay(dense: Problem) -> bool:
    """Return whether there is much to eliminate, and room for the work."""
    few = dense.n_variables <= AT_A_GLANCE  # nothing has to be compiled for those
    if _BYTES * dense.flat.data.size > ACCOUNT.part(_MEMORY, 1 << 62):
        return False
    if few and dense.kin.once("cells", lambda: _cells_at_a_glance(dense)) < _CHEAP:
        return False
    if dense.n_agents > 1 and not dense.known.once("hard", lambda: _forbids(dense)) and promise(dense) < _MUCH:
        return False
    if few:
        return True
    scopes, everything = [factor.scope for factor in dense.factors], range(dense.n_variables)
    return takes(scopes, dense.domains, everything, (), _CHEAP)


def _cells_at_a_glance(dense: Problem) -> float:
    return cells_at_most([factor.scope for factor in dense.factors], dense.domains, range(dense.n_variables))


def _forbids(dense: Problem) -> bool:
    """Return whether anything is forbidden."""
    data = dense.flat.data
    return bool(data.size) and bool(data.min() == forbidden_value(data.dtype))


def _matters(original: Problem, reduction: Reduction) -> bool:
    """Return whether enough is gone."""
    small, removed = reduction.problem, reduction.removed
    cells = sum(array.size for factor in original.factors for array in factor.arrays())
    return (
        small.n_variables <= (1 - _LITTLE) * original.n_variables
        or removed.inconsistent + removed.dominated >= _LITTLE * original.domains.sum()
        or removed.cells >= _LITTLE * cells
    )


def _impossible(problem: Problem) -> Problem:
    """Return a problem without variables that nothing satisfies."""
    none = np.zeros(0, dtype=np.int64)
    never = (Factor.of((), -np.inf),)
    return Problem((), none, problem.agents, none, never, sense=problem.sense, name=problem.name)


def report_of(reduction: Reduction | None) -> Reductions | None:
    """Return what was taken out as a result has it."""
    return None if reduction is None else Reductions(**asdict(reduction.removed))
