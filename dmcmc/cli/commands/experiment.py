"""The commands ``experiment`` and ``report``.

``dmcmc experiment CONFIG --output DIR`` carries out an experiment, in parallel processes or on MPI ranks. ``dmcmc
report`` writes the report of an experiment, or the page of one result.
"""

import sys
from argparse import Namespace
from pathlib import Path

from dmcmc.cli.progress import emit
from dmcmc.cli.signals import SIGNALS
from dmcmc.files.document import value_of
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.results.questions import has_events

MAX_JOBS = 512  # parallel processes


def experiment(arguments: Namespace) -> int:
    """Carry out an experiment and return the exit code: 1 if a method has no answer in all runs of a case."""
    from dmcmc.experiments.plan import read_experiment, selected_methods
    from dmcmc.experiments.run_experiment import run_experiment
    from dmcmc.mpi.world import connect

    jobs = whole_number(arguments.jobs, "--jobs", MAX_JOBS)
    with SIGNALS.default_handling():
        world = connect()
    SIGNALS.processes.world = world
    folder = Path(arguments.output)
    plan, runs = world.on_first_rank(lambda: read_experiment(arguments.config, arguments.quick))
    methods = selected_methods(plan, arguments.method)
    options = {"methods": methods, "resume": arguments.resume, "jobs": jobs}
    counts = run_experiment(plan, runs, folder, **options, world=world, report=print_line)
    if world.rank != 0:
        return 0
    emit(f"{folder}: {counts.text}")
    for line in counts.unanswered:
        print_line(f"dmcmc: no answer: {line}; 'dmcmc report {folder}' shows the details")
    return 1 if counts.unanswered else 0


def whole_number(text: str, option: str, most: int) -> int:
    """Return the whole number of an option, from 1 to ``most``."""
    number = value_of(text, option)
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= most:
        raise ConfigError(f"{option}: expected a whole number from 1 to {most}, got {text!r}")
    return number


def print_line(line: str) -> None:
    """Print a line to standard error."""
    print(line, file=sys.stderr, flush=True)


def report(arguments: Namespace) -> int:
    """Write a report and print its path."""
    path = Path(arguments.input)
    if not path.exists():
        raise FileError(f"{path}: no such file or folder; a result (.json) or the folder of an experiment is needed")
    if path.is_dir():
        from dmcmc.report.experiment.report import write_report

        if arguments.output is not None:
            raise ConfigError("--output: is for a single result; an experiment's report is written into its folder")
        if arguments.figures is not None:
            from dmcmc.report.experiment.report import check_figures

            check_figures(arguments.figures)
        files = write_report(path, arguments.figures, arguments.x, arguments.y)
        emit(f"{files[0]}: written, with {', '.join(file.name for file in files[1:])}")
        return 0
    if arguments.figures is not None:
        raise ConfigError("--figures: is for the folder of an experiment, not for a single result")
    output = path.with_suffix(".html") if arguments.output is None else Path(arguments.output)
    if has_events(path):
        from dmcmc.report.summary import write_page

        emit(f"{write_page(path, output)}: written")
        return 0
    from dmcmc.report.experiment.single_run import write_single

    emit(f"{write_single(path, output, arguments.x, arguments.y)}: written")
    return 0
