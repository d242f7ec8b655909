"""The agents of a local DCOP algorithm: their values and scores, the exchange between ranks, and the message counts.

An algorithm of ``dmcmc.algorithms`` controls one variable at a time, and calls the methods of ``AgentNetwork`` for
everything that agents would do by messages. Agents are distributed over MPI ranks; n is the number of variables.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dmcmc.algorithms import local_kernels as kernels
from dmcmc.algorithms.layout import ColumnLayout, build_layout
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.types import Ints
from dmcmc.mpi.compute_node import place_agents
from dmcmc.mpi.world import World

BYTES = 8  # bytes of one value, gain, utility, index or flag in a message
_LOWEST = -(2**62)  # score of entries that are not computed: below every sum of table entries


class Draws(Protocol):
    """What algorithms draw random numbers from: a NumPy generator, or the agents' own random numbers."""

    def random(self, size: Any = None) -> Any:
        """Return uniform random numbers in [0, 1)."""

    def integers(self, low: Any, *, dtype: Any = np.int64) -> Any:
        """Return uniform random whole numbers from 0 to below each limit."""


class SentByAgent(NamedTuple):
    """The messages of one kind.

    Attributes
    ----------
    messages, bytes : (agents,) int64
        Messages that each agent has sent, and their bytes.
    """

    messages: Ints
    bytes: Ints


