"""The plan of an experiment, and the one that its folder keeps.

Read experiment files: problems, methods and seeds, and the list of runs that they define.

Read the plan in the folder of an experiment: the experiment, the order of its runs, and the machine.
"""

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
from dmcmc.config.settings import Memory, Positive, Section
from dmcmc.experiments.peers import PEERS
from dmcmc.files.document import Document, read, struct_of, suggestion
from dmcmc.files.write import plain_json
from dmcmc.inference.runtime.errors import ConfigError, DmcmcError, FileError

RESULTS = "runs.jsonl"  # the journal of results in the folder of an experiment
PLAN = "experiment.json"  # the experiment and the order of its runs, in the same folder
_MAX_RUNS = 100_000  # runs of one experiment
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


class RunLimits(Section, frozen=True):
    """Limits of one run; a run that exceeds them is ended.

    Attributes
    ----------
    time : float
        Wall-clock seconds, from the moment at which the kernels are compiled.
    memory : int or "auto"
        Resident memory in bytes.
    """

    time: Positive = 300.0
    memory: Memory = 4 << 30


class Quick(Section, frozen=True):
    """Changes that ``--quick`` makes to an experiment.

    Attributes
    ----------
    set : dict
        Configuration keys and values that replace those of ``base``.
    grid, cases, seeds, limits
        Replace the fields of the same name of :class:`Experiment`; None keeps them.
    methods : list of str or None
        Names of the methods to run; None for all.
    """

    set: Overrides = msgspec.field(default_factory=dict)
    grid: Annotated[dict[str, list[Any]] | None, _LISTS] = None
    cases: Annotated[list[dict[str, Any]] | None, _CASES] = None
    seeds: Annotated[Annotated[int, Meta(ge=1)] | list[Annotated[int, Meta(ge=0)]] | None, _SEEDS] = None
    methods: Annotated[list[str] | None, Meta(description="a list of names of methods")] = None
    limits: RunLimits | None = None


class Experiment(Section, frozen=True, kw_only=True):
    """The contents of an experiment file.

    Attributes
    ----------
    title, text : str
        Headline and description for the report.
    base : dict
        The configuration, as for ``dmcmc run``, that all runs start from.
    grid : dict
        Configuration keys with lists of values; all combinations are run.
    cases : list of dict
        Further combinations of keys and values; each is combined with the grid.
    seeds : int or list of int
        Seeds, or their number. A seed sets ``seed`` and, for generated problems, ``problem.seed``.
    methods : dict
        Configuration keys and values by name of the method. ``{peer: toulbar2}``, optionally with ``seconds``, runs
        another solver; ``task: mar`` or ``max-marginals`` computes marginals, ``task: bucket`` times one bucket.
    limits : RunLimits
        Time and memory limits of one run.
    quick : Quick
        Changes that ``--quick`` makes.
    paper : list of dict
        Published results: ``{case: {...}, method: NAME, time: ..., simulated_time: ..., objective: ...}``.
    report : dict
        ``compare``: the reference that objectives are divided by: the name of a method, or ``bound`` (the best bound).
        ``note``: a remark, such as differences from the paper.
    """

    title: Annotated[str, _WORD]
    text: Annotated[str, Meta(description="text")] = ""
    base: Annotated[dict[str, Any], Meta(description="a configuration")]
    grid: Grid = msgspec.field(default_factory=dict)
    cases: Cases = msgspec.field(default_factory=list)
    seeds: Seeds = 1
    methods: Annotated[dict[str, dict[str, Any]], Meta(description="names, each with {key: value, ...}")]
    limits: RunLimits = RunLimits()
    quick: Quick = Quick()
    paper: Annotated[list[dict[str, Any]], Meta(description="a list of published numbers")] = msgspec.field(
        default_factory=list
    )
    report: Annotated[dict[str, str], Meta(description="{compare: METHOD, note: TEXT}")] = msgspec.field(
        default_factory=dict
    )


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment: one problem instance (a case with a seed), solved by one method.

    Attributes
    ----------
    case : dict
        Configuration keys and values in which it differs from other runs of its method.
    method : str
        Name of the method.
    seed : int
        Seed of the instance and of the run.
    data : dict
        The complete configuration: the experiment's ``base`` with the keys of the case and of the method.
    peer : str or None
        Name of another solver that solves the problem; None for dmcmc.
    seconds : float or None
        Time limit of that solver; None for the default.
    task : str or None
        ``mar``, ``max-marginals`` or ``bucket``: the task if it is not to find an assignment.
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
        """The key of the run in plans and journals."""
        return json.dumps([dict(sorted(self.case.items())), self.method, self.seed], ensure_ascii=False)


