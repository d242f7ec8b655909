"""Between two cycles: this rank's agents get their parts of some seconds, where the gap is."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.tighten import Allowance, Tightened, tighten
from dmcmc.inference.dpop.util_and_value import UtilMessage
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.parts import Parts
from dmcmc.inference.runtime.types import Number
from dmcmc.mpi.phases import Chosen
from dmcmc.run.agent.agent import Agent
from dmcmc.run.agent.rows import rows_of
from dmcmc.run.cycle import Sides
from dmcmc.run.incumbent import Directive
from dmcmc.run.metrics import gap_at
from dmcmc.run.setup import Setup

_SETTLED = 0.2  # of the time for a bound goes to the elimination of what it leaves of rows


@dataclass
class _Turn:
    """An agent's turn.

    Attributes
    ----------
    outside : (rows,) encoded, or None
        At most what all others add to each row.
    threshold
        What the whole has to exceed to be better than the best known; None if anything would be.
    sampling, bounding : float
        Seconds that it is given for each.
    limits : (rows,) or None
        What each row has to exceed.
    took : float
        Seconds so far.
    """

    agent: Agent
    outside: NDArray[Any] | None
    threshold: Number | None
    sampling: float
    bounding: float
    limits: NDArray[Any] | None = None
    took: float = 0.0

    def look(self) -> None:
        """Find out which rows can still matter."""
        start = time.perf_counter()
        self.limits = self.agent.look(self.outside, self.threshold)
        self.took += time.perf_counter() - start

    def sample(self, seconds: float) -> None:
        """Sample on."""
        start = time.perf_counter()
        self.agent.sample(self.outside, seconds)
        self.took += time.perf_counter() - start

    def settle(self, tightened: Tightened) -> None:
        """Take in what has become of the bound."""
        start = time.perf_counter()
        self.agent.settle(self.limits, tightened, _SETTLED * self.bounding)
        self.took += tightened.seconds + time.perf_counter() - start


def improve_agents(
    setup: Setup,
    agents: Mapping[int, Agent],
    chosen: Mapping[int, Chosen],
    outsides: Mapping[int, UtilMessage],
    sides: Sides,
    directive: Directive,
) -> bool:
    """Give this rank's agents their parts of some seconds, by what each contributes to the gap.

    All look which of their rows can still matter, then sample on, then their bounds get tighter.

    Parameters
    ----------
    chosen
        Each agent's interface values in the last cycle.
    outsides
        What all others add to an agent's rows, as ``sides`` index them; empty where that is not known.

    Returns
    -------
    bool
        Whether rows were pruned.
    """
    before = sum(agent.pruning.count for agent in agents.values())
    shares, roots = _shares(setup, agents, chosen), roots_of(setup)
    turns = []
    for number, agent in agents.items():
        outside = None
        if number in outsides and agent.enumerated:
            outside = _outside_rows(setup, agent, outsides[number], sides)
        sampling, bounding = _seconds(agent, shares[number], setup.backend, directive)
        turns.append(_Turn(agent, outside, directive.thresholds.get(roots[number]), sampling, bounding))
    for turn in turns:
        turn.look()
    parts = Parts([turn.sampling for turn in turns])
    for turn in turns:
        turn.sample(parts.next())
    _tighten(turns, setup.backend)
    for turn in turns:
        turn.agent.finish(directive.best, turn.took)
    return sum(agent.pruning.count for agent in agents.values()) > before


def _shares(setup: Setup, agents: Mapping[int, Agent], chosen: Mapping[int, Chosen]) -> dict[int, float]:
    """Return each agent's share of the time: by its part of the gap, if its table can get better."""
    shares = {}
    for number, agent in agents.items():
        gap = gap_at(agent.exported(), chosen[number], setup.arithmetic)
        shares[number] = 0.0 if not agent.may_improve else 1.0 if gap is None else max(0.0, gap)
    if not any(shares.values()):
        shares = {number: float(agent.may_improve) for number, agent in agents.items()}
    total = sum(shares.values())
    return {number: share / total if total > 0 else 0.0 for number, share in shares.items()}


def _seconds(agent: Agent, share: float, backend: Backend, directive: Directive) -> tuple[float, float]:
    """Return what an agent gets for sampling, and for its bound."""
    seconds = 0.0 if backend.stop.asked else directive.seconds * share
    sampled = 1.0 if agent.above.exhausted else 0.0 if agent.below.exhausted else directive.sampled
    return seconds * sampled, seconds * (1 - sampled)


def _tighten(turns: Sequence[_Turn], backend: Backend) -> None:
    """Make the bounds tighter that are given time for it."""
    bounded = [turn for turn in turns if turn.bounding > 0]
    requests = [turn.agent.request(turn.limits) for turn in bounded]
    seconds = [
        turn.bounding if request.thresholds is None else (1 - _SETTLED) * turn.bounding
        for turn, request in zip(bounded, requests, strict=True)
    ]
    allowance = Allowance(sum(turn.bounding for turn in bounded) * backend.threads, seconds, pass_on=True)
    for turn, tightened in zip(bounded, tighten(requests, backend, allowance), strict=True):
        turn.settle(tightened)


def _outside_rows(setup: Setup, agent: Agent, tables: UtilMessage, sides: Sides) -> NDArray[Any]:
    """Return what the others add at most to each of an agent's rows; −∞ for rows that are not listed any more."""
    number, upper = agent.local.agent, sides.upper
    if number not in upper.rows:
        return agent.rows(tables)
    listed = rows_of(tables, (upper.variable(number),), upper.sizes, setup.arithmetic)
    full = np.full(agent.local.rows, setup.arithmetic.lowest, dtype=listed.dtype)
    full[np.ravel_multi_index(tuple(upper.rows[number].T), agent.local.interface_shape)] = listed
    return full


def roots_of(setup: Setup) -> dict[int, int]:
    """Return the root of each agent's component."""
    root: dict[int, int] = {}
    for agent in reversed(setup.tree.bottom_up):
        parent = setup.tree.parent[agent]
        root[agent] = agent if parent < 0 else root[parent]
    return root
