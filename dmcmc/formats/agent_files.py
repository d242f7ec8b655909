"""Store a problem as a folder: one file per agent with the agent's private data, and a small index for all agents.

==============  ===========================================================================================
``index.json``  sense, name, agents, owner of each variable (by number), domain sizes of the shared variables,
                scopes of the factors between agents, constants, total size of each agent's tables
``agent-N``     (``.npz``, the native format) agent N's variables with names, domain sizes and labels, its
                factors, the factors that it shares, and names and domain sizes of the other agents' variables
                in these factors
==============  ===========================================================================================

A variable is *shared* if a factor between agents contains it. The index contains only the number of private variables.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast, overload

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from dmcmc.files.write import open_packed_atomically, read_own, replace_file
from dmcmc.formats import native
from dmcmc.inference.model.compact_sequences import CompactNames, IndexGroups
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import FileError, ProblemError
from dmcmc.inference.runtime.types import Ints

INDEX = "index.json"

_DIGEST_BYTES = 32  # bytes of a SHA-256 digest
_PRIVATE_DOMAIN_SIZE = 1  # domain size that the index gives for private variables

Scope = tuple[int, ...]

_Number = Annotated[int, Meta(ge=0, lt=2**31)]  # number of an agent or a variable
_DomainSize = Annotated[int, Meta(ge=1, lt=2**31)]
_Entries = Annotated[int, Meta(ge=0, lt=2**62)]
_Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class _IndexFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The index as ``index.json`` stores it.

    Attributes
    ----------
    format, version : str, int
        Name and version of the file format; always the same.
    sense : {"max", "min"}
        Whether the objective is maximised or minimised.
    name : str
        Name of the problem.
    agents : tuple of str
        Names of the agents.
    owner : list of int
        Agent of each variable.
    sizes : dict of int to int
        Domain size of each shared variable.
    crossing : list of tuple of int
        Scopes of the factors between agents.
    constants : tuple of number or None
        Utilities of the factors without variables; None is a forbidden one.
    entries : list of int
        Total number of entries in each agent's tables.
    digests : tuple of str
        Hexadecimal SHA-256 digest of each agent's file.
    """

    format: Literal["dmcmc agents"]
    version: Literal[1]
    sense: Literal["max", "min"]
    name: str
    agents: tuple[str, ...]
    owner: list[_Number]
    sizes: dict[_Number, _DomainSize]
    crossing: list[tuple[_Number, ...]]
    constants: tuple[Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | None, ...]
    entries: list[_Entries]
    digests: tuple[_Digest, ...] = ()


@dataclass(frozen=True, eq=False)
class AgentIndex:
    """Public part of a problem that is divided by agents.

    Every rank holds it, so it is stored compactly.

    Attributes
    ----------
    sense : {"max", "min"}
        Whether the objective is maximised or minimised.
    name : str
        Name of the problem.
    agents : CompactNames
        Names of the agents.
    owner : (variables,) int64
        Agent of each variable.
    domains : (variables,) int64
        Domain size of each shared variable; 1 for private variables.
    shared_scopes : IndexGroups
        Scope of each factor between agents.
    constants : tuple of number or None
        Values of the factors without variables; None is a forbidden one.
    table_entries : (agents,) int64
        Total number of entries in each agent's tables; an estimate of the agent's work.
    digests : bytes
        SHA-256 digests of the agents' files, concatenated (32 bytes per agent); empty if there are no files.
    """

    sense: str
    name: str
    agents: CompactNames
    owner: Ints
    domains: Ints
    shared_scopes: IndexGroups
    constants: tuple[int | float | None, ...]
    table_entries: Ints
    digests: bytes = b""

    @cached_property
    def is_shared(self) -> NDArray[np.bool_]:
        """(variables,) bool. Whether a factor between agents contains each variable."""
        is_shared = np.zeros(self.owner.size, dtype=np.bool_)
        is_shared[self.shared_scopes.flat] = True
        return is_shared

    @cached_property
    def shared_factors(self) -> IndexGroups:
        """The factors between agents in which each agent takes part, as ascending factor numbers."""
        factor = np.repeat(np.arange(len(self.shared_scopes)), self.shared_scopes.lengths)
        agents = len(self.agents)
        agent_and_factor = np.unique(self.owner[self.shared_scopes.flat] * max(1, len(self.shared_scopes)) + factor)
        return IndexGroups.by_group(
            agent_and_factor // max(1, len(self.shared_scopes)),
            agents,
            agent_and_factor % max(1, len(self.shared_scopes)),
        )

    @cached_property
    def variables_by_agent(self) -> IndexGroups:
        """The variables of each agent, in ascending order."""
        return IndexGroups.by_group(self.owner, len(self.agents))

    def known_variables(self, agent: int) -> list[int]:
        """Return the variables that an agent knows, ascending: its own variables and those of its shared factors."""
        return sorted(
            {
                *self.variables_by_agent[agent],
                *(v for factor in self.shared_factors[agent] for v in self.shared_scopes[factor]),
            }
        )

    def constant_factors(self) -> tuple[Factor, ...]:
        """Return the constants as factors with an empty scope."""
        tables = [np.array(-np.inf if c is None else c) for c in self.constants]
        return tuple(Factor.of((), table) for table in tables)

    def to_file(self, digests: Sequence[str]) -> _IndexFile:
        """Return the record that ``index.json`` stores.

        Parameters
        ----------
        digests
            Hexadecimal SHA-256 digest of each agent's file.
        """
        shared = np.flatnonzero(self.is_shared).tolist()
        return _IndexFile(
            "dmcmc agents",
            1,
            cast(Any, self.sense),
            self.name,
            tuple(self.agents),
            self.owner.tolist(),
            dict(zip(shared, self.domains[shared].tolist(), strict=True)),
            list(self.shared_scopes),
            self.constants,
            self.table_entries.tolist(),
            tuple(digests),
        )


