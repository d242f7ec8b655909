"""``dmcmc report``: write the report of an experiment, or the page of one result."""

from argparse import Namespace
from pathlib import Path

from dmcmc.cli.terminal import emit
from dmcmc.inference.runtime.errors import ConfigError, FileError
from dmcmc.results.scenario import has_events


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
            from dmcmc.report.experiment.figures import check_figures

            check_figures(arguments.figures)
        files = write_report(path, arguments.figures)
        emit(f"{files[0]}: written, with {', '.join(file.name for file in files[1:])}")
        return 0
    if arguments.figures is not None:
        raise ConfigError("--figures: is for the folder of an experiment, not for a single result")
    output = path.with_suffix(".html") if arguments.output is None else Path(arguments.output)
    if has_events(path):
        from dmcmc.report.scenario import write_page

        emit(f"{write_page(path, output)}: written")
        return 0
    from dmcmc.report.experiment.single_run import write_single

    emit(f"{write_single(path, output)}: written")
    return 0
