"""The interface of DCOP algorithms: a class whose objects are agents that know only their own part of the problem.

An algorithm is a subclass of :class:`DcopAgent` or of :class:`SynchronousAgent`. The runtime makes one agent per
variable (an owner of several variables is one agent for each of them) and runs them in one process
(:mod:`dmcmc.algorithms.simulator`, :mod:`dmcmc.algorithms.rounds`) or on MPI ranks (:mod:`dmcmc.algorithms.ranks`).
Messages between variables of one owner cost nothing.

**What an agent knows.** ``me`` is its number, ``domain`` the number of its values, and ``domains`` the numbers of
values of all variables in its constraints. ``neighbours`` are the variables that share a constraint with it.
``constraints`` are its cost functions (:class:`Constraint`). ``given`` has the parameters, and ``random`` draws
random numbers, the same ones for the same seed on any number of ranks. Agents have no names but their numbers.

**Costs** are whole numbers from 0, to be minimised, whatever the sense of the problem. The best entry of each
constraint has cost 0. A forbidden entry costs ``violation`` or more, which exceeds the sum of all costs without
forbidden entries. Each entry that an agent reads counts as a constraint check. ``count`` counts other logical
operations.

**What an agent does.** It sets ``value``, its value now (None before the first), and calls ``send``, ``tell`` (all
neighbours), ``wake`` and ``finish``. The content of a message is a number, text, None, an array, or a tuple, list or
dictionary of these. A receiver must not change it. Messages between two agents arrive in the order in which they were
sent.

An asynchronous agent has ``start``, called once, ``on_message(sender, kind, content)`` and ``on_wake()``. A run ends
when all agents have called ``finish``, or when there are no messages and no wake-ups left. A synchronous agent has
``run``, a generator. Each ``yield`` ends a round of messages and returns those that have arrived: ``{sender:
content}``. An agent sends at most one message to each neighbour in a round. A cycle is ``rounds`` rounds; an agent
finishes when ``run`` returns.

**What the class declares.** ``name``, ``summary``, ``paper``; ``kind`` (``complete``, ``local``, ``message passing`` or
``sampling``); ``parameters``; ``proves``: whether the values are optimal once all agents have finished; and
``structure``, in which agents may ask for an order of all agents:

* ``graph``: none.
* ``tree``: a pseudo-tree, in which neighbours are ancestor and descendant. ``parent`` (None for a root), ``children``,
  ``ancestors`` (all of them, the root first), ``pseudo_parents`` and ``pseudo_children`` (neighbours above and below
  that are neither parent nor child), ``separator`` (ancestors that share a constraint with this agent or one of its
  descendants, the root first).
* ``spanning tree``: ``parent`` and ``children`` in a tree of shortest paths from the lowest variable.
* ``order``: ``order``, all agents, the first one first. An agent may send messages to all of them.

``own_constraints`` are the constraints for whose cost this agent answers: those whose other variables all come before
it (are its ancestors, with a tree). Each constraint is in ``own_constraints`` of exactly one agent.

The shortest examples are MGM in :mod:`dmcmc.algorithms.mgm` (in rounds) and :mod:`dmcmc.algorithms.syncbb` (by
messages).
"""

from array import array
from collections.abc import Generator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms.contract import Algorithm, Parameter, Value
from dmcmc.inference.runtime.types import Ints

EVERYONE = -1  # receiver of a message to all neighbours
ANYTIME = {"anytime": Parameter(False, text="agents find the best assignment of the run themselves, by ALS")}

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15  # of the counter, from SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)
_FACTORS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _mixed(bits: int) -> int:
    """Return 64 random-looking bits of a 64-bit number: the output function of SplitMix64."""
    bits = (bits ^ bits >> 30) * _FACTORS[0] & _MASK
    bits = (bits ^ bits >> 27) * _FACTORS[1] & _MASK
    return bits ^ bits >> 31


class Random:
    """Random numbers of one variable: the i-th one depends on the seed, the variable and i only.

    Parameters
    ----------
    seed, variable : int
        Seed of the run, and number of the variable.
    """

    __slots__ = ("_state",)

    def __init__(self, seed: int, variable: int) -> None:
        self._state = _mixed((_mixed(seed & _MASK) + variable * _STEP) & _MASK)

    def __call__(self) -> float:
        """Return a uniform random number in [0, 1)."""
        self._state = self._state + _STEP & _MASK
        return (_mixed(self._state) >> 11) * 2.0**-53

    def below(self, limit: int) -> int:
        """Return a uniform random whole number from 0 to ``limit`` - 1."""
        return int(self() * limit)


