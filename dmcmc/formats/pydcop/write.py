"""Write pyDCOP's YAML: extensional constraints, agents, and owners as ``distribution_hints``."""

from collections.abc import Iterator
from math import inf
from typing import Any

import yaml

from dmcmc.config.yaml_lines import FLOATS
from dmcmc.formats.common.factor_entries import (
    Cost,
    FactorEntries,
    Inexpressible,
    labels_of,
    named_factor_entries,
)
from dmcmc.inference.model.problem import Label, Problem


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """YAML dumper, the fast one if PyYAML has it; it quotes names that a YAML 1.2 reader would take for numbers."""


_Dumper.add_implicit_resolver(*FLOATS)


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem; a constant becomes a constant cost of the first variable.

    Raises
    ------
    ProblemError
        For labels that an assignment cannot name: empty ones, those with blanks or ``|``, or two with the same text.
    """
    domains: dict[tuple[tuple[type, Label], ...], str] = {}
    domain_of: list[str] = []
    for v, name in enumerate(problem.variables):
        labels = tuple(labels_of(problem, v))
        _check(name, labels)
        domain_of.append(domains.setdefault(tuple((type(x), x) for x in labels), f"d{len(domains)}"))
    variables_of_agent: dict[str, list[str]] = {}
    for v, name in enumerate(problem.variables):
        variables_of_agent.setdefault(problem.agents[problem.owner[v]], []).append(name)
    yield _dump({"name": problem.name, "objective": problem.sense})
    yield _dump({"domains": {name: {"values": [x for _, x in values]} for values, name in domains.items()}})
    yield _dump({"variables": {name: {"domain": domain_of[v]} for v, name in enumerate(problem.variables)}})
    yield "constraints:\n" if problem.factors else "constraints: {}\n"
    for name, listing in named_factor_entries(problem, constants=False):
        yield _indented(_dump({name: _constraint(listing, problem)}))
    yield _dump({"agents": {name: {} for name in problem.agents}})
    yield _dump({"distribution_hints": {"must_host": variables_of_agent}})


def _constraint(entries: FactorEntries, problem: Problem) -> dict[str, Any]:
    """Return the YAML mapping of one constraint: a default cost, and the value tuples of each other cost."""
    labels = [[str(label) for label in labels_of(problem, v)] for v in entries.scope]
    values: dict[int | float, list[str]] = {}
    for row, cost in zip(entries.rows, entries.costs, strict=True):
        value_names = " ".join(labels_of_variable[x] for labels_of_variable, x in zip(labels, row, strict=True))
        values.setdefault(_cost(cost, problem.sense), []).append(value_names)
    return {
        "type": "extensional",
        "variables": [problem.variables[v] for v in entries.scope],
        "default": _cost(entries.default, problem.sense),
        "values": {cost: " | ".join(tuples) for cost, tuples in values.items()},
    }


def _cost(cost: Cost, sense: str) -> int | float:
    """Return a cost as a number; the cost None of a forbidden entry becomes infinite, with the sign of the sense."""
    if cost is None:
        return inf if sense == "min" else -inf
    return cost


def _check(name: str, labels: tuple[Label, ...]) -> None:
    """Raise ``Inexpressible`` for labels that would not be read back as the same labels.

    Labels are separated by blanks and tuples of labels by ``|``. A domain with a single text that contains ``..`` would
    be read as a range, and booleans would become words.
    """
    words = [str(label) for label in labels]
    for word, label in zip(words, labels, strict=True):
        is_range = len(labels) == 1 and isinstance(label, str) and ".." in label
        if word.split() != [word] or "|" in word or is_range or isinstance(label, bool):
            message = f"variable {name!r}: pyDCOP cannot name the value {label!r}; --drop labels numbers them"
            raise Inexpressible(message, ["labels"])
    if len(set(words)) < len(words):
        message = f"variable {name!r}: two of its values read the same; --drop labels numbers them"
        raise Inexpressible(message, ["labels"])


def _dump(data: dict[str, Any]) -> str:
    """Return the YAML text of a mapping."""
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=2**31 - 1)
    return text


def _indented(text: str) -> str:
    """Indent all lines by two blanks."""
    return "".join(f"  {line}\n" for line in text.splitlines())
