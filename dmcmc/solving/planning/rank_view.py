"""The problem as one rank knows it: its agents' parts, and the public data of all other agents.

Variables and agents have the same numbers as in the whole problem. A hidden variable of another rank's agent has only a
number: its domain has one value, and it has no name and no factor.

A scattered problem comes from rank 0, as ``dmcmc split`` would write it. Each agent's part is sent as one byte buffer.
Tables are sent as they lie in memory, not pickled, so that neither sender nor receiver ever holds a second copy of all
of them.
"""

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.dpop.division import Division, LocalProblem
from dmcmc.inference.model.compact_sequences import LazySequence
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Label, Problem
from dmcmc.mpi.world import World, byte_slices

if TYPE_CHECKING:
    from dmcmc.formats.agent_files import AgentIndex


class RankView(NamedTuple):
    """A rank's knowledge of the problem.

    Attributes
    ----------
    problem : Problem
        The problem with the factors of this rank's agents only.
    division : Division
        All agents; those of other ranks have no factors. Unknown factors between agents are replaced by zero tables.
    """

    problem: Problem
    division: Division

    def counted(self, agents: Sequence[int], placed: Sequence[Sequence[int]]) -> list[Factor]:
        """Return the factors that some agents evaluate, so that each factor of the problem is evaluated by one agent.

        They are the agents' own factors, and those between agents that are placed at them (``PseudoTree.placed``).
        """
        own = [factor for agent in agents for factor in self.division.locals[agent].factors]
        return own + [self.division.crossing[i] for agent in agents for i in placed[agent]]


def rank_view_of(index: "AgentIndex", parts: Mapping[int, Problem], constants: tuple[Factor, ...] = ()) -> RankView:
    """Return the problem as this rank knows it.

    Parameters
    ----------
    index
        Public data of all agents: names, owners and domains of shared variables, scopes of factors between agents.
    parts
        Problem of each agent of this rank.
    constants
        Further factors without variables, besides those of the index.
    """
    constants = (*index.constant_factors(), *constants)
    domains = index.domains.copy()  # a writable copy, which plans use directly
    names: dict[int, str] = {}
    labels: dict[int, tuple[Label, ...] | None] = {}
    own_factors: dict[int, tuple[Factor, ...]] = {}
    crossing: dict[int, Factor] = {}
    for agent, part in parts.items():
        known_variables = index.known_variables(agent)
        domains[known_variables] = part.domains
        for v, name, values in zip(known_variables, part.variables, part.labels, strict=True):
            names[v] = name
            if values is not None and index.owner[v] == agent:
                labels[v] = values
        factors = [f.renamed(tuple(known_variables[v] for v in f.scope), f.name) for f in part.factors]
        own_variables = set(index.variables_by_agent[agent])
        own_factors[agent] = tuple(f for f in factors if own_variables.issuperset(f.scope))
        crossing_factors = [f for f in factors if not own_variables.issuperset(f.scope)]
        crossing |= dict(zip(index.shared_factors[agent], crossing_factors, strict=True))
    count = index.owner.size
    problem = Problem.of_parts(
        variables=LazySequence(count, lambda v: f"#{v} of {index.agents[int(index.owner[v])]}", names),
        domains=domains,
        agents=index.agents,
        owner=index.owner,
        factors=(
            *(f for agent in own_factors for f in own_factors[agent]),
            *crossing.values(),
            *constants,
        ),
        labels=LazySequence[tuple[Label, ...] | None](count, lambda _: None, labels),
        sense=index.sense,
        name=index.name,
    )
    return RankView(problem, _division(index, problem, own_factors, crossing, constants))


def _division(
    index: "AgentIndex",
    problem: Problem,
    own: Mapping[int, tuple[Factor, ...]],
    crossing: Mapping[int, Factor],
    constants: tuple[Factor, ...],
) -> Division:
    """Return the division into all agents, with what this rank knows of each."""
    zero_tables: dict[tuple[int, ...], NDArray[np.int32]] = {}

    def local(agent: int) -> LocalProblem:
        variables, shared = index.variables_by_agent[agent], index.is_shared
        return LocalProblem(
            agent=agent,
            interface=tuple([v for v in variables if shared[v]]),
            hidden=tuple([v for v in variables if not shared[v]]),
            factors=own.get(agent, ()),
            domains=problem.domains,
        )

    def unknown(number: int) -> Factor:
        return _unknown(index.shared_scopes[number], problem.domains, zero_tables)

    division = Division(
        locals=LazySequence(len(index.agents), local, {agent: local(agent) for agent in own}),
        crossing=LazySequence(len(index.shared_scopes), unknown, crossing),
        constants=constants,
    )
    division.set_scopes(index.shared_scopes)
    return division