class AllRandom:
    """The random numbers of all variables as arrays, for compiled algorithms: the same as those of :class:`Random`.

    Its methods are those of a NumPy generator that the compiled algorithms use.

    Parameters
    ----------
    seed, n : int
        Seed of the run, and number of variables.
    """

    def __init__(self, seed: int, n: int) -> None:
        self._state = np.array([Random(seed, v)._state for v in range(n)], dtype=np.uint64)

    def random(self, size: Any = None) -> NDArray[np.float64]:
        """Return the next random number of each variable, (n,), or the next k numbers of each, (n, k), by ``size``."""
        draws = size[1] if isinstance(size, tuple) else 1
        numbers = np.empty((self._state.size, draws))
        for i in range(draws):
            self._state += np.uint64(_STEP)
            bits = self._state ^ self._state >> np.uint64(30)
            bits *= np.uint64(_FACTORS[0])
            bits = (bits ^ bits >> np.uint64(27)) * np.uint64(_FACTORS[1])
            numbers[:, i] = ((bits ^ bits >> np.uint64(31)) >> np.uint64(11)) * 2.0**-53
        return numbers if isinstance(size, tuple) else numbers[:, 0]

    def integers(self, low: Ints, *, dtype: Any = np.int64) -> Ints:
        """Return a whole number from 0 to ``low[v]`` - 1 for each variable v, shape (n,)."""
        return np.asarray(self.random() * low, dtype=dtype)


class Meter:
    """The logical clocks of one agent.

    Attributes
    ----------
    checks, operations : int
        Non-concurrent constraint checks (Meisels et al. 2002), and non-concurrent logical operations, which include the
        checks (Netzer, Grubshtein, Meisels 2012). A message sets both to at least the sender's clocks.
    chain : int
        Length of the longest chain of messages that ends here.
    """

    __slots__ = ("chain", "checks", "operations")

    def __init__(self) -> None:
        self.checks = self.operations = self.chain = 0


