"""Entry point of the command line: ``dmcmc run``, ``solve``, ``convert``, ``graph`` and others. Only rank 0 prints."""

import os
import sys
import threading
from collections.abc import Sequence

from dmcmc.cli.ending import exit_code, exit_process, report, warnings_as_lines
from dmcmc.cli.signals import SIGNALS
from dmcmc.mpi.compute_node import announced_rank, launched


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code: 0 done, 1 failed, 2 bad input or not available, 3 infeasible.

    Each error is one line on standard error; ``DMCMC_DEBUG=1`` adds the traceback.

    Parameters
    ----------
    argv
        The arguments. None: those of the process; then signals are handled as well, and after a signal the process
        ends without waiting for background work.
    """
    if argv is not None:
        return _run(argv)
    SIGNALS.listen()
    code = _run(sys.argv[1:])
    SIGNALS.leave(code)
    if not launched(os.environ) and _is_gpu_left_busy():
        sys.stdout.flush()
        exit_process(code)
    return code


def _is_gpu_left_busy() -> bool:
    """Return whether a thread still loads kernels of a GPU, or the GPU has failed.

    The end of a command does not wait for the thread; after a failure, libraries would print that they free nothing.
    """
    loading, device = (
        sys.modules.get(f"dmcmc.{name}") for name in ("compilation.gpu_components", "inference.runtime.device")
    )
    return (device is not None and device.gpu_has_failed()) or (
        loading is not None and any(thread.name == loading.LOADING for thread in threading.enumerate())
    )


def _run(argv: Sequence[str]) -> int:
    """Parse the arguments, run the command and report its errors."""
    # slow imports follow when signals are handled
    quiet = announced_rank(os.environ) != 0
    _keep_output_plain()
    try:
        if quiet and _answered_alone(argv):
            return 0
        from dmcmc.cli.arguments import function_of_command, parse_arguments
        from dmcmc.cli.progress import set_verbosity

        arguments = parse_arguments(list(argv))
        _set_cache_folder(getattr(arguments, "cache_dir", None))
        with warnings_as_lines():
            set_verbosity(arguments)
            return function_of_command(arguments.command)(arguments)
    except SystemExit as end:  # --help and --version
        from dmcmc.cli.progress import OutputError, write_output

        try:
            write_output()
        except OutputError as error:
            report(error)
            return error.exit_code
        return end.code if isinstance(end.code, int) else 0
    except (Exception, KeyboardInterrupt) as error:
        if not quiet:
            report(error)
        return exit_code(error)


def _set_cache_folder(folder: str | None) -> None:
    """Set the folder of ``--cache-dir`` for this process and those that it starts.

    Raises
    ------
    ConfigError
        If the folder cannot be used. On ranks of an MPI program this is only a warning at the first kernel, since the
        other ranks may have no such problem.
    """
    if folder is None:
        return
    from dmcmc.inference.runtime.errors import ConfigError
    from dmcmc.inference.storage.cache_folders import CACHE_VARIABLE, preferred_problem

    if not folder:
        raise ConfigError("--cache-dir: expected the name of a folder")
    os.environ[CACHE_VARIABLE] = os.path.abspath(folder)
    if not launched(os.environ) and (problem := preferred_problem()):
        raise ConfigError(f"--cache-dir: {problem}; give a folder that only you can write to")


def _keep_output_plain() -> None:
    """Keep terminal control codes of libraries out of the output.

    If colorama is installed, Numba colours its errors, and colorama resets the colours when the process ends. Under a
    launcher that gives each rank a pseudo-terminal, such as Open MPI's, this would end up in the JSON output.
    """
    os.environ["NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING"] = "1"
    if launched(os.environ):
        os.environ["TERM"] = "dumb"


def _answered_alone(argv: Sequence[str]) -> bool:
    """Return whether rank 0 alone carries out a command line."""
    return not argv or argv[0] not in ("run", "solve", "experiment", "info") or "-h" in argv or "--help" in argv
