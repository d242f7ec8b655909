"""Meeting-scheduling problems.

Generate meeting scheduling problems in a hierarchical organisation, as private events as variables (PEAV).

An agent is a member of the organisation, a variable is one event in its diary, and a value is the slot in which the
event starts. Two events that share participants are joined by a factor: their starts must lie a gap of 1 to 3 slots
apart (duration and travel), and both should get slots that the member likes. The first events of each member are
meetings of the whole organisation: a superior's copy and a report's copy of such a meeting should agree.

The model and its sizes follow the DMCMC paper, §6. The paper does not specify utilities, gaps and priorities; those
used here are our own choice.

Business-to-business meetings: participants meet in pairs, at tables, with as few breaks as possible.

The model is that of Bofill et al. (JAIR 74, 2022). A participant has at most one meeting in each slot, and a limited
number of tables is used at a time. A break is a hole between two meetings of a participant that follow each other. The
sum of all breaks is minimised; the numbers of breaks of two participants differ by at most two.

Events of persons in the framework DiMES, modelled with events (EAV) or private events (PEAV) as variables.

Meetings with required and preferred attendees in rooms, like the data sets of Timefold's meeting scheduling.

Build a feasible diary: a slot for each event of one member, around which a hard meeting problem is generated.

Slots are numbered from 0; the gap of two joined events is the number of slots by which their starts must differ.
"""

from itertools import combinations
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from dmcmc.formats.meetings.timefold import MeetingPlan, TimefoldMeeting, problem_of
from dmcmc.generators.networks import connected, random_subset, recursive_tree
from dmcmc.generators.parameters import (
    Count,
    MultiVariableAgents,
    Parameters,
    Ratio,
    agents_problem,
    binary_factors,
    binary_problem,
    check_size,
    edge_count,
    problem_of_domains,
    share,
    stream,
    uniform,
)
from dmcmc.inference.building.builder import Builder
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.model.tables import forbidden_value
from dmcmc.inference.runtime.errors import ConfigError


def planted_schedule(
    rng: np.random.Generator,
    edges: NDArray[np.int64],
    gaps: NDArray[np.int32],
    available: NDArray[np.bool_],
    fixed: NDArray[np.int64],
    events: int,
) -> NDArray[np.int64]:
    """Return a slot for each event such that joined events start in different slots, if possible a full gap apart.

    Events with the most neighbours are coloured first (greedy colouring), each with a random valid slot. If that fails,
    a second attempt ignores the gaps and takes the first slot that differs from the neighbours'. If that fails too,
    some joined events share a slot.

    Parameters
    ----------
    rng
        Source of randomness.
    edges : (m, 2) int64
        Pairs of joined events.
    gaps : (m,) int32
        Number of slots by which the starts of each pair should differ.
    available : (slots,) bool
        Slots in which an event may start.
    fixed : (b,) int64
        Given slots of the first b events.
    events : int
        Number of events.

    Returns
    -------
    (events,) int64
        Slot of each event.
    """
    gap = np.zeros((events, events), dtype=np.int64)
    gap[edges[:, 0], edges[:, 1]] = gap[edges[:, 1], edges[:, 0]] = gaps
    order = np.argsort(-(gap > 0).sum(axis=1), kind="stable")
    slots = np.flatnonzero(available)
    for use_gaps in (True, False):
        slot_of = np.full(events, -1, dtype=np.int64)
        slot_of[: len(fixed)] = fixed
        is_feasible = True
        for event in order[order >= len(fixed)]:
            neighbours = np.flatnonzero((gap[event] > 0) & (slot_of >= 0))
            distances = np.abs(slots[:, None] - slot_of[neighbours])
            valid = slots[(distances >= gap[event, neighbours]).all(axis=1)] if use_gaps else slots[:0]
            if not len(valid):
                valid = slots[(distances > 0).all(axis=1)]
            is_feasible &= len(valid) > 0
            valid = valid if len(valid) else slots
            slot_of[event] = valid[int(rng.integers(len(valid))) if use_gaps else 0]
        if is_feasible:
            break
    return slot_of


