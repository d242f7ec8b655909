"""The command line: ``dmcmc run``, ``solve``, ``convert``, ``graph`` and others. Only rank 0 prints."""

import os
import sys
from collections.abc import Sequence

from dmcmc.cli.arguments import parse_arguments
from dmcmc.cli.failure import exit_code, report
from dmcmc.mpi.launcher import announced_rank, launched


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 1 failed, 2 bad input or not available, 3 infeasible.

    Every error is one line on stderr; ``DMCMC_DEBUG=1`` adds the traceback.
    """
    quiet = announced_rank(os.environ) != 0
    if launched(os.environ):  # some give each rank a terminal of its own: what it would show there is in their output
        os.environ["TERM"] = "dumb"
    try:
        if quiet and _answered_alone(sys.argv[1:] if argv is None else argv):
            return 0
        arguments = parse_arguments(list(sys.argv[1:] if argv is None else argv))
        from dmcmc.cli import commands

        return commands.COMMANDS[arguments.command](arguments)
    except SystemExit as end:  # --help and --version
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            from dmcmc.cli.terminal import close_quietly

            close_quietly()
        return end.code if isinstance(end.code, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        if not quiet:
            report(error)
        return exit_code(error)


def _answered_alone(argv: Sequence[str]) -> bool:
    """Return whether rank 0 answers a command line without the other ranks."""
    return not argv or argv[0] not in ("run", "solve") or "-h" in argv or "--help" in argv
