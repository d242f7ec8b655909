"""XML as a small tree that remembers where every element stood; document types and entities are refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from dmcmc.files.text import Source
from dmcmc.inference.runtime.errors import FileError

_MOST_DEPTH = 40
_MOST_ELEMENTS = 5_000_000


@dataclass(slots=True)
class Element:
    """An element.

    Attributes
    ----------
    tag : str
    attributes : dict of str to str
    offset : int
        The byte of the file where it starts.
    text : str
        All text directly inside it.
    children : list of Element
    """

    tag: str
    attributes: dict[str, str]
    offset: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def all(self, tag: str) -> Iterator["Element"]:
        """Yield the children of one tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """Return the first child of one tag."""
        return next(self.all(tag), None)


def parse(source: Source) -> Element:
    """Return the root element of a file.

    Raises
    ------
    FileError
        For XML that is not well formed, has a document type or entities, or is nested too deeply; names the line.
    """
    return _Builder(source).root()


class _Builder:
    """Takes expat's events."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.refuse_doctype
        self.parser.EntityDeclHandler = self.refuse_doctype
        self.top = Element("", {}, 0)
        self.open = [self.top]
        self.count = 0

    def root(self) -> Element:
        try:
            self.parser.Parse(self.source.data, True)
        except expat.ExpatError as error:
            at = max(0, self.parser.ErrorByteIndex)
            raise self.source.error(at, f"not well-formed XML: {expat.ErrorString(error.code)}") from None
        except (ValueError, LookupError) as error:  # encodings that expat does not know
            raise FileError(f"{self.source.name}: not readable XML: {' '.join(str(error).split())}") from None
        return self.top.children[0]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        at = self.parser.CurrentByteIndex
        self.count += 1
        if len(self.open) > _MOST_DEPTH or self.count > _MOST_ELEMENTS:
            raise self.source.error(at, f"more than {_MOST_DEPTH} levels or {_MOST_ELEMENTS:,} elements of XML")
        element = Element(tag, attributes, at)
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:
        self.open.pop()

    def characters(self, text: str) -> None:
        inside = self.open[-1]
        inside.text = inside.text + text if inside.text else text

    def refuse_doctype(self, *declared: object) -> None:
        raise self.source.error(self.parser.CurrentByteIndex, "XML with a document type or entities is not read")