def _unknown(
    scope: tuple[int, ...], domains: NDArray[np.int64], zero_tables: dict[tuple[int, ...], NDArray[np.int32]]
) -> Factor:
    """Return a zero factor in place of one that this rank does not know; its table takes no memory."""
    shape = tuple(domains[list(scope)].tolist())
    if shape not in zero_tables:
        zero_tables[shape] = np.broadcast_to(np.int32(0), shape)
    return Factor(scope, zero_tables[shape])


_TAG = 64  # MPI tag, unlike those of agents' messages
_ALIGNMENT = 64  # alignment of tables in bytes: suits all number types, and is one cache line
_MAX_MESSAGE_BYTES = 1 << 30  # largest MPI message in bytes, because MPI counts have 31 bits

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


def scatter_parts(
    parts: Sequence[Problem] | None, agents_of_rank: Sequence[Sequence[int]], world: World
) -> dict[int, Problem]:
    """Send each rank the parts of its agents; return this rank's parts. Rank 0, which has all parts, gets none.

    Parameters
    ----------
    parts
        All agents' parts on rank 0; None on other ranks.
    agents_of_rank
        For each rank the agents whose parts it receives.
    """
    if parts is None:
        return {agent: _received(world) for agent in agents_of_rank[world.rank]}
    for rank in range(1, world.size):
        _send((parts[agent] for agent in agents_of_rank[rank]), rank, world)
    return {}


def _send(parts: Iterable[Problem], rank: int, world: World) -> None:
    """Send parts to a rank."""
    for part in parts:
        data, sizes = _packed(part)
        world.comm.Send(np.array([sizes.size], dtype=np.int64), dest=rank, tag=_TAG)
        world.comm.Send(sizes, dest=rank, tag=_TAG)
        for piece in byte_slices(data, _MAX_MESSAGE_BYTES):
            world.comm.Send(piece, dest=rank, tag=_TAG)
        world.counts.add("deal", 1, data.nbytes)


def _received(world: World) -> Problem:
    """Receive one part from rank 0."""
    count = np.empty(1, dtype=np.int64)
    world.comm.Recv(count, source=0, tag=_TAG)
    sizes = np.empty(int(count[0]), dtype=np.int64)
    world.comm.Recv(sizes, source=0, tag=_TAG)
    data = np.empty(int(_offsets(sizes)[-1]), dtype=np.uint8)
    for piece in byte_slices(data, _MAX_MESSAGE_BYTES):
        world.comm.Recv(piece, source=0, tag=_TAG)
    return _unpacked(data, sizes)


def _packed(part: Problem) -> tuple[Bytes, Ints]:
    """Return a part as one byte buffer (pickled header, then 64-byte aligned tables), and the sizes of its pieces."""
    tables: list[pickle.PickleBuffer] = []
    header = pickle.dumps(part, pickle.HIGHEST_PROTOCOL, buffer_callback=tables.append)
    pieces = [memoryview(header), *(table.raw() for table in tables)]
    sizes = np.array([piece.nbytes for piece in pieces], dtype=np.int64)
    offsets = _offsets(sizes)
    data = np.zeros(int(offsets[-1]), dtype=np.uint8)
    for offset, piece in zip(offsets.tolist(), pieces, strict=False):
        data[offset : offset + piece.nbytes] = memoryview(piece)
    return data, sizes


def _unpacked(data: Bytes, sizes: Ints) -> Problem:
    """Return the part that :func:`_packed` serialised; its tables are views of ``data``."""
    header, *tables = (data[a : a + n] for a, n in zip(_offsets(sizes).tolist(), sizes.tolist(), strict=False))
    part: Problem = pickle.loads(header.data, buffers=tables)
    return part


def _offsets(sizes: Ints) -> Ints:
    """Return the offsets of aligned pieces, and the end of the last one."""
    return np.concatenate([[0], np.cumsum(-(-sizes // _ALIGNMENT) * _ALIGNMENT)]).astype(np.int64)
