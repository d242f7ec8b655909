"""Divide a problem among its agents: local problems and crossing factors (DMCMC paper, Definitions 1-2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.elimination.plan import Plan, plan_elimination
from dmcmc.inference.model.compact_sequences import Groups
from dmcmc.inference.model.flat_tables import FlatTables, flatten
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import magnitude
from dmcmc.inference.orders.best_order import SEARCH_LONG, Order, best_order, order_as_given
from dmcmc.inference.runtime.deadline import NO_STOP, Stop
from dmcmc.inference.runtime.memo import Known, Memo, digest

_SEARCH = 1_000_000  # words of search for an order: there may be many agents, and ten times that gains 0.2 % of cells
_ORDERS = Memo[Order]()  # by agents' shapes; variables are places among the hidden ones


@dataclass(frozen=True)
class LocalProblem:
    """One agent's own part: ⟨L_i, F_i⟩ with L_i divided into interface B_i and hidden variables H_i.

    Attributes
    ----------
    agent : int
    interface, hidden : tuple of int
        Variable indices of the problem, ascending.
    factors : tuple of Factor
        F_i: the factors with non-empty scope inside L_i; scopes are variable indices of the problem.
    domains : ndarray of int64
        Domain sizes of all variables of the problem.
    search : float
        The most words of search for an order.
    stop : Stop
        Ends that search early; what begins later looks at the plain rules alone.
    given : tuple of int or None
        The hidden variables in the order that somebody wants; None to search for one.
    tables : FlatTables or None
        The factors' tables where those lie in one piece of the problem's, as they do there.
    """

    agent: int
    interface: tuple[int, ...]
    hidden: tuple[int, ...]
    factors: tuple[Factor, ...]
    domains: NDArray[np.int64]
    search: float = SEARCH_LONG
    stop: Stop = NO_STOP
    given: tuple[int, ...] | None = None
    tables: FlatTables | None = field(default=None, compare=False, repr=False)

    @cached_property
    def known(self) -> Known:
        """What has been worked out of agents that differ from it in their entries alone."""
        return Known()

    def take_known(self, known: Known) -> None:
        """Take what has been worked out of such agents."""
        self.__dict__["known"] = known

    @property
    def flat(self) -> FlatTables:
        """All tables in one array, in the order of the factors; a copy where they do not lie so already."""
        if self.tables is not None:
            return self.tables
        return flatten([f.scope for f in self.factors], [f.table for f in self.factors])

    @property
    def shape(self) -> bytes:
        """A few bytes that stand for its graph and domain sizes: agents for which they are equal are planned alike."""
        return self.known.once("shape", self._shape)

    def _shape(self) -> bytes:
        variables = np.array([*self.hidden, *self.interface], dtype=np.int64)
        place = {v: i for i, v in enumerate(variables.tolist())}
        lengths = np.array([len(self.hidden), *(len(f.scope) for f in self.factors)], dtype=np.int64)
        inner = np.array([place[v] for f in self.factors for v in f.scope], dtype=np.int64)
        return digest(self.domains[variables], lengths, inner)

    @cached_property
    def interface_shape(self) -> tuple[int, ...]:
        """Domain sizes of the interface variables."""
        return self.known.once("interface", lambda: tuple([int(self.domains[v]) for v in self.interface]))

    @property
    def rows(self) -> int:
        """Number of interface assignments."""
        return self.known.once("rows", lambda: prod(self.interface_shape))

    @property
    def entries(self) -> int:
        """Entries of the factors' tables."""
        return self.known.once("entries", lambda: sum([f.table.size for f in self.factors]))

    @cached_property
    def order(self) -> Order:
        """How the hidden variables are best eliminated with the interface kept."""
        if self.given is not None:
            return order_as_given([f.scope for f in self.factors], self.domains, self.given, self.interface)
        # An agent that shares nothing is mostly the whole problem.
        over = self.stop is not NO_STOP and self.stop.over
        budget = min(self.search, _SEARCH if self.interface else SEARCH_LONG, 0.0 if over else np.inf)
        own: Order | None = self.known.find(("order", budget))
        if own is not None:
            return own
        known = _ORDERS.find((self.shape, budget))
        if known is not None:
            return self.known.once(("order", budget), lambda: self._renamed(known))
        scopes = [f.scope for f in self.factors]
        found = best_order(scopes, self.domains, self.hidden, self.interface, budget=budget, stop=self.stop)
        if not self.stop.over:  # else it may depend on the clock
            places = {v: place for place, v in enumerate(self.hidden)}
            _ORDERS.put((self.shape, budget), replace(found, variables=tuple([places[v] for v in found.variables])))
        return found

    def _renamed(self, order: Order) -> Order:
        """Return an order of places among the hidden variables as one of those."""
        return replace(order, variables=tuple([self.hidden[place] for place in order.variables]))

    def take_order(self, order: Order) -> None:
        """Take an order that was found elsewhere, in place of another search."""
        self.__dict__["order"] = order

    @cached_property
    def plan(self) -> Plan:
        """What that elimination does."""
        order = self.order.variables
        return self.known.once(("plan", order), lambda: self._planned(order))

    def _planned(self, order: tuple[int, ...]) -> Plan:
        return plan_elimination([f.scope for f in self.factors], self.domains, order, self.interface)


