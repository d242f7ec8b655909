"""Carry out an experiment into a folder of results; finished runs are not repeated, and failures are results."""

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dmcmc.config.settings import automatic_memory
from dmcmc.experiments.job import carry_out, elapsed
from dmcmc.experiments.journal import Journal, Record, has_answer, reason_without_answer
from dmcmc.experiments.plan import PLAN, RESULTS, Experiment, PlannedRun, StoredPlanFile, count_of, read_plan
from dmcmc.experiments.pool import carry_out_all
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.inference.runtime.interpreted import compiling_first
from dmcmc.inference.storage.cache_folders import describe_cache
from dmcmc.mpi.world import World
from dmcmc.results.stored_result import machine

Report = Callable[[str], object]


class RunCounts(NamedTuple):
    """Numbers of runs of an experiment.

    Attributes
    ----------
    runs : int
        All runs.
    before : int
        Runs that were finished before.
    failed : int
        New runs that failed, or exceeded a limit.
    unanswered : tuple of str
        For each case and method whose runs all ended without an answer, a line with the reasons.
    """

    runs: int
    before: int
    failed: int
    unanswered: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The numbers in words."""
        failed = f", {self.failed} of them failed" if self.failed else ""
        return f"{self.runs} runs, {self.runs - self.before} of them new{failed}"


@compiling_first()
def run_experiment(
    experiment: Experiment,
    runs: Sequence[PlannedRun],
    folder: Path,
    *,
    methods: Collection[str] | None = None,
    resume: bool = False,
    jobs: int = 1,
    world: World | None = None,
    report: Report = print,
) -> RunCounts:
    """Carry out the runs of an experiment that have no result yet; called by every rank.

    Methods are compared with compiled kernels: each run compiles what is missing before its clock starts.

    Parameters
    ----------
    experiment
        The experiment, for its limits and for the plan in the folder.
    runs
        All runs of the experiment.
    folder
        The folder of results. It must be without results, unless ``resume`` is true.
    methods
        Names of the methods to run; None for all.
    resume
        Whether to continue an experiment that was interrupted.
    jobs
        Number of parallel processes; 0 for this process, which knows the algorithms that were registered in it. There,
        and with several MPI ranks, which work on one run together, limits are not enforced.
    world
        The MPI ranks; None for this process alone.
    report
        Called on rank 0 with a line of text per finished run.

    Returns
    -------
    RunCounts
        Numbers of runs; ``failed`` and ``unanswered`` are meaningful on rank 0 only.

    Raises
    ------
    ConfigError
        If the folder has results of another experiment, or any results while ``resume`` is false.
    FileError
        If the folder's files are damaged or cannot be written.
    """
    world = world or World()
    if world.size > 1 and jobs > 1:
        raise ConfigError("--jobs: is not possible under mpirun, where all ranks work on each run together")
    known = world.on_first_rank(lambda: _opened(experiment, runs, folder, resume))
    todo = [run for run in runs if run.key not in known and (methods is None or run.method in methods)]
    if world.rank != 0:
        for run in todo:
            carry_out(_job(run), world)
        return RunCounts(len(known) + len(todo), len(known), 0)
    journal = Journal(folder / RESULTS)
    report(count_of(experiment, list(runs)) + (f"; {len(known)} are already finished" if known else ""))
    log = _RunLog(journal, todo, len(known), len(known) + len(todo), report, time.perf_counter())
    try:
        if world.size > 1 or not jobs:
            for place, run in enumerate(todo):
                answer = carry_out(_job(run), world)
                assert answer is not None
                log.done(place, answer)
        else:
            memory = experiment.limits.memory
            limits = (experiment.limits.time, automatic_memory() if isinstance(memory, str) else memory)
            carry_out_all([_job(run) for run in todo], jobs, limits, log.done)
    finally:
        journal.close()
    return RunCounts(len(known) + len(todo), len(known), log.failed, _unanswered(runs, journal.records))


@dataclass
class _RunLog:
    """Writes finished runs to the journal and reports them.

    Attributes
    ----------
    journal : Journal
        The file of results.
    todo : sequence of PlannedRun
        The runs to carry out.
    finished, total : int
        Number of finished runs, and of those that are finished or to be carried out.
    report : callable
        Called with a line of text per finished run.
    begun : float
        Start time (``time.perf_counter``).
    failed : int
        Number of runs so far that failed, or exceeded a limit.
    """

    journal: Journal
    todo: Sequence[PlannedRun]
    finished: int
    total: int
    report: Report
    begun: float
    failed: int = 0

    def done(self, place: int, answer: dict[str, Any]) -> None:
        """Write the record of the run ``todo[place]`` to the journal, and report it."""
        run = self.todo[place]
        self.failed += answer["outcome"] != "done"
        self.journal.add({"key": run.key, "case": dict(run.case), "method": run.method, "seed": run.seed} | answer)
        self.finished += 1
        self.report(_line(self.finished, self.total, run, answer, elapsed(self.begun)))


def _job(run: PlannedRun) -> dict[str, Any]:
    """Return a run as plain data for :func:`dmcmc.experiments.job.carry_out`."""
    return {"data": run.data, "peer": run.peer, "seconds": run.seconds, "task": run.task}


def _opened(experiment: Experiment, runs: Sequence[PlannedRun], folder: Path, resume: bool) -> set[str]:
    """Return the keys of the finished runs; write the experiment into the folder if it is new or edited."""
    plan = json.loads(json.dumps(msgspec.to_builtins(experiment)))
    plan_file = folder / PLAN
    try:
        stored = read_plan(plan_file)
    except FileNotFoundError:
        stored = StoredPlanFile({}, [])
    except FileError as error:
        raise FileError(f"{error}; use another folder") from None
    journal = Journal(folder / RESULTS) if (folder / RESULTS).exists() else None
    finished = set[str]()
    if journal is not None:
        journal.close()
        finished = {record["key"] for record in journal.records}
    if finished and not resume:
        raise ConfigError(
            f"{folder}: has results of {len(finished)} runs; continue with --resume, or use another --output"
        )
    if finished and stored.experiment and not _continues(stored.experiment, plan):
        raise ConfigError(f"{folder}: has results of another experiment (or of --quick); use another --output")
    if stored.experiment != plan:
        machines = _machines(stored.machine if finished else {})
        contents = {"experiment": plan, "runs": [run.key for run in runs], "machine": machines}
        replace_file(plan_file, [json.dumps(contents, indent=1), "\n"])
    return finished & {run.key for run in runs}


def _unanswered(runs: Sequence[PlannedRun], records: Sequence[Record]) -> tuple[str, ...]:
    """Return a line for each case and method whose runs all ended without an answer, with the reasons."""
    reasons: dict[str, list[str | None]] = {}
    record_of, names = {record["key"]: record for record in records}, dict[str, str]()
    for run in runs:
        if run.key in record_of:
            record, group = record_of[run.key], json.dumps([run.case, run.method])
            reasons.setdefault(group, []).append(None if has_answer(record) else reason_without_answer(record))
            names[group] = ", ".join(part for part in (_case_text(run), run.method) if part)
    return tuple(
        f"{names[group]}: {'; '.join(dict.fromkeys(map(str, found)))} ({_count(len(found))})"
        for group, found in reasons.items()
        if None not in found
    )


def _count(runs: int) -> str:
    """Return a number of runs in words."""
    return "one run" if runs == 1 else f"all {runs} runs"


def _case_text(run: PlannedRun) -> str:
    """Return the keys and values of a run's case as text."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in run.case.items())


