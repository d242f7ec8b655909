"""How a problem is solved: how each agent samples, how the tables are combined, what it may cost, and where it runs."""

import math
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dmcmc.config.document import Document
from dmcmc.config.units import MOST, Cells, Count, Memory, Positive, Seed, Share
from dmcmc.config.validate import struct_of
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError
from dmcmc.inference.runtime.memory import MOST_BYTES, free_memory

_SHARE = 2  # one part in so many of what is free
_LEAST = 1 << 26  # bytes that a rank has anyway


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the configuration: immutable, and strict about its keys."""


class Cooling(Section, frozen=True):
    """A temperature that falls (or rises) from ``start`` in the first step to ``end`` in the last."""

    start: Positive
    end: Positive
    schedule: Annotated[Literal["geometric", "linear"], Meta(description="geometric or linear")] = "geometric"


class Guarantee(Section, frozen=True):
    """Property 1: N = ⌈1/(alpha·epsilon)⌉ samples find one of the best ``alpha`` with probability ``1 - epsilon``."""

    alpha: Share
    epsilon: Share

    @property
    def samples(self) -> int:
        """N, from the decimal numbers as they were written (0.1·0.1 is 0.01)."""
        return math.ceil(1 / (Fraction(repr(self.alpha)) * Fraction(repr(self.epsilon))))


class Local(Section, frozen=True):
    """How an agent's subproblem becomes a table.

    Attributes
    ----------
    method : str
        ``auto``, ``exact`` or a sampler (``dmcmc samplers`` lists them).
    runs, samples : int
        Chains a row, and samples a chain. With a ``guarantee``, ``samples`` is ⌈N / runs⌉, so that all chains of a row
        together draw at least N.
    temperature
        ``"auto"``, a constant, or a :class:`Cooling`.
    guarantee : Guarantee or None
        In place of ``samples``.
    starts : str
        Where a row's chains begin: ``random``, as the paper has it, or ``dual``: at what a short dual ascent of the
        agent's problem is rounded to, given the row. ``auto``: ``dual`` for ``blocks``, ``random`` for all others.
    cells : int or "auto"
        ``auto`` solves exactly where an agent's elimination takes at most so many table cells. Where this is
        ``auto``: as many as ``budget.time`` allows; without one, 4·10^9, or 4·10^12 with a GPU.
    rows : int or "auto"
        A sampled agent with more interface assignments than this has a table of so many of them, the most promising
        ones; its bound covers all. ``auto`` lists 4096 where there are more than 2^17.
    order : str or None
        A file that names the variables in the order of their elimination, one a line. None: one is searched for.
    bound : str
        How the table is bounded from above where it is not exact: ``auto``, ``none`` or the name of a bound provider.
    """

    method: Annotated[str, Meta(min_length=1, description="auto, exact or the name of a sampler")] = "auto"
    runs: Count = 10
    samples: Count = 100
    temperature: Annotated[
        Literal["auto"] | Positive | Cooling,
        Meta(description="auto, a number > 0 or {start: ..., end: ..., schedule: geometric or linear}"),
    ] = "auto"
    guarantee: Annotated[Guarantee | None, Meta(description="{alpha: ..., epsilon: ...}")] = None
    starts: Annotated[Literal["auto", "random", "dual"], Meta(description="auto, random or dual")] = "auto"
    cells: Annotated[Literal["auto"] | Cells, Meta(description="auto or a whole number >= 0 (and < 2^63)")] = "auto"
    rows: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    order: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a file path")] = None
    bound: Annotated[str, Meta(min_length=1, description="auto, none or the name of a bound provider")] = "auto"

    def __post_init__(self) -> None:
        if self.guarantee is not None:
            msgspec.structs.force_setattr(self, "samples", -(-self.guarantee.samples // self.runs))


class Combine(Section, frozen=True):
    """How the agents' tables are combined, by DPOP's messages.

    Attributes
    ----------
    method : str
        ``exact``; ``mini-bucket`` (ADPOP): tables of at most ``z`` + 1 variables are joined, which bounds the optimum;
        ``sliced``: exact; where an agent's tables do not fit ``budget.memory``, variables are worked off value by
        value, which takes time in place of memory (MB-DPOP); ``auto``: exact where the tables fit, by slices where
        that takes little time, else mini-buckets.
    tree : str
        ``auto``: the cheapest of many trees of agents, which one rank finds for all. ``depth-first``: agents find one
        by a token that goes from neighbour to neighbour.
    mode : str
        ``dpop``: agents send each other messages. ``shared``: the first rank of each node has its ranks' tables through
        shared memory, and eliminates their agents' variables together; nodes send each other messages. The answer is
        the same. ``auto``: ``shared`` where ranks share a GPU and tables are worth it.
    z
        The most variables a mini-bucket's message has; ``"auto"``: for each agent what fits ``budget.memory``.
    partition : str
        How a bucket is split: ``scope`` (by size) or ``content`` (by what a split costs).
    moment_matching : bool
        Even mini-buckets out before they are eliminated: a better bound for about twice the time.
    """

    method: Annotated[
        Literal["auto", "exact", "sliced", "mini-bucket"], Meta(description="auto, exact, sliced or mini-bucket")
    ] = "auto"
    tree: Annotated[Literal["auto", "depth-first"], Meta(description="auto or depth-first")] = "auto"
    mode: Annotated[Literal["auto", "dpop", "shared"], Meta(description="auto, dpop or shared")] = "auto"
    z: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    partition: Annotated[Literal["scope", "content"], Meta(description="scope or content")] = "content"
    moment_matching: Annotated[bool, Meta(description="true or false")] = True


def automatic_memory(ranks: int = 1) -> int:
    """Return the bytes that each of the ranks that share a machine may take: half of what is free, divided.

    It is cut to a power of two, or one and a half times that, so that what else runs seldom changes an answer.
    """
    free = free_memory()
    part = (MOST_BYTES if free is None else free // _SHARE) // ranks
    if part < _LEAST:
        return _LEAST
    power = 1 << (part.bit_length() - 1)
    return power + power // 2 if part >= power + power // 2 else power


class Budget(Section, frozen=True):
    """What a run may take.

    Attributes
    ----------
    time : float or None
        Wall seconds of the solve; what is left after a first answer goes where the gap is. None: one answer, by the
        amount of work that the other settings say.
    memory : int or "auto"
        Bytes of one rank's tables and all else that a run makes; the interpreter and its libraries come on top, less
        than 300 MB. Every rank may take as much: ranks that share a machine need it as many times. ``auto``: half of
        what the machine (or container) has free when the run begins, divided by the ranks that share it, cut to a power
        of two or one and a half times that.
    gap : float
        The run ends when |bound − objective| / max(1, |objective|) is no larger; 0: when the answer is proven optimal.
        Constants of the problem are part of the objective: large ones make the gap look small.
    """

    time: Annotated[Positive | None, Meta(description="seconds > 0")] = None
    memory: Memory = "auto"
    gap: Annotated[float, Meta(ge=0, le=1e30, description="a number >= 0")] = 0.0

    @property
    def bytes(self) -> int:
        """``memory`` as a number; what ``auto`` is for a process that shares the machine with no other rank."""
        return automatic_memory() if isinstance(self.memory, str) else self.memory

    def shared(self, bytes: int) -> "Budget":
        """Return the budget with a number for ``auto``."""
        return msgspec.structs.replace(self, memory=bytes) if isinstance(self.memory, str) else self


class Algorithm(Section, frozen=True):
    """Which algorithm solves the problem.

    Attributes
    ----------
    name : str
        ``dmcmc`` is this project's own way; ``dmcmc algorithms`` lists the others.
    cycles : int or "auto"
        How many there are; ``auto``: as many as ``budget.time`` allows, without one the algorithm's own number.
    parameters : dict
        Those of the algorithm that differ from its defaults.
    """

    name: Annotated[str, Meta(min_length=1, description="dmcmc or the name of an algorithm")] = "dmcmc"
    cycles: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    parameters: Annotated[dict[str, Any], Meta(description="the algorithm's parameters by name")] = {}


class Settings(Section, frozen=True):
    """How to solve: a configuration without its ``problem`` section.

    Attributes
    ----------
    algorithm : str or Algorithm
        A name, or a section. Other algorithms than ``dmcmc`` look at ``budget`` and ``seed`` only.
    reduce : str
        ``auto``: what cannot matter is taken out of the problem first, where its elimination would be large. In a
        configuration it is called ``problem.reduce``. ``merge``: variables that must be equal become one, too, whoever
        owns them.
    search : str
        A search engine beside the run, on a core of its own: ``auto`` (one, if there is a time budget and nobody has
        chosen methods: toulbar2 where it is installed, else our own), ``toulbar2``, ``branch-and-bound`` (our own) or
        ``none``.
    polish : str
        ``none``: the answer is what the tables say, as the papers have it: no local search over the whole assignment
        before, nor after. Work is fixed then.
    checkpoint : str or None
        A folder for agents' finished tables, from which a run with the same problem and configuration goes on; with a
        time budget for the best assignment, too.
    """

    algorithm: Annotated[
        Annotated[str, Meta(min_length=1)] | Algorithm,
        Meta(description="the name of an algorithm or {name: ..., cycles: ..., parameters: {...}}"),
    ] = "dmcmc"
    local: Local = Local()
    combine: Combine = Combine()
    budget: Budget = Budget()
    search: Annotated[
        Literal["auto", "none", "toulbar2", "branch-and-bound"],
        Meta(description="auto, none, toulbar2 or branch-and-bound"),
    ] = "auto"
    polish: Annotated[Literal["auto", "none"], Meta(description="auto or none")] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda"], Meta(description="auto, cpu or cuda")] = "auto"
    seed: Seed = 0
    reduce: Annotated[Literal["auto", "merge", "none"], Meta(description="auto, merge or none")] = "auto"
    output: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a file path")] = None
    checkpoint: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a folder")] = None

    @property
    def asked_algorithm(self) -> Algorithm:
        """The algorithm as a section."""
        return Algorithm(name=self.algorithm) if isinstance(self.algorithm, str) else self.algorithm


def settings_of(document: Document) -> Settings:
    """Build settings and check what one key alone does not show.

    Raises
    ------
    ConfigError
        One line with the place of the key.
    Unavailable
        For what later versions bring.
    """
    settings = struct_of(Settings, document.data, document.at)
    check_settings(settings, document)
    return settings


def check_settings(settings: Settings, document: Document) -> None:
    """Raise what is wrong with keys of which each alone is right."""
    _check_algorithm(settings.asked_algorithm, document)
    _check_local(settings.local, document)
    _check_combine(settings.combine, document)
    if settings.polish == "none" and settings.budget.time is not None:
        place = document.at(("polish",))
        raise ConfigError(f"{place}: with a time budget the whole assignment is searched; leave one of the two out")


def _check_algorithm(asked: Algorithm, document: Document) -> None:
    """Raise what is wrong with the name or the parameters of an algorithm."""
    if asked.name == "dmcmc":
        if asked != Algorithm():
            raise ConfigError(f"{document.at(('algorithm',))}: dmcmc has neither cycles nor parameters; leave them out")
        return
    from dmcmc.algorithms import registry
    from dmcmc.algorithms.contract import checked

    try:
        algorithm = registry.get(asked.name)
    except DmcmcError as error:
        raise type(error)(f"{document.at(('algorithm',))}: {error}") from error
    checked(algorithm, asked.parameters, document.at(("algorithm", "parameters")))


def _check_combine(combine: Combine, document: Document) -> None:
    for name in ("z", "partition", "moment_matching") if combine.method in ("exact", "sliced") else ():
        if getattr(combine, name) != getattr(Combine(), name):
            place = document.at(("combine", name))
            raise ConfigError(f"{place}: combine.method: {combine.method} splits nothing; leave it out")


def _check_local(local: Local, document: Document) -> None:
    section = document.data.get("local") or {}
    if local.guarantee is not None:
        if section.get("samples", local.samples) != local.samples:
            place = document.at(("local", "samples"))
            raise ConfigError(f"{place}: local.guarantee sets the number of samples; give one of the two")
        if local.samples > MOST:
            place = document.at(("local", "guarantee"))
            raise ConfigError(f"{place}: needs {local.guarantee.samples:.3e} samples a row; raise alpha or epsilon")
    if local.bound not in ("auto", "none"):
        from dmcmc.inference.bounds import registry as bounds

        try:
            bounds.get(local.bound)
        except DmcmcError as error:
            raise type(error)(f"{document.at(('local', 'bound'))}: {error}") from error
    if local.method != "auto":
        from dmcmc.samplers import registry

        try:
            registry.get(local.method)
        except DmcmcError as error:
            raise type(error)(f"{document.at(('local', 'method'))}: {error}") from error
