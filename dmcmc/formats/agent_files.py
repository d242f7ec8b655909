"""A problem as a folder: one file an agent with only what that agent may know, and a small index for all.

==============  ===========================================================================================
``index.json``  sense, name, agents, who owns which variable (by number), sizes of those that are shared,
                scopes of the factors between agents, constants, how large each agent's tables are
``agent-N``     (``.npz``, the native format) agent N's variables with names, sizes and labels, its factors,
                those that it shares, and names and sizes of the variables of others in these
==============  ===========================================================================================

The index says nothing about variables that one agent alone has factors over but how many there are.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.files.write import replace_file, writing
from dmcmc.formats import native
from dmcmc.inference.model.compact_sequences import Groups, Names
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import FileError, ProblemError
from dmcmc.inference.runtime.types import Ints

INDEX = "index.json"

_DIGEST = 32  # bytes
_HIDDEN = 1  # the domain size of variables that nobody else may know of

Scope = tuple[int, ...]


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The index as its file has it: digests are SHA-256 of each agent's file, None a forbidden constant."""

    format: Literal["dmcmc agents"]
    version: Literal[1]
    sense: Literal["max", "min"]
    name: str
    agents: tuple[str, ...]
    owner: list[int]
    sizes: dict[int, int]
    crossing: list[Scope]
    constants: tuple[int | float | None, ...]
    entries: list[int]
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Index:
    """What everybody may know: on every rank, so in a few bytes an agent.

    Attributes
    ----------
    sense, name : str
    agents : Names
    owner : (variables,) int64
        The agent of each variable.
    domains : (variables,) int64
        Domain sizes of the variables that a factor between agents is over; 1 for all others.
    crossing : Groups
        Scopes of these factors.
    constants : tuple of number or None
        Factors over nothing; None is forbidden.
    entries : (agents,) int64
        Of all tables of each agent: what its work may be guessed by.
    digests : bytes
        SHA-256 of each agent's file, one after another; empty where there are none.
    """

    sense: str
    name: str
    agents: Names
    owner: Ints
    domains: Ints
    crossing: Groups
    constants: tuple[int | float | None, ...]
    entries: Ints
    digests: bytes = b""

    @cached_property
    def is_shared(self) -> NDArray[np.bool_]:
        """Whether a factor between agents is over each variable."""
        found = np.zeros(self.owner.size, dtype=np.bool_)
        found[self.crossing.flat] = True
        return found

    @cached_property
    def shared(self) -> Groups:
        """Of each agent the factors between agents that it takes part in, ascending."""
        factor = np.repeat(np.arange(len(self.crossing)), self.crossing.lengths)
        agents = len(self.agents)
        codes = np.unique(self.owner[self.crossing.flat] * max(1, len(self.crossing)) + factor)
        return Groups.by(codes // max(1, len(self.crossing)), agents, codes % max(1, len(self.crossing)))

    @cached_property
    def own(self) -> Groups:
        """The variables of each agent, ascending."""
        return Groups.by(self.owner, len(self.agents))

    def variables(self, agent: int) -> list[int]:
        """Return the variables that an agent knows of, ascending: its own, and those of factors that it shares."""
        return sorted({*self.own[agent], *(v for number in self.shared[agent] for v in self.crossing[number])})

    def constant_factors(self) -> tuple[Factor, ...]:
        """Return the constants as factors."""
        tables = [np.array(-np.inf if c is None else c) for c in self.constants]
        return tuple(Factor.of((), table) for table in tables)

    def written(self, digests: Sequence[str]) -> _Written:
        """Return it as its file has it."""
        shared = np.flatnonzero(self.is_shared).tolist()
        return _Written(
            "dmcmc agents",
            1,
            cast(Any, self.sense),
            self.name,
            tuple(self.agents),
            self.owner.tolist(),
            dict(zip(shared, self.domains[shared].tolist(), strict=True)),
            list(self.crossing),
            self.constants,
            self.entries.tolist(),
            tuple(digests),
        )


def _index_of(known: _Written) -> Index:
    """Return what a file says, in few bytes."""
    owner = np.array(known.owner, dtype=np.int64)
    domains = np.full(owner.size, _HIDDEN, dtype=np.int64)
    domains[list(known.sizes)] = list(known.sizes.values())
    return Index(
        known.sense,
        known.name,
        Names(known.agents),
        owner,
        domains,
        Groups.of(known.crossing),
        known.constants,
        np.array(known.entries, dtype=np.int64),
        b"".join(map(bytes.fromhex, known.digests)),
    )


class Parts(Sequence[Problem]):
    """Each agent's own part of a problem: made when it is asked for, as all of them take more than the problem does."""

    def __init__(self, problem: Problem, index: Index, own: Sequence[Sequence[Factor]]) -> None:
        self._problem, self._index, self._own = problem, index, own

    def __len__(self) -> int:
        return len(self._own)

    @overload
    def __getitem__(self, agent: int) -> Problem: ...
    @overload
    def __getitem__(self, agent: slice) -> list[Problem]: ...
    def __getitem__(self, agent: int | slice) -> Problem | list[Problem]:
        if isinstance(agent, slice):
            return [self[one] for one in range(*agent.indices(len(self)))]
        return _part(self._problem, self._index, range(len(self))[agent], self._own[agent])


def divided(problem: Problem, memory: int) -> tuple[Index, Parts]:
    """Return what everybody may know of a problem, and each agent's own part of it.

    Raises
    ------
    ProblemError
        If a factor is too large for a table.
    """
    dense = densify(problem, memory).problem
    if dense.n_variables > problem.n_variables:
        raise ProblemError("a factor is too large for a table, and whose its automaton's states are is nobody's to say")
    owner = dense.owner.tolist()
    own: list[list[Factor]] = [[] for _ in dense.agents]
    crossing, constants = list[Scope](), list[Any]()
    for factor in dense.factors:
        owners = {owner[v] for v in factor.scope}
        for agent in owners:
            own[agent].append(factor)
        if len(owners) > 1:
            crossing.append(factor.scope)
        elif not owners:
            never = factor.table == forbidden_value(factor.table.dtype)
            constants.append(None if never else factor.table.item())
    scopes = Groups.of(crossing)
    shared = np.zeros(dense.n_variables, dtype=np.bool_)
    shared[scopes.flat] = True
    index = Index(
        sense=dense.sense,
        name=dense.name,
        agents=Names(dense.agents),
        owner=dense.owner,
        domains=np.where(shared, dense.domains, _HIDDEN),
        crossing=scopes,
        constants=tuple(constants),
        entries=np.array([sum(factor.table.size for factor in factors) for factors in own], dtype=np.int64),
    )
    return index, Parts(dense, index, own)


def _part(problem: Problem, index: Index, agent: int, factors: Sequence[Factor]) -> Problem:
    """Return an agent's own part: labels of its own variables only, and its neighbours' names."""
    known = index.variables(agent)
    number = {v: place for place, v in enumerate(known)}
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
    """Write a problem as a folder; return how many agents' files there are. The index comes last.

    Raises
    ------
    FileError, ProblemError
        If that cannot be written, or a factor is too large for a table.
    """
    index, parts = divided(problem, memory)
    place, digests = Path(folder), list[str]()
    if place.exists() and not place.is_dir():
        raise FileError(f"{place}: is a file; a folder is needed")
    (place / INDEX).unlink(missing_ok=True)
    for agent, part in enumerate(parts):
        path = agent_file(place, agent)
        data = native.packed(part, path)
        with writing(path, synced=False) as stream:  # one that does not come to the disk is known by its digest
            stream.write(data)
        digests.append(hashlib.sha256(data).hexdigest())
    replace_file(place / INDEX, [msgspec.json.encode(index.written(digests)), "\n"])
    return len(parts)


def agent_file(folder: str | os.PathLike[str], agent: int) -> Path:
    """Return the name of an agent's file.

    >>> agent_file("parts", 12).as_posix()
    'parts/agent-12.npz'
    """
    return Path(folder) / f"agent-{agent}.npz"


def read_index(folder: str | os.PathLike[str]) -> Index:
    """Read what everybody may know.

    Raises
    ------
    FileError
        If the folder has no index, or it is none.
    """
    path = Path(folder) / INDEX
    try:
        known = msgspec.json.decode(path.read_bytes(), type=_Written)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise FileError(f"{path}: {reason}; 'dmcmc split' writes such folders") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise FileError(f"{path}: is not the index of a problem's agents: {error}") from None
    count, variables = len(known.agents), len(known.owner)
    shared = {v for scope in known.crossing for v in scope}
    fits = len(known.entries) == len(known.digests) == count and all(0 <= a < count for a in known.owner)
    fits = fits and all(len(digest) == 64 and set(digest) <= set("0123456789abcdef") for digest in known.digests)
    if not fits or shared != known.sizes.keys() or not all(0 <= v < variables for v in shared):
        raise FileError(f"{path}: its parts do not fit together; 'dmcmc split' writes it anew")
    return _index_of(known)


def read_agent(folder: str | os.PathLike[str], index: Index, agent: int) -> Problem:
    """Read an agent's own part.

    Raises
    ------
    FileError
        If its file is missing, or is not the one that belongs to the index.
    """
    path = agent_file(folder, agent)
    try:
        digest = hashlib.sha256(path.read_bytes()).digest()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise FileError(f"{path}: {reason}; it has what agent {index.agents[agent]!r} knows") from None
    if digest != index.digests[_DIGEST * agent : _DIGEST * (agent + 1)]:
        raise FileError(f"{path}: is damaged, or belongs to another {INDEX}; 'dmcmc split' writes both")
    return checked(native.load(path), index, agent, path)


def checked(part: Problem, index: Index, agent: int, path: object) -> Problem:
    """Return an agent's part, or refuse what does not fit the index."""
    known = index.variables(agent)
    own = set(index.own[agent])
    scopes = [tuple(known[v] for v in f.scope) for f in part.factors if max(f.scope, default=-1) < len(known)]
    between = [scope for scope in scopes if not own.issuperset(scope)]
    wanted = [index.crossing[number] for number in index.shared[agent]]
    fits = len(known) == part.n_variables and between == wanted and all(map(len, scopes))
    shared = index.is_shared[known]
    if not fits or not np.array_equal(part.domains[shared], index.domains[known][shared]):
        raise FileError(f"{path}: does not fit {INDEX}; 'dmcmc split' writes both")
    return part
