"""The assignment from which a run starts: check it, complete it, and carry it over to the presolved problem.

The settings give it (``start``: a mapping or a file), or the problem itself (``Problem.initial_values``, which pyDCOP's
``initial_value`` sets). It may leave out variables and break hard constraints: :func:`completed` chooses the missing
values greedily, and hill climbing, which counts violations first, repairs it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.config.settings import Settings
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.model.unknown_names import list_values, suggest_name
from dmcmc.inference.presolve.restrict_domains import restrict_domains
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.samplers.local_search.local_search import ascent_of
from dmcmc.samplers.local_search.uncompiled_ascent import UncompiledAscent
from dmcmc.solving.warm_start.start_file import assignment_in, read_assignment

Values = NDArray[np.int64]

NO_VALUE = -1  # in place of the index of a missing value


def start_of(problem: Problem, settings: Settings) -> Values:
    """Return the assignment to start from, as value indices.

    Parameters
    ----------
    problem
        The problem as given.
    settings
        Settings of the run.

    Returns
    -------
    (n,) int64
        The index of each variable's value; −1 for a variable without one.

    Raises
    ------
    DmcmcError
        If the file cannot be read, or a variable or a value is unknown; one line that names it.
    """
    start = problem.initial_values if settings.start is None else settings.start
    if isinstance(start, str):
        return value_indices(problem, read_assignment(start), start)
    return value_indices(problem, assignment_in(start, "start"), "start")


def value_indices(problem: Problem, assignment: Mapping[str, Any], place: str) -> Values:
    """Return the index of each variable's value; −1 for a variable without one.

    A value is a label of the variable, or the text of one.

    Raises
    ------
    ConfigError
        If a variable or a value is unknown; the message begins with ``place``.
    """
    index = {name: v for v, name in enumerate(problem.variables)}
    values = np.full(problem.n_variables, NO_VALUE, dtype=np.int64)
    for name, value in assignment.items():
        if name not in index:
            raise ConfigError(f"{place}: variable {name!r} does not exist{suggest_name(name, problem.variables)}")
        labels = problem.labels[index[name]]
        known: Sequence[Label] = range(int(problem.domains[index[name]])) if labels is None else labels
        position = _position(known, value)
        if position is None:
            raise ConfigError(f"{place}: variable {name!r}: {value!r} is not one of its values; {list_values(known)}")
        values[index[name]] = position
    return values


def _position(known: Sequence[Label], value: Any) -> int | None:
    """Return the position of a value among labels, or that of the label with the same text; None if there is none."""
    if isinstance(value, str | int | float) and value in known:
        return known.index(value)
    text = str(value)
    return next((position for position, label in enumerate(known) if str(label) == text), None)


def completed(problem: Problem, values: Values, compiled: bool, stop: Deadline) -> Values:
    """Return an assignment with greedily chosen and then 1-optimal values in place of the missing ones.

    Parameters
    ----------
    problem
        The problem.
    values : (n,) int64
        The index of each variable's value; −1 for a variable without one. Values that are given are not changed.
    compiled
        Whether the kernels of the first search may be used; without them the problem has no global constraint.
    stop
        Deadline of the search.
    """
    if (values != NO_VALUE).all():
        return values
    sizes = zip(values.tolist(), problem.domains.tolist(), strict=True)
    remaining = [np.arange(size) if value == NO_VALUE else np.array([value]) for value, size in sizes]
    restricted = restrict_domains(problem, remaining)
    ascent = ascent_of(restricted, 1, stop) if compiled else UncompiledAscent(restricted, stop)
    chosen = ascent.climb(ascent.greedy()).tolist()
    return np.array([left[position] for left, position in zip(remaining, chosen, strict=True)], dtype=np.int64)


def carried_over(values: Values, given: Problem, presolved: Problem) -> Values:
    """Return the values of a presolved problem's variables in an assignment of the problem as given.

    Parameters
    ----------
    values : (n,) int64
        An assignment of ``given``.
    given
        The problem as given.
    presolved
        The presolved problem, whose variables and labels are some of those of ``given``.

    Returns
    -------
    (m,) int64
        The index of each variable's value; −1 where presolve has removed the value.
    """
    index = {name: v for v, name in enumerate(given.variables)}
    result = np.full(presolved.n_variables, NO_VALUE, dtype=np.int64)
    for v, name in enumerate(presolved.variables):
        if name in index:
            labels = presolved.labels[v]
            known: Sequence[Label] = range(int(presolved.domains[v])) if labels is None else labels
            label = given.label(index[name], int(values[index[name]]))
            result[v] = known.index(label) if label in known else NO_VALUE
    return result
