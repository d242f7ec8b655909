"""A process that carries out runs: it reads a job and writes a result, one line of JSON each.

Between the two it writes the line ``ready``, when the kernels are compiled. It ends with the process that started it.
"""

import ctypes
import json
import os
import signal
import sys
from contextlib import suppress

READY = b"ready\n"  # written when the kernels are compiled: the time of the run starts
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Carry out jobs from standard input one after the other; the output of libraries is discarded.

    The command line gives the number of the parent process and the CPU cores to use as a JSON list; an empty list means
    all.
    """
    parent, cores = int(sys.argv[1]), json.loads(sys.argv[2])
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # the parent ended before prctl was called
        os._exit(1)
    if cores and hasattr(os, "sched_setaffinity"):
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    from dmcmc.experiments.job import carry_out, warm_up

    warmed: set[str] = set()
    for line in sys.stdin.buffer:
        job = json.loads(line)
        warm_up(job, warmed)
        answers.write(READY)
        answers.flush()
        record = carry_out(job)
        answers.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
