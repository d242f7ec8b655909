"""The settings of a run: how agents' tables are made and combined, time and memory limits, and the device.

They are records with their units and limits; :mod:`dmcmc.config.make_settings` makes and checks them.
"""

import math
import re
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dmcmc.inference.runtime.memory import free_memory, memory_limit

MAX_COUNT = 2**31 - 1  # largest number of samples, rows and other counts
_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("IB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def bytes_of(text: str) -> int:
    """Return a size such as ``"8GiB"`` in bytes.

    Units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB; other texts raise a ``ValueError``.

    >>> bytes_of("1.5 KiB"), bytes_of("2MB"), bytes_of("77")
    (1536, 2000000, 77)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(text)
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


def bytes_or_auto(text: str) -> int | str:
    """Return a size in bytes, or the word ``auto``."""
    return text if text == "auto" else bytes_of(text)


Count = Annotated[int, Meta(ge=1, le=MAX_COUNT, description="a whole number >= 1 (and < 2^31)")]
Cells = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number >= 0 (and < 2^63)")]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number >= 0 (and < 2^63)")]
Memory = Annotated[
    Literal["auto"] | Annotated[int, Meta(ge=1, le=2**63 - 1)],
    Meta(description="auto, a size such as 8GiB, 500MB or a number of bytes", extra={"parse": bytes_or_auto}),
]
# Chains store temperatures as float32.
Positive = Annotated[float, Meta(ge=1e-30, le=1e30, description="a number > 0 (from 1e-30 to 1e30)")]
Weight = Annotated[
    Annotated[int, Meta(ge=0, le=2**62)] | Annotated[float, Meta(ge=0, le=1e30)],
    Meta(description="a number >= 0"),
]
Share = Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1, both excluded")]


_FREE_MEMORY_DIVISOR = 2  # with memory: auto, all ranks of a machine together take half of its free memory
_MIN_RANK_BYTES = 1 << 26  # bytes; memory: auto gives each rank at least this


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of the sections of a configuration: immutable, and strict about its keys."""


class Cooling(Section, frozen=True):
    """A temperature schedule: from ``start`` in a chain's first step to ``end`` in its last.

    Attributes
    ----------
    start, end : float
        Temperatures > 0, in the unit of the problem's utilities.
    schedule : str
        ``geometric`` (a constant factor per step) or ``linear`` (a constant difference per step).
    """

    start: Positive
    end: Positive
    schedule: Annotated[Literal["geometric", "linear"], Meta(description="geometric or linear")] = "geometric"


class Guarantee(Section, frozen=True):
    """A number of samples chosen for a probabilistic guarantee (DMCMC paper, Property 1).

    N = ⌈1/(alpha·epsilon)⌉ samples contain one of the best ``alpha`` of all assignments with probability
    ``1 - epsilon``.

    Attributes
    ----------
    alpha : float
        The percentile, between 0 and 1.
    epsilon : float
        The probability of missing it, between 0 and 1.
    """

    alpha: Share
    epsilon: Share

    @property
    def samples(self) -> int:
        """The number of samples N, computed from the decimal numbers as written (0.1·0.1 is 0.01)."""
        return math.ceil(1 / (Fraction(repr(self.alpha)) * Fraction(repr(self.epsilon))))


class Local(Section, frozen=True):
    """How the table of an agent is computed: the best utility of its variables for each boundary assignment.

    A row of the table belongs to one boundary assignment: one combination of values of the variables that the agent
    shares factors over with other agents.

    Attributes
    ----------
    method : str
        ``auto``, ``exact`` or the name of a sampler (``dmcmc samplers`` lists them). ``auto`` is exact where the
        agent's elimination has at most ``cells`` table cells, and otherwise samples and bounds.
    runs, samples : int
        Markov chains per row, and samples per chain. With a ``guarantee``, ``samples`` is ⌈N / runs⌉, so that the
        chains of a row together draw at least N samples.
    temperature : float, Cooling or "auto"
        Temperature of the chains: constant, or a schedule. ``auto`` is the sampler's own default.
    guarantee : Guarantee or None
        Sets the number of samples in place of ``samples``.
    diagnose : bool
        Whether the result has statistics of the chains: distinct states, autocorrelation time, effective sample size.
        Some chains of each agent are run again for them, in runs without a time budget. A ``guarantee`` implies it.
    starts : str
        First state of a row's chains: ``random``, as in the paper, or ``dual``: the assignment that a short dual
        ascent on the agent's problem rounds to, given the row. ``auto``: ``dual`` for the sampler ``blocks``,
        ``random`` for all others.
    cells : int or "auto"
        Largest number of table cells of an agent's elimination that ``method: auto`` computes exactly. ``auto``: as
        many as ``budget.time`` allows; without a time budget 4·10^9, or 4·10^12 with a GPU.
    rows : int or "auto"
        Largest number of rows of a sampled agent's table. If the agent has more boundary assignments, its table
        lists the most promising ones; its bound covers all. ``auto``: 4096 if there are more than 2^17.
    order : str or None
        A file with the names of the variables in elimination order, one per line. None: an order is searched for.
    bound : str
        Upper bound of the rows of a table that is not exact: ``auto``, ``none`` or the name of a bound provider.
    """

    method: Annotated[str, Meta(min_length=1, description="auto, exact or the name of a sampler")] = "auto"
    runs: Count = 10
    samples: Count = 100
    temperature: Annotated[
        Literal["auto"] | Positive | Cooling,
        Meta(description="auto, a number > 0 or {start: ..., end: ..., schedule: geometric or linear}"),
    ] = "auto"
    guarantee: Annotated[Guarantee | None, Meta(description="{alpha: ..., epsilon: ...}")] = None
    diagnose: Annotated[bool, Meta(description="true or false")] = False
    starts: Annotated[Literal["auto", "random", "dual"], Meta(description="auto, random or dual")] = "auto"
    cells: Annotated[Literal["auto"] | Cells, Meta(description="auto or a whole number >= 0 (and < 2^63)")] = "auto"
    rows: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    order: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a file path")] = None
    bound: Annotated[str, Meta(min_length=1, description="auto, none or the name of a bound provider")] = "auto"

    def __post_init__(self) -> None:
        if self.guarantee is not None:
            msgspec.structs.force_setattr(self, "samples", -(-self.guarantee.samples // self.runs))


class Combine(Section, frozen=True):
    """How the agents' tables are combined, by the UTIL and VALUE messages of DPOP.

    Attributes
    ----------
    method : str
        ``exact``: DPOP. ``mini-bucket``: ADPOP; tables are joined only up to ``z`` + 1 variables, which gives a bound
        on the optimum. ``sliced``: MB-DPOP; exact, but where an agent's tables exceed ``budget.memory``, some
        variables are fixed to one value after the other, which takes more time and less memory. ``auto``: exact where
        the tables fit, sliced where that takes little time, otherwise mini-buckets.
    tree : str
        The pseudo-tree of the agents. ``auto``: the cheapest of many trees, which one rank finds for all.
        ``depth-first``: the agents find one by a token that goes from neighbour to neighbour. Otherwise the name of a
        heuristic (:mod:`dmcmc.inference.dpop.trees`): ``max-degree``, ``max-cardinality``,
        ``breadth-first``, ``min-depth``, ``min-fill`` or a plug-in.
    root : str or None
        Name of the agent that is the root of its connected component in the tree. None: the heuristic decides.
    mode : str
        ``dpop``: agents send messages to each other. ``shared``: the first rank of each node reads its ranks' tables
        through shared memory and eliminates their agents' variables together; only nodes exchange messages. Both give
        the same answer. ``auto``: ``shared`` where ranks share a GPU and the tables are large enough.
    rows : str
        Which rows UTIL messages have. ``usable``: agents first send their children the rows that no hard constraint
        forbids, and the children leave out all others, and rows that are part of no solution as good as the best known
        one. ``all``: every row. ``auto``: ``usable`` with private inputs, otherwise ``all``. The answer is the same.
    z : int or "auto"
        Largest number of variables of a mini-bucket's message. ``auto``: for each agent what fits ``budget.memory``.
    partition : str
        How a bucket is split into mini-buckets: by ``scope`` (number of variables) or by ``content`` (the error that
        a split causes).
    moment_matching : bool
        Whether mini-buckets are moment-matched before their variable is eliminated: a better bound for about twice
        the time.
    """

    method: Annotated[
        Literal["auto", "exact", "sliced", "mini-bucket"], Meta(description="auto, exact, sliced or mini-bucket")
    ] = "auto"
    tree: Annotated[str, Meta(min_length=1, description="auto, depth-first or the name of a tree heuristic")] = "auto"
    root: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="an agent's name")] = None
    mode: Annotated[Literal["auto", "dpop", "shared"], Meta(description="auto, dpop or shared")] = "auto"
    rows: Annotated[Literal["auto", "all", "usable"], Meta(description="auto, all or usable")] = "auto"
    z: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    partition: Annotated[Literal["scope", "content"], Meta(description="scope or content")] = "content"
    moment_matching: Annotated[bool, Meta(description="true or false")] = True


def automatic_memory(ranks: int = 1) -> int:
    """Return the default memory limit of a rank in bytes: its part of half of the machine's free memory.

    The number is rounded down to 2^k or 1.5·2^k, so that other programs seldom change an answer.

    Parameters
    ----------
    ranks : int
        Number of ranks that share the machine.
    """
    free = free_memory()
    part = (memory_limit() if free is None else free // _FREE_MEMORY_DIVISOR) // ranks
    if part < _MIN_RANK_BYTES:
        return _MIN_RANK_BYTES
    power = 1 << (part.bit_length() - 1)
    return power + power // 2 if part >= power + power // 2 else power


class Budget(Section, frozen=True):
    """Limits of a run, and when it stops early.

    Attributes
    ----------
    time : float or None
        Wall-clock seconds of the solve. After the first answer, the remaining time is spent on closing the gap. None:
        one answer, with the amount of work that the other settings define.
    memory : int or "auto"
        Bytes that each rank may use for tables and everything else that a run allocates. The interpreter and its
        libraries need up to 300 MB in addition. Ranks that share a machine need this once each. ``auto``: half of the
        memory that is free on the machine (or in the container) when the run begins, divided by the ranks that share
        it, and rounded down to 2^k or 1.5·2^k.
    gap : float
        The run stops when |bound − objective| / max(1, |objective|) is at most this; 0: when the answer is proven
        optimal. Constants of the problem are part of the objective, so large ones make the gap look small.
    """

    time: Annotated[Positive | None, Meta(description="seconds > 0")] = None
    memory: Memory = "auto"
    gap: Annotated[float, Meta(ge=0, le=1e30, description="a number >= 0")] = 0.0

    @property
    def bytes(self) -> int:
        """The memory limit in bytes; ``auto`` is resolved for a process that shares the machine with no other rank."""
        return automatic_memory() if isinstance(self.memory, str) else self.memory

    def shared(self, bytes: int) -> "Budget":
        """Return the budget with ``memory: auto`` replaced by a number of bytes.

        Parameters
        ----------
        bytes : int
            Memory limit of each rank, as agreed by the ranks that share a machine.

        Returns
        -------
        Budget
            The same budget if ``memory`` is a number already.
        """
        return msgspec.structs.replace(self, memory=bytes) if isinstance(self.memory, str) else self


class Stay(Section, frozen=True):
    """The cost of moving variables away from ``start``; the cost is part of the objective and of the bound.

    Attributes
    ----------
    weight : int, float or dict
        The cost of giving a variable another value than that of the start, in units of the objective: one number for
        all variables, or a number for each variable by its name. Variables that are left out move without cost.
    """

    weight: Annotated[
        Weight | dict[str, Weight], Meta(description="a number >= 0, or numbers >= 0 by the names of variables")
    ]


class AlgorithmSettings(Section, frozen=True):
    """The algorithm that solves the problem.

    Attributes
    ----------
    name : str
        ``dmcmc`` (agents of many variables, the default) or a name that ``dmcmc algorithms`` lists.
    cycles : int or "auto"
        Number of cycles. ``auto``: as many as ``budget.time`` allows; without a time budget the algorithm's default.
    parameters : dict
        Parameters of the algorithm by name; all others have their defaults.
    delay : str
        Delays of messages: ``none``, ``fixed(d)``, ``uniform(a,b)``, ``exponential(mean)`` or ``per-link(a,b)``.
    loss : float
        Probability that a message is lost.
    runtime : "auto" or "agents"
        ``agents``: run one object per variable, which sees only its own part of the problem, also where the algorithm
        is compiled for all variables at once. Delays and losses need it.
    """

    name: Annotated[str, Meta(min_length=1, description="dmcmc or the name of an algorithm")] = "dmcmc"
    cycles: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    parameters: Annotated[dict[str, Any], Meta(description="the algorithm's parameters by name")] = {}
    delay: Annotated[str, Meta(min_length=1, description="none, fixed(d), uniform(a,b), ...")] = "none"
    loss: Annotated[float, Meta(ge=0, le=1, description="a number from 0 to 1")] = 0.0
    runtime: Annotated[Literal["auto", "agents"], Meta(description="auto or agents")] = "auto"

    @property
    def needs_agents(self) -> bool:
        """Whether the algorithm has to run as agents."""
        return self.runtime == "agents" or self.delay != "none" or self.loss > 0


class Settings(Section, frozen=True):
    """How a problem is solved: a configuration without its ``problem`` section.

    Attributes
    ----------
    algorithm : str or AlgorithmSettings
        Name of the algorithm, or a section. Algorithms other than ``dmcmc`` use only ``budget`` and ``seed``; ``dpop``
        and ``adpop`` also use ``combine``.
    local : Local
        How each agent's table is computed.
    combine : Combine
        How the tables are combined.
    budget : Budget
        Limits on time and memory, and the gap at which the run stops.
    search : str
        A search engine for the whole problem that runs in the background on one core: ``auto`` (if there is a time
        budget and all methods are ``auto``: if most constraints are global ones, ``max-sat`` for costs that are few
        and small integers, or ``cp-sat``; otherwise, or where these are not installed, toulbar2, or else
        ``branch-and-bound``), ``toulbar2``, ``cp-sat``, ``max-sat``, ``branch-and-bound`` (dmcmc's own) or
        ``none``.
    local_search : str
        ``auto``: local search over the whole assignment gives the first answer and improves the final one. ``none``:
        the answer is the assignment that the tables give, as in the papers; only without a time budget.
    device : str
        ``auto`` (a GPU where it is faster), ``cpu`` or ``cuda``.
    seed : int
        Seed of all random numbers. Without a time budget, the same seed gives the same answer.
    presolve : str
        ``auto``: before a large elimination, values and variables that cannot change the optimum are removed.
        ``merge``: in addition, variables that must be equal are merged, also across agents. ``none``: no presolve. In
        a configuration file the key is ``problem.presolve``.
    output : str or None
        A file that the result is written to as JSON.
    checkpoint : str or None
        A folder for finished tables of agents; a later run with the same problem and configuration reuses them. With
        a time budget it also holds the best assignment.
    start : str, dict or None
        The assignment from which the search starts: values by the names of variables, or a file with them (the JSON of
        a result, a JSON object, or CSV). It may leave out variables and break hard constraints. The answer is at least
        as good. None: the initial values of a pyDCOP file, if it has some. With one file per agent: the folder of
        agents' values that an earlier run has written next to ``output``.
    stay : Stay or None
        The cost of moving variables away from the start.
    """

    algorithm: Annotated[
        Annotated[str, Meta(min_length=1)] | AlgorithmSettings,
        Meta(description="the name of an algorithm or {name: ..., cycles: ..., parameters: {...}}"),
    ] = "dmcmc"
    local: Local = Local()
    combine: Combine = Combine()
    budget: Budget = Budget()
    search: Annotated[
        Literal["auto", "none", "toulbar2", "cp-sat", "max-sat", "branch-and-bound"],
        Meta(description="auto, none, toulbar2, cp-sat, max-sat or branch-and-bound"),
    ] = "auto"
    local_search: Annotated[Literal["auto", "none"], Meta(description="auto or none")] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda"], Meta(description="auto, cpu or cuda")] = "auto"
    seed: Seed = 0
    presolve: Annotated[Literal["auto", "merge", "none"], Meta(description="auto, merge or none")] = "auto"
    output: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a file path")] = None
    checkpoint: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a folder")] = None
    start: Annotated[
        Annotated[str, Meta(min_length=1)] | dict[str, Any] | None,
        Meta(description="a file, or values by the names of variables"),
    ] = None

    stay: Annotated[Stay | None, Meta(description="{weight: a number, or numbers by the names of variables}")] = None

    @property
    def algorithm_settings(self) -> AlgorithmSettings:
        """The algorithm as a section, whether it was given as a name or as a section."""
        return AlgorithmSettings(name=self.algorithm) if isinstance(self.algorithm, str) else self.algorithm
