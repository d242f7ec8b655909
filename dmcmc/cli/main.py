"""The command line: ``dmcmc run``, ``solve``, ``convert``, ``graph`` and others. Only rank 0 prints."""

import os
import sys
from collections.abc import Sequence

from dmcmc.cli.signals import SIGNALS
from dmcmc.mpi.launcher import announced_rank, launched


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 1 failed, 2 bad input or not available, 3 infeasible.

    Every error is one line on stderr; ``DMCMC_DEBUG=1`` adds the traceback. Without ``argv`` the process is this
    command line's own: signals are heard from here on, and what they end is left at once.
    """
    if argv is not None:
        return _run(argv)
    SIGNALS.listen()
    code = _run(sys.argv[1:])
    SIGNALS.leave(code)
    return code


def _run(argv: Sequence[str]) -> int:
    # what takes long is imported when signals are heard
    from dmcmc.cli.failure import exit_code, report, warnings_as_lines

    quiet = announced_rank(os.environ) != 0
    _keep_output_plain()
    try:
        if quiet and _answered_alone(argv):
            return 0
        from dmcmc.cli import commands
        from dmcmc.cli.arguments import parse_arguments
        from dmcmc.cli.verbosity import listen

        arguments = parse_arguments(list(argv))
        with warnings_as_lines():
            listen(arguments)
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


def _keep_output_plain() -> None:
    """Keep what libraries write for terminals out of the output.

    Where colorama is there, Numba colours its errors with it, and it resets the colours of the terminal when a process
    ends: in the middle of JSON where a launcher, as Open MPI's, gives each rank a terminal of its own. On such a
    terminal nothing else is to be shown either.
    """
    os.environ["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    if launched(os.environ):
        os.environ["TERM"] = "dumb"


def _answered_alone(argv: Sequence[str]) -> bool:
    """Return whether rank 0 answers a command line without the other ranks."""
    return not argv or argv[0] not in ("run", "solve", "experiment", "info") or "-h" in argv or "--help" in argv
