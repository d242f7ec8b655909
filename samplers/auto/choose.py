"""``auto``: what each agent does, by what it would take: exact elimination, or sampling and a bound.

:func:`choose` decides for all agents at once, from the counts of :mod:`dmcmc.samplers.auto.survey` alone, so that every
rank comes to the same answer. Without a time budget it is given nominal rates: the answer is then the same on every
machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dmcmc.inference.bounds.dual.dual_bound import MOST_ROWS
from dmcmc.inference.bounds.dual.graph import CLUSTER_BYTES
from dmcmc.inference.bounds.dual.row_kernels import FIRST_SHIFTS
from dmcmc.inference.runtime.errors import ResourceError
from dmcmc.samplers.auto.rates import NOMINAL, Rates, sweep_units, update_seconds
from dmcmc.samplers.auto.survey import SAMPLER, Survey

CPU_CELLS, GPU_CELLS = 4_000_000_000, 4_000_000_000_000  # without a time budget: some seconds
ALL_SHARE = 0.5  # of the time budget: eliminations of all agents begin at once if they fit it, and prove the answer
EXACT_SHARE = 0.25  # of it, where they do not: what the first tables leave is divided by where the gap is
FIRST_SHARE = 0.1  # of the time budget goes to the first bounds at most
SOON = 5.0  # seconds: of a longer budget first tables take no more than of this one, where some are not exact
_FIRST_SWEEPS = 3  # of a row, without a time budget
_AGENT = 3e-4  # seconds of an agent, whatever it does
_DETOUR, _DOUBT = 1.5, 7.0  # times what bounds take: they come in slices; and where the graph has few triangles
_WIDEST, _TIGHT = 12, 0.1  # induced width up to which triangles close gaps, given so many a pair and unit of width
_FEW, _SPARSE = 4, 3  # rows of an agent, or pairs a variable, up to which mini-buckets are tried beside dual ascent
_ON_TRIANGLES = ("triangles", "triangles+mini-bucket")
_AMPLE = 2.0  # times the estimate goes to a first bound: to come back to it takes a cycle more


@dataclass(frozen=True)
class Limits:
    """What a run may take.

    Attributes
    ----------
    time : float or None
        Seconds.
    gap : float
    memory, kept : int
        Bytes of an agent's elimination; of what it keeps afterwards.
    cells : int or None
        Joined cells of an agent's elimination at most; None leaves it to the cost model.
    threads, ranks : int
    gpu : bool
        Whether there is one to use.
    opened : bool
        Whether it costs nothing to open it.
    bound : str
        ``auto``, ``none`` or a provider's name.
    """

    time: float | None = None
    gap: float = 0.0
    memory: int = 8 << 30
    kept: int = 2 << 30
    cells: int | None = None
    threads: int = 1
    ranks: int = 1
    gpu: bool = False
    opened: bool = False
    bound: str = "auto"


class Option(NamedTuple):
    """What an agent could do, and about what that takes."""

    method: str
    device: str
    seconds: float
    bytes: int


class Choice(NamedTuple):
    """What an agent does.

    Attributes
    ----------
    method : str
        The local solver.
    bound : str
        The provider of its bound; ``none`` where the table is exact, or none is wanted.
    listed : int
        Rows that its table lists; 0 for all.
    device : {"cpu", "cuda"}
    seconds, bytes
        Estimates; seconds are of the first table, with its bound.
    first_bound : float
        Seconds that a first bound is worth.
    reason : str
    others : tuple of Option
        What else it could do.
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


def exact_option(work: Survey, limits: Limits, rates: Rates) -> Option:
    """Return what exact elimination takes, on the CPU or, where that is quicker, with the GPU's help."""
    cpu = _AGENT + rates.elimination * (work.effort - work.shared + work.shared / limits.threads)
    cpu += rates.byte * work.bytes
    if not limits.gpu or not work.device_buckets:
        return Option("exact", "cpu", cpu, work.bytes)
    way = rates.gpu_trip + work.device_buckets * rates.gpu_bucket
    gpu = _AGENT + rates.elimination * (work.effort - work.device_effort) + way + work.device * rates.gpu_cell
    return Option("exact", "cuda", gpu, work.bytes) if gpu < cpu else Option("exact", "cpu", cpu, work.bytes)


def provider_of(work: Survey, limits: Limits, rates: Rates) -> str:
    """Return what bounds a sampled agent: triangles where they are affordable, and make a difference.

    Mini-buckets are tried beside dual ascent, and what is better goes on, where the agent has few rows, and where its
    graph is sparse and has no triangles. A GPU, which knows dual ascent only, is of no use to an agent of one row.
    """
    if limits.bound != "auto":
        return limits.bound
    if work.rows > MOST_ROWS:
        return "mini-bucket"  # the others enumerate rows
    on_gpu, triangles = limits.gpu and limits.opened, _affords_triangles(work, limits, rates)
    if work.rows == 1 or (work.rows <= _FEW and not on_gpu):
        return "triangles+mini-bucket" if triangles else "dual+mini-bucket"
    if triangles:
        return "triangles"
    return "dual+mini-bucket" if work.pairs <= _SPARSE * work.hidden and not on_gpu else "dual"


