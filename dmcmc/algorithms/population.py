"""The agents of a run, and what the runtime does for them: places, counts of messages, checks of values, delays.

Only the runtime holds these objects; an agent cannot reach them.
"""

import random
import re
import traceback
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dmcmc.algorithms.agent import EVERYONE, Constraint, DcopAgent, Meter, Place, Random
from dmcmc.algorithms.contract import Value
from dmcmc.algorithms.network import BYTES, AgentNetwork
from dmcmc.algorithms.tree import VariableTree
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.inference.runtime.types import Ints

_OURS = str(Path(__file__).resolve().parents[1])


class AlgorithmError(DmcmcError):
    """A fault of an algorithm; the message names the algorithm, and the agent or the line of its file."""

    exit_code = 1


class Snapshot(NamedTuple):
    """The state of all agents after a cycle, or after a change of a value.

    Attributes
    ----------
    values : (n,) int64 or None
        Values of all variables; None as long as an agent has none.
    score : int or None
        Total score in the units of the layout; None to let the caller compute it.
    cycle : int
        Cycles so far.
    """

    values: Ints | None
    score: int | None
    cycle: int


class Delays:
    """Delays and losses of messages, drawn from a seed.

    Parameters
    ----------
    text : str
        ``none``, ``fixed(d)``, ``uniform(a,b)``, ``exponential(mean)``, or ``per-link(a,b)``: each link has a delay of
        its own, which is uniform between a and b.
    loss : float
        Probability that a message is lost.
    seed : int
        Seed of the draws.
    where : str
        Name of the setting, which begins the error message.

    Raises
    ------
    ConfigError
        If the text is none of these.
    """

    def __init__(self, text: str = "none", loss: float = 0.0, seed: int = 0, where: str = "algorithm.delay") -> None:
        found = re.fullmatch(r"(none)|(fixed|exponential)\(([^,()]+)\)|(uniform|per-link)\(([^,()]+),([^,()]+)\)", text)
        try:
            numbers = [float(part) for part in found.group(3, 5, 6) if part] if found else []
        except ValueError:
            found, numbers = None, []
        if found is None or not all(0 <= number < float("inf") for number in numbers) or numbers != sorted(numbers):
            forms = "none, fixed(d), uniform(a,b), exponential(mean) or per-link(a,b), with numbers from 0 and a <= b"
            raise ConfigError(f"{where}: expected {forms}, got {text!r}")
        self._random, self.loss = random.Random(seed), loss
        self._links: dict[tuple[int, int], float] = {}
        self.kind, self._numbers = found[1] or found[2] or found[4], numbers
        self.may_overtake = self.kind in ("uniform", "exponential")

    def of(self, sender: int, receiver: int) -> float:
        """Return the delay of the next message of a link."""
        if self.kind == "none":
            return 0.0
        if self.kind == "fixed":
            return self._numbers[0]
        if self.kind == "exponential":
            return self._random.expovariate(1 / self._numbers[0]) if self._numbers[0] else 0.0
        if self.kind == "uniform":
            return self._random.uniform(*self._numbers)
        link = (sender, receiver)
        if link not in self._links:
            self._links[link] = self._random.uniform(*self._numbers)
        return self._links[link]

    def loses(self) -> bool:
        """Return whether the next message is lost."""
        return self.loss > 0 and self._random.random() < self.loss