def _compact_index(stored: _IndexFile) -> AgentIndex:
    """Return the compact index for the record that ``index.json`` stores."""
    owner = np.array(stored.owner, dtype=np.int64)
    domains = np.full(owner.size, _PRIVATE_DOMAIN_SIZE, dtype=np.int64)
    domains[list(stored.sizes)] = list(stored.sizes.values())
    return AgentIndex(
        stored.sense,
        stored.name,
        CompactNames(stored.agents),
        owner,
        domains,
        IndexGroups.of(stored.crossing),
        stored.constants,
        np.array(stored.entries, dtype=np.int64),
        b"".join(map(bytes.fromhex, stored.digests)),
    )


class AgentProblems(Sequence[Problem]):
    """Sequence of the agents' local problems, each built on access.

    A local problem has the agent's own variables, the other variables of its factors, and these factors. All local
    problems together take more memory than the problem, because shared factors occur in several of them.
    """

    def __init__(self, problem: Problem, index: AgentIndex, factors_by_agent: Sequence[Sequence[Factor]]) -> None:
        """Store the problem, its public index, and for each agent the factors that contain a variable of the agent."""
        self._problem, self._index, self._factors_by_agent = problem, index, factors_by_agent

    def __len__(self) -> int:
        """Return the number of agents."""
        return len(self._factors_by_agent)

    @overload
    def __getitem__(self, agent: int) -> Problem: ...
    @overload
    def __getitem__(self, agent: slice) -> list[Problem]: ...
    def __getitem__(self, agent: int | slice) -> Problem | list[Problem]:
        """Return the local problem of one agent, or of each agent in a slice."""
        if isinstance(agent, slice):
            return [self[number] for number in range(*agent.indices(len(self)))]
        return _local_problem(self._problem, self._index, range(len(self))[agent], self._factors_by_agent[agent])


def split_by_agent(problem: Problem, memory: int) -> tuple[AgentIndex, AgentProblems]:
    """Divide a problem by agents: return the public index and the agents' local problems.

    Parameters
    ----------
    problem
        The problem; factors given by automata are converted to tables first.
    memory
        Bytes that the tables may take.

    Raises
    ------
    ProblemError
        If a factor is too large for a table.
    """
    dense = densify(problem, memory).problem
    if dense.n_variables > problem.n_variables:
        raise ProblemError("a factor is too large for a table; private agents need tables (raise budget.memory)")
    owner = dense.owner.tolist()
    factors_by_agent: list[list[Factor]] = [[] for _ in dense.agents]
    shared_scopes, constants = list[Scope](), list[Any]()
    for factor in dense.factors:
        owners = {owner[v] for v in factor.scope}
        for agent in owners:
            factors_by_agent[agent].append(factor)
        if len(owners) > 1:
            shared_scopes.append(factor.scope)
        elif not owners:
            is_forbidden = factor.table == forbidden_value(factor.table.dtype)
            constants.append(None if is_forbidden else factor.table.item())
    scopes = IndexGroups.of(shared_scopes)
    shared = np.zeros(dense.n_variables, dtype=np.bool_)
    shared[scopes.flat] = True
    index = AgentIndex(
        sense=dense.sense,
        name=dense.name,
        agents=CompactNames(dense.agents),
        owner=dense.owner,
        domains=np.where(shared, dense.domains, _PRIVATE_DOMAIN_SIZE),
        shared_scopes=scopes,
        constants=tuple(constants),
        table_entries=np.array(
            [sum(factor.table.size for factor in factors) for factors in factors_by_agent], dtype=np.int64
        ),
    )
    return index, AgentProblems(dense, index, factors_by_agent)


def _local_problem(problem: Problem, index: AgentIndex, agent: int, factors: Sequence[Factor]) -> Problem:
    """Return an agent's local problem: the labels of its own variables only, and the names of its neighbours."""
    known = index.known_variables(agent)
    number = {v: position for position, v in enumerate(known)}
    owners = index.owner[known].tolist()
    agents = sorted({agent, *owners})
    return Problem(
        variables=tuple(problem.variables[v] for v in known),
        domains=problem.domains[known],
        agents=tuple(problem.agents[a] for a in agents),
        owner=np.array([agents.index(a) for a in owners], dtype=np.int64),
        factors=tuple(f.renamed(tuple(number[v] for v in f.scope), f.name) for f in factors),
        labels=tuple(problem.labels[v] if a == agent else None for v, a in zip(known, owners, strict=True)),
        sense=problem.sense,
        name=problem.agents[agent],
    )


