"""Write pyDCOP's YAML: extensional constraints, agents, and ownership as ``distribution_hints``."""

from collections.abc import Iterator
from math import inf
from typing import Any

import yaml

from dmcmc.config.yaml_lines import FLOATS
from dmcmc.formats.common.factor_entries import Cost, Listing, labels_of, listings
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.inference.runtime.errors import ProblemError


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """The fast dumper, where PyYAML has it; quotes names that a reader of YAML 1.2 would take for numbers."""


_Dumper.add_implicit_resolver(*FLOATS)


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a problem. Constants become costs of the first variable, whatever its value.

    Raises
    ------
    ProblemError
        For labels that an assignment could not name: empty, with blanks or ``|``, or two that read the same.
    """
    domains: dict[tuple[tuple[type, Label], ...], str] = {}
    of: list[str] = []
    for v, name in enumerate(problem.variables):
        labels = tuple(labels_of(problem, v))
        _check(name, labels)
        of.append(domains.setdefault(tuple((type(x), x) for x in labels), f"d{len(domains)}"))
    hosted: dict[str, list[str]] = {}
    for v, name in enumerate(problem.variables):
        hosted.setdefault(problem.agents[problem.owner[v]], []).append(name)
    yield _dump({"name": problem.name, "objective": problem.sense})
    yield _dump({"domains": {name: {"values": [x for _, x in values]} for values, name in domains.items()}})
    yield _dump({"variables": {name: {"domain": of[v]} for v, name in enumerate(problem.variables)}})
    yield "constraints:\n" if problem.factors else "constraints: {}\n"
    for name, listing in listings(problem, constants=False):
        yield _indented(_dump({name: _constraint(listing, problem)}))
    yield _dump({"agents": {name: {} for name in problem.agents}})
    yield _dump({"distribution_hints": {"must_host": hosted}})


def _constraint(listing: Listing, problem: Problem) -> dict[str, Any]:
    labels = [[str(label) for label in labels_of(problem, v)] for v in listing.scope]
    values: dict[int | float, list[str]] = {}
    for row, cost in zip(listing.rows, listing.costs, strict=True):
        words = " ".join(of[x] for of, x in zip(labels, row, strict=True))
        values.setdefault(_cost(cost, problem.sense), []).append(words)
    return {
        "type": "extensional",
        "variables": [problem.variables[v] for v in listing.scope],
        "default": _cost(listing.default, problem.sense),
        "values": {cost: " | ".join(tuples) for cost, tuples in values.items()},
    }


def _cost(cost: Cost, sense: str) -> int | float:
    if cost is None:
        return inf if sense == "min" else -inf
    return cost


def _check(name: str, labels: tuple[Label, ...]) -> None:
    """Refuse labels that cannot be read back."""
    words = [str(label) for label in labels]
    for word, label in zip(words, labels, strict=True):
        alone = len(labels) == 1 and isinstance(label, str) and ".." in label
        if word.split() != [word] or "|" in word or alone or isinstance(label, bool):
            raise ProblemError(f"variable {name!r}: pyDCOP cannot name the value {label!r}; --drop labels numbers them")
    if len(set(words)) < len(words):
        raise ProblemError(f"variable {name!r}: two of its values read the same; --drop labels numbers them")


def _dump(data: dict[str, Any]) -> str:
    text: str = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=False, width=2**31 - 1)
    return text


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())
