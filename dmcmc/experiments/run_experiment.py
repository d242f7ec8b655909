"""An experiment from its file to a folder of results: what is finished is not repeated, what fails is written down."""

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dmcmc.config.settings import automatic_memory
from dmcmc.experiments.job import carry_out, elapsed
from dmcmc.experiments.journal import Journal
from dmcmc.experiments.plan import PLAN, RESULTS, Experiment, Run, count_of
from dmcmc.experiments.pool import carry_out_all
from dmcmc.files.write import replace_file
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.mpi.world import World
from dmcmc.results.provenance import machine

Tell = Callable[[str], object]


class Told(NamedTuple):
    """How an experiment went: runs in all, runs done before, and those of now that brought no answer."""

    runs: int
    before: int
    failed: int


def conduct(
    experiment: Experiment,
    runs: Sequence[Run],
    folder: Path,
    *,
    methods: Collection[str] | None = None,
    resume: bool = False,
    jobs: int = 1,
    world: World | None = None,
    tell: Tell = print,
) -> Told:
    """Carry out the runs that have no result yet; called by every rank.

    Parameters
    ----------
    folder
        Where results go. It must have none, unless ``resume``.
    methods
        Only runs of these; None for all.
    jobs
        Processes side by side; of several ranks, all work on one run together, and limits are not kept.
    tell
        Called with a line a finished run, on rank 0.

    Raises
    ------
    ConfigError
        If the folder has results of another experiment, or results at all without ``resume``.
    """
    world = world or World()
    if world.size > 1 and jobs > 1:
        raise ConfigError("--jobs: ranks work on each run together; leave it out")
    known = world.decided(lambda: _opened(experiment, runs, folder, resume))
    todo = [run for run in runs if run.key not in known and (methods is None or run.method in methods)]
    if world.rank != 0:
        for run in todo:
            carry_out(_job(run), world)
        return Told(len(known) + len(todo), len(known), 0)
    journal = Journal(folder / RESULTS)
    tell(f"{count_of(experiment, list(runs))}; {len(known)} done before" if known else count_of(experiment, list(runs)))
    work = _Work(journal, todo, len(known) + len(todo), tell, time.perf_counter())
    try:
        if world.size > 1:
            for place, run in enumerate(todo):
                answer = carry_out(_job(run), world)
                assert answer is not None
                work.done(place, answer)
        else:
            memory = experiment.limits.memory
            limits = (experiment.limits.time, automatic_memory() if isinstance(memory, str) else memory)
            carry_out_all([_job(run) for run in todo], jobs, limits, work.done)
    finally:
        journal.close()
    return Told(len(known) + len(todo), len(known), work.failed)


@dataclass
class _Work:
    """What is done of the runs to do."""

    journal: Journal
    todo: Sequence[Run]
    total: int
    tell: Tell
    begun: float
    failed: int = 0

    def done(self, place: int, answer: dict[str, Any]) -> None:
        """Write down what a run has brought."""
        run = self.todo[place]
        self.failed += answer["outcome"] != "done"
        self.journal.add({"key": run.key, "case": dict(run.case), "method": run.method, "seed": run.seed} | answer)
        self.tell(_line(len(self.journal.records), self.total, run, answer, elapsed(self.begun)))


def _job(run: Run) -> dict[str, Any]:
    return {"data": run.data, "peer": run.peer, "seconds": run.seconds, "task": run.task}


def _opened(experiment: Experiment, runs: Sequence[Run], folder: Path, resume: bool) -> set[str]:
    """Return which runs are finished; write what the experiment is, if there is nothing yet."""
    told = json.loads(json.dumps(msgspec.to_builtins(experiment)))
    place = folder / PLAN
    try:
        there = json.loads(place.read_text(encoding="utf-8")) if place.exists() else None
    except ValueError:
        raise FileError(f"{place}: is no experiment; take another folder") from None
    journal = Journal(folder / RESULTS) if (folder / RESULTS).exists() else None
    finished = set[str]()
    if journal is not None:
        journal.close()
        finished = {record["key"] for record in journal.records}
    if finished and not resume:
        raise ConfigError(f"{folder}: has results of {len(finished)} runs; --resume goes on, or take another --output")
    if finished and there is not None and _carried_out(there["experiment"]) != _carried_out(told):
        raise ConfigError(f"{folder}: has results of another experiment (or of --quick); take another --output")
    folder.mkdir(parents=True, exist_ok=True)
    if there is None or there["experiment"] != told:
        order = [run.key for run in runs]
        replace_file(place, [json.dumps({"experiment": told, "runs": order, "machine": machine()}, indent=1), "\n"])
    return finished & {run.key for run in runs}


def _carried_out(told: dict[str, Any]) -> dict[str, Any]:
    """Return what an experiment's runs depend on; its texts, published numbers and ``--quick`` may have been edited."""
    return {key: value for key, value in told.items() if key not in ("title", "text", "quick", "paper", "report")}


def _line(number: int, total: int, run: Run, answer: dict[str, Any], seconds: float) -> str:
    """Return how a run went, in a line."""
    case = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in run.case.items())
    where = ", ".join(part for part in (case, f"seed {run.seed}", run.method) if part)
    if answer["outcome"] != "done":
        told = f"{answer['outcome']}: {answer.get('error', '')}"
    else:
        objective = "-" if answer["objective"] is None else f"{answer['objective']:.10g}"
        told = f"{objective} ({answer['status']}) in {answer['time']:.2f} s"
    return f"[{number}/{total}] {seconds:.0f} s  {where}: {told}"