class Constraint:
    """A cost function of one agent. Reading an entry counts as a constraint check.

    Attributes
    ----------
    scope : tuple of int
        Variables of the constraint, the agent's own one last.
    others : tuple of int
        The variables without the agent's own.
    """

    __slots__ = ("_entries", "_meter", "_shape", "_strides", "others", "scope")

    def __init__(self, scope: Sequence[int], costs: Ints, meter: Meter) -> None:
        self.scope, self.others = tuple(scope), tuple(scope[:-1])
        self._shape, self._meter = costs.shape, meter
        self._strides = tuple(stride // costs.itemsize for stride in costs.strides[:-1])
        self._entries = array("q", costs.tobytes())

    def costs(self, values: Mapping[int, int]) -> Sequence[int]:
        """Return the cost of each of the agent's values, given the values of the other variables (a check each)."""
        at, size = 0, self._shape[-1]
        for v, stride in zip(self.others, self._strides, strict=True):
            at += values[v] * stride
        self._meter.checks += size
        self._meter.operations += size
        return self._entries[at : at + size]

    def cost(self, values: Mapping[int, int]) -> int:
        """Return the cost of an assignment to all variables of the scope (one check)."""
        at = values[self.scope[-1]]
        for v, stride in zip(self.others, self._strides, strict=True):
            at += values[v] * stride
        self._meter.checks += 1
        self._meter.operations += 1
        return self._entries[at]

    def place_of(self, values: Sequence[int] | Ints) -> tuple[int, int, Sequence[int]]:
        """Return the index of the entry of some values of all variables, the own value, and all entries; no check.

        It is for the runtime, which evaluates assignments without an agent's knowledge.
        """
        at = own = int(values[self.scope[-1]])
        for v, stride in zip(self.others, self._strides, strict=True):
            at += int(values[v]) * stride
        return at, own, self._entries

    def table(self) -> Ints:
        """Return a copy of all costs; axis i belongs to ``scope[i]`` (a check for each entry)."""
        self._meter.checks += len(self._entries)
        self._meter.operations += len(self._entries)
        return np.array(self._entries, dtype=np.int64).reshape(self._shape)


class Place(NamedTuple):
    """An agent's part of the problem, as it gets it before it starts; the module's text explains the fields.

    Attributes
    ----------
    me, domain, violation : int
        Number of the variable, number of its values, and the least cost of a forbidden entry.
    domains : dict of int to int
        Number of values of each variable in the agent's constraints.
    neighbours : tuple of int
        Variables that share a constraint, in ascending order.
    constraints, own_constraints : tuple of Constraint
        The agent's constraints, and those that it answers for.
    parent : int or None
        Parent in the pseudo-tree.
    children, ancestors, pseudo_parents, pseudo_children, separator, order : tuple of int
        Other agents, by their place in the tree or the order; empty if the algorithm has not asked for it.
    """

    me: int
    domain: int
    violation: int
    domains: Mapping[int, int]
    neighbours: tuple[int, ...]
    constraints: tuple[Constraint, ...]
    own_constraints: tuple[Constraint, ...]
    parent: int | None = None
    children: tuple[int, ...] = ()
    ancestors: tuple[int, ...] = ()
    pseudo_parents: tuple[int, ...] = ()
    pseudo_children: tuple[int, ...] = ()
    separator: tuple[int, ...] = ()
    order: tuple[int, ...] = ()


class DcopAgent:
    """An agent of an asynchronous algorithm; see the module's text for the interface.

    Parameters
    ----------
    place : Place
        The agent's part of the problem.
    given : mapping of str to int, float or str
        Values of all parameters.
    random : Random
        The agent's random numbers.
    meter : Meter
        Its logical clocks.

    Attributes
    ----------
    cycles : int
        Number of cycles without a time budget and a setting; 0 for no limit (complete algorithms). A cycle of an
        asynchronous algorithm is one message longer in the longest chain of messages.
    compiled : Algorithm or None
        The same algorithm for all variables at once, which gives the same run.
    """

    name: ClassVar[str] = ""
    summary: ClassVar[str] = ""
    paper: ClassVar[str] = ""
    kind: ClassVar[str] = "local"
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    proves: ClassVar[bool] = False
    structure: ClassVar[str] = "graph"
    cycles: ClassVar[int] = 200
    compiled: ClassVar[Algorithm | None] = None

    def __init__(self, place: Place, given: Mapping[str, Value], random: Random, meter: Meter) -> None:
        (self.me, self.domain, self.violation, self.domains, self.neighbours, self.constraints) = place[:6]
        (self.own_constraints, self.parent, self.children, self.ancestors) = place[6:10]
        (self.pseudo_parents, self.pseudo_children, self.separator, self.order) = place[10:]
        self.given, self.random, self.meter = given, random, meter
        self.value: int | None = None
        self.outbox: list[tuple[int, str, Any, int, int]] = []
        self.wakes: list[float] = []
        self.finished = False

    def start(self) -> None:
        """Begin: choose a first value, and send the first messages."""

    def on_message(self, sender: int, kind: str, content: Any) -> None:
        """Answer a message."""
        raise NotImplementedError(f"{type(self).__name__} receives {kind} and has no on_message")

    def on_wake(self) -> None:
        """Act at the end of the time that :meth:`wake` has named."""

    def send(self, receiver: int, kind: str, content: Any = None) -> None:
        """Send a message to one agent."""
        self.outbox.append((receiver, kind, content, self.meter.checks, self.meter.operations))

    def tell(self, kind: str, content: Any = None) -> None:
        """Send the same message to all neighbours."""
        self.outbox.append((EVERYONE, kind, content, self.meter.checks, self.meter.operations))

    def wake(self, after: float) -> None:
        """Ask for a call of :meth:`on_wake` after this time, in the unit of message delays."""
        self.wakes.append(after)

    def finish(self) -> None:
        """End the agent's part of the run; later messages to it are dropped."""
        self.finished = True

    def count(self, operations: int) -> None:
        """Count logical operations other than constraint checks."""
        self.meter.operations += operations

    def costs(self, view: Mapping[int, int]) -> list[int]:
        """Return the cost of each own value: the sum of the constraints all of whose other variables are in ``view``.

        Parameters
        ----------
        view : mapping of int to int
            Known values of other variables.
        """
        rows = [c.costs(view) for c in self.constraints if all(v in view for v in c.others)]
        return list(map(sum, zip(*rows, strict=True))) if rows else [0] * self.domain


class SynchronousAgent(DcopAgent):
    """An agent that works in rounds of messages.

    Attributes
    ----------
    rounds : int
        Rounds of a cycle.
    optimal_for : int
        1 or 2 if the run ends as soon as no single variable, or no pair of neighbours, can gain anything. The runtime
        looks at this after a cycle in which no value changes. 3 if the run ends after such a cycle, because agents look
        at all moves in each cycle. 0 if the agents decide.
    """

    rounds: ClassVar[int] = 1
    optimal_for: ClassVar[int] = 0

    @classmethod
    def rounds_of(cls, given: Mapping[str, Value]) -> int:
        """Return the rounds of a cycle with the given parameters."""
        return cls.rounds

    def run(self) -> Generator[None, dict[int, Any], None]:
        """Work; each ``yield`` ends a round and returns the messages of the neighbours, ``{sender: content}``."""
        raise NotImplementedError(f"{type(self).__name__} has no run")
