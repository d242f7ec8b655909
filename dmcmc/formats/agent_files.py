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
from array import array
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, overload

import msgspec
import numpy as np

from dmcmc.files.write import replace_file, writing
from dmcmc.formats import native
from dmcmc.inference.model.densify import densify
from dmcmc.inference.model.problem import Factor, Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import FileError, ProblemError

INDEX = "index.json"

Scope = tuple[int, ...]


class Index(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """What everybody may know.

    Attributes
    ----------
    agents : tuple of str
    owner : sequence of int
        The agent of each variable.
    sizes : dict
        Domain sizes of the variables that a factor between agents is over.
    crossing : tuple of tuple of int
        Scopes of these factors.
    constants : tuple of number or None
        Factors over nothing; None is forbidden.
    entries : sequence of int
        Of all tables of each agent: what its work may be guessed by.
    digests : tuple of str
        SHA-256 of each agent's file; empty where there are none.
    """

    format: Literal["dmcmc agents"]
    version: Literal[1]
    sense: Literal["max", "min"]
    name: str
    agents: tuple[str, ...]
    owner: Sequence[int]
    sizes: dict[int, int]
    crossing: tuple[Scope, ...]
    constants: tuple[int | float | None, ...]
    entries: Sequence[int]
    digests: tuple[str, ...] = ()

    @cached_property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """Of each agent the factors between agents that it takes part in, ascending."""
        found: list[list[int]] = [[] for _ in self.agents]
        for number, scope in enumerate(self.crossing):
            for agent in {self.owner[v] for v in scope}:
                found[agent].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def own(self) -> tuple[Sequence[int], ...]:
        """The variables of each agent, ascending."""
        found = [array("q") for _ in self.agents]
        for variable, agent in enumerate(self.owner):
            found[agent].append(variable)
        return tuple(range(one[0], one[-1] + 1) if one and one[-1] - one[0] < len(one) else one for one in found)

    def variables(self, agent: int) -> list[int]:
        """Return the variables that an agent knows of, ascending: its own, and those of factors that it shares."""
        return sorted({*self.own[agent], *(v for number in self.shared[agent] for v in self.crossing[number])})

    def constant_factors(self) -> tuple[Factor, ...]:
        """Return the constants as factors."""
        tables = [np.array(-np.inf if c is None else c) for c in self.constants]
        return tuple(Factor.of((), table) for table in tables)


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
    owner, sizes = dense.owner.tolist(), dense.domains.tolist()
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
    index = Index(
        format="dmcmc agents",
        version=1,
        sense=cast(Any, dense.sense),
        name=dense.name,
        agents=dense.agents,
        owner=tuple(owner),
        sizes={v: sizes[v] for v in sorted({v for scope in crossing for v in scope})},
        crossing=tuple(crossing),
        constants=tuple(constants),
        entries=tuple(sum(factor.table.size for factor in factors) for factors in own),
    )
    return index, Parts(dense, index, own)


def _part(problem: Problem, index: Index, agent: int, factors: Sequence[Factor]) -> Problem:
    """Return an agent's own part: labels of its own variables only, and its neighbours' names."""
    known = index.variables(agent)
    number = {v: place for place, v in enumerate(known)}
    agents = sorted({agent, *(index.owner[v] for v in known)})
    return Problem(
        variables=tuple(problem.variables[v] for v in known),
        domains=problem.domains[known],
        agents=tuple(problem.agents[a] for a in agents),
        owner=np.array([agents.index(index.owner[v]) for v in known], dtype=np.int64),
        factors=tuple(f.renamed(tuple(number[v] for v in f.scope), f.name) for f in factors),
        labels=tuple(problem.labels[v] if index.owner[v] == agent else None for v in known),
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
    index = msgspec.structs.replace(index, digests=tuple(digests))
    replace_file(place / INDEX, [msgspec.json.encode(index), "\n"])
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
        index = msgspec.json.decode(path.read_bytes(), type=Index)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise FileError(f"{path}: {reason}; 'dmcmc split' writes such folders") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise FileError(f"{path}: is not the index of a problem's agents: {error}") from None
    count = len(index.agents)
    same = {v: v for v in index.sizes}  # every rank has all of it: numbers are objects once, or in arrays
    crossing = tuple(tuple(same.get(v, v) for v in scope) for scope in index.crossing)
    owner, entries = array("q", index.owner), array("q", index.entries)
    index = msgspec.structs.replace(index, crossing=crossing, owner=owner, entries=entries)
    shared = {v for scope in index.crossing for v in scope}
    fits = len(index.entries) == len(index.digests) == count and all(0 <= a < count for a in index.owner)
    if not fits or shared != index.sizes.keys() or not all(0 <= v < len(index.owner) for v in shared):
        raise FileError(f"{path}: its parts do not fit together; 'dmcmc split' writes it anew")
    return index


def read_agent(folder: str | os.PathLike[str], index: Index, agent: int) -> Problem:
    """Read an agent's own part.

    Raises
    ------
    FileError
        If its file is missing, or is not the one that belongs to the index.
    """
    path = agent_file(folder, agent)
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise FileError(f"{path}: {reason}; it has what agent {index.agents[agent]!r} knows") from None
    if digest != index.digests[agent]:
        raise FileError(f"{path}: is damaged, or belongs to another {INDEX}; 'dmcmc split' writes both")
    return checked(native.load(path), index, agent, path)


def checked(part: Problem, index: Index, agent: int, path: object) -> Problem:
    """Return an agent's part, or refuse what does not fit the index."""
    known = index.variables(agent)
    sizes = dict(zip(known, part.domains.tolist(), strict=False))
    own = set(index.own[agent])
    scopes = [tuple(known[v] for v in f.scope) for f in part.factors if max(f.scope, default=-1) < len(known)]
    between = [scope for scope in scopes if not own.issuperset(scope)]
    wanted = [index.crossing[number] for number in index.shared[agent]]
    fits = len(known) == part.n_variables and between == wanted and all(map(len, scopes))
    if not fits or any(sizes[v] != index.sizes[v] for v in known if v in index.sizes):
        raise FileError(f"{path}: does not fit {INDEX}; 'dmcmc split' writes both")
    return part
