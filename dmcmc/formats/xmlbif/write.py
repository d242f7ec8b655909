"""Write XMLBIF 0.3: the conditional probability tables of a Bayesian network."""

import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

from dmcmc.formats.common.belief_network import ConditionalTable, conditional_tables, label_texts, unwritable
from dmcmc.inference.model.problem import Problem

_TEXT = re.compile("[\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")  # characters that XML keeps unchanged


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a Bayesian network; reading it back gives the same problem up to rounding.

    Raises
    ------
    ProblemError
        If the problem is not a Bayesian network (:func:`dmcmc.formats.common.belief_network.conditional_tables`), or
        has names or labels that XML does not keep.
    """
    tables = conditional_tables(problem, unwritable(problem, _is_kept, _is_kept))
    names = [escape(name) for name in problem.variables]
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<BIF VERSION="0.3">\n<NETWORK>\n'
    if _is_kept(problem.name):
        yield f"<NAME>{escape(problem.name)}</NAME>\n"
    for v, name in enumerate(names):
        labels = "".join(f"<OUTCOME>{escape(label)}</OUTCOME>" for label in label_texts(problem, v))
        yield f'<VARIABLE TYPE="nature"><NAME>{name}</NAME>{labels}</VARIABLE>\n'
    for table in tables:
        yield from _definition(table, names)
    yield "</NETWORK>\n</BIF>\n"


def _definition(table: ConditionalTable, names: list[str]) -> Iterator[str]:
    """Yield the element of one table, with one line per assignment of the parents."""
    given = "".join(f"<GIVEN>{names[parent]}</GIVEN>" for parent in table.parents)
    yield f"<DEFINITION><FOR>{names[table.child]}</FOR>{given}<TABLE>\n"
    for row in table.probabilities.reshape(-1, table.probabilities.shape[-1]).tolist():
        yield " ".join(map(repr, row)) + "\n"
    yield "</TABLE></DEFINITION>\n"


def _is_kept(text: str) -> bool:
    """Return whether a reader gets a name or a label back unchanged."""
    return bool(text) and text == text.strip() and _TEXT.fullmatch(text) is not None