def write(problem: Problem, folder: str | os.PathLike[str], memory: int) -> int:
    """Write a problem as a folder and return the number of agent files; the index is written last.

    Raises
    ------
    FileError
        If a file cannot be written.
    ProblemError
        If a factor is too large for a table.
    """
    index, local_problems = split_by_agent(problem, memory)
    root, digests = Path(folder), list[str]()
    if root.exists() and not root.is_dir():
        raise FileError(f"{root}: is a file; a folder is needed")
    (root / INDEX).unlink(missing_ok=True)
    for agent, local_problem in enumerate(local_problems):
        path = agent_file(root, agent)
        data = native.native_bytes(local_problem, path)
        with open_packed_atomically(path, synced=False) as stream:  # an incomplete file is detected by its digest
            stream.write(data)
        digests.append(hashlib.sha256(data).hexdigest())
    replace_file(root / INDEX, [msgspec.json.encode(index.to_file(digests)), "\n"])
    return len(local_problems)


def values_file(folder: str | os.PathLike[str], agent: int) -> Path:
    """Return the path of the file with the values of an agent's variables.

    >>> values_file("out.agents", 12).as_posix()
    'out.agents/agent-12.json'
    """
    return Path(folder) / f"agent-{agent}.json"


def agent_file(folder: str | os.PathLike[str], agent: int) -> Path:
    """Return the path of an agent's file.

    >>> agent_file("parts", 12).as_posix()
    'parts/agent-12.npz'
    """
    return Path(folder) / f"agent-{agent}.npz"


def read_index(folder: str | os.PathLike[str]) -> AgentIndex:
    """Read the public index of a folder.

    Raises
    ------
    FileError
        If the folder has no index, or the file is not a valid index.
    """
    path = Path(folder) / INDEX
    decode = partial(msgspec.json.decode, type=_IndexFile)
    stored = read_own(path, "the index of a problem's agents", decode, "; 'dmcmc split' writes such folders")
    if not _is_consistent(stored):
        raise FileError(f"{path}: its parts do not fit together; 'dmcmc split' writes it anew")
    return _compact_index(stored)


def _is_consistent(stored: _IndexFile) -> bool:
    """Return whether the numbers in an index refer to its agents and variables.

    A factor between agents has distinct variables of at least two agents, and exactly its variables have a size.
    """
    count, owner = len(stored.agents), stored.owner
    shared = {v for scope in stored.crossing for v in scope}
    return (
        len(stored.entries) == len(stored.digests) == count == len({*stored.agents})
        and max(owner, default=-1) < count
        and max(shared, default=-1) < len(owner)
        and shared == stored.sizes.keys()
        and all(len({*scope}) == len(scope) and len({owner[v] for v in scope}) > 1 for scope in stored.crossing)
    )


def read_agent(folder: str | os.PathLike[str], index: AgentIndex, agent: int) -> Problem:
    """Read an agent's local problem; ``index`` is the public index of the same folder.

    Raises
    ------
    FileError
        If the file is missing, its digest differs from the one in the index, or it does not fit the index.
    """
    path = agent_file(folder, agent)
    hint = f"; it holds the problem of agent {index.agents[agent]!r}"
    digest = hashlib.sha256(read_own(path, "", bytes, hint)).digest()
    if digest != index.digests[_DIGEST_BYTES * agent : _DIGEST_BYTES * (agent + 1)]:
        raise FileError(f"{path}: is damaged, or belongs to another {INDEX}; 'dmcmc split' writes both")
    return check_agent_problem(native.load(path), index, agent, path)


def check_agent_problem(local_problem: Problem, index: AgentIndex, agent: int, path: object) -> Problem:
    """Return an agent's local problem if it agrees with the index; otherwise raise ``FileError``.

    The sense, the number of variables, the scopes of the factors between agents, and the domain sizes of the shared
    variables must be the same. ``path`` names the file in the message.
    """
    known = index.known_variables(agent)
    own_variables = set(index.variables_by_agent[agent])
    scopes = [tuple(known[v] for v in f.scope) for f in local_problem.factors if max(f.scope, default=-1) < len(known)]
    shared_scopes = [scope for scope in scopes if not own_variables.issuperset(scope)]
    expected = [index.shared_scopes[number] for number in index.shared_factors[agent]]
    fits = len(known) == local_problem.n_variables and shared_scopes == expected and all(map(len, scopes))
    shared = index.is_shared[known]
    fits = fits and local_problem.sense == index.sense
    if not fits or not np.array_equal(local_problem.domains[shared], index.domains[known][shared]):
        raise FileError(f"{path}: does not fit {INDEX}; 'dmcmc split' writes both")
    return local_problem
