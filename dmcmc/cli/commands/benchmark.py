"""``dmcmc benchmark``: run algorithms on the fixed problems of the benchmark set, and draw the page that compares them.

The actions are ``list``, ``run``, ``page`` and ``update``.
"""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from dmcmc.cli.commands.experiment import MAX_JOBS, print_line, whole_number
from dmcmc.cli.progress import emit
from dmcmc.experiments import benchmark as sets
from dmcmc.experiments.journal import Record, read_records
from dmcmc.experiments.plan import RESULTS
from dmcmc.experiments.run_experiment import run_experiment
from dmcmc.files.document import suggestion, value_of
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.report.experiment.benchmark_page import write_page

ACTIONS = ("list", "run", "page", "update")
_MOST = 10**9  # cycles, and seeds


def benchmark(arguments: Namespace) -> int:
    """Carry out an action on the benchmark set; return the exit code."""
    if arguments.action not in ACTIONS:
        raise ConfigError(f"benchmark: unknown action '{arguments.action}'; {suggestion(arguments.action, ACTIONS)}")
    path = sets.SET if arguments.file is None else Path(arguments.file)
    problems = sets.read_set(path)
    if arguments.action == "update":
        improved = sets.updated(problems, _records(arguments.folder))
        sets.write_set(improved, path)
        changes = sum(old != new for old, new in zip(problems, improved, strict=True))
        emit(f"{path}: {changes} of {len(problems)} problems improved, {sum(p.proven for p in improved)} proven")
        return 0
    chosen = sets.selected(problems, arguments.size, arguments.problem)
    if arguments.action == "run":
        return _run(arguments, chosen)
    if arguments.action == "list":
        plain = [msgspec.to_builtins(p) | {"proven": p.proven} for p in chosen]
        emit(json.dumps(plain, indent=1) if arguments.json else _table(chosen))
        return 0
    output = Path(arguments.output or Path(*arguments.folder[:1], "benchmark.html"))
    files = write_page(chosen, _records(arguments.folder), output)
    emit(f"{files[0]}: written, with {', '.join(file.name for file in files[1:])}")
    return 0


def _run(arguments: Namespace, chosen: list[sets.BenchmarkProblem]) -> int:
    """Run all methods on the chosen problems."""
    if arguments.output is None:
        raise ConfigError("benchmark run: --output: give the folder of the results")
    if not arguments.algorithm and not arguments.solver:
        raise ConfigError("benchmark run: give --algorithm or --solver")
    seconds = value_of(arguments.timeout, "--timeout")
    cycles = arguments.cycles and whole_number(arguments.cycles, "--cycles", _MOST)
    folder, methods = Path(arguments.output), dict[str, dict[str, Any]]()
    for name in arguments.algorithm:
        label = sets.label_of(name, arguments.set)
        methods[label] = sets.method_of(name, arguments.set, seconds=seconds, cycles=cycles)
    for name in arguments.solver:
        methods[name] = sets.method_of(name, arguments.set, solver=True, seconds=seconds, cycles=cycles)
    seeds, jobs = whole_number(arguments.seeds, "--seeds", _MOST), whole_number(arguments.jobs, "--jobs", MAX_JOBS)
    experiment, runs = sets.planned(chosen, methods, folder, seeds)
    counts = run_experiment(experiment, runs, folder, resume=True, jobs=jobs, report=print_line)
    emit(f"{folder}: {counts.text}")
    return 0


def _records(folders: list[str]) -> list[Record]:
    """Return the results in the folders of runs."""
    for folder in folders:
        if not (Path(folder) / RESULTS).exists():
            raise FileError(f"{folder}: has no results of 'dmcmc benchmark run'")
    return [record for folder in folders for record in read_records(Path(folder) / RESULTS)]


def _table(problems: list[sets.BenchmarkProblem]) -> Table:
    """Return the problems as a table for the terminal."""
    table = Table("problem", "variables", "sense", "best known", "bound", "", box=None, pad_edge=False)
    for p in problems:
        numbers = ("-" if value is None else f"{value:,}" for value in (p.best, p.bound))
        table.add_row(p.name, str(p.variables), p.sense, *numbers, "proven" if p.proven else "")
    return table
