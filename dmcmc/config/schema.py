"""The configuration of a run: what to solve, how each agent samples, how the tables are combined, what it may cost."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from dmcmc.config.file_options import FILE_OPTIONS
from dmcmc.config.validate import struct_of
from dmcmc.config.yaml_lines import Document, Key, read, show, value_of
from dmcmc.inference.model.problem import Problem
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError

OPTION_OF = {"budget.time": "timeout", "budget.gap": "gap"}  # options that are not called as their keys
_MOST = 2**31 - 1
_UNITS = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("IB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}


def bytes_of(text: str) -> int:
    """Return a size such as ``"8GiB"`` in bytes (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB; ValueError for others).

    >>> bytes_of("1.5 KiB"), bytes_of("2MB"), bytes_of("77")
    (1536, 2000000, 77)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError(text)
    return int(Fraction(match[1]) * _UNITS[match[2].upper()])


Count = Annotated[int, Meta(ge=1, le=_MOST, description="a whole number >= 1 (and < 2^31)")]
Cells = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number >= 0 (and < 2^63)")]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number >= 0 (and < 2^63)")]
Bytes = Annotated[
    int,
    Meta(ge=1, le=2**63 - 1, description="a size such as 8GiB, 500MB or a number of bytes", extra={"parse": bytes_of}),
]
# Chains hold temperatures as float32.
Positive = Annotated[float, Meta(ge=1e-30, le=1e30, description="a number > 0 (from 1e-30 to 1e30)")]
Share = Annotated[float, Meta(gt=0, lt=1, description="a number between 0 and 1, both excluded")]


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
    cells : int or "auto"
        ``auto`` solves exactly where an agent's elimination takes at most so many table cells. Where this is
        ``auto``: as many as ``budget.time`` allows; without one, 4·10^9, or 4·10^12 with a GPU.
    rows : int or "auto"
        A sampled agent with more interface assignments than this has a table of so many of them, the most promising
        ones; its bound covers all. ``auto`` lists 4096 where there are more than 2^17.
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
    cells: Annotated[Literal["auto"] | Cells, Meta(description="auto or a whole number >= 0 (and < 2^63)")] = "auto"
    rows: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
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
        ``auto``: exact where an agent's tables fit ``budget.memory``, else mini-buckets.
    z
        The most variables a mini-bucket's message has; ``"auto"``: for each agent what fits ``budget.memory``.
    partition : str
        How a bucket is split: ``scope`` (by size) or ``content`` (by what a split costs).
    moment_matching : bool
        Even mini-buckets out before they are eliminated: a better bound for about twice the time.
    """

    method: Annotated[Literal["auto", "exact", "mini-bucket"], Meta(description="auto, exact or mini-bucket")] = "auto"
    mode: Annotated[Literal["dpop"], Meta(description="dpop")] = "dpop"
    z: Annotated[Literal["auto"] | Count, Meta(description="auto or a whole number >= 1")] = "auto"
    partition: Annotated[Literal["scope", "content"], Meta(description="scope or content")] = "content"
    moment_matching: Annotated[bool, Meta(description="true or false")] = True


class Budget(Section, frozen=True):
    """What a run may take.

    Attributes
    ----------
    time : float or None
        Wall seconds of the solve; what is left after a first answer goes where the gap is. None: one answer, by the
        amount of work that the other settings say.
    memory : int
        Bytes that the tables of one agent's elimination may have; in the combination of more than four agents, which
        keeps the tables of all of them, each has its share of it.
    gap : float
        The run ends when |bound − objective| / max(1, |objective|) is no larger; 0: when the answer is proven optimal.
        Constants of the problem are part of the objective: large ones make the gap look small.
    """

    time: Annotated[Positive | None, Meta(description="seconds > 0")] = None
    memory: Bytes = 8 << 30
    gap: Annotated[float, Meta(ge=0, le=1e30, description="a number >= 0")] = 0.0


class Config(Section, frozen=True):
    """A run. ``problem`` is ``{file: PATH}``, or ``{generator: NAME, ...}`` with the generator's parameters.

    Beside a file, ``format`` may say what :data:`dmcmc.formats.FORMATS` calls it, ``evidence`` where the observations
    of a UAI or BIF network are, ``distribution`` where a pyDCOP problem's owners are; ``agents`` (a number) and
    ``partition`` (one of :data:`dmcmc.inference.dpop.split.METHODS`) give the variables to new agents.
    """

    problem: Annotated[dict[str, Any], Meta(description="{file: PATH} or {generator: NAME, ...}")]
    local: Local = Local()
    combine: Combine = Combine()
    budget: Budget = Budget()
    device: Annotated[Literal["auto", "cpu", "cuda"], Meta(description="auto, cpu or cuda")] = "auto"
    seed: Seed = 0
    output: Annotated[Annotated[str, Meta(min_length=1)] | None, Meta(description="a file path")] = None


def load(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> Config:
    """Read a configuration file; see :func:`read_config`."""
    return read_config(path, overrides, options)[0]


def read_config(
    path: str | os.PathLike[str], overrides: Sequence[str] = (), options: Mapping[str, Any] | None = None
) -> tuple[Config, Document]:
    """Read a configuration file, with the place of each key for later errors.

    Parameters
    ----------
    path
        A YAML file. ``problem.file``, ``problem.evidence`` and ``problem.distribution`` in it are relative to its
        folder; everything else (``output``, and what is given as an override) is relative to the current folder.
    overrides
        ``"key.sub=value"`` each, the value in YAML; sections are created where needed.
    options
        Keys (``output``, ``problem.agents``) set by options of their own; errors name those.

    Raises
    ------
    ConfigError
        One line with the file, the line and the key.
    Unavailable
        For what later versions bring.
    """
    document = read(os.fspath(path))
    problem = document.data.get("problem")
    if isinstance(problem, dict):
        for name in ("file", "evidence", "distribution"):
            if isinstance(problem.get(name), str):
                problem[name] = os.path.join(os.path.dirname(os.fspath(path)), problem[name])
    for text in overrides:
        override(document, text)
    for name, value in (options or {}).items():
        document.override(tuple(name.split(".")), value, option_place(name))
    return config_of(document), document


def option_place(name: str) -> str:
    """Return the option that sets a key.

    >>> option_place("problem.agents"), option_place("budget.time")
    ('--agents', '--timeout')
    """
    return f"--{OPTION_OF.get(name, name.rpartition('.')[2])}"


def parse(data: Mapping[str, Any]) -> Config:
    """Return plain data (the sections of a configuration file as nested dictionaries) as a configuration.

    >>> parse({"problem": {"file": "a.npz"}, "local": {"runs": 2}}).local.runs
    2
    """
    return config_of(Document("", dict(data)))


def problem_of(config: Config, document: Document | None = None) -> Problem:
    """Generate or load a configuration's problem. Its seed is its own, 0 by default.

    Parameters
    ----------
    config
        Where the problem is described.
    document
        As :func:`read_config` returns it, so that errors name the line.

    Raises
    ------
    DmcmcError
        What the generator or the file reader finds wrong, after the place in the configuration.
    """
    at = (document or Document("")).at
    if "file" in config.problem:
        from dmcmc.formats import registry as formats

        try:
            names = ("format", "evidence", "distribution")
            options = {name: str(config.problem[name]) for name in names if name in config.problem}
            problem = formats.load(config.problem["file"], **options)
        except DmcmcError as error:
            raise type(error)(f"{at(('problem', 'file'))}: {error}") from error
        return divided(problem, config.problem, at)
    from dmcmc.generators import registry

    params = {"seed": 0} | config.problem
    family = params.pop("generator")
    try:
        return registry.generate(family, params)
    except DmcmcError as error:
        raise type(error)(_generator_error(str(error), params, at)) from error


def divided(problem: Problem, section: Mapping[str, Any], at: Callable[[Key], str]) -> Problem:
    """Return the problem with its variables given to ``problem.agents`` agents, if that is asked for."""
    if "agents" not in section:
        return problem
    from dmcmc.inference.dpop.split import partition

    try:
        return partition(problem, section["agents"], section.get("partition", "tree"))
    except ConfigError as error:
        name, _, message = str(error).partition(":")
        raise ConfigError(f"{at(('problem', name))}:{message}") from None


def _generator_error(message: str, params: Mapping[str, Any], at: Any) -> str:
    """Return a generator's error, which starts with the parameter's name, with the parameter's place in front."""
    name, colon, rest = message.partition(":")
    if colon and name.isidentifier():
        return f"{at(('problem', name))}:{rest}"
    name = message.split(maxsplit=1)[0] if message else ""
    if name in params:
        return f"{at(('problem', name))}:{message[len(name) :]}"
    return f"{at(('problem', 'generator'))}: {message}"


