"""Generate meeting scheduling problems in a hierarchical organisation, as private events as variables (PEAV).

An agent is a member of the organisation, a variable is one event in its diary, and a value is the slot in which the
event starts. Two events that share participants are joined by a factor: their starts must lie a gap of 1 to 3 slots
apart (duration and travel), and both should get slots that the member likes. The first events of each member are
meetings of the whole organisation: a superior's copy and a report's copy of such a meeting should agree.

The model and its sizes follow the DMCMC paper, §6. The paper does not specify utilities, gaps and priorities; those
used here are our own choice.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dmcmc.generators import graphs
from dmcmc.generators.parameters import Count, Parameters, Ratio, check_size, edge_count, share, stream
from dmcmc.generators.schedules import planted_schedule
from dmcmc.generators.tables import agents_problem, binary_factors, binary_problem, uniform
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ConfigError

_MAX_PRIORITY = 3  # priorities of events are 1.._MAX_PRIORITY
_MAX_GAP = 3  # gaps between joined events are 1.._MAX_GAP slots
_FORBIDDEN = int(forbidden_value(np.dtype(np.int32)))
# Purposes of the random streams; ``_SCHEDULE + 1`` draws the slots of the organisation's meetings.
_GRAPH, _UNIFORM, _GAPS, _PREFERENCES, _BUSY, _SCHEDULE = range(6)


class Meetings(Parameters, frozen=True, kw_only=True):
    """Parameters of ``meeting-scheduling``; the defaults of |A|, |X_i|, |D_i| and p_l are the paper's (§6).

    Attributes
    ----------
    agents, variables_per_agent, domain_size : int
        Numbers of members, of events per member, and of slots.
    local_density : float
        p_l: ⌊n(n−1)p_l/2⌋ pairs of an agent's n events share participants, at least the n−1 of a spanning tree.
    interface_variables : int
        Number of each agent's events (the first ones) that are shared along every edge of the hierarchy.
    tables : {"preferences", "uniform", "hard"}
        * ``preferences``: 0 if two events overlap, else the priority-weighted preferences for the two slots (0 for
          a busy slot); two copies of one meeting earn a reward if they agree.
        * ``hard``: the same, but overlaps, disagreeing copies and busy slots are forbidden (−∞).
        * ``uniform``: the same graph, utilities uniform in 1..1000.
    busy : float
        Share of the slots in which an agent is not available.
    seed : int
        Seed of the random streams; equal seeds give equal problems.
    """

    agents: Count = 10
    variables_per_agent: Count = 10
    domain_size: Count = 24
    local_density: Ratio = 0.5
    interface_variables: Count = 1
    tables: Literal["preferences", "uniform", "hard"] = "preferences"
    busy: Ratio = 0.2

    def check(self) -> None:
        """Check that an agent has at least as many variables as interface variables."""
        if self.interface_variables > self.variables_per_agent:
            raise ConfigError(
                f"interface_variables: must be at most variables_per_agent ({self.variables_per_agent}),"
                f" not {self.interface_variables}"
            )


def generate(params: Meetings) -> Problem:
    """Return a meeting-scheduling problem.

    A ``hard`` problem is built around a schedule so that it is feasible: busy slots avoid the schedule, and gaps that
    it violates are shortened. It may be infeasible only if an agent has too many events for the slots, so that greedy
    colouring fails.

    Raises
    ------
    ResourceError
        If the problem does not fit the memory.
    """
    a, n, d, b = params.agents, params.variables_per_agent, params.domain_size, params.interface_variables
    edges_per_agent = edge_count(n, params.local_density, at_least=n - 1)
    n_edges = a * edges_per_agent + (a - 1) * b
    unary = a * n if params.tables == "hard" else 0
    check_size(a, a * n, n_edges + unary, n_edges * d * d + unary * d + a * n * d)
    rng = stream(params.seed, _GRAPH)
    local = np.stack([graphs.connected(rng, n, edges_per_agent) for _ in range(a)])
    tree = graphs.recursive_tree(rng, a)
    copies = (tree[:, None, :] * n + np.arange(b)[None, :, None]).reshape(-1, 2)
    first_variable = np.arange(a, dtype=np.int64)[:, None, None] * n
    edges = np.concatenate([(local + first_variable).reshape(-1, 2), copies])
    name = f"meetings-{params.tables}_A{a}_n{n}_D{d}_pl{params.local_density:g}_B{b}_s{params.seed}"
    if params.tables == "uniform":
        tables, busy = uniform(stream(params.seed, _UNIFORM), 1, 1000, (n_edges, d, d)), None
    else:
        tables, busy = _preferences(params, local, edges)
    if params.tables == "hard":
        assert busy is not None
        return agents_problem(name, a, n, d, binary_factors(edges, tables) + _availability(busy, n), "e")
    return binary_problem(edges, tables, lambda factors: agents_problem(name, a, n, d, factors, "e"))


def _preferences(
    params: Meetings, local: NDArray[np.int64], edges: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the tables of ``preferences`` and ``hard``, and in which slots each agent is busy.

    Two starts s, t of joined events of an agent have the utility ⌊(p₁·q₁(s) + p₂·q₂(t)) / 6⌋ with the priorities p (1
    to 3) and preferences q (1 to slots − 1; 0 for a busy slot) of the events, if |s − t| is at least the pair's gap.
    Two copies of a meeting that agree have ⌊(p₁ + p₂) · slots / 3⌋. All other entries are 0, or forbidden for ``hard``.

    Parameters
    ----------
    params
        The parameters.
    local
        (agents, edges per agent, 2) int64. Pairs of events of the same agent, as event numbers.
    edges
        (edges, 2) int64. Pairs of variables: the local edges of all agents, then the copies of meetings.

    Returns
    -------
    tables, busy
        (edges, slots, slots) int32 utilities of the edges, and (agents, slots) bool.
    """
    a, n, d = params.agents, params.variables_per_agent, params.domain_size
    hard, edges_per_agent = params.tables == "hard", local.shape[1]
    gaps = uniform(stream(params.seed, _GAPS), 1, _MAX_GAP, (a, edges_per_agent))
    rng = stream(params.seed, _PREFERENCES)
    priority = uniform(rng, 1, _MAX_PRIORITY, (a, n))
    preferences = uniform(rng, 1, max(d - 1, 1), (a, n, d))
    meetings = _meeting_slots(params) if hard else np.empty(0, dtype=np.int64)
    busy = _busy_slots(params, meetings)
    preferences *= priority[:, :, None]
    preferences[np.broadcast_to(busy[:, None, :], preferences.shape)] = 0
    if hard:
        rng = stream(params.seed, _SCHEDULE)
        for agent in range(a):
            slots = planted_schedule(rng, local[agent], gaps[agent], ~busy[agent], meetings, n)
            slot_distance = np.abs(slots[local[agent, :, 0]] - slots[local[agent, :, 1]])
            gaps[agent] = np.where(slot_distance > 0, np.minimum(gaps[agent], slot_distance), gaps[agent])
    violation = _FORBIDDEN if hard else 0
    tables = np.full((len(edges), d, d), violation, dtype=np.int32)
    distance = np.abs(np.arange(d)[:, None] - np.arange(d))
    for agent in range(a):
        agent_tables = tables[agent * edges_per_agent : (agent + 1) * edges_per_agent]
        left, right = preferences[agent, local[agent, :, 0]], preferences[agent, local[agent, :, 1]]
        np.add(left[:, :, None], right[:, None, :], out=agent_tables)
        agent_tables //= 2 * _MAX_PRIORITY  # so that a pair's utility is less than d for any priorities
        agent_tables[distance < gaps[agent][:, None, None]] = violation
    weight = priority.reshape(-1)[edges[a * edges_per_agent :]].sum(axis=1)
    slot = np.arange(d)
    tables[a * edges_per_agent :, slot, slot] = (weight * d // _MAX_PRIORITY)[:, None]
    return tables, busy


def _meeting_slots(params: Meetings) -> NDArray[np.int64]:
    """Return the slots of the organisation's meetings in the planted schedule; distinct if there are enough slots."""
    b, d = params.interface_variables, params.domain_size
    rng = stream(params.seed, _SCHEDULE + 1)
    return np.resize(graphs.random_subset(rng, d, min(b, d)), b)


def _busy_slots(params: Meetings, excluded: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the busy slots as an (agents, slots) bool array.

    ⌊busy · slots⌋ random slots of each agent are busy, but none of the slots in ``excluded``, and never all slots.
    """
    a, d = params.agents, params.domain_size
    rng = stream(params.seed, _BUSY)
    free = np.setdiff1d(np.arange(d), excluded)
    count = min(share(d, params.busy), len(free), d - 1)
    busy = np.zeros((a, d), dtype=bool)
    for agent in range(a):
        busy[agent, free[graphs.random_subset(rng, len(free), count)]] = True
    return busy


def _availability(busy: NDArray[np.bool_], events: int) -> tuple[Factor, ...]:
    """Return one unary factor per event that forbids its agent's busy slots."""
    tables = np.where(busy, np.int32(_FORBIDDEN), np.int32(0)).astype(np.int32)
    tables.flags.writeable = False
    return tuple(Factor((agent * events + e,), tables[agent]) for agent in range(len(busy)) for e in range(events))