class Population:
    """The agents of one rank.

    Parameters
    ----------
    algorithm : type of DcopAgent
        The class of the agents.
    network : AgentNetwork
        Problem and ranks; counts of messages and clocks are kept in it.
    given : mapping of str to int, float or str
        Values of all parameters.
    seed : int
        Seed of the agents' random numbers.

    Attributes
    ----------
    agents : dict of int to DcopAgent
        The agents of this rank's variables.
    values : (n,) int64
        Values of this rank's variables that :meth:`look` has seen; 0 for those without one.
    unassigned : int
        Number of this rank's variables without a value.
    """

    def __init__(
        self, algorithm: type[DcopAgent], network: AgentNetwork, given: Mapping[str, Value], seed: int = 0
    ) -> None:
        self.algorithm, self.network, layout = algorithm, network, network.layout
        self._factors = [factor for factor in network.problem.factors if factor.scope]
        self._violation = layout.least_violation
        self._owner = network.problem.owner.tolist()
        self.agents: dict[int, DcopAgent] = {}
        for v in np.flatnonzero(layout.mine).tolist():
            meter = Meter()
            self.agents[v] = self.call(algorithm, self._place(v, meter), given, Random(seed, v), meter)
        self.values = np.zeros(layout.domains.size, dtype=np.int64)
        self._seen: dict[int, int | None] = dict.fromkeys(self.agents)
        self.unassigned = len(self.agents)
        agents_of = {v: {self._owner[u] for u in a.neighbours} - {self._owner[v]} for v, a in self.agents.items()}
        self._known = {
            v: frozenset({v, *a.neighbours, *a.ancestors, *a.children, *a.order}) for v, a in self.agents.items()
        }
        self._owners_nearby = {v: len(owners) for v, owners in agents_of.items()}

    def _place(self, v: int, meter: Meter) -> Place:
        """Return what the agent of a variable knows."""
        layout = self.network.layout
        constraints, domains = [], {v: int(layout.domains[v])}
        for c in range(layout.column_start[v], layout.column_start[v + 1]):
            scope = [u for u in self._factors[layout.column_factor[c]].scope if u != v] + [v]
            shape = layout.domains[scope]
            at = layout.column_at[c]
            costs = layout.column_top[c] - layout.data[at : at + int(np.prod(shape))]
            constraints.append(Constraint(scope, costs.reshape(shape), meter))
            domains |= {u: int(layout.domains[u]) for u in scope}
        neighbours = tuple(sorted(domains.keys() - {v}))
        place = Place(v, domains[v], self._violation, domains, neighbours, tuple(constraints), ())
        if self.algorithm.structure == "graph":
            own = tuple(c for c in constraints if all(u > v for u in c.others))
            return place._replace(own_constraints=own)
        if self.algorithm.structure == "spanning tree":
            own = tuple(c for c in constraints if all(u > v for u in c.others))
            children = tuple(u for u in neighbours if self._spanning_tree.get(u) == v)
            return place._replace(own_constraints=own, parent=self._spanning_tree.get(v), children=children)
        if self.algorithm.structure == "order":
            own = tuple(c for c in constraints if max(c.scope) == v)
            return place._replace(own_constraints=own, order=self._order)
        return self._place_in_tree(place)

    def _place_in_tree(self, place: Place) -> Place:
        """Return a place with the fields of the pseudo-tree."""
        tree, v = self._tree.pseudotree, place.me
        ancestors: list[int] = []
        while (parent := tree.parent[ancestors[-1] if ancestors else v]) >= 0:
            ancestors.append(parent)
        above, children = set(ancestors), tuple(tree.children[v])
        near, separator = above & set(place.neighbours), self._separators[v]
        return place._replace(
            own_constraints=tuple(c for c in place.constraints if above.issuperset(c.others)),
            parent=ancestors[0] if ancestors else None,
            children=children,
            ancestors=tuple(reversed(ancestors)),
            pseudo_parents=tuple(sorted(near.difference(ancestors[:1]))),
            pseudo_children=tuple(sorted(set(place.neighbours).difference(above, children))),
            separator=tuple(u for u in reversed(ancestors) if u in separator),
        )

    @cached_property
    def _order(self) -> tuple[int, ...]:
        """All variables in ascending order."""
        return tuple(range(self.network.layout.domains.size))

    @cached_property
    def _tree(self) -> VariableTree:
        """The pseudo-tree of all variables, the same one on all ranks."""
        return VariableTree.of(self.network.problem)

    @cached_property
    def _near(self) -> list[Ints]:
        """The neighbours of each variable."""
        return np.split(self.network.layout.neighbour, self.network.layout.pair_start[1:-1])

    @cached_property
    def _spanning_tree(self) -> dict[int, int]:
        """The parents in a tree of shortest paths from the lowest variable of each component, which has none."""
        parents, seen = dict[int, int](), set[int]()
        for root in self._order:
            waiting = [] if root in seen else [root]
            seen.add(root)
            for v in waiting:
                new = [u for u in self._near[v].tolist() if u not in seen]
                parents |= dict.fromkeys(new, v)
                seen.update(new)
                waiting.extend(new)
        return parents

    @cached_property
    def _separators(self) -> dict[int, set[int]]:
        """The separator of each variable."""
        found: dict[int, set[int]] = {}
        for v in self._tree.top_down[::-1].tolist():
            depth = self._tree.levels
            near = {u for u in self._near[v].tolist() if depth[u] < depth[v]}
            found[v] = near.union(*(found[child] for child in self._tree.pseudotree.children[v])) - {v}
        return found

    def call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method of an agent; an exception becomes an error that names the algorithm's own line."""
        try:
            return work(*arguments)
        except (StopIteration, DmcmcError):
            raise
        except Exception as error:
            raise AlgorithmError(fault(self.algorithm.name, error)) from error

    def look(self, v: int) -> int | None:
        """Return the new value of an agent if it has changed, else None; raise an error for a value it may not take."""
        agent = self.agents[v]
        value = agent.value
        if value is self._seen[v] or value == self._seen[v]:
            return None
        if value is None or not isinstance(value, int | np.integer) or not 0 <= value < agent.domain:
            raise AlgorithmError(bad_value(self.algorithm.name, self.network.problem.variables[v], value, agent.domain))
        self.unassigned -= self._seen[v] is None
        self._seen[v] = value
        self.values[v] = value
        return int(value)

    def gain(self, v: int, old: int) -> int:
        """Return by how much the total score has grown since a variable had its old value, uncounted."""
        values, change = self.values, 0
        for constraint in self.agents[v].constraints:
            at, last, entries = constraint.place_of(values)
            change += entries[at - last + old] - entries[at]
        return change

    def count(self, v: int, receiver: int, kind: str, content: Any) -> None:
        """Count a message of an agent to another one, or to all neighbours (``receiver`` -1)."""
        if receiver != EVERYONE and receiver not in self._known[v]:
            raise AlgorithmError(
                f"algorithm {self.algorithm.name}: agent {v} sent {kind} to agent {receiver}, which it does not know"
            )
        owner = self._owner[v]
        messages = self._owners_nearby[v] if receiver == EVERYONE else owner != self._owner[receiver]
        if messages:
            size = BYTES if type(content) is int else size_of(content)
            self.network.count_message(kind, owner, messages, messages * size)


def is_foreign(error: Exception) -> bool:
    """Return whether an exception comes from a line that is not ours: from a plug-in."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(not frame.filename.startswith(_OURS) for frame in frames)


def fault(name: str, error: Exception) -> str:
    """Return an exception of an algorithm as one line, with the innermost line that is not ours, if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)] or frames
    place = f"{Path(theirs[-1].filename).name}:{theirs[-1].lineno}"
    return " ".join(f"algorithm {name}: {type(error).__name__}: {error} ({place})".split())


def bad_value(name: str, variable: str, value: object, domain: int) -> str:
    """Return the error message for a value that a variable cannot take."""
    return f"algorithm {name}: {variable!r} took the value {value!r}; expected a whole number from 0 to {domain - 1}"


def size_of(content: Any) -> int:
    """Return the bytes of a message: 8 for each number, and one for each character of a text."""
    if content is None:
        return 0
    if isinstance(content, np.ndarray):
        return content.size * BYTES
    if isinstance(content, str):
        return len(content.encode())
    if isinstance(content, Mapping):
        return sum(size_of(key) + size_of(value) for key, value in content.items())
    if isinstance(content, tuple | list | set | frozenset):
        return sum(size_of(part) for part in content)
    return BYTES
