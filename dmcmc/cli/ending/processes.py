"""The processes of a run: pass signals on to the ranks of this machine, and end this process and all others."""

import contextlib
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, NoReturn

from dmcmc.mpi.launcher import announced_rank, by_open_mpi

if TYPE_CHECKING:
    from dmcmc.mpi.world import World

_LATE_OTHERS = 600.0  # seconds after the deadline at which other ranks end by themselves if they cannot see rank 0
# Seconds for other ranks to save what only they know, and for the result to pass the launcher. Ranks that are about to
# be ended cannot report that they are done, and launchers do not report that they passed all output on.
_SAVE_AND_FORWARD = 0.3
PASSED_ON: dict[int, signal.Signals] = {}
"""Signals that a rank passes on to the other ranks of its machine, and the signals that they stand for."""
if hasattr(signal, "SIGUSR1"):  # not on Windows
    PASSED_ON = {signal.SIGUSR1: signal.SIGINT, signal.SIGUSR2: signal.SIGTERM}


class RunProcesses:
    """The processes of a run: this one, and the other MPI ranks.

    Attributes
    ----------
    world : World or None
        The MPI ranks; None before MPI starts.
    under_open_mpi : bool
        Whether Open MPI's launcher started this process; it leaves little time after a signal.
    """

    def __init__(self) -> None:
        self.world: World | None = None
        self.under_open_mpi = by_open_mpi(os.environ)

    @property
    def rank(self) -> int:
        """The MPI rank of this process; before MPI starts, the rank that the launcher announces."""
        return announced_rank(os.environ) if self.world is None else self.world.rank

    def forward(self, received: int) -> None:
        """Pass a signal on to the other ranks of this machine."""
        for neighbour in [] if self.world is None else self.world.local_processes:
            with contextlib.suppress(OSError):  # it has ended
                os.kill(neighbour, next(code for code, meant in PASSED_ON.items() if meant == received))

    def may_end(self, late: float) -> bool:
        """Return whether this rank may end although its run is late.

        Rank 0 and a process without MPI may end at once, all others when the first rank of their machine has ended.

        ``late`` is the number of seconds since the deadline. A rank that is the first one of its machine, or does not
        know the others, cannot see rank 0 and waits ``_LATE_OTHERS`` seconds.
        """
        if self.rank == 0 or self.world is None:
            return True
        if self.world.local_rank == 0 or not self.world.local_processes:
            return late > _LATE_OTHERS
        try:
            os.kill(self.world.local_processes[0], 0)
        except OSError:
            return True
        return False

    def abort_others(self, code: int, after_signal: bool) -> None:
        """End all other ranks by ``MPI_Abort``.

        Some launchers do not end them when one rank ends, or report the ranks that they end as failures. Open MPI's
        launcher ends them itself on one machine, and would print more after an abort.

        Parameters
        ----------
        code
            Exit code of the ranks.
        after_signal
            Whether a signal was received, after which Open MPI leaves no time.
        """
        world = self.world
        if world is None or world.size == 1:
            return
        if world.rank == 0 and not (self.under_open_mpi and after_signal):
            time.sleep(_SAVE_AND_FORWARD)
        if world.size > world.local_size or (world.rank == 0 and not self.under_open_mpi):
            _clean_up()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # suppress messages of MPI about the abort
            world.abort(code)


def exit_process(code: int) -> NoReturn:
    """End the process immediately, after removing unfinished files."""
    _clean_up()
    os._exit(code)


def _clean_up() -> None:
    """Remove unfinished files, and show the cursor of the terminal again."""
    write = sys.modules.get("dmcmc.inference.storage.atomic_write")
    if write is not None:
        write.discard_partial_files()
    if os.isatty(2):
        os.write(2, b"\x1b[?25h")  # a progress bar hides the cursor