@dataclass(frozen=True)
class Division:
    """A problem divided: ``locals`` has one entry an agent; ``crossing`` the factors over several agents."""

    locals: Sequence[LocalProblem]
    crossing: Sequence[Factor]
    constants: tuple[Factor, ...]

    @cached_property
    def scopes(self) -> Sequence[tuple[int, ...]]:
        """The scopes of the factors over several agents."""
        return Groups.of(factor.scope for factor in self.crossing)

    def take_scopes(self, scopes: Sequence[tuple[int, ...]]) -> None:
        """Take these scopes, which are known without the factors."""
        self.__dict__["scopes"] = scopes

    @cached_property
    def magnitudes(self) -> tuple[list[int | float], list[int | float]]:
        """Σ over each agent's factors of the largest finite |entry|, and that entry of each crossing factor."""
        own = [sum(magnitude(f.table) for f in local.factors) for local in self.locals]
        return own, [magnitude(f.table) for f in self.crossing]

    @cached_property
    def values(self) -> float:
        """How many values variables have that agents share, on average: what everybody may know."""
        shared = [v for local in self.locals for v in local.interface]
        return float(self.locals[0].domains[shared].mean()) if shared else 1.0

    def searching(self, words: float, stop: Stop) -> "Division":
        """Return the same with at most so many words of search for each agent's order, until it is time to end."""
        found = replace(self, locals=tuple(replace(local, search=words, stop=stop) for local in self.locals))
        found.__dict__.update({name: self.__dict__[name] for name in ("magnitudes", "values") if name in self.__dict__})
        return found

    def ordered(self, rank: Mapping[int, int]) -> "Division":
        """Return the same with each agent's hidden variables eliminated by ascending rank."""
        given = (tuple(sorted(local.hidden, key=rank.__getitem__)) for local in self.locals)
        pairs = zip(self.locals, given, strict=True)
        return replace(self, locals=tuple(replace(local, given=order) for local, order in pairs))


_CROSSING, _CONSTANT = -1, -2  # in place of a factor's agent


class _Parts(NamedTuple):
    """How problems of one shape are divided.

    Attributes
    ----------
    factors : list of list of int
        Numbers of constants, of what crosses agents, and of each agent's own factors.
    interfaces, hidden : list of tuple of int
        Each agent's variables.
    known : list of Known
        What has been worked out of each agent.
    pieces : list of _Piece or None
        Where each agent's tables lie in the problem's, if in one piece.
    """

    factors: list[list[int]]
    interfaces: list[tuple[int, ...]]
    hidden: list[tuple[int, ...]]
    known: list[Known]
    pieces: "list[_Piece | None]"


