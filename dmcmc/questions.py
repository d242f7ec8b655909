"""The Python interface to questions about a problem: alternatives, conflicts and max-marginals."""

from collections.abc import Iterable
from typing import Unpack

from dmcmc.api import ProblemSource, Progress, callbacks_of, check_output, problem_of
from dmcmc.config.settings import Keywords, Settings, settings_from
from dmcmc.inference.model.building.unknown_names import suggest_name
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.results.questions import ConstraintConflict, Marginals
from dmcmc.results.result import Result


def alternatives(
    problem: ProblemSource,
    k: int = 5,
    within: float | None = None,
    distance: int = 1,
    *,
    over: Iterable[str] | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
    **keywords: Unpack[Keywords],
) -> Result:
    """Find several good assignments: the k best ones, or diverse ones that differ in several variables.

    With ``distance=1`` these are the k best assignments, proven if a junction tree of the whole problem fits the memory
    (Nilsson 1998). Otherwise the problem is solved once per assignment, each time with the constraint that it differs
    from all earlier ones in at least ``distance`` variables.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`.
    k : int
        Number of assignments, the best one included.
    within : float, optional
        Largest relative gap to the best assignment, such as 0.02 for 2 %.
    distance : int
        Least number of variables in which any two of the assignments differ.
    over : iterable of str, optional
        The variables that count for ``distance``; None for all of them.
    settings : Settings, optional
        As for :func:`solve`.
    progress : callable or Stages, optional
        As for :func:`solve`, for the first assignment.
    **keywords
        As for :func:`solve`. ``timeout`` is the limit for all assignments together.

    Returns
    -------
    Result
        The result of :func:`solve` with ``alternatives``, in the order in which they were found; the first is the
        answer of the result. ``note`` says why there are fewer than k.

    Raises
    ------
    DmcmcError
        As for :func:`solve`, or if k, ``within``, ``distance`` or ``over`` is not allowed.

    Examples
    --------
    >>> from dmcmc import generate
    >>> problem = generate("random", agents=2, variables_per_agent=3, domain_size=2)
    >>> found = alternatives(problem, 3).alternatives
    >>> [x.proven for x in found], found[0].objective >= found[1].objective >= found[2].objective
    ([True, True, True], True)
    """
    from dmcmc.run.alternatives.find_alternatives import solve_with_alternatives
    from dmcmc.run.alternatives.request import AlternativesRequest

    chosen, given = settings_from(settings, keywords), problem_of(problem)
    if chosen.output is not None:
        check_output(chosen.output)
    request = AlternativesRequest(k, within, distance, None if over is None else tuple(over))
    result = solve_with_alternatives(given, chosen, request, callbacks_of(progress, None, None))
    if chosen.output is not None:
        result.write(chosen.output)
    return result


def conflict(
    problem: ProblemSource, settings: Settings | None = None, **keywords: Unpack[Keywords]
) -> ConstraintConflict:
    """Explain why a problem is infeasible: a minimal set of hard constraints that cannot hold together.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`; its agents do not matter.
    settings : Settings, optional
        As for :func:`solve`.
    **keywords
        As for :func:`solve`. ``timeout`` is the limit for all tests together.

    Returns
    -------
    ConstraintConflict
        The constraints, whether they are a minimal set, and for each the best objective without it alone.

    Raises
    ------
    DmcmcError
        As for :func:`solve`.

    Examples
    --------
    >>> from dmcmc import Problem
    >>> builder = Problem.build()
    >>> x = builder.variable("x", 2)
    >>> for value, name in enumerate(("not 0", "not 1")):
    ...     _ = builder.factor((x,), [float("-inf") if v == value else 0 for v in range(2)], name=name)
    >>> conflict(builder).constraints
    ('not 0', 'not 1')
    """
    from dmcmc.run.resolving.conflict import find_conflict

    return find_conflict(problem_of(problem), settings_from(settings, keywords))


def max_marginals(
    problem: ProblemSource,
    variables: Iterable[str] = (),
    *,
    settings: Settings | None = None,
    **keywords: Unpack[Keywords],
) -> Marginals:
    """Return the best objective of an assignment with each value of each variable ("why not this value?").

    Without ``timeout`` they are exact, by a junction tree of the whole problem. With it, they are bounded where neither
    the tree nor an elimination of all other variables fits.

    Parameters
    ----------
    problem : Problem, Builder, str or path
        As for :func:`solve`; its agents do not matter.
    variables : iterable of str
        The variables that are asked, the most wanted first; all of them if empty.
    settings : Settings, optional
        As for :func:`solve`.
    **keywords
        As for :func:`solve`.

    Returns
    -------
    Marginals
        ``marginals`` with exact numbers, or ``intervals`` with bounds, by variable and value.

    Raises
    ------
    DmcmcError
        As for :func:`solve`; without ``timeout`` also if the tables do not fit the memory.

    Examples
    --------
    >>> from dmcmc import Problem
    >>> builder = Problem.build()
    >>> pair = builder.variable("a", 2), builder.variable("b", 2)
    >>> max_marginals(builder.factor(pair, [[1, 5], [3, 0]]).problem(), ["a"]).marginals
    {'a': {0: 5, 1: 3}}
    """
    from dmcmc.inference.levels.one_after_the_other import check_weighted
    from dmcmc.run.resolving.value_bounds import timed_max_marginals
    from dmcmc.run.whole_problem.marginals import marginals

    given, chosen, asked = problem_of(problem), settings_from(settings, keywords), tuple(variables)
    check_weighted(given, "max-marginals")
    for name in asked:
        if name not in given.variables:
            raise ConfigError(f"variables: variable {name!r} does not exist{suggest_name(name, given.variables)}")
    if chosen.budget.time is None:
        found = marginals(given, chosen, "max-marginals")
    else:
        found = timed_max_marginals(given, chosen, asked)
    return found.only(asked) if asked else found
