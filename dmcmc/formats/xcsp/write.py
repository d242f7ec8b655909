"""Write XCSP 2.1 as FRODO reads it: agents, their variables, and soft relations."""

import re
from collections.abc import Iterator
from itertools import groupby
from math import isfinite
from xml.sax.saxutils import quoteattr

from dmcmc.formats.common.factor_entries import (
    Cost,
    FactorEntries,
    check_missing,
    labels_of,
    named_factor_entries,
)
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError

_TEXT = re.compile("[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")  # characters that XML allows
_MAX_VALUE_IN_RANGE = 10**18  # larger values are listed one by one


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; a constant becomes a constant cost of the first variable.

    Raises
    ------
    ProblemError
        For labels that are not numbers, names with blanks, and text that XML cannot hold.
    """
    check_missing(_missing(problem))
    domains: dict[tuple[Label, ...], int] = {}
    domain_of = [domains.setdefault(tuple(labels_of(problem, v)), len(domains)) for v in range(problem.n_variables)]
    functions = list(named_factor_entries(problem, constants=False))
    arity = max((len(f.scope) for _, f in functions), default=0)
    attrs = f'maxConstraintArity="{arity}" maximize="{str(problem.sense == "max").lower()}" format="XCSP 2.1_FRODO"'
    yield f'<?xml version="1.0" encoding="UTF-8"?>\n<instance>\n<presentation name={_quoted(problem.name)} {attrs}/>\n'
    yield f'<agents nbAgents="{problem.n_agents}">\n'
    yield from (f"<agent name={_quoted(agent)}/>\n" for agent in problem.agents)
    yield f'</agents>\n<domains nbDomains="{len(domains)}">\n'
    yield from (f'<domain name="d{i}" nbValues="{len(v)}">{_values(v)}</domain>\n' for v, i in domains.items())
    yield f'</domains>\n<variables nbVariables="{problem.n_variables}">\n'
    for v, name in enumerate(problem.variables):
        agent = problem.agents[problem.owner[v]]
        yield f'<variable name={_quoted(name)} domain="d{domain_of[v]}" agent={_quoted(agent)}/>\n'
    yield f'</variables>\n<relations nbRelations="{len(functions)}">\n'
    for i, (_, listing) in enumerate(functions):
        yield _relation(i, listing, problem)
    yield f'</relations>\n<constraints nbConstraints="{len(functions)}">\n'
    for i, (name, listing) in enumerate(functions):
        scope = " ".join(problem.variables[v] for v in listing.scope)
        arity = len(listing.scope)
        yield f'<constraint name={_quoted(name)} arity="{arity}" scope={_quoted(scope)} reference="r{i}"/>\n'
    yield "</constraints>\n</instance>\n"


def _missing(problem: Problem) -> dict[str, str]:
    """Return the features of the problem that the format cannot express, with their descriptions."""
    missing: dict[str, str] = {}
    if "" in problem.agents:
        missing["agents"] = "no agents without a name"
    for label in (x for labels in problem.labels if labels is not None for x in labels):
        if isinstance(label, bool | str) or not isfinite(label):
            missing["labels"] = f"no labels that are not numbers, such as {label!r}"
            break
    for name in problem.variables:
        if name.split() != [name]:
            missing["names"] = f"no names that are empty or have blanks, such as {name!r}"
            break
    return missing


def _relation(number: int, listing: FactorEntries, problem: Problem) -> str:
    """Return a relation; tuples of equal cost are adjacent, and only the first of them has the cost written."""
    labels = [labels_of(problem, v) for v in listing.scope]
    rows = sorted(zip(listing.costs, listing.rows, strict=True), key=lambda entry: (entry[0] is None, entry[0] or 0))
    groups = []
    for cost, group in groupby(rows, key=lambda entry: entry[0]):
        tuples = (" ".join(str(words_of[x]) for words_of, x in zip(labels, row, strict=True)) for _, row in group)
        groups.append(f"{_cost(cost, problem.sense)}:{'|'.join(tuples)}")
    attrs = f'name="r{number}" arity="{len(listing.scope)}" nbTuples="{len(rows)}" semantics="soft"'
    return f'<relation {attrs} defaultCost="{_cost(listing.default, problem.sense)}">{"|".join(groups)}</relation>\n'


def _cost(cost: Cost, sense: str) -> str:
    """Return the text of a cost."""
    if cost is None:
        return "infinity" if sense == "min" else "-infinity"
    return repr(cost)


def _values(values: tuple[Label, ...]) -> str:
    """Return the text of a domain's values: a range if possible, else a list."""
    integers = [v for v in values if type(v) is int and abs(v) < _MAX_VALUE_IN_RANGE]
    if len(integers) == len(values) > 1 and integers == list(range(integers[0], integers[0] + len(integers))):
        return f"{integers[0]}..{integers[-1]}"
    return " ".join(map(repr, values))


def _quoted(text: str) -> str:
    """Return a text as a quoted XML attribute, or raise ``ProblemError``."""
    if not _TEXT.fullmatch(text):
        raise ProblemError(f"the name {text!a} has characters that XML cannot hold")
    return quoteattr(text)
