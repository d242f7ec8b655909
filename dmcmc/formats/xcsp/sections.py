"""The sections of an XCSP file, and errors that name the line of an element."""

from collections.abc import Container
from typing import NoReturn

from dmcmc.files.text import SourceFile
from dmcmc.formats.common.xml_tree import Element, parse
from dmcmc.inference.runtime.errors import FileError


class XcspSections:
    """The sections of an XCSP file.

    Parameters
    ----------
    source : SourceFile
        The file.

    Attributes
    ----------
    root : Element
        The element ``<instance>``.
    name : str
        Name of the problem.
    sense : {"min", "max"}
        Whether the objective is minimised or maximised.
    is_xdiscsp : bool
        Whether the file says that its format is XDisCSP.
    """

    def __init__(self, source: SourceFile) -> None:
        self.source, self.root = source, parse(source)
        if self.root.tag != "instance":
            raise source.error(self.root.offset, f"expected <instance>, not <{self.root.tag[:40]}>")
        presentation = self.root.first("presentation")
        attributes = {} if presentation is None else presentation.attributes
        self.sense = "max" if attributes.get("maximize", "").strip().lower() == "true" else "min"
        self.name = attributes.get("name", "")
        self.is_xdiscsp = attributes.get("format", "").strip().upper().startswith("XDISCSP")

    def elements(self, tag: str, inner: str) -> list[Element]:
        """Return the elements of a section; a missing section is empty."""
        elements: list[Element] = []
        for section in self.root.all(tag):
            for element in section.children:
                if element.tag != inner:
                    self.fail(element, f"<{element.tag[:40]}> in <{tag}>; expected <{inner}>")
                elements.append(element)
        return elements

    def new(self, name: str, known: Container[str], element: Element) -> str:
        """Return a name after a check that it is not taken."""
        if not name:
            self.fail(element, f"<{element.tag}> has no name")
        if name in known:
            self.fail(element, f"{element.tag} {name!r} occurs twice")
        return name

    def fail(self, element: Element, message: str) -> NoReturn:
        """Raise the error that names the line of an element."""
        error: FileError = self.source.error(element.offset, message)
        raise error