def _affords_triangles(work: Survey, limits: Limits, rates: Rates) -> bool:
    """Return whether there are triangles, with memory and time for them."""
    if not work.triangles or 12 * work.values**2 * work.triangles > min(limits.kept, CLUSTER_BYTES):
        return False
    if limits.time is None:
        return True
    return bound_seconds(work, limits, rates, 0.0, "triangles") <= 10 * FIRST_SHARE * limits.time


def bound_seconds(work: Survey, limits: Limits, rates: Rates, sweeps: float, provider: str) -> float:
    """Return what so many sweeps of every row take, with those of the free interface that come first."""
    units = sweep_units(work.pairs, work.triangles if provider in _ON_TRIANGLES else 0, work.values)
    rows = work.rows if work.rows <= MOST_ROWS and provider != "mini-bucket" else 0
    if limits.gpu and limits.opened and rows:
        return rates.gpu_trip + units * (FIRST_SHIFTS * rates.gpu_shift + rows * (sweeps + 0.5) * rates.gpu_sweep)
    return rates.sweep * units * (FIRST_SHIFTS + rows * (sweeps + 0.5) / limits.threads)


def sampled_option(work: Survey, limits: Limits, rates: Rates) -> Option:
    """Return what a first sampling takes."""
    cpu = work.updates * update_seconds(rates, work.values) / limits.threads
    gpu = rates.gpu_trip + work.updates * rates.gpu_update
    quicker = limits.gpu and limits.opened and gpu < cpu
    size = (work.listed or work.rows) * (8 + 16 + 2 * work.hidden)
    return Option(SAMPLER, "cuda" if quicker else "cpu", _AGENT + (gpu if quicker else cpu), size)


def sweeps_for(gap: float, width: int) -> float:
    """Return about how many sweeps of a row bring a bound within a gap: more where the graph is denser."""
    return max(1.0, 0.1 / gap * (width / 8) ** 2) if gap > 0 else float("inf")


def choose(works: Sequence[Survey], limits: Limits, rates: Rates = NOMINAL) -> list[Choice]:
    """Choose for all agents at once.

    Without a time budget an agent is solved exactly up to a fixed number of cells. With one, all are, if that fits half
    of it; else those are at first that have most to gain for their time: the others can be later. Agents whose gap a
    bound will close sooner are sampled, if a gap is allowed.

    Raises
    ------
    ResourceError
        If an agent can neither be eliminated nor sampled within the memory.
    """
    exact = [exact_option(work, limits, rates) for work in works]
    if limits.time is None:
        chosen, why = _by_cells(works, limits, rates)
    else:
        chosen, why = _by_time(works, exact, limits, rates)
    return [
        _choice(work, option, take, text, limits, rates)
        for work, option, take, text in zip(works, exact, chosen, why, strict=True)
    ]


def too_much(work: Survey, limits: Limits) -> str:
    """Return what forbids an exact elimination, or an empty string."""
    if work.bytes > limits.memory:
        return f"exact needs {work.bytes:.2g} bytes, budget.memory leaves it {limits.memory:.2g}"
    if limits.cells is not None and work.cells > limits.cells:
        return f"exact takes {work.cells:.2g} cells, local.cells allows {limits.cells:.2g}"
    return ""


def _by_cells(works: Sequence[Survey], limits: Limits, rates: Rates) -> tuple[list[bool], list[str]]:
    most = limits.cells if limits.cells is not None else GPU_CELLS if limits.gpu else CPU_CELLS
    chosen, why = [], []
    for work in works:
        reason = too_much(work, limits)
        if not reason and work.cells > most:
            reason = f"exact takes {work.cells:.2g} cells, more than {most:.2g}; budget.time lets it weigh them"
        chosen.append(not reason)
        why.append(reason or f"{work.cells:.2g} cells, at most {most:.2g}")
    return chosen, why


