"""Assign the variables of a pyDCOP problem to agents: by a distribution, by hints, or evenly."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from dmcmc.files.document import Document, Key, read_data, show, suggestion
from dmcmc.files.text import SourceFile, open_source
from dmcmc.inference.runtime.errors import FileError

_NAME = re.compile(r"(?P<stem>.*)(?P<kind>\.ya?ml)(?P<packed>\.gz|\.xz|\.bz2)?", re.IGNORECASE | re.DOTALL)


def read_distribution(source: SourceFile, given: Path | None) -> Document | None:
    """Return the given distribution file, or ``NAME_dist.yaml`` next to ``NAME.yaml``, or None without either."""
    path = given
    if path is None and source.path is not None:
        name = _NAME.fullmatch(str(source.path))
        suffixes = (f"{name['kind']}{name['packed'] or ''}", name["kind"]) if name else ()
        path = (
            next((p for suffix in suffixes if (p := Path(f"{name['stem']}_dist{suffix}")).is_file()), None)
            if name
            else None
        )
    if path is None:
        return None
    opened = open_source(path)
    assert opened is not None  # open_source returns None only for native archives
    document = read_data(opened.data, opened.name)
    if not isinstance(document.data.get("distribution"), dict):
        raise FileError(f"{opened.name}: expected 'distribution' with agents and the names that each hosts")
    return document


def assign_owners(
    document: Document,
    distribution: Document | None,
    variables: Sequence[str],
    constraints: Collection[str],
    scopes: Iterable[Sequence[int]],
) -> tuple[tuple[str, ...], list[int]]:
    """Return the agents, and the owner of each variable.

    A ``distribution`` (a separate file, or a section) takes precedence over ``distribution_hints``. The remaining
    variables are distributed evenly in their order, and the variables of one ``host_with`` group stay together. Each
    group goes to the agent with which it shares most factors, among those below the average load. Without agents, one
    agent, ``all``, owns everything.

    Parameters
    ----------
    document
        The problem file.
    distribution
        The file that :func:`read_distribution` returned.
    variables, constraints
        Names.
    scopes
        Scope of each factor, as indices of variables.
    """
    hosts = _OwnerAssignment(document, variables, constraints)
    hosts.apply_hints(distribution)
    return hosts.assign_remaining(scopes)


class _OwnerAssignment:
    """Assignment of variables (and constraints) to agents as it is built.

    Attributes
    ----------
    document : Document
        The problem file.
    variables : sequence of str
        Names of the variables.
    known : set of str
        Names of variables and constraints.
    number : dict of str to int
        Index of each variable.
    agents : dict of str to int
        Index of each agent.
    listed : bool
        Whether the file lists the agents; otherwise new names add agents.
    host : dict of str to int
        Agent of each name assigned so far.
    """

    def __init__(self, document: Document, variables: Sequence[str], constraints: Collection[str]) -> None:
        """Read the agents of the problem file."""
        self.document, self.variables = document, variables
        self.known = {*variables, *constraints}
        self.number = {name: v for v, name in enumerate(variables)}
        given = document.data.get("agents") or {}
        if not isinstance(given, dict | list) or not all(isinstance(a, str | int | float) for a in given):
            document.fail(("agents",), f"expected names, got {show(given)}")
        self.agents = {str(name): i for i, name in enumerate(given)}
        if len(self.agents) < len(given):
            document.fail(("agents",), "an agent occurs twice")
        self.listed = bool(self.agents)
        self.host: dict[str, int] = {}

    def apply_hints(self, distribution: Document | None) -> None:
        """Apply the distribution and the hints."""
        if distribution is not None:
            self.apply_section(distribution, ("distribution",))
        elif self.document.data.get("distribution") is not None:
            self.apply_section(self.document, ("distribution",))
        hints = self.document.data.get("distribution_hints") or {}
        if not isinstance(hints, dict):
            self.document.fail(("distribution_hints",), f"expected must_host and host_with, got {show(hints)}")
        self.apply_section(self.document, ("distribution_hints", "must_host"))
        for group in self.groups():
            hosted = next((self.host[name] for name in group if name in self.host), None)
            if hosted is not None:
                for name in group:
                    self.host.setdefault(name, hosted)

    def assign_remaining(self, scopes: Iterable[Sequence[int]]) -> tuple[tuple[str, ...], list[int]]:
        """Assign the remaining variables, and return the agents and the owner of each variable.

        Each group goes, in the file's order, to the agent with most factors between the group and the agent's
        variables, then the least loaded one. Only agents below the average load ⌈variables / agents⌉ are considered, or
        all if there are none.
        """
        if not self.agents:
            self.agents["all"] = 0
        scopes_of = self.scopes_by_variable(scopes)
        load = [0] * len(self.agents)
        for name in self.variables:
            if name in self.host:
                load[self.host[name]] += 1
        max_load = -(-len(self.variables) // len(self.agents))
        for group in self.groups():
            unassigned = [
                v for v in map(self.number.get, group) if v is not None and self.variables[v] not in self.host
            ]
            links = Counter(
                self.host[self.variables[u]]
                for v in unassigned
                for scope in scopes_of[v]
                for u in scope
                if self.variables[u] in self.host
            )
            candidates = [a for a, count in enumerate(load) if count < max_load] or range(len(load))
            agent = min(candidates, key=lambda a: (-links[a], load[a], a))
            for v in unassigned:
                self.host[self.variables[v]] = agent
                load[agent] += 1
        return tuple(self.agents), [self.host[name] for name in self.variables]

    def scopes_by_variable(self, scopes: Iterable[Sequence[int]]) -> list[list[Sequence[int]]]:
        """Return, for each variable, the scopes that contain it."""
        scopes_of: list[list[Sequence[int]]] = [[] for _ in self.variables]
        for scope in scopes:
            for v in scope:
                scopes_of[v].append(scope)
        return scopes_of

    def apply_section(self, document: Document, key: Key) -> None:
        """Apply a section ``{agent: [names]}``; names that are already assigned keep their agent."""
        assigned: dict[str, int] = {}
        for agent, names in self.mapping(document, key).items():
            if self.listed and agent not in self.agents:
                advice = suggestion(agent, list(self.agents)[:50], "agents")
                document.fail((*key, agent), f"is not an agent; {advice}")
            number = self.agents.setdefault(agent, len(self.agents))
            for name in self.names(document, (*key, agent), names):
                if assigned.setdefault(name, number) != number:
                    document.fail((*key, agent), f"{name} is also hosted by another agent")
                self.host.setdefault(name, number)

    def mapping(self, document: Document, key: Key) -> dict[str, Any]:
        """Return a section that maps names to lists of names; a missing section is empty."""
        section: Any = document.data
        for part in key:
            section = section.get(part) if isinstance(section, dict) else None
        if section is not None and not isinstance(section, dict):
            document.fail(key, f"expected names with lists of names, got {show(section)}")
        return section or {}

    def names(self, document: Document, key: Key, given: Any) -> list[str]:
        """Return a checked list of names of variables and constraints."""
        names = [given] if isinstance(given, str) else given or []
        if not isinstance(names, list):
            document.fail(key, f"expected a list of names, got {show(given)}")
        for name in names:
            if str(name) not in self.known:
                document.fail(key, f"{show(name)} is neither a variable nor a constraint")
        return [str(name) for name in names]

    def groups(self) -> Iterable[list[str]]:
        """Yield the groups of names joined by ``host_with``, in the file's order; each variable is in one group."""
        key = ("distribution_hints", "host_with")
        group = {name: [name] for name in (*self.variables, *sorted(self.known - self.number.keys()))}
        for name, others in self.mapping(self.document, key).items():
            for other in self.names(self.document, (*key, name), [name, *self.names(self.document, key, others)]):
                left, right = group[name], group[other]
                if left is not right:
                    left += right
                    group.update(dict.fromkeys(right, left))
        seen: set[int] = set()
        for name in self.variables:
            if id(group[name]) not in seen:
                seen.add(id(group[name]))
                yield group[name]
