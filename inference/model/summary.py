"""Short descriptions of problems, and of other objects, as text and as HTML for notebooks."""

from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dmcmc.inference.model.problem import Problem

SENSES = {"max": "maximise", "min": "minimise"}
"""The verb for the objective, by the sense of a problem."""


def problem_facts(problem: "Problem") -> dict[str, str]:
    """Return the sizes of a problem as texts, by their names.

    Parameters
    ----------
    problem : Problem
        The problem. No table is expanded.

    Returns
    -------
    dict of str to str
        The facts in the order in which they are shown.
    """
    domains, factors = problem.domains, problem.factors
    facts = {"variables": f"{problem.n_variables:,}"}
    if domains.size:
        least, largest = int(domains.min()), int(domains.max())
        facts["values per variable"] = f"{least:,}" if least == largest else f"{least:,} to {largest:,}"
    facts["agents"], facts["factors"] = f"{problem.n_agents:,}", f"{len(factors):,}"
    if factors:
        facts["variables per factor"] = f"at most {max(len(factor.scope) for factor in factors):,}"
        facts["stored numbers"] = f"{sum(array.size for factor in factors for array in factor.arrays()):,}"
    facts["sense"] = SENSES[problem.sense]
    return facts


def one_line(kind: str, facts: Mapping[str, str]) -> str:
    """Return a ``repr`` of facts in angle brackets.

    Parameters
    ----------
    kind : str
        The class of the object, and its name if it has one.
    facts : mapping from str to str
        Texts by their names.

    Returns
    -------
    str
        One line.

    Examples
    --------
    >>> one_line("Problem 'office'", {"variables": "3", "sense": "maximise"})
    "<Problem 'office': variables 3, sense maximise>"
    """
    return f"<{kind}: {', '.join(f'{name} {text}' for name, text in facts.items())}>"


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Return names and values as an HTML table; all texts are escaped.

    Parameters
    ----------
    title : str
        Caption of the table.
    rows : mapping from str to object
        Value by name, one row each.

    Returns
    -------
    str
        A ``table`` element.

    Examples
    --------
    >>> html_table("a < b", {})
    '<table><caption>a &lt; b</caption></table>'
    """
    left = 'style="text-align: left"'
    cells = (
        f"<tr><th {left}>{escape(str(name))}</th><td {left}>{escape(str(value))}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption>{''.join(cells)}</table>"
