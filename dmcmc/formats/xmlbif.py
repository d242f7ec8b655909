"""The format XMLBIF 0.3: Bayesian networks in XML, read and written.

A table lists the child's probabilities for each assignment of the parents; the first parent changes slowest. The
element ``<PROBABILITY>`` of older versions is read as ``<DEFINITION>``. Properties are skipped.
"""

import math
import re
from collections.abc import Iterator
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from dmcmc.files.text import SourceFile
from dmcmc.formats.common import belief_network
from dmcmc.formats.common.factor_entries import clipped_error
from dmcmc.formats.common.tokens import scan_floats
from dmcmc.formats.common.xml_tree import Element, parse
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import DmcmcError

_SKIPPED = {"NAME", "PROPERTY"}  # elements of a network that hold neither variables nor tables
_DEFINITIONS = {"DEFINITION", "PROBABILITY"}


def read(source: SourceFile) -> Problem:
    """Read a Bayesian network.

    One agent, ``all``, owns every variable, and each factor has the name of its child variable.

    Raises
    ------
    FileError
        If the file is malformed; the message names the line.
    Unavailable
        For decision and utility variables.
    """
    try:
        return _XmlBifReader(source).problem()
    except DmcmcError as error:
        raise clipped_error(error) from None


class _XmlBifReader:
    """Reader of the elements of an XMLBIF file.

    Attributes
    ----------
    network : NetworkBuilder
        The variables and tables read so far.
    root : Element
        The element ``<NETWORK>``.
    """

    def __init__(self, source: SourceFile) -> None:
        """Parse the XML."""
        self.network = belief_network.NetworkBuilder(source)
        top = parse(source, doctype=True)
        if top.tag != "BIF":
            self.network.fail(f"expected <BIF>, not <{top.tag[:40]}>", top.offset)
        self.root = self.only(top, "NETWORK")

    def problem(self) -> Problem:
        """Read all variables, then all tables, and return the problem."""
        for element in self.root.children:
            if element.tag == "VARIABLE":
                self.variable(element)
            elif element.tag not in _DEFINITIONS | _SKIPPED:
                self.network.fail(
                    f"<{element.tag[:40]}> in <NETWORK>; expected <VARIABLE> or <DEFINITION>", element.offset
                )
        for element in self.root.children:
            if element.tag in _DEFINITIONS:
                self.definition(element)
        name = self.root.first("NAME")
        return self.network.problem("" if name is None else name.text.strip())

    def variable(self, element: Element) -> None:
        """Read a variable: its name and the labels of its values."""
        kind = element.attributes.get("TYPE", "nature").strip().lower()
        name = self.text(self.only(element, "NAME"))
        if kind != "nature":
            raise self.network.source.refusal(element.offset, f"variable {name!r}: the type {kind[:40]!r} is")
        labels = [self.text(child) for child in element.children if child.tag in ("OUTCOME", "VALUE")]
        self.network.declare(name, labels, element.offset)

    def definition(self, element: Element) -> None:
        """Read the conditional probability table of a variable."""
        child = self.text(self.only(element, "FOR"))
        parents = [self.text(given) for given in element.all("GIVEN")]
        scope = self.network.scope(child, parents, element.offset)
        table = self.only(element, "TABLE")
        shape = [len(self.network.variables[name].values) for name in (*parents, child)]
        numbers = self.probabilities(table)
        if len(numbers) != math.prod(shape):
            self.network.fail(
                f"the table of {child!r} has {len(numbers)} numbers; {math.prod(shape)} are needed", table.offset
            )
        self.network.add(child, scope, numbers.reshape(shape))

    def probabilities(self, table: Element) -> NDArray[np.float64]:
        """Return the numbers of a table."""
        text = table.text.encode()
        numbers, unconverted = scan_floats(text)
        for _, first, last in unconverted[:1].tolist():
            self.network.fail(f"{text[first:last][:40].decode('utf-8', 'replace')!a} is not a number", table.offset)
        for bad in numbers[~((numbers >= 0) & (numbers < np.inf))][:1]:
            self.network.fail(f"{bad:g} is not a probability", table.offset)
        return numbers

    def only(self, element: Element, tag: str) -> Element:
        """Return the only child with a tag, or fail."""
        found = list(element.all(tag))
        if len(found) != 1:
            self.network.fail(f"<{element.tag}> has {len(found)} elements <{tag}>; 1 is needed", element.offset)
        return found[0]

    def text(self, element: Element) -> str:
        """Return the text of an element without surrounding blanks, or fail if it is empty."""
        text = element.text.strip()
        if not text:
            self.network.fail(f"<{element.tag}> is empty", element.offset)
        return text


_TEXT = re.compile("[\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")  # characters that XML keeps unchanged


def write(problem: Problem) -> Iterator[str]:
    """Yield the text of a Bayesian network; reading it back gives the same problem up to rounding.

    Raises
    ------
    ProblemError
        If the problem is not a Bayesian network (:func:`dmcmc.formats.common.belief_network.conditional_tables`), or
        has names or labels that XML does not keep.
    """
    tables = belief_network.conditional_tables(problem, belief_network.unwritable(problem, _is_kept, _is_kept))
    names = [escape(name) for name in problem.variables]
    yield '<?xml version="1.0" encoding="UTF-8"?>\n<BIF VERSION="0.3">\n<NETWORK>\n'
    if _is_kept(problem.name):
        yield f"<NAME>{escape(problem.name)}</NAME>\n"
    for v, name in enumerate(names):
        labels = "".join(f"<OUTCOME>{escape(label)}</OUTCOME>" for label in belief_network.label_texts(problem, v))
        yield f'<VARIABLE TYPE="nature"><NAME>{name}</NAME>{labels}</VARIABLE>\n'
    for table in tables:
        yield from _definition(table, names)
    yield "</NETWORK>\n</BIF>\n"


def _definition(table: belief_network.ConditionalTable, names: list[str]) -> Iterator[str]:
    """Yield the element of one table, with one line per assignment of the parents."""
    given = "".join(f"<GIVEN>{names[parent]}</GIVEN>" for parent in table.parents)
    yield f"<DEFINITION><FOR>{names[table.child]}</FOR>{given}<TABLE>\n"
    for row in table.probabilities.reshape(-1, table.probabilities.shape[-1]).tolist():
        yield " ".join(map(repr, row)) + "\n"
    yield "</TABLE></DEFINITION>\n"


def _is_kept(text: str) -> bool:
    """Return whether a reader gets a name or a label back unchanged."""
    return bool(text) and text == text.strip() and _TEXT.fullmatch(text) is not None