_MAX_PRIORITY = 3  # priorities of events are 1.._MAX_PRIORITY
_MAX_GAP = 3  # gaps between joined events are 1.._MAX_GAP slots
_FORBIDDEN = int(forbidden_value(np.dtype(np.int32)))
# Purposes of the random streams; ``_SCHEDULE + 1`` draws the slots of the organisation's meetings.
_GRAPH, _UNIFORM, _GAPS, _PREFERENCES, _BUSY, _SCHEDULE = range(6)


class Meetings(MultiVariableAgents, frozen=True, kw_only=True):
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
    domain_size: Count = 24
    local_density: Ratio = 0.5
    tables: Literal["preferences", "uniform", "hard"] = "preferences"
    busy: Ratio = 0.2


def generate_meetings(params: Meetings) -> Problem:
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
    local = np.stack([connected(rng, n, edges_per_agent) for _ in range(a)])
    tree = recursive_tree(rng, a)
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
    return np.resize(random_subset(rng, d, min(b, d)), b)


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
        busy[agent, free[random_subset(rng, len(free), count)]] = True
    return busy


def _availability(busy: NDArray[np.bool_], events: int) -> tuple[Factor, ...]:
    """Return one unary factor per event that forbids its agent's busy slots."""
    tables = np.where(busy, np.int32(_FORBIDDEN), np.int32(0)).astype(np.int32)
    tables.flags.writeable = False
    return tuple(Factor((agent * events + e,), tables[agent]) for agent in range(len(busy)) for e in range(events))


class Dimes(Parameters, frozen=True, kw_only=True):
    """Parameters of ``dimes``, distributed scheduling of multiple events.

    Attributes
    ----------
    persons, events, slots : int
        Numbers of persons, of events, and of time slots.
    attendees, length : int
        Largest number of persons that an event needs, and largest number of slots that it takes.
    model : {"peav", "eav"}
        ``eav``: a variable per event. ``peav``: a variable per event and person, which must be equal.
    """

    persons: Count = 8
    events: Count = 10
    slots: Count = 8
    attendees: Count = 3
    length: Count = 2
    model: Literal["peav", "eav"] = "peav"


def generate_dimes(params: Dimes) -> Problem:
    """Return a problem of events that persons attend, each in some slots or not at all.

    A person's value of an event is uniform in 1..100 per slot of the event, that of a slot without an event in 0..50.
    The sum of the values of all events that take place is maximised, less those of the slots that they take. Both
    models have the same optimum.

    References
    ----------
    R. T. Maheswaran et al.: Taking DCOP to the real world: efficient complete solutions for distributed multi-event
    scheduling. AAMAS 2004.
    """
    rng, peav = stream(params.seed, 0), params.model == "peav"
    size, longest = min(params.attendees, params.persons), min(params.length, params.slots)
    check_size(params.persons, params.events * size, params.events**2, (params.events * (params.slots + 1)) ** 2)
    free = uniform(stream(params.seed, 1), 0, 50, (params.persons, params.slots)).astype(np.int64)
    factors, names, domains, owner = list[Factor](), list[str](), list[int](), list[int]()
    diary: list[list[tuple[int, NDArray[np.bool_]]]] = [[] for _ in range(params.persons)]
    for event in range(params.events):
        people = random_subset(rng, params.persons, int(rng.integers(1, size + 1))).tolist()
        length = int(rng.integers(1, longest + 1))
        start, slot = np.arange(params.slots - length + 1)[:, None], np.arange(params.slots)
        taken = np.zeros((len(start) + 1, params.slots), dtype=bool)  # the last value: the event does not take place
        taken[:-1] = (slot >= start) & (slot < start + length)
        copies = list[int]()
        for person in people:
            value = int(rng.integers(length, 100 * length + 1))
            if peav or not copies:
                copies.append(len(names))
                names.append(f"a{person}.e{event}")
                domains.append(len(taken))
                owner.append(person)
            worth = value * taken.any(axis=1) - taken @ free[person]
            factors.append(Factor.of((copies[-1],), worth))
            diary[person].append((copies[-1], taken))
        same = np.where(np.eye(len(taken), dtype=bool), 0.0, -np.inf)
        factors += [Factor.of((copies[0], copy), same) for copy in copies[1:]]
    overlaps = {}
    for entries in diary:
        for (u, first), (v, second) in combinations(entries, 2):
            overlaps[u, v] = np.where(first.astype(np.int64) @ second.T.astype(np.int64), -np.inf, 0.0)
    factors += [Factor.of(scope, table) for scope, table in overlaps.items()]
    name = f"dimes-{params.model}_p{params.persons}_e{params.events}_t{params.slots}_s{params.seed}"
    return problem_of_domains(name, names, domains, owner, factors, "max")