class _Piece(NamedTuple):
    """Tables in one piece of a problem's: how they lie there, without their entries, and where these begin and end."""

    layout: FlatTables
    begin: int
    end: int


def divide(problem: Problem) -> Division:
    """Divide a problem among its agents."""
    flat: FlatTables | None = problem.__dict__.get("flat")  # where all tables lie in one array already
    parts = _parts_of(problem, None) if flat is None else problem.kin.once("parts", lambda: _parts_of(problem, flat))
    constants, crossing, *own = (tuple([problem.factors[number] for number in part]) for part in parts.factors)

    def tables(agent: int) -> FlatTables | None:
        piece = parts.pieces[agent] if flat is not None else None
        if flat is None or piece is None:
            return None
        return FlatTables(*piece.layout[:3], flat.data[piece.begin : piece.end])

    locals_ = tuple(
        LocalProblem(agent, interface, hidden, own[agent], problem.domains, tables=tables(agent))
        for agent, (interface, hidden) in enumerate(zip(parts.interfaces, parts.hidden, strict=True))
    )
    for local, known in zip(locals_, parts.known, strict=True):
        local.take_known(known)
    return Division(locals_, crossing, constants)


def _parts_of(problem: Problem, flat: FlatTables | None) -> _Parts:
    """Find out which agents have which factors and variables."""
    agent_of = _agents_of_factors(problem, flat)
    whole = np.argsort(agent_of, kind="stable")  # of each agent in their order
    begins = np.searchsorted(agent_of[whole], np.arange(_CONSTANT, problem.n_agents + 1)).tolist()
    factors = [whole[begin:end].tolist() for begin, end in pairwise(begins)]
    shared = {v for number in factors[_CROSSING - _CONSTANT] for v in problem.factors[number].scope}
    variables: list[list[int]] = [[] for _ in problem.agents]
    for v, agent in enumerate(problem.owner.tolist()):
        variables[agent].append(v)
    interfaces = [tuple([v for v in own if v in shared]) for own in variables]
    hidden = [tuple([v for v in own if v not in shared]) for own in variables]
    pieces = [None if flat is None else _piece_of(flat, own) for own in factors[-_CONSTANT:]]
    return _Parts(factors, interfaces, hidden, [Known() for _ in variables], pieces)


def _piece_of(flat: FlatTables, numbers: Sequence[int]) -> _Piece | None:
    """Return the piece that some tables, ascending, are of flat ones; None where others lie between them."""
    if numbers and numbers[-1] - numbers[0] >= len(numbers):
        return None
    first, last = (numbers[0], numbers[-1] + 1) if numbers else (0, 0)
    part = flat.part(first, last)
    return _Piece(part._replace(data=part.data[:0].copy()), int(flat.at[first]), int(flat.at[last]))


def _agents_of_factors(problem: Problem, flat: FlatTables | None) -> NDArray[np.int64]:
    """Return the agent that has all variables of a factor, for each factor; or why there is none."""
    if flat is not None and flat.tables and np.diff(flat.scope_start).all():
        owner, starts = problem.owner[flat.scope], flat.scope_start[:-1]
        first, last = np.minimum.reduceat(owner, starts), np.maximum.reduceat(owner, starts)
        return np.where(first == last, first, _CROSSING)
    owners, found = problem.owner.tolist(), np.full(len(problem.factors), _CONSTANT, dtype=np.int64)
    for number, factor in enumerate(problem.factors):
        if factor.scope:
            agents = {owners[v] for v in factor.scope}
            found[number] = agents.pop() if len(agents) == 1 else _CROSSING
    return found


def agent_scopes(factors: Sequence[Factor], owner: NDArray[np.int64]) -> list[tuple[int, ...]]:
    """Return the agents that each factor touches, ascending."""
    return [tuple(sorted({int(owner[v]) for v in factor.scope})) for factor in factors]