class AgentNetwork:
    """The agents that an algorithm controls. Each rank computes for its own agents; all ranks know all values.

    Attributes
    ----------
    problem : Problem
        Problem with dense tables.
    layout : ColumnLayout
        The tables as integers; a violated hard constraint costs more than all utilities together.
    world : World
        The ranks.
    place : tuple of int
        Rank of each agent.
    source, neighbour : (pairs,) int64
        First and second variable of all ordered pairs of variables that share a factor, sorted by ``source``.
    parallel : float
        Simulated time per unit of this rank's time: the share of this rank's work in a cycle that its busiest agent
        does, as if each agent had its own machine. An algorithm that works sequentially sets it to 1.
    total_messages, total_bytes : int
        Messages so far of the agents that this rank counts, and their bytes: all agents where an algorithm is compiled
        for all variables at once, else those of this rank.
    all_messages, all_bytes : int
        The same for all ranks, at their last exchange.
    checks, operations : int
        Non-concurrent constraint checks and logical operations so far.
    simulated, delayed : float
        Simulated time of classes of agents so far: with computation, and by delays of messages alone.
    ended : bool
        Whether all agents of a class have finished.
    bound : int or None
        A proven upper bound on the total score of all assignments, in the integer units of the layout.
    """

    def __init__(self, problem: Problem, world: World | None = None) -> None:
        self.problem, self.world = problem, world or World()
        work = _work_per_variable(problem)
        self.place = place_agents(np.bincount(problem.owner, work, problem.n_agents).tolist(), self.world.size)
        rank = np.array(self.place, dtype=np.int64)[problem.owner]
        self._variables_of_rank = [np.flatnonzero(rank == r) for r in range(self.world.size)]
        self.layout: ColumnLayout = build_layout(problem, rank == self.world.rank)
        self.neighbour = self.layout.neighbour
        self.source = np.repeat(np.arange(problem.n_variables), np.diff(self.layout.pair_start))
        self._sent: dict[str, SentByAgent] = {}
        self._counted: dict[str, tuple[list[int], list[int]]] = {}  # messages and bytes of agents of classes
        self.total_messages = self.total_bytes = self.checks = self.operations = 0
        self.all_messages = self.all_bytes = 0
        self.simulated = self.delayed = 0.0
        self.ended = False
        self.bound: int | None = None
        # Messages of one round, (agents,) int64: one per variable and neighbouring agent.
        self._messages_per_round = _count_links(problem, self.source, self.neighbour)
        mine = np.where(self.layout.mine, work, 0.0)
        self.parallel = float(np.bincount(problem.owner, mine, problem.n_agents).max(initial=0) / max(mine.sum(), 1.0))

    def sent_by_kind(self) -> "dict[str, SentByAgent]":
        """Return the messages so far by kind; callable from any thread."""
        counted = {kind: SentByAgent(np.array(c), np.array(s)) for kind, (c, s) in list(self._counted.items())}
        return self._sent | counted

    def count_message(self, kind: str, agent: int, messages: int, size: int) -> None:
        """Count some messages of an agent, and their bytes, one kind at a time."""
        counted = self._counted.get(kind)
        if counted is None:
            counted = self._counted[kind] = [0] * self.problem.n_agents, [0] * self.problem.n_agents
        counted[0][agent] += messages
        counted[1][agent] += size
        self.total_messages += messages
        self.total_bytes += size

    def add_counts(self, messages: int, size: int) -> None:
        """Take the sums of all ranks' counts of messages and bytes."""
        self.all_messages, self.all_bytes = messages, size

    def gather_counts(self) -> None:
        """Take the sums of all ranks' counts of messages of their own agents; called by all ranks."""
        parts = self.world.allgather(self._counted)
        kinds = sorted({kind for part in parts for kind in part})
        sums = {kind: np.array([part[kind] for part in parts if kind in part]).sum(axis=0) for kind in kinds}
        self._counted = {kind: (both[0].tolist(), both[1].tolist()) for kind, both in sums.items()}

    def share_counts(self, other: "AgentNetwork") -> None:
        """Count messages together with those of another network of the same problem."""
        self._sent = other._sent

    def count_messages(self, kind: str, senders: Ints, sizes: "int | Ints" = BYTES) -> None:
        """Count one message per entry of ``senders``.

        Parameters
        ----------
        kind : str
            Kind of the messages, such as ``VALUE``.
        senders : (messages,) int64
            The agent that sends each message.
        sizes : int or (messages,) int64
            Bytes of each message.
        """
        agents, weights = self.problem.n_agents, np.broadcast_to(np.asarray(sizes, dtype=np.float64), senders.shape)
        count = np.bincount(senders, minlength=agents).astype(np.int64)
        self._add(kind, count, np.bincount(senders, weights, agents).astype(np.int64))

    def _add(self, kind: str, count: Ints, size: Ints) -> None:
        """Add each agent's messages and bytes to those of a kind."""
        self.total_messages += int(count.sum())
        self.total_bytes += int(size.sum())
        before = self._sent.get(kind)
        self._sent[kind] = (
            SentByAgent(count, size) if before is None else SentByAgent(before.messages + count, before.bytes + size)
        )

    def sends(self, rounds: int, kind: str = "VALUE", numbers: int = 1) -> None:
        """Count one message from each variable to each agent of its neighbours, in each round.

        Parameters
        ----------
        rounds : int
            Number of rounds.
        kind : str
            Kind of the messages, under which results report them.
        numbers : int
            Numbers in each message.
        """
        count = rounds * self._messages_per_round
        self._add(kind, count, count * BYTES * numbers)

    def start(self, rng: Draws) -> Ints:
        """Return a random assignment, shape (n,), int64."""
        return np.asarray(rng.integers(self.layout.domains, dtype=np.int64), dtype=np.int64)

    def scores(self, values: Ints, layout: ColumnLayout | None = None) -> Ints:
        """Return the score of every value of every variable of this rank, with all other variables fixed.

        Parameters
        ----------
        values : (n,) int64
            Current assignment.
        layout : ColumnLayout, optional
            Tables to use in place of the network's own.

        Returns
        -------
        (n, largest domain) int64
            ``scores[v, d]`` is the sum of the entries of the factors of v if v takes d. Entries beyond the domain of v,
            and all entries of other ranks' variables, are -2**62.
        """
        layout = layout or self.layout
        scores = np.full((values.size, layout.max_domain), _LOWEST, dtype=np.int64)
        kernels.fill_scores(layout, values, scores)
        return scores

    def move(self, values: Ints, scores: Ints, new: Ints, layout: ColumnLayout | None = None) -> None:
        """Assign new values to variables in place, and update the scores.

        Parameters
        ----------
        values, new : (n,) int64
            Current assignment, which is overwritten, and the new one.
        scores : (n, largest domain) int64
            Scores of :meth:`scores`, which are updated.
        layout : ColumnLayout, optional
            Tables to use in place of the network's own.
        """
        kernels.set_values(layout or self.layout, values, scores, new)

    def best_moves(self, values: Ints, scores: Ints) -> tuple[Ints, Ints]:
        """Return each variable's best value (the lowest index at a tie) and its gain, both (n,) int64, on all ranks."""
        variables = np.arange(values.size)
        best = scores.argmax(axis=1) if values.size else values
        moves: tuple[Ints, Ints] = self.tell(best, scores[variables, best] - scores[variables, values])
        return moves

    def leads(self, gain: Ints, partner: Ints | None = None) -> NDArray[np.bool_]:
        """Return which variables gain more than all their neighbours, (n,) bool; at a tie the lowest index wins.

        The variables that lead can move at the same time without conflict (the selection rule of MGM).

        Parameters
        ----------
        gain : (n,) int64
            Gain of each variable's best move.
        partner : (n,) int64, optional
            Variable that moves jointly with each variable, or -1. Partners do not compete with each other; at a tie a
            pair has the lower index of both.
        """
        rank_in_tie = np.arange(gain.size)
        loses = gain[self.neighbour] > gain[self.source]
        if partner is not None:
            rank_in_tie = np.where(partner >= 0, np.minimum(rank_in_tie, partner), rank_in_tie)
        loses |= (gain[self.neighbour] == gain[self.source]) & (rank_in_tie[self.neighbour] < rank_in_tie[self.source])
        if partner is not None:
            loses &= partner[self.source] != self.neighbour
        beaten = np.zeros(gain.size, dtype=np.bool_)
        beaten[self.source[loses]] = True
        return ~beaten

    def near(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which variables are flagged or have a flagged neighbour, shape (n,), bool."""
        flagged_nearby = flags.copy()
        flagged_nearby[self.source[flags[self.neighbour]]] = True
        return flagged_nearby

    def total_score(self, values: Ints) -> int:
        """Return the total score of an assignment, in the integer units of the layout."""
        return sum(self.world.allgather(int(kernels.total_score(self.layout, values))))

    def tell(self, *rows: NDArray[Any]) -> Any:
        """Exchange arrays between ranks: return copies in which each variable's row comes from the rank that owns it.

        Called by all ranks. On a single rank the arrays themselves are returned.

        Parameters
        ----------
        rows : arrays of shape (n, ...)
            One row per variable; each rank sends the rows of its own variables.
        """
        if self.world.size == 1:
            return rows
        mine = self._variables_of_rank[self.world.rank]
        merged = tuple(row.copy() for row in rows)
        for variables, received in zip(
            self._variables_of_rank, self.world.allgather(tuple(row[mine] for row in rows)), strict=True
        ):
            for row, part in zip(merged, received, strict=True):
                row[variables] = part
        return merged


def _work_per_variable(problem: Problem) -> NDArray[np.float64]:
    """Return the number of table entries that each variable reads in a cycle."""
    work = np.ones(problem.n_variables)
    for factor in problem.factors:
        for v in factor.scope:
            work[v] += float(problem.domains[v])
    return work


def _count_links(problem: Problem, source: Ints, neighbour: Ints) -> Ints:
    """Return the messages that each agent sends when each variable informs the agents of all its neighbours once."""
    receiver = problem.owner[neighbour]
    pairs = np.unique(np.stack([source, receiver])[:, receiver != problem.owner[source]], axis=1)
    return np.bincount(problem.owner[pairs[0]], minlength=problem.n_agents).astype(np.int64)