def _by_time(
    works: Sequence[Survey], exact: Sequence[Option], limits: Limits, rates: Rates
) -> tuple[list[bool], list[str]]:
    assert limits.time is not None
    why = [too_much(work, limits) for work in works]
    able = [i for i, reason in enumerate(why) if not reason]
    bounded = _quicker_by_bounds(works, exact, limits, rates, able)
    all_fit = len(able) == len(works) and _all_fit(exact, bounded, limits, rates)
    share, time = (ALL_SHARE, limits.time) if all_fit else (EXACT_SHARE, min(limits.time, SOON))
    room = share * time * limits.ranks
    # Those that have most to gain first; the first that does not fit ends it, so that more time never takes one away.
    ranked = sorted(able, key=lambda i: (i in bounded, -works[i].weight / exact[i].seconds, i))
    chosen, used, full, opening = [False] * len(works), 0.0, False, 0.0 if limits.opened else rates.gpu_open
    for i in ranked:
        seconds = exact[i].seconds
        if exact[i].device == "cuda":
            seconds, opening = seconds + opening, 0.0
        if i in bounded:
            why[i] = f"a gap of {100 * limits.gap:.3g} % is sooner proven by bounds"
            continue
        full = full or used + seconds > room
        if full:
            left = _time(max(0.0, room - used))
            why[i] = f"exact takes about {_time(exact[i].seconds)}, {left} of the budget are left for it"
            continue
        used += seconds
        chosen[i], why[i] = True, f"fits in {_time(room)} with {_time(room - used)} to spare"
    return chosen, why


def _all_fit(exact: Sequence[Option], bounded: set[int], limits: Limits, rates: Rates) -> bool:
    """Return whether half of the time is enough for all eliminations but those that bounds are better for."""
    assert limits.time is not None
    wanted = [option for i, option in enumerate(exact) if i not in bounded]
    opening = rates.gpu_open if not limits.opened and any(option.device == "cuda" for option in wanted) else 0.0
    seconds, room = [option.seconds for option in wanted], ALL_SHARE * limits.time
    return sum(seconds) + opening <= room * limits.ranks and max(seconds, default=0.0) + opening <= room


def _quicker_by_bounds(
    works: Sequence[Survey], exact: Sequence[Option], limits: Limits, rates: Rates, able: Sequence[int]
) -> set[int]:
    """Return the agents whose gap is closed as far as wanted sooner by samples and a bound than exactly."""
    if limits.gap <= 0 or limits.bound == "none" or limits.time is None:
        return set()
    found: set[int] = set()
    for i in able:
        work = works[i]
        provider = provider_of(work, limits, rates)
        if (
            work.obstacle
            or work.width > _WIDEST
            or provider == "mini-bucket"
            or (provider not in _ON_TRIANGLES and work.triangles)
        ):
            continue
        takes = sampled_option(work, limits, rates).seconds
        takes += bound_seconds(work, limits, rates, sweeps_for(limits.gap, work.width), provider)
        tight = work.triangles >= _TIGHT * work.width * work.pairs
        if takes * (_DETOUR if tight else _DOUBT) < exact[i].seconds:
            found.add(i)
    return found


def _choice(work: Survey, exact: Option, take: bool, why: str, limits: Limits, rates: Rates) -> Choice:
    if not take and work.obstacle and not too_much(work, limits):
        take, why = True, "its rows are too many to be sampled"
    if take:
        others = () if work.obstacle else (sampled_option(work, limits, rates),)
        return Choice("exact", "none", 0, exact.device, exact.seconds, exact.bytes, 0.0, why, others)
    if work.obstacle:
        raise ResourceError(work.obstacle)
    return sampled_choice(work, SAMPLER, why, limits, rates)._replace(others=(exact,))


def sampled_choice(work: Survey, method: str, why: str, limits: Limits, rates: Rates) -> Choice:
    """Return the choice of a sampler, whichever, with the bound beside it."""
    sampled, provider = sampled_option(work, limits, rates), provider_of(work, limits, rates)
    sweeps = _FIRST_SWEEPS if limits.time is None else min(30.0, max(_FIRST_SWEEPS, sweeps_for(limits.gap, work.width)))
    first = 0.0 if provider == "none" else bound_seconds(work, limits, rates, sweeps, provider)
    seconds = sampled.seconds + first
    return Choice(method, provider, work.listed, sampled.device, seconds, sampled.bytes, _AMPLE * first, why)


def fixed_choice(work: Survey, method: str, limits: Limits, rates: Rates = NOMINAL) -> Choice:
    """Return the choice of a method that was asked for; a sampler where ``exact`` does not fit and time is limited.

    Raises
    ------
    ResourceError
        If an agent can neither be eliminated nor sampled within the memory.
    """
    why = f"local.method: {method}"
    if method != "exact":
        return sampled_choice(work, method, why, limits, rates)
    if limits.time is not None and work.bytes > limits.memory:
        if work.obstacle:
            raise ResourceError(work.obstacle)
        return sampled_choice(work, SAMPLER, too_much(work, limits), limits, rates)
    option = exact_option(work, limits, rates)
    return Choice("exact", "none", 0, option.device, option.seconds, option.bytes, 0.0, why)


def _time(seconds: float) -> str:
    """Return seconds for the reader.

    >>> _time(0.0123), _time(1e9)
    ('0.012 s', '1e+09 s')
    """
    return f"{seconds:.2g} s" if seconds < 100 or seconds >= 1e6 else f"{seconds:.0f} s"