def read_experiment(path: str | os.PathLike[str], quick: bool = False) -> tuple[Experiment, list[PlannedRun]]:
    """Read an experiment file and check the configurations of all runs.

    Parameters
    ----------
    path
        A YAML file. ``problem.file`` is relative to its folder, after environment variables such as
        ``$DMCMC_INSTANCES`` are expanded.
    quick
        Whether to apply the changes of the section ``quick``.

    Raises
    ------
    ConfigError
        If a key or a value is not allowed; one line with the method, the case and the key.
    """
    document = read(os.fspath(path))
    experiment = struct_of(Experiment, document.data, document.at)
    experiment = with_quick_changes(experiment, document) if quick else experiment
    if "problem" not in experiment.base:
        raise ConfigError(f"{document.at(('base',))}: the section 'problem' is missing")
    runs = list(_runs(experiment, document, Path(path).parent))
    _check(runs, document)
    return experiment, runs


def with_quick_changes(experiment: Experiment, document: Document) -> Experiment:
    """Return the experiment with the changes of its section ``quick``."""
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


def selected_methods(experiment: Experiment, methods: Sequence[str] | None) -> frozenset[str]:
    """Return the names of the methods to run: those given, or all.

    Raises
    ------
    ConfigError
        If a name is unknown.
    """
    for name in methods or ():
        if name not in experiment.methods:
            raise ConfigError(f"--method: unknown method '{name}'; {suggestion(name, experiment.methods, 'methods')}")
    return frozenset(methods or experiment.methods)


