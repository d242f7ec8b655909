"""An experiment's file: what is solved, by which methods, how often; and the list of runs that this stands for."""

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dmcmc.config.configuration import config_of
from dmcmc.config.document import Document
from dmcmc.config.settings import Section
from dmcmc.config.units import Memory, Positive
from dmcmc.config.validate import struct_of, suggestion
from dmcmc.config.yaml_lines import read
from dmcmc.experiments.peers.registry import PEERS
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError

RESULTS = "runs.jsonl"
PLAN = "experiment.json"
_MOST_RUNS = 100_000
_TASKS = ("mar", "max-marginals", "bucket")
_WORD = Meta(min_length=1, description="a word or a line of text")
_KEYS = Meta(description="configuration keys and values, such as {problem.agents: 5}")
_LISTS = Meta(description="configuration keys and lists of values, such as {problem.agents: [5, 10]}")
_CASES = Meta(description="a list of cases, each {key: value, ...}")
_SEEDS = Meta(description="how many seeds (from 0 on), or a list of them")

Overrides = Annotated[dict[str, Any], _KEYS]
Grid = Annotated[dict[str, list[Any]], _LISTS]
Cases = Annotated[list[dict[str, Any]], _CASES]
Seeds = Annotated[Annotated[int, Meta(ge=1)] | list[Annotated[int, Meta(ge=0)]], _SEEDS]


class Limits(Section, frozen=True):
    """What one run may take: wall seconds once kernels are compiled, and resident bytes; beyond that it is ended."""

    time: Positive = 300.0
    memory: Memory = 4 << 30


class Quick(Section, frozen=True):
    """What ``--quick`` changes: each key that is given replaces the experiment's; ``set`` changes the base."""

    set: Overrides = msgspec.field(default_factory=dict)
    grid: Annotated[dict[str, list[Any]] | None, _LISTS] = None
    cases: Annotated[list[dict[str, Any]] | None, _CASES] = None
    seeds: Annotated[Annotated[int, Meta(ge=1)] | list[Annotated[int, Meta(ge=0)]] | None, _SEEDS] = None
    methods: Annotated[list[str] | None, Meta(description="a list of names of methods")] = None
    limits: Limits | None = None


class Experiment(Section, frozen=True, kw_only=True):
    """What an experiment's file says.

    Attributes
    ----------
    title, text : str
        For the report: a headline, and what a reader should know of it.
    base : dict
        A configuration as ``dmcmc run`` takes it; all runs begin with it.
    grid : dict
        Configuration keys and lists of values: all combinations are run.
    cases : list of dict
        Further keys and values, one combination after the other; each is combined with the grid.
    seeds : int or list of int
        Instances and seeds: sets ``seed`` and, for generated problems, ``problem.seed``.
    methods : dict
        By name: keys and values, or ``{peer: toulbar2}`` with ``seconds`` for another solver; with ``task: mar`` or
        ``max-marginals`` marginals are computed.
    limits : Limits
    quick : Quick
    paper : list of dict
        Published numbers: ``{case: {...}, method: NAME, time: ..., simulated_time: ..., objective: ...}``.
    report : dict
        ``compare``: what a method's objective is divided by, a method's name or ``bound`` (the best bound known);
        ``note``: what differs from the paper.
    """

    title: Annotated[str, _WORD]
    text: Annotated[str, Meta(description="text")] = ""
    base: Annotated[dict[str, Any], Meta(description="a configuration")]
    grid: Grid = msgspec.field(default_factory=dict)
    cases: Cases = msgspec.field(default_factory=list)
    seeds: Seeds = 1
    methods: Annotated[dict[str, dict[str, Any]], Meta(description="names, each with {key: value, ...}")]
    limits: Limits = Limits()
    quick: Quick = Quick()
    paper: Annotated[list[dict[str, Any]], Meta(description="a list of published numbers")] = msgspec.field(
        default_factory=list
    )
    report: Annotated[dict[str, str], Meta(description="{compare: METHOD, note: TEXT}")] = msgspec.field(
        default_factory=dict
    )


@dataclass(frozen=True)
class Run:
    """One run of a plan.

    Attributes
    ----------
    case : dict
        Configuration keys and values that tell it from others of its method.
    method : str
    seed : int
    data : dict
        Its whole configuration.
    peer : str or None
        Another solver that it is for.
    seconds : float or None
        That solver's time.
    task : str or None
        ``mar`` or ``max-marginals``: what is computed in place of an assignment.
    """

    case: Mapping[str, Any]
    method: str
    seed: int
    data: Mapping[str, Any]
    peer: str | None = None
    seconds: float | None = None
    task: str | None = None

    @property
    def key(self) -> str:
        """What it is known by in the results."""
        return json.dumps([dict(sorted(self.case.items())), self.method, self.seed], ensure_ascii=False)


def read_experiment(path: str | os.PathLike[str], quick: bool = False) -> tuple[Experiment, list[Run]]:
    """Read an experiment's file and check all of its runs.

    Parameters
    ----------
    path
        A YAML file. ``problem.file`` is relative to its folder, after variables such as ``$DMCMC_INSTANCES`` are
        replaced.
    quick
        With what ``quick`` changes.

    Raises
    ------
    ConfigError
        One line: which key, of which method and case, and what would be right.
    """
    document = read(os.fspath(path))
    experiment = struct_of(Experiment, document.data, document.at)
    experiment = quickened(experiment, document) if quick else experiment
    if "problem" not in experiment.base:
        raise ConfigError(f"{document.at(('base',))}: has no section 'problem'")
    runs = list(_runs(experiment, document, Path(path).parent))
    _check(runs, document)
    return experiment, runs


