"""Write Hugin's NET language: the conditional probability tables of a Bayesian network."""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.common.belief_network import conditional_tables, label_texts, unwritable
from dmcmc.inference.model.problem import Problem

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STRING = re.compile(r'[^"\\\x00-\x1f\x7f\ud800-\udfff]*')  # text that all readers keep unchanged between quotes


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a Bayesian network; reading it back gives the same problem up to rounding.

    Raises
    ------
    ProblemError
        If the problem is not a Bayesian network (:func:`dmcmc.formats.common.belief_network.conditional_tables`), or
        has names or labels that the format does not have.
    """
    tables = conditional_tables(problem, unwritable(problem, _NAME.fullmatch, _STRING.fullmatch))
    has_name = problem.name and _STRING.fullmatch(problem.name)
    yield "net\n{\n" + (f'    name = "{problem.name}";\n' if has_name else "") + "}\n"
    for v, name in enumerate(problem.variables):
        states = " ".join(f'"{label}"' for label in label_texts(problem, v))
        yield f"node {name}\n{{\n    states = ({states});\n}}\n"
    for table in tables:
        parents = "".join(f" {problem.variables[parent]}" for parent in table.parents)
        yield f"potential ({problem.variables[table.child]}{' |' * bool(parents)}{parents})\n{{\n    data = "
        yield _nested(table.probabilities) + ";\n}\n"


def _nested(table: NDArray[np.float64]) -> str:
    """Return the numbers of a table as nested lists, with a line for each distribution."""
    if table.ndim == 1:
        return f"({' '.join(map(repr, table.tolist()))})"
    return "(" + "\n".join(map(_nested, table)) + ")"