def with_keys(data: Mapping[str, Any], keys: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return a copy of nested sections with some dotted keys set."""
    changed = Document("", json.loads(json.dumps(data)))
    for key, value in keys.items():
        parts = tuple(key.split("."))
        if not all(parts):
            raise ConfigError(f"{place}: '{key}' is not a configuration key")
        changed.override(parts, value, f"{place}: {key}")
    return changed.data


def _runs(experiment: Experiment, document: Document, folder: Path) -> Iterator[PlannedRun]:
    """Yield all runs by seed, case and method, so that an interrupted experiment has runs of every case."""
    seeds = range(experiment.seeds) if isinstance(experiment.seeds, int) else experiment.seeds
    grid_points = [
        dict(zip(experiment.grid, values, strict=True)) for values in itertools.product(*experiment.grid.values())
    ]
    cases = [dict(case) | grid_point for case in experiment.cases or [{}] for grid_point in grid_points]
    if len(cases) * len(seeds) * len(experiment.methods) > _MAX_RUNS:
        raise ConfigError(f"{document.name}: the experiment has more than {_MAX_RUNS} runs")
    distinct_cases = {json.dumps(case, sort_keys=True) for case in cases}
    if len(distinct_cases) < len(cases):
        raise ConfigError(f"{document.at(('cases',))}: a case is given twice")
    for seed, case, (method, keys) in itertools.product(seeds, cases, experiment.methods.items()):
        keys = dict(keys)
        peer, seconds, task = keys.pop("peer", None), keys.pop("seconds", None), keys.pop("task", None)
        place = document.at(("methods", method))
        if peer is not None and peer not in PEERS:
            raise ConfigError(f"{place}: unknown peer; {suggestion(str(peer), PEERS, 'peers')}")
        if seconds is not None and (peer is None or not isinstance(seconds, int | float) or not seconds > 0):
            raise ConfigError(f"{place}: seconds: expected a number > 0, and only for a peer")
        if task not in (None, *_TASKS):
            raise ConfigError(f"{place}: unknown task; {suggestion(str(task), _TASKS, 'tasks')}")
        data = with_keys(experiment.base, case, document.at(("cases",)))
        data = with_keys(data, keys | {"seed": seed}, place)
        data = with_keys(data, _memory(data, experiment.limits), "")
        _place_file(data["problem"], folder)
        if "generator" in data["problem"]:
            data["problem"]["seed"] = seed
        yield PlannedRun(case, method, seed, data, peer, None if seconds is None else float(seconds), task)


def _memory(data: Mapping[str, Any], limits: RunLimits) -> dict[str, Any]:
    """Return ``budget.memory`` as half of the memory limit, if it is not set: the same on every machine.

    The other half is left for the interpreter and its libraries. Empty if the key is set or the limit is ``auto``.
    """
    given = (data.get("budget") or {}).get("memory")
    if given is not None or not isinstance(limits.memory, int):
        return {}
    return {"budget.memory": limits.memory // 2}


def _place_file(problem: Any, folder: Path) -> None:
    """Make the path of a problem file absolute, in place."""
    if isinstance(problem, dict) and isinstance(problem.get("file"), str):
        problem["file"] = os.path.abspath(folder / os.path.expandvars(problem["file"]))


def _check(runs: list[PlannedRun], document: Document) -> None:
    """Raise an error if a configuration is wrong; one seed of each case and method is checked."""
    for run in {json.dumps([run.case, run.method], sort_keys=True): run for run in reversed(runs)}.values():
        try:
            config_of(Document("", json.loads(json.dumps(run.data))))
        except DmcmcError as error:
            case_text = ", ".join(f"{key}: {value}" for key, value in run.case.items())
            place = document.at(("methods", run.method))
            raise type(error)(f"{place}{f' ({case_text})' if case_text else ''}: {error}") from error


def count_of(experiment: Experiment, runs: list[PlannedRun]) -> str:
    """Return the size of an experiment in one line."""
    cases = len({json.dumps(run.case, sort_keys=True) for run in runs})
    seeds = len({run.seed for run in runs})
    parts = ((len(runs), "run"), (cases, "case"), (len(experiment.methods), "method"), (seeds, "seed"))
    return ", ".join(f"{number} {word}{'s' * (number != 1)}" for number, word in parts)


class PublishedNumbers(msgspec.Struct):
    """A row of published numbers: of a case and a method, numbers or texts."""

    method: str
    case: dict[str, Any] = {}
    time: float | str | None = None
    simulated_time: float | str | None = None
    objective: float | str | None = None
    ratio: float | str | None = None
    bound: float | str | None = None


class StoredExperiment(msgspec.Struct):
    """The fields of an experiment that reports use.

    :class:`dmcmc.experiments.plan.Experiment` describes them. Further fields are allowed, so that folders of other
    versions can be read. In the section ``quick``, ``methods`` is a list of names.
    """

    title: str = "Experiment"
    text: str = ""
    base: dict[str, Any] | None = None
    grid: dict[str, Any] | None = None
    cases: list[dict[str, Any]] | None = None
    set: dict[str, Any] | None = None
    methods: dict[str, dict[str, Any]] | list[str] | None = None
    quick: "StoredExperiment | None" = None
    paper: list[PublishedNumbers] = []
    report: dict[str, str] = {}


class StoredPlanFile(msgspec.Struct):
    """The contents of ``experiment.json``.

    Attributes
    ----------
    experiment : dict
        The experiment.
    runs : list of str
        The keys of all runs, in the order of the plan.
    machine : dict
        Versions and hardware of the machine.
    """

    experiment: dict[str, Any]
    runs: list[str]
    machine: dict[str, Any] = {}


def read_plan(path: Path) -> StoredPlanFile:
    """Read the plan of an experiment.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    FileError
        If the file cannot be read or is damaged; one line with the field.
    """
    try:
        stored = msgspec.convert(plain_json(path.read_bytes()), StoredPlanFile)
        msgspec.convert(stored.experiment, StoredExperiment)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise FileError(f"{path}: is not the plan of an experiment: {reason}") from None
    return stored