def quickened(experiment: Experiment, document: Document) -> Experiment:
    """Return the experiment with what ``quick`` changes."""
    quick, changes = experiment.quick, dict[str, Any]()
    for name in ("grid", "cases", "seeds", "limits"):
        if getattr(quick, name) is not None:
            changes[name] = getattr(quick, name)
    for name in quick.methods or ():
        if name not in experiment.methods:
            hint = suggestion(name, experiment.methods, "methods")
            raise ConfigError(f"{document.at(('quick', 'methods'))}: unknown method '{name}'; {hint}")
    if quick.methods is not None:
        changes["methods"] = {name: experiment.methods[name] for name in quick.methods}
    base = with_keys(experiment.base, quick.set, document.at(("quick", "set")))
    return msgspec.structs.replace(experiment, base=base, **changes)


def chosen(experiment: Experiment, methods: Sequence[str] | None) -> frozenset[str]:
    """Return the names of the methods to run now: all, where none is named.

    Raises
    ------
    ConfigError
        If there is none of a name.
    """
    for name in methods or ():
        if name not in experiment.methods:
            raise ConfigError(f"--method: unknown method '{name}'; {suggestion(name, experiment.methods, 'methods')}")
    return frozenset(methods or experiment.methods)


def with_keys(data: Mapping[str, Any], keys: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return nested sections with dotted keys set in them; what is given is not changed."""
    changed = Document("", json.loads(json.dumps(data)))
    for key, value in keys.items():
        parts = tuple(key.split("."))
        if not all(parts):
            raise ConfigError(f"{place}: '{key}' is no key")
        changed.override(parts, value, f"{place}: {key}")
    return changed.data


def _runs(experiment: Experiment, document: Document, folder: Path) -> Iterator[Run]:
    """Yield all runs: seed by seed, case by case, method by method, so that an early end leaves some of every case."""
    seeds = range(experiment.seeds) if isinstance(experiment.seeds, int) else experiment.seeds
    points = [
        dict(zip(experiment.grid, values, strict=True)) for values in itertools.product(*experiment.grid.values())
    ]
    cases = [dict(case) | point for case in experiment.cases or [{}] for point in points]
    if len(cases) * len(seeds) * len(experiment.methods) > _MOST_RUNS:
        raise ConfigError(f"{document.name}: more than {_MOST_RUNS} runs")
    known = {json.dumps(case, sort_keys=True) for case in cases}
    if len(known) < len(cases):
        raise ConfigError(f"{document.at(('cases',))}: a case stands there twice")
    for seed, case, (method, keys) in itertools.product(seeds, cases, experiment.methods.items()):
        keys = dict(keys)
        peer, seconds, task = keys.pop("peer", None), keys.pop("seconds", None), keys.pop("task", None)
        place = document.at(("methods", method))
        if peer is not None and peer not in PEERS:
            raise ConfigError(f"{place}: unknown peer; {suggestion(str(peer), PEERS, 'peers')}")
        if seconds is not None and (peer is None or not isinstance(seconds, int | float) or not seconds > 0):
            raise ConfigError(f"{place}: seconds: expected a number > 0, of a peer")
        if task not in (None, *_TASKS):
            raise ConfigError(f"{place}: unknown task; {suggestion(str(task), _TASKS, 'tasks')}")
        data = with_keys(experiment.base, case, document.at(("cases",)))
        data = with_keys(data, keys | {"seed": seed}, place)
        data = with_keys(data, _memory(data, experiment.limits), "")
        _place_file(data["problem"], folder)
        if "generator" in data["problem"]:
            data["problem"]["seed"] = seed
        yield Run(case, method, seed, data, peer, None if seconds is None else float(seconds), task)


def _memory(data: Mapping[str, Any], limits: Limits) -> dict[str, Any]:
    """Return half of the limit as the budget, the same on every machine, where there is none."""
    given = (data.get("budget") or {}).get("memory")
    if given is not None or not isinstance(limits.memory, int):
        return {}
    return {"budget.memory": limits.memory // 2}


def _place_file(problem: Any, folder: Path) -> None:
    """Make a problem's file absolute."""
    if isinstance(problem, dict) and isinstance(problem.get("file"), str):
        problem["file"] = os.path.abspath(folder / os.path.expandvars(problem["file"]))


def _check(runs: list[Run], document: Document) -> None:
    """Raise what is wrong with the configurations: one seed stands for all."""
    for run in {json.dumps([run.case, run.method], sort_keys=True): run for run in reversed(runs)}.values():
        try:
            config_of(Document("", json.loads(json.dumps(run.data))))
        except DmcmcError as error:
            where = ", ".join(f"{key}: {value}" for key, value in run.case.items())
            place = document.at(("methods", run.method))
            raise type(error)(f"{place}{f' ({where})' if where else ''}: {error}") from error


def count_of(experiment: Experiment, runs: list[Run]) -> str:
    """Return how much there is to do, in a line."""
    cases = len({json.dumps(run.case, sort_keys=True) for run in runs})
    seeds = len({run.seed for run in runs})
    parts = ((len(runs), "run"), (cases, "case"), (len(experiment.methods), "method"), (seeds, "seed"))
    return ", ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in parts)
