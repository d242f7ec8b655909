"""Derive from the last run of a session the next one's start, a bound, and settings that still make sense."""

from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from dmcmc.config.settings import Settings, Stay
from dmcmc.inference.bounds.continued_bound import largest_increase
from dmcmc.inference.model.arithmetic import round_up
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.types import Number
from dmcmc.results.result import Result


class LastRun(NamedTuple):
    """The last run of a session.

    Attributes
    ----------
    problem : Problem
        The problem that was solved.
    result : Result
        Its result.
    costs_of_moving : bool
        Whether the bound of the result contains costs of moving (``stay``).
    """

    problem: Problem
    result: Result
    costs_of_moving: bool


def settings_of_next_run(settings: Settings, problem: Problem, last: LastRun | None) -> Settings:
    """Return the settings of a run, which begins at the last assignment if it has a time budget or ``stay``.

    Parameters
    ----------
    settings : Settings
        The settings of the session.
    problem : Problem
        The problem as it stands. Variables and values that it does not have are left out of the start and of the costs
        of moving. Without a start nothing costs.
    last : LastRun or None
        The last run; None before the first one.
    """
    starts = settings.budget.time is not None or settings.stay is not None
    if starts and settings.start is None and last is not None:
        settings = replace(settings, start=_known_part(last.result, problem))
    if settings.stay is None:
        return settings
    if settings.start is None and not problem.initial_values:
        return replace(settings, stay=None)
    weight = settings.stay.weight
    if isinstance(weight, dict):
        return replace(settings, stay=Stay({name: weight[name] for name in problem.variables if name in weight}))
    return settings


def _known_part(result: Result, problem: Problem) -> dict[str, Label] | None:
    """Return the assignment of a result without variables and values that do not exist."""
    sizes = zip(problem.variables, problem.labels, problem.domains.tolist(), strict=True)
    known = {name: range(size) if labels is None else labels for name, labels, size in sizes}
    assignment = result.assignment or {}
    return {name: value for name, value in assignment.items() if value in known.get(name, ())} or None


def known_bound(settings: Settings, problem: Problem, last: LastRun | None) -> Number | None:
    """Return an upper bound on the utility of the problem as it stands, from the last result; None without one.

    It is the last bound plus the largest differences of the tables that have changed since. Costs of moving are
    different in each run, and a run without a time budget takes no bound from an earlier one. The parameters are those
    of :func:`settings_of_next_run`.
    """
    if settings.budget.time is None or settings.stay is not None:
        return None
    if last is None or last.costs_of_moving or last.result.bound is None:
        return None
    increase = 0.0 if last.problem is problem else largest_increase(last.problem, problem)
    if increase is None:
        return None
    exact = Fraction(problem.to_own_sense(last.result.bound)) + Fraction(increase)
    return int(exact) if exact.denominator == 1 else round_up(exact)
