"""A depth-first tree that agents find by themselves: each knows its neighbours, and nothing else.

Neighbours tell each other how many neighbours they have (DEGREE). In each component the one that has most, of several
the first, becomes the root: those that no neighbour comes before start waves, the larger extinguish the smaller, and
whose wave comes back from everywhere is elected (WAVE: echo algorithm with extinction; Tel 2000, §7.3). It sends a
token that goes to the neighbour with most neighbours that has not had it (TOKEN) and comes back from one that has, or
has nowhere to send it (BACK). So the tree is that of :func:`dmcmc.inference.dpop.pseudotree.depth_first` on the whole
graph.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dmcmc.inference.dpop.division import Division
from dmcmc.inference.dpop.pseudotree import PseudoTree, completed, neighbours_of
from dmcmc.inference.model.problem import Problem
from dmcmc.mpi.message_contents import Sent
from dmcmc.mpi.world import World

_WORD = 8  # bytes
_DEGREE, _WAVE, _TOKEN, _BACK = range(4)
_WORDS = (3, 5, 3, 3)  # of a message: kind, sender, receiver, and what it says


class Note(NamedTuple):
    """A message between neighbours; ``degree`` and ``agent`` say whose wave it is."""

    kind: int
    sender: int
    receiver: int
    degree: int = 0
    agent: int = 0


@dataclass
class _Agent:
    """What one agent knows."""

    number: int
    neighbours: Sequence[int]
    degrees: dict[int, int] = field(default_factory=dict)
    wave: tuple[int, int] = (-1, 0)  # degree and minus the agent of the largest that has come
    before: int = -1  # who sent it first
    echoes: int = 0
    parent: int | None = None  # −1 for a root; None as long as the token has not come
    tried: set[int] = field(default_factory=set)

    def begin(self) -> list[Note]:
        """Say hello."""
        if not self.neighbours:
            self.parent = -1
        return [Note(_DEGREE, self.number, other, len(self.neighbours)) for other in self.neighbours]

    def hear(self, note: Note) -> list[Note]:
        """Return what a message makes the agent say."""
        if note.kind == _DEGREE:
            self.degrees[note.sender] = note.degree
            return self._start() if len(self.degrees) == len(self.neighbours) else []
        if note.kind == _WAVE:
            return self._hear_wave(note)
        self.tried.add(note.sender)
        if note.kind == _TOKEN:
            if self.parent is not None:
                return [Note(_BACK, self.number, note.sender)]
            self.parent = note.sender
        return self._pass_on()

    def _start(self) -> list[Note]:
        own = (len(self.neighbours), -self.number)
        if any((degree, -other) > own for other, degree in self.degrees.items()) or self.wave > own:
            return []
        self.wave, self.before, self.echoes = own, -1, 0
        return self._waves(self.neighbours)

    def _waves(self, receivers: Sequence[int]) -> list[Note]:
        return [Note(_WAVE, self.number, other, self.wave[0], -self.wave[1]) for other in receivers]

    def _hear_wave(self, note: Note) -> list[Note]:
        wave = (note.degree, -note.agent)
        if wave < self.wave:
            return []
        told = list[Note]()
        if wave > self.wave:
            self.wave, self.before, self.echoes = wave, note.sender, 0
            told = self._waves([other for other in self.neighbours if other != note.sender])
        self.echoes += 1
        if self.echoes < len(self.neighbours):
            return told
        if self.before >= 0:
            return told + self._waves([self.before])
        self.parent = -1
        return told + self._pass_on()

    def _pass_on(self) -> list[Note]:
        """Send the token to the next neighbour, or back."""
        open_ones = [other for other in self.neighbours if other not in self.tried and other != self.parent]
        if open_ones:
            best = min(open_ones, key=lambda other: (-self.degrees[other], other))
            self.tried.add(best)
            return [Note(_TOKEN, self.number, best)]
        return [] if self.parent is None or self.parent < 0 else [Note(_BACK, self.number, self.parent)]


def token_tree(
    problem: Problem, division: Division, owner: Sequence[int], world: World
) -> tuple[PseudoTree, dict[int, Sent]]:
    """Return the tree that agents have found, and what each has sent, on every rank; called by all ranks."""
    neighbours = neighbours_of(problem, division)
    mine = {agent: neighbours[agent] for agent, rank in enumerate(owner) if rank == world.rank}
    parents, sent = depth_first_by_token(mine, owner, world)
    known = world.merged(parents)
    return completed(problem, division, [known[agent] for agent in range(len(owner))]), world.merged(sent)


def depth_first_by_token(
    neighbours: Mapping[int, Iterable[int]], owner: Sequence[int], world: World
) -> tuple[dict[int, int], dict[int, Sent]]:
    """Return the parent of each of this rank's agents, −1 for roots, and what it has sent; called by all ranks.

    Parameters
    ----------
    neighbours
        Of this rank's agents.
    owner
        The rank of each agent.
    """
    agents = {number: _Agent(number, sorted(others)) for number, others in neighbours.items()}
    counts, sizes = dict.fromkeys(agents, 0), dict.fromkeys(agents, 0)
    here, away = deque[Note](), [list[Note]() for _ in range(world.size)]

    def say(notes: Sequence[Note]) -> None:
        for note in notes:
            counts[note.sender] += 1
            sizes[note.sender] += _WORD * _WORDS[note.kind]
            (here if owner[note.receiver] == world.rank else away[owner[note.receiver]]).append(note)

    for agent in agents.values():
        say(agent.begin())
    while True:
        while here:
            note = here.popleft()
            say(agents[note.receiver].hear(note))
        come = world.exchange([np.array(notes, dtype="<i8").reshape(-1, len(Note._fields)) for notes in away], "tree")
        if come is None:
            break
        away = [list[Note]() for _ in range(world.size)]
        here.extend(Note(*row) for notes in come for row in notes.tolist())
    parents = {number: -1 if agent.parent is None else agent.parent for number, agent in agents.items()}
    return parents, {number: Sent(counts[number], sizes[number], "TREE") for number in agents}
