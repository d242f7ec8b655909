"""The domains, agents and variables of an XCSP file."""

import re
from math import inf

from dmcmc.formats.common.entries import number
from dmcmc.formats.common.xml_tree import Element
from dmcmc.formats.xcsp.relations import ValueIndex
from dmcmc.formats.xcsp.sections import XcspSections
from dmcmc.inference.model.problem import Label
from dmcmc.inference.runtime.types import Number

_MAX_VALUES = 1 << 22  # limit for the values of all domains together
_RANGE = re.compile(r"([+-]?[0-9]{1,18})\.\.([+-]?[0-9]{1,18})")


class XcspVariables:
    """The variables of an XCSP file.

    Parameters
    ----------
    sections : XcspSections
        The file.

    Attributes
    ----------
    domains, labels : dict
        By the name of a domain: the index of each value, and the labels (None for 0, 1, ...).
    agents, index : dict of str to int
        Index of each agent and of each variable by name.
    domain_of : list of str
        Name of each variable's domain.
    owner : list of int
        Agent of each variable.
    """

    def __init__(self, sections: XcspSections) -> None:
        self.domains: dict[str, ValueIndex] = {}
        self.labels: dict[str, tuple[Label, ...] | None] = {}
        self.agents: dict[str, int] = {}
        self.index: dict[str, int] = {}
        self.domain_of: list[str] = []
        self.owner: list[int] = []
        self._values_left = _MAX_VALUES
        self._read_domains(sections)
        self._read_variables(sections)

    def _read_domains(self, sections: XcspSections) -> None:
        """Read all domains."""
        for element in sections.elements("domains", "domain"):
            name = sections.new(element.attributes.get("name", ""), self.domains, element)
            values = self._values(sections, element)
            self.domains[name] = {value: i for i, value in enumerate(values)}
            if len(self.domains[name]) < len(values):
                sections.fail(element, f"domain {name!r}: a value occurs twice")
            self.labels[name] = None if values == list(range(len(values))) else tuple(values)

    def _values(self, sections: XcspSections, element: Element) -> list[Number]:
        """Return the values of a domain: words such as ``3`` and ``1..5``, or 1 to nbValues if there are none."""
        what = f"domain {element.attributes.get('name')!r}"
        declared = element.attributes.get("nbValues")
        if declared is not None and not re.fullmatch("[0-9]{1,18}", declared):
            sections.fail(element, f"{what}: nbValues is {declared[:40]!r}; a whole number is needed")
        words = element.text.split() or ([f"1..{declared}"] if declared is not None else [])
        values: list[Number] = []
        for word in words:
            span = _RANGE.fullmatch(word)
            value = number(word)
            if span is None and (value is None or abs(value) == inf):
                sections.fail(element, f"{what}: {word[:40]!r} is neither a value nor a range such as 1..5")
            first, last = (int(span[1]), int(span[2])) if span else (0, 0)
            self._values_left -= last - first + 1 if span else 1
            if last < first or self._values_left < 0:
                reason = "the range must ascend" if last < first else f"domains have at most {_MAX_VALUES:,} values"
                sections.fail(element, f"{what}: {word}: {reason}")
            values += range(first, last + 1) if span else [value]  # type: ignore[list-item]
        if not values or (declared is not None and int(declared) != len(values)):
            sections.fail(element, f"{what}: nbValues is {declared}, but {len(values)} values are listed")
        return values

    def _read_variables(self, sections: XcspSections) -> None:
        """Read the agents and the variables."""
        names = [sections.new(e.attributes.get("name", ""), (), e) for e in sections.elements("agents", "agent")]
        listed = bool(names) or sections.root.first("agents") is not None
        for element, name in zip(sections.elements("agents", "agent"), names, strict=True):
            self.agents[sections.new(name, self.agents, element)] = len(self.agents)
        for element in sections.elements("variables", "variable"):
            given = element.attributes
            name = sections.new(given.get("name", ""), self.index, element)
            if given.get("type", "decision") != "decision":
                raise sections.source.refusal(element.offset, f"variable {name!r}: the type {given['type'][:40]!r} is")
            if given.get("domain", "") not in self.domains:
                sections.fail(element, f"variable {name!r}: domain {given.get('domain', '')[:40]!r} is not defined")
            agent = given.get("agent", "")
            if not agent and listed:
                sections.fail(
                    element, f"variable {name!r}: has no agent; agent=... is needed where <agents> are listed"
                )
            if listed and agent not in self.agents:
                sections.fail(element, f"variable {name!r}: agent {agent[:40]!r} is not listed in <agents>")
            self.index[name] = len(self.index)
            self.domain_of.append(given["domain"])
            self.owner.append(self.agents.setdefault(agent or "all", len(self.agents)))
        if not self.agents:
            self.agents["all"] = 0
