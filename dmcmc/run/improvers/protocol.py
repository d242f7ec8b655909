"""What a kind of work is: it says what it could do and what that takes, and does what it is granted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.types import Number
from dmcmc.run.agent.agent import Agent
from dmcmc.run.scheduler.proposal import Brought, Grant, Offer


@dataclass(frozen=True)
class Standing:
    """What a rank has after a cycle: what offers are made from.

    Attributes
    ----------
    agents : dict of Agent
        This rank's.
    first : bool
        Whether this is rank 0, which offers the search for all ranks.
    again : float or None
        About what it takes to combine again with larger tables, seconds; None where that would change nothing here.
    beside : bool
        Whether a search engine, beside this rank, may still bring something.
    on_gpu : bool
        Likewise a search on the GPU.
    gaps : dict
        Their parts of the gap, utility; None where that is not known.
    """

    agents: Mapping[int, Agent]
    gaps: Mapping[int, float | None]
    first: bool = True
    again: float | None = None
    beside: bool = False
    on_gpu: bool = False

    def gain(self, number: int) -> float:
        """Return the part of the gap that is an agent's; inf where that is not known."""
        gap = self.gaps[number]
        return float("inf") if gap is None else max(0.0, gap)


@dataclass
class Turn:
    """An agent's turn in a slice of time.

    Attributes
    ----------
    outside : (rows,) encoded, or None
        At most what all others add to each row.
    threshold
        What the whole has to exceed to be better than the best known; None if anything would be.
    limits : (rows,) or None
        What each row has to exceed.
    took : float
        Seconds so far.
    """

    agent: Agent
    outside: NDArray[Any] | None
    threshold: Number | None
    limits: NDArray[Any] | None = None
    took: float = 0.0


@dataclass
class Slice:
    """A slice of time on one rank.

    Attributes
    ----------
    turns : dict of Turn
        Of this rank's agents.
    gap : callable
        Returns an agent's part of the gap as its table is now.
    backend : Backend
        Ends when all of it has to end: there is time left to combine then.
    search : callable
        Searches for some seconds, with all ranks; returns what the best assignment is better by.
    enlarge : callable
        Lets the next combination have larger tables, in about some seconds.
    wait : callable
        Waits for what a search engine brings, some seconds at most; all ranks do.
    best : (n,) int64 or None
        Values of the best assignment so far, if it breaks nothing.
    brought : list of Brought
        What came of it so far.
    """

    turns: Mapping[int, Turn]
    gap: Callable[[Agent], float | None]
    backend: Backend
    search: Callable[[float], float]
    enlarge: Callable[[float], None]
    wait: Callable[[float], None]
    best: NDArray[np.int64] | None = None
    brought: list[Brought] = field(default_factory=list)

    def own(self, grants: Iterable[Grant]) -> list[tuple[Turn, float]]:
        """Return the turns of this rank's agents among those that are granted something, with their seconds."""
        return [(self.turns[g.agent], g.seconds) for g in grants if g.agent is not None and g.agent in self.turns]

    def enter(self, kind: str, turn: Turn, before: float | None, seconds: float, estimated: float = 0.0) -> None:
        """Note what an agent's turn has taken, and what its bound has closed of a gap; None where it is another's."""
        turn.took += seconds
        after = self.gap(turn.agent)
        closed = 0.0 if before is None or after is None else max(0.0, before - after)
        self.brought.append(Brought(kind, seconds, estimated, closed))


class Kind(Protocol):
    """A kind of work: an object with a name, which makes offers and carries out what is granted."""

    @property
    def name(self) -> str:
        """What traces and summaries call it."""
        ...

    def offers(self, standing: Standing) -> list[Offer]:
        """Return what could be done for this rank's agents."""
        ...

    def carry_out(self, slice: Slice, grants: Sequence[Grant]) -> None:
        """Do what is granted, and enter what came of it. What is done for agents must not wait for other ranks."""
        ...
