"""``dmcmc experiment CONFIG --output DIR``: a sweep, alone, on several processes, or on ranks."""

import sys
from argparse import Namespace
from pathlib import Path

from dmcmc.cli.signals import SIGNALS
from dmcmc.cli.terminal import emit
from dmcmc.config.yaml_lines import value_of
from dmcmc.inference.runtime.errors import ConfigError

_MOST_JOBS = 512


def experiment(arguments: Namespace) -> int:
    """Carry out an experiment; returns the exit code."""
    from dmcmc.experiments.plan import chosen, read_experiment
    from dmcmc.experiments.run_experiment import conduct
    from dmcmc.mpi.world import connect

    jobs = value_of(arguments.jobs, "--jobs")
    if isinstance(jobs, bool) or not isinstance(jobs, int) or not 1 <= jobs <= _MOST_JOBS:
        raise ConfigError(f"--jobs: expected a whole number from 1 to {_MOST_JOBS}, got {arguments.jobs!r}")
    with SIGNALS.unheard():
        world = connect()
    SIGNALS.join(world)
    folder = Path(arguments.output)
    found, runs = world.decided(lambda: read_experiment(arguments.config, arguments.quick))
    methods = chosen(found, arguments.method)
    told = conduct(found, runs, folder, methods=methods, resume=arguments.resume, jobs=jobs, world=world, tell=_tell)
    if world.rank == 0:
        failed = f", {told.failed} of them without an answer" if told.failed else ""
        emit(f"{folder}: {told.runs} runs, {told.runs - told.before} of them new{failed}")
    return 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
