"""The option ``--query`` of ``dmcmc solve``: the variables that are asked, by a file or by their names."""

import os
from collections.abc import Mapping

from dmcmc.files.text import STANDARD_INPUT
from dmcmc.formats.uai.query import read_query
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.unknown_names import suggest_name
from dmcmc.inference.runtime.errors import ConfigError


def queried_variables(query: str, problem: Problem, groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the names of the variables that are asked, the most wanted first.

    Parameters
    ----------
    query
        The name of a variable, several names with commas between them, or a file as UAI has it.
    problem
        The problem.
    groups
        Further names, each for some variables, such as the meetings of a calendar.

    Raises
    ------
    DmcmcError
        If there is neither such a file nor such a variable, or the file is malformed.
    """
    if query == STANDARD_INPUT or os.path.exists(query):
        return read_query(query, problem)
    known = {**groups, **{name: (name,) for name in problem.variables}}
    names = [query] if query in known else [name.strip() for name in query.split(",")]
    for name in names:
        if name not in known:
            hint = suggest_name(name, (*groups, *problem.variables))
            raise ConfigError(f"--query: neither a file nor a variable is called {name!r}{hint}")
    return tuple(dict.fromkeys(variable for name in names for variable in known[name]))
