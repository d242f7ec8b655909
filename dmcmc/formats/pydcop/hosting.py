"""Who owns what in a pyDCOP problem: a distribution, else hints, else the agents take turns."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dmcmc.config.document import Document, Key, show
from dmcmc.config.validate import suggestion
from dmcmc.config.yaml_lines import read_data
from dmcmc.files.text import Source, open_source
from dmcmc.inference.runtime.errors import FileError

_NAME = re.compile(r"(?P<stem>.*)(?P<kind>\.ya?ml)(?P<packed>\.gz|\.xz|\.bz2)?", re.IGNORECASE | re.DOTALL)


def distribution_beside(source: Source, given: Path | None) -> Document | None:
    """Return the distribution file: the given one, or ``NAME_dist.yaml`` beside ``NAME.yaml``."""
    path = given
    if path is None and source.path is not None:
        name = _NAME.fullmatch(str(source.path))
        ends = (f"{name['kind']}{name['packed'] or ''}", name["kind"]) if name else ()
        path = next((p for end in ends if (p := Path(f"{name['stem']}_dist{end}")).is_file()), None) if name else None
    if path is None:
        return None
    opened = open_source(path)
    assert opened is not None  # only a native archive is not opened
    document = read_data(opened.data, opened.name)
    if not isinstance(document.data.get("distribution"), dict):
        raise FileError(f"{opened.name}: expected 'distribution' with agents and the names that each hosts")
    return document


def owners(
    document: Document,
    distribution: Document | None,
    variables: Sequence[str],
    constraints: Collection[str],
    scopes: Iterable[Sequence[int]],
) -> tuple[tuple[str, ...], list[int]]:
    """Return the agents, and the owner of each variable.

    A ``distribution`` (a file of its own, or a section) comes before ``distribution_hints``. Variables that both leave
    out are shared out evenly in their order, those of one ``host_with`` together: each to the agent with which it
    shares most factors, of those with room. Without agents, one agent, ``all``, owns everything.

    Parameters
    ----------
    document, distribution
        The problem file, and the file that :func:`distribution_beside` found.
    variables, constraints
        Names.
    scopes
        Indices of variables that share a factor.
    """
    hosts = _Hosts(document, variables, constraints)
    hosts.follow(distribution)
    return hosts.share_out(scopes)


class _Hosts:
    def __init__(self, document: Document, variables: Sequence[str], constraints: Collection[str]) -> None:
        self.document, self.variables = document, variables
        self.known = {*variables, *constraints}
        self.number = {name: v for v, name in enumerate(variables)}
        given = document.data.get("agents") or {}
        if not isinstance(given, dict | list) or not all(isinstance(a, str | int | float) for a in given):
            self.fail(document, ("agents",), f"expected names, got {show(given)}")
        self.agents = {str(name): i for i, name in enumerate(given)}
        if len(self.agents) < len(given):
            self.fail(document, ("agents",), "an agent stands twice")
        self.listed = bool(self.agents)
        self.host: dict[str, int] = {}

    def follow(self, distribution: Document | None) -> None:
        """Take what distributions and hints say."""
        if distribution is not None:
            self.place(distribution, ("distribution",))
        elif self.document.data.get("distribution") is not None:
            self.place(self.document, ("distribution",))
        hints = self.document.data.get("distribution_hints") or {}
        if not isinstance(hints, dict):
            self.fail(self.document, ("distribution_hints",), f"expected must_host and host_with, got {show(hints)}")
        self.place(self.document, ("distribution_hints", "must_host"))
        for group in self.groups():
            hosted = next((self.host[name] for name in group if name in self.host), None)
            if hosted is not None:
                for name in group:
                    self.host.setdefault(name, hosted)

    def share_out(self, scopes: Iterable[Sequence[int]]) -> tuple[tuple[str, ...], list[int]]:
        """Give every variable that has no owner yet to one."""
        if not self.agents:
            self.agents["all"] = 0
        together = self.touching(scopes)
        load = [0] * len(self.agents)
        for name in self.variables:
            if name in self.host:
                load[self.host[name]] += 1
        room = -(-len(self.variables) // len(self.agents))
        for group in self.groups():
            free = [v for v in map(self.number.get, group) if v is not None and self.variables[v] not in self.host]
            links = Counter(
                self.host[self.variables[u]]
                for v in free
                for scope in together[v]
                for u in scope
                if self.variables[u] in self.host
            )
            spare = [a for a, count in enumerate(load) if count < room] or range(len(load))
            agent = min(spare, key=lambda a: (-links[a], load[a], a))
            for v in free:
                self.host[self.variables[v]] = agent
                load[agent] += 1
        return tuple(self.agents), [self.host[name] for name in self.variables]

    def touching(self, scopes: Iterable[Sequence[int]]) -> list[list[Sequence[int]]]:
        """Return the scopes that hold each variable."""
        found: list[list[Sequence[int]]] = [[] for _ in self.variables]
        for scope in scopes:
            for v in scope:
                found[v].append(scope)
        return found

    def place(self, document: Document, key: Key) -> None:
        """Note what ``{agent: [names]}`` says."""
        here: dict[str, int] = {}
        for agent, names in self.mapping(document, key).items():
            if self.listed and agent not in self.agents:
                advice = suggestion(agent, list(self.agents)[:50], "agents")
                self.fail(document, (*key, agent), f"is no agent; {advice}")
            number = self.agents.setdefault(agent, len(self.agents))
            for name in self.names(document, (*key, agent), names):
                if here.setdefault(name, number) != number:
                    self.fail(document, (*key, agent), f"{name} is hosted by another agent, too")
                self.host.setdefault(name, number)

    def mapping(self, document: Document, key: Key) -> dict[str, Any]:
        found: Any = document.data
        for part in key:
            found = found.get(part) if isinstance(found, dict) else None
        if found is not None and not isinstance(found, dict):
            self.fail(document, key, f"expected names with lists of names, got {show(found)}")
        return found or {}

    def names(self, document: Document, key: Key, given: Any) -> list[str]:
        names = [given] if isinstance(given, str) else given or []
        if not isinstance(names, list):
            self.fail(document, key, f"expected a list of names, got {show(given)}")
        for name in names:
            if str(name) not in self.known:
                self.fail(document, key, f"{show(name)} is no variable and no constraint")
        return [str(name) for name in names]

    def groups(self) -> Iterable[list[str]]:
        """Return the names that go together by ``host_with``, each variable in one group, in the file's order."""
        key = ("distribution_hints", "host_with")
        group = {name: [name] for name in (*self.variables, *sorted(self.known - self.number.keys()))}
        for name, others in self.mapping(self.document, key).items():
            for other in self.names(self.document, (*key, name), [name, *self.names(self.document, key, others)]):
                one, two = group[name], group[other]
                if one is not two:
                    one += two
                    group.update(dict.fromkeys(two, one))
        seen: set[int] = set()
        for name in self.variables:
            if id(group[name]) not in seen:
                seen.add(id(group[name]))
                yield group[name]

    def fail(self, document: Document, key: Key, message: str) -> NoReturn:
        raise FileError(f"{document.at(key)}: {message}")
