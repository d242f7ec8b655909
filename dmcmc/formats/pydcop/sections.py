"""The sections of a pyDCOP file, and errors that name the line of an entry."""

from typing import Any, NoReturn

from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.inference.runtime.errors import FileError

_SECTIONS = (
    *("name", "description", "objective", "domains", "variables", "external_variables", "constraints", "agents"),
    *("distribution_hints", "distribution", "routes", "hosting_costs", "inputs", "cost", "hosting_cost"),
    *("communication_cost", "duration", "status"),
)


class PydcopSections:
    """The sections of a pyDCOP file.

    A ``key`` is the path of an entry in the file, such as ``("domains", "colours")``; error messages name it and its
    line.

    Parameters
    ----------
    document : Document
        The file with the lines of its entries.

    Attributes
    ----------
    data : dict
        The content of the file.
    sense : str
        ``min`` or ``max``.
    """

    def __init__(self, document: Document) -> None:
        self.document, self.data = document, document.data
        for name in self.data:
            if name not in _SECTIONS:
                self.fail((name,), f"unknown section; {suggestion(name, _SECTIONS)}")
        self.sense = str(self.data.get("objective"))
        if self.sense not in ("min", "max"):
            self.fail(("objective",), f"expected min or max, got {show(self.data.get('objective'))}")

    def section(self, name: str) -> dict[str, Any]:
        """Return a section with named entries; a missing section is empty."""
        entries_ = self.data.get(name)
        if entries_ is None:
            return {}
        if not isinstance(entries_, dict):
            self.fail((name,), f"expected names with their descriptions, got {show(entries_)}")
        return entries_

    def fail(self, key: Key, message: str) -> NoReturn:
        """Raise the error that names the line and the key."""
        raise FileError(f"{self.document.at(key)}: {message}")
