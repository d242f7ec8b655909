"""Parse XML to a small tree with the byte offset of every element; entities are refused."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from dmcmc.files.text import OBJECTS_PER_CHECK, SourceFile
from dmcmc.inference.runtime.errors import FileError
from dmcmc.inference.runtime.memory import MEMORY_ACCOUNT

_MAX_DEPTH = 40  # levels of nested elements
_MAX_ELEMENTS = 5_000_000  # elements of a file


@dataclass(slots=True)
class Element:
    """An XML element.

    Attributes
    ----------
    tag : str
        Name of the element.
    attributes : dict of str to str
        Its attributes.
    offset : int
        Byte offset in the file.
    text : str
        Text directly inside it.
    children : list of Element
        Elements directly inside it.
    """

    tag: str
    attributes: dict[str, str]
    offset: int
    text: str = ""
    children: list["Element"] = field(default_factory=list)

    def all(self, tag: str) -> Iterator["Element"]:
        """Yield the children with a tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> "Element | None":
        """Return the first child with a tag, or None."""
        return next(self.all(tag), None)


def parse(source: SourceFile, doctype: bool = False) -> Element:
    """Return the root element of a file.

    Parameters
    ----------
    source
        The file.
    doctype
        Whether the file may have a document type. Its declarations of elements and attributes are ignored; entities
        are refused, and other files that it names are not read.

    Raises
    ------
    FileError
        For XML that is malformed, has entities or a document type that is not allowed, or is nested too deeply; the
        message names the line.
    """
    return _XmlTreeBuilder(source, doctype).root()


class _XmlTreeBuilder:
    """Build the tree from the events of the expat parser.

    Attributes
    ----------
    source : SourceFile
        The file.
    parser : expat parser
        Calls the methods ``start``, ``end`` and ``characters`` while it reads the file.
    top : Element
        Parent of the root element.
    open : list of Element
        The elements that are not closed yet, the innermost last.
    count : int
        Number of elements so far.
    """

    def __init__(self, source: SourceFile, doctype: bool) -> None:
        """Register the event handlers."""
        self.source = source
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.specified_attributes = True  # defaults of a document type would be repeated for every element
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        if not doctype:
            self.parser.StartDoctypeDeclHandler = self.refuse_doctype
        self.parser.EntityDeclHandler = self.refuse_doctype
        self.top = Element("", {}, 0)
        self.open = [self.top]
        self.count = 0

    def root(self) -> Element:
        """Parse the file and return the root element."""
        try:
            self.parser.Parse(self.source.data, True)
        except expat.ExpatError as error:
            at = max(0, self.parser.ErrorByteIndex)
            raise self.source.error(at, f"not well-formed XML: {expat.ErrorString(error.code)}") from None
        except (ValueError, LookupError) as error:  # encodings that expat does not know
            raise FileError(f"{self.source.name}: not readable XML: {' '.join(str(error).split())}") from None
        return self.top.children[0]

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Add an element."""
        at = self.parser.CurrentByteIndex
        self.count += 1
        if len(self.open) > _MAX_DEPTH or self.count > _MAX_ELEMENTS:
            raise self.source.error(at, f"more than {_MAX_DEPTH} levels or {_MAX_ELEMENTS:,} elements of XML")
        if not self.count % OBJECTS_PER_CHECK:
            MEMORY_ACCOUNT.check("the elements of the text")
        element = Element(tag, attributes, at)
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, tag: str) -> None:
        """Close the innermost open element."""
        self.open.pop()

    def characters(self, text: str) -> None:
        """Add text to the innermost open element."""
        innermost = self.open[-1]
        innermost.text = innermost.text + text if innermost.text else text

    def refuse_doctype(self, *declared: object) -> None:
        """Raise the error for a document type or an entity."""
        raise self.source.error(self.parser.CurrentByteIndex, "XML with a document type or entities is not read")
