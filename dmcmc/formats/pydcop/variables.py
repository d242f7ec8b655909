"""The domains and variables of a pyDCOP file, and its external variables."""

import re
from collections.abc import Mapping
from typing import Any

from dmcmc.config.document import Key, show
from dmcmc.config.validate import suggestion
from dmcmc.formats.pydcop.sections import PydcopSections
from dmcmc.inference.model.problem import Label
from dmcmc.inference.model.unknown_names import suggest_name
from dmcmc.inference.runtime.errors import FileError

_MAX_VALUES = 1 << 22  # limit for the values of all domains together
_RANGE = re.compile(r"\s*\[?\s*([+-]?[0-9]{1,18})\s*\.\.\s*([+-]?[0-9]{1,18})\s*\]?\s*")


class PydcopVariables:
    """The variables of a pyDCOP file.

    Parameters
    ----------
    sections : PydcopSections
        The file.
    set_values : mapping
        Values that replace those of external variables.

    Attributes
    ----------
    values, value_index : dict
        By the name of a domain: its values, and the index of each value by the words that stand for it.
    index : dict of str to int
        Index of each variable by its name.
    domain_of : list of str
        Name of each variable's domain.
    external : dict of str to (str, int)
        The domain of each external variable, and the index of the value that it keeps.
    """

    def __init__(self, sections: PydcopSections, set_values: Mapping[str, Any]) -> None:
        self._sections, self._set_values, self._values_left = sections, set_values, _MAX_VALUES
        self.values: dict[str, list[Any]] = {name: self._domain(name) for name in sections.section("domains")}
        self.value_index = {name: _index_by_word(values) for name, values in self.values.items()}
        self.index: dict[str, int] = {}
        self.domain_of: list[str] = []
        for name, entry in sections.section("variables").items():
            self.domain_of.append(self._given_domain(("variables", name), entry))
            self.index[name] = len(self.index)
        external = sections.section("external_variables")
        for name in set_values.keys() - external.keys():
            raise FileError(f"external variable {name!r} does not exist{suggest_name(name, list(external))}")
        self.external = {name: self._external_variable(name, entry) for name, entry in external.items()}

    @property
    def sizes(self) -> list[int]:
        """The domain size of each variable."""
        return [len(self.values[domain]) for domain in self.domain_of]

    @property
    def labels(self) -> tuple[tuple[Label, ...] | None, ...]:
        """The labels of each variable's values; None for 0, 1, ..."""
        return tuple(_labels(self.values[domain]) for domain in self.domain_of)

    def initial_values(self) -> dict[str, Label]:
        """Return the initial values of the variables that have one."""
        values: dict[str, Label] = {}
        for name, entry in self._sections.section("variables").items():
            if entry.get("initial_value") is not None:
                domain, index = self._initial_value(("variables", name), entry)
                values[name] = (_labels(self.values[domain]) or range(len(self.values[domain])))[index]
        return values

    def size(self, v: int) -> int:
        """Return the domain size of a variable by its index."""
        return len(self.values[self.domain_of[v]])

    def domain_name(self, name: str) -> str:
        """Return the name of the domain of a variable or an external variable."""
        return self.external[name][0] if name in self.external else self.domain_of[self.index[name]]

    def values_of(self, name: str, key: Key) -> list[Any]:
        """Return the values of a variable, or the value of an external variable; fail for an unknown name."""
        if name in self.external:
            domain, index = self.external[name]
            return [self.values[domain][index]]
        if name not in self.index:
            self._sections.fail(
                key, f"{name} is not a variable; {suggestion(name, list(self.index)[:50], 'variables')}"
            )
        return self.values[self.domain_of[self.index[name]]]

    def _domain(self, name: str) -> list[Any]:
        """Return the values of a domain."""
        key, entry = ("domains", name), self._sections.data["domains"][name]
        values = entry.get("values") if isinstance(entry, dict) else None
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or not values:
            if isinstance(entry, dict) and "values" in entry:
                self._sections.fail(
                    (*key, "values"), f"expected 'values' with a list such as [R, G] or [0..9], got {show(values)}"
                )
            self._sections.fail(key, f"expected 'values' with a list such as [R, G] or [0..9], got {show(entry)}")
        if len(values) == 1 and isinstance(values[0], str) and ".." in values[0]:
            span = _RANGE.fullmatch(values[0])
            if span is None or int(span[2]) < int(span[1]):
                self._sections.fail((*key, "values"), f"expected a range such as 0..9, got {show(values[0])}")
            self._count_values(int(span[2]) - int(span[1]) + 1, key)
            return list(range(int(span[1]), int(span[2]) + 1))
        self._count_values(len(values), key)
        for value in values:
            if not isinstance(value, str | int | float) or value != value:
                self._sections.fail((*key, "values"), f"a value must be a word or a number, not {show(value)}")
        if len(set(values)) < len(values):
            self._sections.fail((*key, "values"), "a value occurs twice")
        return values

    def _count_values(self, count: int, key: Key) -> None:
        """Count the values of a domain towards the limit."""
        self._values_left -= count
        if self._values_left < 0:
            self._sections.fail(key, f"domains have at most {_MAX_VALUES:,} values together")

    def _external_variable(self, name: str, entry: Any) -> tuple[str, int]:
        """Return the domain of an external variable, and the index of its initial value."""
        key = ("external_variables", name)
        if name in self.index:
            self._sections.fail(key, f"{name} is a variable, too; give one of them another name")
        self._given_domain(key, entry)
        if name in self._set_values:
            entry = {**entry, "initial_value": self._set_values[name]}
        if entry.get("initial_value") is None:
            self._sections.fail(key, "expected 'initial_value', the value that the external variable keeps")
        return self._initial_value(key, entry)

    def _initial_value(self, key: Key, entry: Any) -> tuple[str, int]:
        """Return the domain of a variable, and the index of its initial value."""
        domain, value = self._given_domain(key, entry), entry["initial_value"]
        index = self.value_index[domain].get(str(value))
        if index is None:
            self._sections.fail((*key, "initial_value"), f"{show(value)} is not in the domain {show(domain)}")
        return domain, index

    def _given_domain(self, key: Key, entry: Any) -> str:
        """Return the name of the domain that the entry of a variable gives."""
        domain = entry.get("domain") if isinstance(entry, dict) else None
        if str(domain) not in self.values:
            what = f"{show(domain)}; {suggestion(str(domain), self.values, 'domains')}"
            self._sections.fail(key, f"expected 'domain' with the name of a domain, got {what}")
        return str(domain)


def _index_by_word(values: list[Any]) -> dict[str, int]:
    """Return the index of each value by the words that assignments may use for it."""
    index_of = {str(value).lower(): i for i, value in enumerate(values) if isinstance(value, bool)}
    return index_of | {str(value): i for i, value in enumerate(values)}


def _labels(values: list[Any]) -> tuple[Label, ...] | None:
    """Return values as labels: None for 0, 1, ...; booleans as words."""
    if all(type(value) is int for value in values) and values == list(range(len(values))):
        return None
    return tuple(str(value).lower() if isinstance(value, bool) else value for value in values)