def _continues(earlier: dict[str, Any], plan: dict[str, Any]) -> bool:
    """Return whether runs of an earlier plan belong to a plan: methods may be added, and texts edited."""
    methods = plan["methods"]
    return _relevant(earlier) == _relevant(plan) and all(
        methods.get(name) == keys for name, keys in earlier.get("methods", {}).items()
    )


def _relevant(plan: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an experiment that the runs of all methods depend on."""
    edited = ("title", "text", "quick", "paper", "report", "methods")
    return {key: value for key, value in plan.items() if key not in edited}


def _machines(earlier: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of this machine, and those of the earlier runs' machine where they differ.

    The contents of the cache change with each run, so only the present ones are named.
    """
    facts, cache = machine(), describe_cache()
    for name, before in earlier.items():
        if name not in cache:
            is_known = str(facts.get(name, before)) in str(before).split("; ")
            facts[name] = before if is_known else f"{before}; {facts[name]}"
    return facts


def _line(number: int, total: int, run: PlannedRun, answer: dict[str, Any], seconds: float) -> str:
    """Return the line that reports a finished run; ``seconds`` is the time since the start of the experiment."""
    where = ", ".join(part for part in (_case_text(run), f"seed {run.seed}", run.method) if part)
    if answer["outcome"] != "done":
        outcome = f"{answer['outcome']}: {answer.get('error', '')}"
    else:
        objective = "-" if answer["objective"] is None else f"{answer['objective']:.10g}"
        status = "time limit reached" if answer["status"] == "timeout" else answer["status"]
        outcome = f"{objective} ({status}) in {answer['time']:.2f} s"
    return f"[{number}/{total}] {seconds:.0f} s  {where}: {outcome}"