MAX_DIFFERENCE = 2
"""Largest difference of the numbers of breaks of two participants."""


class BusinessSchedule(NamedTuple):
    """A problem; participants, meetings and slots count from 0.

    Attributes
    ----------
    name : str
        Name of the problem.
    participants, tables, slots : int
        Number of participants, of tables, and of slots.
    meetings : list of (int, int)
        The participants of each meeting.
    allowed : list of list of int
        The possible slots of each meeting.
    before : list of (int, int)
        Pairs of meetings of which the first is held in an earlier slot.
    """

    name: str
    participants: int
    tables: int
    slots: int
    meetings: list[tuple[int, int]]
    allowed: list[list[int]]
    before: list[tuple[int, int]]


class BusinessMeetings(Parameters, frozen=True, kw_only=True):
    """Parameters of a business-to-business event.

    Attributes
    ----------
    participants : int
        Number of participants; the last one has at most one meeting.
    slots : int
        Number of slots.
    tables : int
        Number of tables, which are all used in each slot if there are enough participants.
    """

    participants: Count = 40
    slots: Count = 8
    tables: Count = 16


def generate_business_meetings(given: BusinessMeetings) -> Problem:
    """Generate a problem that has a feasible schedule: random pairs of participants meet in each slot.

    Raises
    ------
    ConfigError
        If there are fewer than three participants.
    """
    if given.participants < 3:
        raise ConfigError(f"participants: at least 3 are needed, not {given.participants}")
    rng = np.random.default_rng(given.seed)
    meetings = set[tuple[int, int]]()
    for _ in range(given.slots):
        order = rng.permutation(given.participants - 1).tolist()
        for first, second in list(zip(order[::2], order[1::2], strict=False))[: given.tables]:
            meetings.add((min(first, second), max(first, second)))
    pairs = sorted(meetings)
    allowed = [list(range(given.slots)) for _ in pairs]
    name = f"business-meetings_{given.participants}_{given.slots}_{given.tables}_{given.seed}"
    return problem_of_schedule(
        BusinessSchedule(name, given.participants, given.tables, given.slots, pairs, allowed, [])
    )


def problem_of_schedule(schedule: BusinessSchedule) -> Problem:
    """Return the problem: a variable for each meeting, whose value is its slot.

    Some participant has to have at most one meeting, hence no break, so that all others have at most two breaks.

    Raises
    ------
    ConfigError
        If all participants have two meetings or more.
    """
    build = Builder(sense="min", name=schedule.name)
    names = [build.variable(f"m{m}", slots) for m, slots in enumerate(schedule.allowed)]
    own = [[m for m, pair in enumerate(schedule.meetings) if p in pair] for p in range(schedule.participants)]
    if min(map(len, own)) > 1:
        raise ConfigError(f"{schedule.name}: all participants have several meetings")
    for slot in range(schedule.slots):
        there = [name for name, slots in zip(names, schedule.allowed, strict=True) if slot in slots]
        if len(there) > schedule.tables:
            build.at_most(schedule.tables, there, [slot], name=f"tables {slot}")
    for p, meetings in enumerate(own):
        if len(meetings) < 2:
            continue
        mine = [names[m] for m in meetings]
        build.all_different(mine, name=f"participant {p}").breaks(mine, cost=1, name=f"breaks {p}")
        if len(mine) > MAX_DIFFERENCE + 1:
            build.breaks(mine, at_most=MAX_DIFFERENCE, name=f"fairness {p}")
    for first, second in schedule.before:
        build.precedence(names[first], names[second], 1, name="precedence")
    return build.problem()


