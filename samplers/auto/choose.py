"""Which sampler an agent uses, after a survey of its tables.

``auto``: choose each agent's method by its estimated time: exact elimination, or sampling with a bound.

A sampled agent has one *row* per assignment of its boundary variables (its interface); its table is a lower bound. A
*bound provider* computes the upper bound: dual ascent over pairs or triangles (triples of pairwise connected
variables) in *sweeps*, passes over the agent's graph, or mini-buckets (elimination with bounded tables).

:func:`choose` decides for all agents at once, only from the counts of :mod:`dmcmc.samplers.auto.choose`, so that every
rank makes the same choice. Without a time budget the caller passes nominal rates, which makes the choice the same on
every machine.

Inspect this machine for ``auto``: its rates, and whether a GPU is available.

Count an agent's work on the rank that has the agent; :mod:`dmcmc.samplers.auto.choose` decides by the counts.

An agent's hidden variables are eliminated (each in a *bucket*, which joins tables; *cells* are the entries of a joined
table) or sampled for each *row*, an assignment of its boundary variables (its interface).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.bounds.contract.tuning import INITIAL_SWEEPS
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.plan import EliminationPlan
from dmcmc.inference.model.arithmetic import Arithmetic
from dmcmc.inference.model.compact_sequences import RepeatedRecords
from dmcmc.inference.orders.best_order import Order
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.inference.runtime.memo import Memo
from dmcmc.inference.tuning import MAX_ENUMERATED_ENTRIES, MAX_WORKSPACE_BYTES
from dmcmc.samplers.auto.rates import NOMINAL, Rates, bucket_efforts, sweep_units, update_seconds
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods.exact import least_entries
from dmcmc.samplers.model.chain_model import check_chain_memory

SAMPLER = "annealing"  # sampler of agents that are not eliminated


class AgentWorkCounts(NamedTuple):
    """Counts of an agent's work.

    Attributes
    ----------
    agent : int
        Number of the agent.
    hidden, interface : int
        Number of hidden variables, and of boundary variables (the agent's interface).
    rows : int
        Number of boundary assignments.
    listed_rows : int
        Number of rows that sampling would list; 0 for all.
    width : int
        Induced width of the elimination.
    cells : float
        Joined cells of the elimination.
    effort, shared : float
        Nanoseconds on one core of a nominal machine; the part of the buckets on which all threads work.
    device, device_effort, device_buckets : float, float, int
        Cells, CPU nanoseconds and number of the buckets that a GPU would eliminate.
    bytes : int
        Memory of the elimination's tables; in slices, if it does not fit the memory otherwise.
    updates : float
        Draws of a first sampling.
    values : float
        Mean domain size.
    pairs, triangles : int
        Pairs of hidden variables with a common binary factor, and triples of variables that are pairwise such pairs.
    weight : float
        Sum of the factors' largest absolute entries: a scale of the agent's possible gap.
    obstacle : str
        Why the agent cannot be sampled; empty if it can.
    remaining_scopes : tuple of tuple of int
        Scopes of the tables that remain after the elimination, as indices of boundary variables.
    """

    agent: int
    hidden: int
    interface: int
    rows: int
    listed_rows: int
    width: int
    cells: float
    effort: float
    shared: float
    device: float
    device_effort: float
    device_buckets: int
    bytes: int
    updates: float
    values: float
    pairs: int
    triangles: int
    weight: float
    obstacle: str
    remaining_scopes: tuple[tuple[int, ...], ...] = ()

    def remaining_tables(self, interface: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Return the scopes of the tables that remain after the elimination, as variables."""
        return tuple(tuple([interface[place] for place in scope]) for scope in self.remaining_scopes)


class WorkCountList(Sequence[AgentWorkCounts]):
    """The counts of all agents, on every rank; agents with equal counts share one record.

    Attributes
    ----------
    kinds : RepeatedRecords of AgentWorkCounts
        The counts of each agent without its number and weight.
    weights : (agents,) float64
        The weights of the agents.
    """

    def __init__(self, kinds: RepeatedRecords[AgentWorkCounts], weights: NDArray[np.float64]) -> None:
        self.kinds, self.weights = kinds, weights

    @classmethod
    def of(cls, works: Sequence[AgentWorkCounts]) -> "WorkCountList":
        """Return a compact list of counts; the agents' numbers are dropped."""
        weights = np.array([work.weight for work in works], dtype=np.float64)
        return cls(RepeatedRecords.of(work._replace(agent=0, weight=0.0) for work in works), weights)

    @classmethod
    def merged(cls, count: int, parts: Iterable[tuple[Sequence[int], "WorkCountList"]]) -> "WorkCountList":
        """Merge parts into one list of ``count`` agents; each part names its agents."""
        number: dict[AgentWorkCounts, int] = {}
        record_of, weights = np.zeros(count, dtype=np.int64), np.zeros(count)
        for agents, works in parts:
            places = [number.setdefault(work, len(number)) for work in works.kinds.distinct]
            record_of[list(agents)] = np.array(places, dtype=np.int64)[works.kinds.record_index]
            weights[list(agents)] = works.weights
        _, first, record_of = np.unique(record_of, return_index=True, return_inverse=True)
        kinds, order = list(number), np.argsort(first)  # in the order of the agents, independent of the ranks
        codes = np.argsort(order)[record_of.ravel()]
        return cls(RepeatedRecords([kinds[kind] for kind in order], codes), weights)

    def __len__(self) -> int:
        return len(self.kinds)

    @overload
    def __getitem__(self, agent: int) -> AgentWorkCounts: ...
    @overload
    def __getitem__(self, agent: slice) -> list[AgentWorkCounts]: ...
    def __getitem__(self, agent: int | slice) -> AgentWorkCounts | list[AgentWorkCounts]:
        if isinstance(agent, slice):
            return [self[one] for one in range(*agent.indices(len(self)))]
        return self.kinds[agent]._replace(agent=range(len(self))[agent], weight=float(self.weights[agent]))


def count_agent_work(
    local: LocalProblem,
    listed: int,
    runs: int,
    samples: int,
    memory: int,
    arithmetic: Arithmetic,
    planned: bool = True,
    bounded: bool = True,
) -> AgentWorkCounts:
    """Count an agent's work.

    Parameters
    ----------
    local : LocalProblem
        The agent's subproblem.
    listed : int
        Rows that sampling would list; 0 for all.
    runs, samples : int
        Runs per row and trials per run of a first sampling.
    memory : int
        Bytes that the tables of the agent may take.
    arithmetic : Arithmetic
        Number format of the tables.
    planned : bool
        Whether to plan the elimination, which takes a moment; if not, it counts as no work, and the agent is known to
        be one that can be sampled.
    bounded : bool
        Whether the table of a sampled agent may get an upper bound; if not, pairs and triangles, whose number the time
        of a bound depends on, may count as none.
    """
    if planned:
        order, plan = local.order, local.plan
        places = {v: i for i, v in enumerate(local.hidden)}
        key = local.structure_key, tuple(places[v] for v in order.variables)
        work, remaining = _COUNTS_BY_SHAPE.get(key, lambda: _count(local, plan)), _remaining_scopes(local, plan)
        entries = least_entries(local, memory, arithmetic)
    else:
        order, graph = Order((), 0.0, 0.0, 0), _graph(local) if bounded else (0, 0)
        work = _ShapeCounts(0.0, 0.0, 0.0, 0.0, 0, *graph)
        remaining, entries = (tuple(range(len(local.interface))),), 0
    members = list(local.hidden or local.interface)
    return AgentWorkCounts(
        agent=local.agent,
        hidden=len(local.hidden),
        interface=len(local.interface),
        rows=local.rows,
        listed_rows=listed,
        width=order.width,
        cells=order.cells,
        **work._asdict(),
        bytes=entries * arithmetic.dtype.itemsize,
        updates=float(listed or local.rows) * runs * samples * len(local.hidden),
        values=int(local.domains[members].sum()) / len(members) if members else 1.0,
        weight=_weight(local),
        obstacle=_obstacle(local, listed, memory, arithmetic) if planned else "",
        remaining_scopes=remaining,
    )


def weights_of(locals_: Iterable[LocalProblem]) -> NDArray[np.float64]:
    """Return each agent's weight, (agents,) float64."""
    return np.array([_weight(local) for local in locals_], dtype=np.float64)


def _weight(local: LocalProblem) -> float:
    """Return the sum of the agent's largest absolute entries."""
    return float(sum(local.ranges.magnitudes))


def _remaining_scopes(local: LocalProblem, plan: EliminationPlan) -> tuple[tuple[int, ...], ...]:
    """Return the scopes of the tables that a plan leaves, as indices of boundary variables."""
    place = {v: number for number, v in enumerate(local.interface)}
    return tuple({tuple([place[v] for v in plan.scope(t)]): None for t in plan.remaining})


class _ShapeCounts(NamedTuple):
    """The counts that agents of one shape share, see ``AgentWorkCounts``."""

    effort: float
    shared: float
    device: float
    device_effort: float
    device_buckets: int
    pairs: int
    triangles: int


_COUNTS_BY_SHAPE = Memo[_ShapeCounts]()


def _count(local: LocalProblem, plan: EliminationPlan) -> _ShapeCounts:
    """Count the work of an agent's elimination, and its graph."""
    cells = plan.program.cells.astype(np.float64)
    on_gpu, efforts = cells >= tuning.PARALLEL_CELLS, bucket_efforts(plan)
    return _ShapeCounts(
        float(efforts.sum()),
        float(efforts[cells >= tuning.PARALLEL_CELLS].sum()),
        float(cells[on_gpu].sum()),
        float(efforts[on_gpu].sum()),
        int(on_gpu.sum()),
        *_graph(local),
    )


def _obstacle(local: LocalProblem, listed: int, memory: int, arithmetic: Arithmetic) -> str:
    """Return why an agent cannot be sampled, or an empty string."""
    if listed:
        hidden = (*local.interface, *local.hidden)
        local = LocalProblem(local.agent, (), hidden, local.factors, local.domains)
    try:
        check_chain_memory(SAMPLER, local, memory, arithmetic)
    except ResourceError as error:
        return str(error)
    return ""


def _graph(local: LocalProblem) -> tuple[int, int]:
    """Return the number of pairs and triangles in the graph of the hidden variables' binary factors.

    With the adjacency matrix A, the number of triangles is Σ (A² ∘ A) / 6; 0 if the graph is too large for A.
    """
    start, scope = local.scope_arrays
    first = start[:-1][np.diff(start) == 2]
    variables, hidden = scope[first[:, np.newaxis] + np.arange(2)], np.array(local.hidden, dtype=np.int64)
    low, high = np.sort(variables[np.isin(variables, hidden).all(axis=1)], axis=1).T
    pairs = np.unique(np.searchsorted(hidden, low) * hidden.size + np.searchsorted(hidden, high))
    if len(pairs) < 3 or hidden.size**2 > tuning.LARGE_ENTRIES:
        return len(pairs), 0
    low, high = np.divmod(pairs, hidden.size)
    adjacent = np.zeros((hidden.size, hidden.size), dtype=np.float32)
    adjacent[low, high] = adjacent[high, low] = 1
    return len(pairs), round(float((adjacent @ adjacent * adjacent).sum(dtype=np.float64)) / 6)


_ON_TRIANGLES = ("triangles", "triangles+mini-bucket")


@dataclass(frozen=True)
class ResourceLimits:
    """Resource limits of a run.

    Attributes
    ----------
    time : float or None
        Time budget in seconds; None without one.
    gap : float
        Relative gap that is sufficient.
    memory : int
        Bytes for the elimination of one agent.
    retained_memory : int
        Bytes that one agent may retain afterwards.
    cells : int or None
        Maximum of joined cells per agent's elimination; None leaves it to the cost model.
    threads, ranks : int
        Threads per rank, and number of ranks.
    gpu : bool
        Whether a GPU can be used.
    opened : bool
        Whether the GPU can be used without its start-up time.
    bound : str
        ``auto``, ``none`` or the name of a bound provider.
    """

    time: float | None = None
    gap: float = 0.0
    memory: int = 8 << 30
    retained_memory: int = 2 << 30
    cells: int | None = None
    threads: int = 1
    ranks: int = 1
    gpu: bool = False
    opened: bool = False
    bound: str = "auto"


class Option(NamedTuple):
    """A method for one agent, with its estimated time and memory.

    Attributes
    ----------
    method : str
        Name of the local solver.
    device : {"cpu", "cuda"}
        Where it runs.
    seconds : float
        Estimated time.
    bytes : int
        Estimated memory.
    """

    method: str
    device: str
    seconds: float
    bytes: int


class AgentChoice(NamedTuple):
    """The chosen method of an agent.

    Attributes
    ----------
    method : str
        Name of the local solver.
    bound : str
        Name of the bound provider; ``none`` if the table is exact or no bound is wanted.
    listed : int
        Number of rows listed by the (sparse) table; 0 for all rows.
    device : {"cpu", "cuda"}
        Where the method runs.
    seconds, bytes
        Estimates; ``seconds`` includes the first table and its bound.
    first_bound : float
        Seconds to spend on a first bound.
    reason : str
        Why the method was chosen.
    others : tuple of Option
        The alternatives.
    """

    method: str
    bound: str
    listed: int
    device: str
    seconds: float
    bytes: int
    first_bound: float
    reason: str
    others: tuple[Option, ...] = ()


def exact_option(work: AgentWorkCounts, limits: ResourceLimits, rates: Rates) -> Option:
    """Return the estimate of exact elimination, on the CPU or with the GPU, whichever is faster."""
    cpu = tuning.SECONDS_PER_AGENT + rates.elimination * (work.effort - work.shared + work.shared / limits.threads)
    cpu += rates.byte * work.bytes
    if not limits.gpu or not work.device_buckets:
        return Option("exact", "cpu", cpu, work.bytes)
    overhead = rates.gpu_trip + work.device_buckets * rates.gpu_bucket
    gpu = (
        tuning.SECONDS_PER_AGENT
        + rates.elimination * (work.effort - work.device_effort)
        + overhead
        + work.device * rates.gpu_cell
    )
    return Option("exact", "cuda", gpu, work.bytes) if gpu < cpu else Option("exact", "cpu", cpu, work.bytes)


def provider_of(work: AgentWorkCounts, limits: ResourceLimits, rates: Rates) -> str:
    """Return the bound provider of a sampled agent; triangles are used if they are affordable and the graph has some.

    Mini-buckets are tried besides dual ascent, and the better one continues, if the agent has few rows, or its graph is
    sparse without triangles. The GPU supports dual ascent only, and does not help an agent with a single row.
    """
    if limits.bound != "auto":
        return limits.bound
    if work.rows > MAX_ENUMERATED_ENTRIES:
        return "mini-bucket"  # the other providers enumerate rows
    on_gpu, triangles = limits.gpu and limits.opened, _affords_triangles(work, limits, rates)
    if work.rows == 1 or (work.rows <= tuning.FEW_ROWS and not on_gpu):
        return "triangles+mini-bucket" if triangles else "dual+mini-bucket"
    if triangles:
        return "triangles"
    return "dual+mini-bucket" if work.pairs <= tuning.SPARSE_PAIRS * work.hidden and not on_gpu else "dual"


def _affords_triangles(work: AgentWorkCounts, limits: ResourceLimits, rates: Rates) -> bool:
    """Return whether there are triangles, and enough memory and time for them."""
    # A triangle has three tables of four-byte entries: 12 bytes per pair of values.
    if not work.triangles or 12 * work.values**2 * work.triangles > min(limits.retained_memory, MAX_WORKSPACE_BYTES):
        return False
    if limits.time is None:
        return True
    # The first sweeps may take up to the whole time budget: 10 · 0.1 = 1 (factor chosen by measurement).
    return bound_seconds(work, limits, rates, 0.0, "triangles") <= 10 * tuning.UNTRIED_SHARE * limits.time


def bound_seconds(work: AgentWorkCounts, limits: ResourceLimits, rates: Rates, sweeps: float, provider: str) -> float:
    """Estimate the time of ``sweeps`` sweeps per row, including the first sweeps with free boundary variables.

    Conditioning the bound on a row takes about half a sweep. Providers that do not enumerate rows have the first
    sweeps only.
    """
    units = sweep_units(work.pairs, work.triangles if provider in _ON_TRIANGLES else 0, work.values)
    rows = work.rows if work.rows <= MAX_ENUMERATED_ENTRIES and provider != "mini-bucket" else 0
    if limits.gpu and limits.opened and rows:
        return rates.gpu_trip + units * (INITIAL_SWEEPS * rates.gpu_shift + rows * (sweeps + 0.5) * rates.gpu_sweep)
    return rates.sweep * units * (INITIAL_SWEEPS + rows * (sweeps + 0.5) / limits.threads)


def sampled_option(work: AgentWorkCounts, limits: ResourceLimits, rates: Rates) -> Option:
    """Return the estimate of a first sampling, on the CPU or with the GPU, whichever is faster.

    The GPU is considered only if it has been started already.
    """
    cpu = work.updates * update_seconds(rates, work.values) / limits.threads
    gpu = rates.gpu_trip + work.updates * rates.gpu_update
    quicker = limits.gpu and limits.opened and gpu < cpu
    # Per row: an entry of the table, two utilities, and two states of a byte per hidden variable.
    size = (work.listed_rows or work.rows) * (8 + 16 + 2 * work.hidden)
    return Option(SAMPLER, "cuda" if quicker else "cpu", tuning.SECONDS_PER_AGENT + (gpu if quicker else cpu), size)


def sweeps_for(gap: float, width: int) -> float:
    """Estimate the number of sweeps per row that bring a bound within a gap; it grows with the induced width.

    The estimate is max(1, 0.1 / gap · (width / 8)²), chosen by measurement; infinite for a gap of 0.
    """
    return max(1.0, 0.1 / gap * (width / 8) ** 2) if gap > 0 else float("inf")


def choose(works: Sequence[AgentWorkCounts], limits: ResourceLimits, rates: Rates = NOMINAL) -> list[AgentChoice]:
    """Choose the methods of all agents.

    Without a time budget an agent is solved exactly up to a fixed number of cells. With one, all are if that takes half
    of it at most. Otherwise the agents with the largest possible gap per second are solved exactly first; the others
    can follow later. Agents whose gap a bound closes sooner are sampled, if a gap is allowed.

    Parameters
    ----------
    works : sequence of AgentWorkCounts
        Counts of all agents.
    limits : ResourceLimits
        Limits of the run.
    rates : Rates
        Rates of the machine.

    Raises
    ------
    ResourceError
        If an agent can neither be eliminated nor sampled within the memory.
    """
    exact = [exact_option(work, limits, rates) for work in works]
    if limits.time is None:
        exact_chosen, reasons = _by_cells(works, limits, rates)
    else:
        exact_chosen, reasons = _by_time(works, exact, limits, rates)
    return [
        _choice(work, option, is_exact, reason, limits, rates)
        for work, option, is_exact, reason in zip(works, exact, exact_chosen, reasons, strict=True)
    ]


def exceeded_limit(work: AgentWorkCounts, limits: ResourceLimits) -> str:
    """Return which limit an exact elimination exceeds, or an empty string."""
    if work.bytes > limits.memory:
        return f"exact needs {work.bytes:.2g} bytes, budget.memory leaves {limits.memory:.2g}"
    if limits.cells is not None and work.cells > limits.cells:
        return f"exact takes {work.cells:.2g} cells, local.cells allows {limits.cells:.2g}"
    return ""


def _by_cells(works: Sequence[AgentWorkCounts], limits: ResourceLimits, rates: Rates) -> tuple[list[bool], list[str]]:
    """Return which agents are solved exactly without a time budget, and why."""
    cell_limit = limits.cells if limits.cells is not None else tuning.GPU_CELLS if limits.gpu else tuning.CPU_CELLS
    chosen, reasons = [], []
    for work in works:
        reason = exceeded_limit(work, limits)
        if not reason and work.cells > cell_limit:
            reason = (
                f"exact takes {work.cells:.2g} cells, more than {cell_limit:.2g}; with budget.time the time decides"
            )
        chosen.append(not reason)
        reasons.append(reason or f"{work.cells:.2g} cells, at most {cell_limit:.2g}")
    return chosen, reasons


def _by_time(
    works: Sequence[AgentWorkCounts], exact: Sequence[Option], limits: ResourceLimits, rates: Rates
) -> tuple[list[bool], list[str]]:
    """Return which agents are solved exactly with a time budget, and why."""
    assert limits.time is not None
    reasons = [exceeded_limit(work, limits) for work in works]
    eligible = [i for i, reason in enumerate(reasons) if not reason]
    bounded = _quicker_by_bounds(works, exact, limits, rates, eligible)
    all_fit = len(eligible) == len(works) and _all_fit(exact, bounded, limits, rates)
    time = limits.time if all_fit else min(limits.time, tuning.FIRST_TABLE_SECONDS) / 2
    time_limit = tuning.MAIN_SHARE * time * limits.ranks
    # Largest possible gain per second first. The first that does not fit ends the list: more time never removes one.
    ranked = sorted(eligible, key=lambda i: (i in bounded, -works[i].weight / exact[i].seconds, i))
    chosen, used_seconds, is_full, opening = [False] * len(works), 0.0, False, 0.0 if limits.opened else rates.gpu_open
    for i in ranked:
        seconds = exact[i].seconds
        if exact[i].device == "cuda":
            seconds, opening = seconds + opening, 0.0
        if i in bounded:
            reasons[i] = f"a gap of {100 * limits.gap:.3g} % is proven sooner by bounds"
            continue
        is_full = is_full or used_seconds + seconds > time_limit
        if is_full:
            left = _time(max(0.0, time_limit - used_seconds))
            reasons[i] = f"exact takes about {_time(exact[i].seconds)}, {left} of the budget remain for it"
            continue
        used_seconds += seconds
        chosen[i], reasons[i] = True, f"fits in {_time(time_limit)} with {_time(time_limit - used_seconds)} to spare"
    return chosen, reasons


def _all_fit(exact: Sequence[Option], bounded: set[int], limits: ResourceLimits, rates: Rates) -> bool:
    """Return whether half of the time suffices for all eliminations, except where bounds are better."""
    assert limits.time is not None
    wanted = [option for i, option in enumerate(exact) if i not in bounded]
    opening = rates.gpu_open if not limits.opened and any(option.device == "cuda" for option in wanted) else 0.0
    seconds, time_limit = [option.seconds for option in wanted], tuning.MAIN_SHARE * limits.time
    return sum(seconds) + opening <= time_limit * limits.ranks and max(seconds, default=0.0) + opening <= time_limit


def _quicker_by_bounds(
    works: Sequence[AgentWorkCounts],
    exact: Sequence[Option],
    limits: ResourceLimits,
    rates: Rates,
    eligible: Sequence[int],
) -> set[int]:
    """Return the agents whose gap samples and a bound close sooner, as far as needed, than an exact elimination."""
    if limits.gap <= 0 or limits.bound == "none" or limits.time is None:
        return set()
    quicker: set[int] = set()
    for i in eligible:
        work = works[i]
        provider = provider_of(work, limits, rates)
        if (
            work.obstacle
            or work.width > tuning.MAX_TIGHT_WIDTH
            or provider == "mini-bucket"
            or (provider not in _ON_TRIANGLES and work.triangles)
        ):
            continue
        seconds = sampled_option(work, limits, rates).seconds
        seconds += bound_seconds(work, limits, rates, sweeps_for(limits.gap, work.width), provider)
        closes_gaps = work.triangles >= tuning.MIN_TRIANGLE_DENSITY * work.width * work.pairs
        if seconds * (tuning.SLICING_FACTOR if closes_gaps else tuning.UNCERTAIN_FACTOR) < exact[i].seconds:
            quicker.add(i)
    return quicker


def _choice(
    work: AgentWorkCounts, exact: Option, is_exact: bool, reason: str, limits: ResourceLimits, rates: Rates
) -> AgentChoice:
    """Return an agent's choice, given whether it fits exactly."""
    if not is_exact and work.obstacle and not exceeded_limit(work, limits):
        is_exact, reason = True, "it has too many rows for sampling"
    if is_exact:
        others = () if work.obstacle else (sampled_option(work, limits, rates),)
        return AgentChoice("exact", "none", 0, exact.device, exact.seconds, exact.bytes, 0.0, reason, others)
    if work.obstacle:
        raise ResourceError(work.obstacle)
    return sampled_choice(work, SAMPLER, reason, limits, rates)._replace(others=(exact,))


def sampled_choice(
    work: AgentWorkCounts, method: str, reason: str, limits: ResourceLimits, rates: Rates
) -> AgentChoice:
    """Return the choice of a given sampler, with its bound provider."""
    sampled, provider = sampled_option(work, limits, rates), provider_of(work, limits, rates)
    sweeps: float = tuning.UNTIMED_ROW_SWEEPS
    if limits.time is not None:
        sweeps = min(float(INITIAL_SWEEPS), max(sweeps, sweeps_for(limits.gap, work.width)))
    first = 0.0 if provider == "none" else bound_seconds(work, limits, rates, sweeps, provider)
    seconds = sampled.seconds + first
    size, first_bound = sampled.bytes, tuning.SLICING_FACTOR * first
    return AgentChoice(method, provider, work.listed_rows, sampled.device, seconds, size, first_bound, reason)


def fixed_choice(work: AgentWorkCounts, method: str, limits: ResourceLimits, rates: Rates = NOMINAL) -> AgentChoice:
    """Return the choice of a requested method; a sampler if ``exact`` does not fit in memory and time is limited.

    Raises
    ------
    ResourceError
        If an agent can neither be eliminated nor sampled within the memory.
    """
    reason = f"local.method: {method}"
    if method != "exact":
        return sampled_choice(work, method, reason, limits, rates)
    if limits.time is not None and work.bytes > limits.memory:
        if work.obstacle:
            raise ResourceError(work.obstacle)
        return sampled_choice(work, SAMPLER, exceeded_limit(work, limits), limits, rates)
    option = exact_option(work, limits, rates)
    return AgentChoice("exact", "none", 0, option.device, option.seconds, option.bytes, 0.0, reason)


def _time(seconds: float) -> str:
    """Format seconds for messages.

    >>> _time(0.0123), _time(1e9)
    ('0.012 s', '1e+09 s')
    """
    return f"{seconds:.2g} s" if seconds < 100 or seconds >= 1e6 else f"{seconds:.0f} s"


def inspect_machine(
    surveys: Sequence[AgentWorkCounts], limits: ResourceLimits, device: str, measure: Callable[[], Rates]
) -> tuple[ResourceLimits, Rates]:
    """Return limits that say whether there is a GPU, and the machine's rates; both only if they can change a choice.

    Parameters
    ----------
    surveys : sequence of AgentWorkCounts
        Counts of all agents.
    limits : ResourceLimits
        Limits of the run.
    device : {"auto", "cpu", "cuda"}
        Which device may be used.
    measure : callable
        Returns this machine's rates.
    """
    needed = [exact_option(work, limits, NOMINAL).seconds for work in surveys]
    opened = device == "cuda"
    if opened or (device == "auto" and _gpu_may_change(surveys, sum(needed), limits)):
        limits = replace(limits, gpu=gpu_problem() is None, opened=opened)
    measured = limits.time is not None and sum(needed) > tuning.UNTRIED_SHARE * limits.time
    return limits, measure() if measured else NOMINAL


def _gpu_may_change(surveys: Sequence[AgentWorkCounts], seconds: float, limits: ResourceLimits) -> bool:
    """Return whether a GPU could change the choice: to look for one takes a moment."""
    if limits.time is not None:
        return limits.time > NOMINAL.gpu_open and seconds > NOMINAL.gpu_open
    return limits.cells is None and any(work.cells > tuning.CPU_CELLS for work in surveys)