def override(document: Document, text: str) -> None:
    """Apply one ``key.sub=value``, as ``--set`` has it."""
    dotted, equals, value = text.partition("=")
    key = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(key):
        raise ConfigError(f"--set {text}: expected KEY=VALUE, such as local.runs=20")
    place = f"--set {'.'.join(key)}"
    document.override(key, value_of(value, place), place)


def config_of(document: Document) -> Config:
    """Build a configuration and check what one field alone does not show."""
    config = struct_of(Config, document.data, document.at)
    _check_problem(config.problem, document)
    _check_local(config.local, document)
    _check_combine(config.combine, document)
    return config


def _check_problem(problem: Mapping[str, Any], document: Document) -> None:
    given = [name for name in ("file", "generator") if name in problem]
    if len(given) != 1:
        found = "both" if given else "neither"
        raise ConfigError(f"{document.at(('problem',))}: expected either 'file' or 'generator', got {found}")
    place = document.at(("problem", given[0]))
    if not isinstance(problem[given[0]], str) or not problem[given[0]]:
        what = "a file path" if given == ["file"] else "the name of a generator"
        raise ConfigError(f"{place}: expected {what}, got {show(problem[given[0]])}")
    if given == ["file"]:
        for name in problem.keys() - {"file", *FILE_OPTIONS}:
            known = ", ".join(FILE_OPTIONS)
            raise ConfigError(f"{document.at(('problem', name))}: unknown key; beside a problem file: {known}")
        agents = problem.get("agents", 1)
        if isinstance(agents, bool) or not isinstance(agents, int):
            raise ConfigError(f"{document.at(('problem', 'agents'))}: expected a whole number, got {show(agents)}")
        if "partition" in problem and "agents" not in problem:
            raise ConfigError(f"{document.at(('problem', 'partition'))}: problem.agents says how many; it is missing")
    for name, value in problem.items():
        if not isinstance(value, str | int | float):
            raise ConfigError(f"{document.at(('problem', name))}: expected a word or a number, got {show(value)}")


def _check_combine(combine: Combine, document: Document) -> None:
    for name in ("z", "partition", "moment_matching") if combine.method == "exact" else ():
        if getattr(combine, name) != getattr(Combine(), name):
            raise ConfigError(f"{document.at(('combine', name))}: combine.method: exact splits nothing; leave it out")


def _check_local(local: Local, document: Document) -> None:
    section = document.data.get("local") or {}
    if local.guarantee is not None:
        if section.get("samples", local.samples) != local.samples:
            place = document.at(("local", "samples"))
            raise ConfigError(f"{place}: local.guarantee sets the number of samples; give one of the two")
        if local.samples > _MOST:
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