# Distributions as in Timefold's data with 50 meetings: grains of a quarter of an hour with their numbers of meetings,
# and seats of rooms, repeated for more rooms.
_GRAINS = {1: 9, 2: 2, 3: 10, 4: 5, 6: 7, 8: 8, 16: 9}
_CAPACITIES = (30, 20, 16, 14, 12)
_PART_OF_PAIRS = 0.4  # part of the meetings with two required attendees; the others have up to _MAX_REQUIRED
_MAX_REQUIRED = 15
_PART_OF_FEW = 0.7  # part of the meetings with at most _FEW preferred attendees; the others have up to _MAX_PREFERRED
_FEW, _MAX_PREFERRED = 5, 15
_MEETINGS_PER_DAY = 10  # meetings per day if the number of days is not given
_PERSONS_PER_MEETING = 0.8  # persons per meeting if their number is not given


CountOrDefault = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class TimefoldMeetings(Parameters, frozen=True, kw_only=True):
    """Parameters of a meeting schedule with rooms.

    Attributes
    ----------
    meetings : int
        Number of meetings.
    rooms : int
        Number of rooms.
    days : int
        Number of days; 0 for a tenth of the meetings.
    grains : int
        Time grains of a day, at least 16.
    persons : int
        Number of persons; 0 for four fifths of the meetings.
    """

    meetings: Count = 50
    rooms: Count = 5
    days: CountOrDefault = 0
    grains: Count = 32
    persons: CountOrDefault = 0


def generate_timefold_meetings(given: TimefoldMeetings) -> Problem:
    """Generate a problem."""
    return problem_of(plan_of(given))


def plan_of(given: TimefoldMeetings) -> MeetingPlan:
    """Generate the data of a problem.

    Raises
    ------
    ConfigError
        If the longest meeting is longer than a day.
    """
    if given.grains < max(_GRAINS):
        raise ConfigError(f"grains: at least {max(_GRAINS)} are needed, not {given.grains}")
    rng = np.random.default_rng(given.seed)
    days = given.days or -(-given.meetings // _MEETINGS_PER_DAY)
    persons = given.persons or max(2, int(_PERSONS_PER_MEETING * given.meetings))
    capacities = [_CAPACITIES[i % len(_CAPACITIES)] for i in range(given.rooms)]
    meetings = []
    for m in range(given.meetings):
        required = 2 if rng.random() < _PART_OF_PAIRS else int(rng.integers(3, _MAX_REQUIRED + 1))
        preferred = int(rng.integers(_FEW + 1 if rng.random() < _PART_OF_FEW else _MAX_PREFERRED + 1))
        size = min(persons, max(capacities), required + preferred)
        attendees = rng.permutation(persons)[:size].tolist()
        grains = int(rng.choice(list(_GRAINS), p=np.array(list(_GRAINS.values())) / sum(_GRAINS.values())))
        meetings.append(
            TimefoldMeeting(str(m), f"topic {m}", grains, tuple(attendees[:required]), tuple(attendees[required:]))
        )
    return MeetingPlan(
        name=f"timefold-meetings_{given.meetings}_{given.seed}",
        meetings=tuple(meetings),
        persons=tuple(f"person {p}" for p in range(persons)),
        rooms=tuple((f"room {i}", capacity) for i, capacity in enumerate(capacities)),
        days=tuple(grain // given.grains for grain in range(days * given.grains)),
    )
