"""Start Python processes on MPI ranks, or threads of this process as ranks."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dmcmc.mpi.world import World

_OWN_MPIRUN = Path(sys.executable).with_name("mpirun")
MPIRUN = str(_OWN_MPIRUN) if _OWN_MPIRUN.exists() else shutil.which("mpirun")
needs_mpirun = pytest.mark.skipif(MPIRUN is None, reason="no mpirun")
_TESTS = str(Path(__file__).resolve().parents[1])
_TIMEOUT = 1500  # seconds; the first run has to compile the kernels

_RUN_COMMANDS = """
import json, sys
from dmcmc.cli.main import main

*others, last = json.loads(sys.argv[1])
assert [main(argv) for argv in others] == [int(sys.argv[2])] * len(others)
sys.argv[1:] = last
sys.exit(main())
"""


def start(ranks, *argv, limit=_TIMEOUT, **environment):
    """Run Python on a number of ranks, with the tests' helpers on its path; 0 is without a launcher."""
    launcher = [MPIRUN, "-n", str(ranks)] if ranks else []
    open_mpi = {
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    path = os.pathsep.join(filter(None, [_TESTS, os.environ.get("PYTHONPATH")]))
    environment_here = {k: v for k, v in os.environ.items() if k != "DMCMC_DEBUG"}
    return subprocess.run(
        [*launcher, sys.executable, *argv],
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment_here | {"PYTHONPATH": path} | (open_mpi if ranks else {}) | environment,
    )


def in_turn(ranks, *commands, code=0, before=""):
    """Run several command lines in one launch; each has to return the same exit code.

    Parameters
    ----------
    code
        Expected exit code.
    before
        Python code to execute first.
    """
    done = start(ranks, "-c", f"{before}\n{_RUN_COMMANDS}", json.dumps(commands), str(code))
    assert done.returncode == code, done.stderr
    return done


def documents(text):
    """Return the JSON documents of a text."""
    found, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def lines(stderr):
    """Return the lines that dmcmc wrote, without the launcher's lines and without progress."""
    ours = [line for line in stderr.splitlines() if line.startswith("dmcmc: ")]
    return [line for line in ours if not re.match(r"dmcmc: \d+ s: ", line)]


class ThreadRank(World):
    """A rank that is a thread of this process."""

    def __init__(self, rank, size, barrier, mailboxes):
        super().__init__()
        self.rank, self.size, self.local_size, self._barrier, self._mailboxes = rank, size, size, barrier, mailboxes

    def allgather(self, value, what="allgather"):
        self._mailboxes[self.rank] = value
        self._barrier.wait()
        found = list(self._mailboxes)
        self._barrier.wait()
        return found

    def decided(self, value, what="decided"):
        return self.allgather(value)[0]

    def bcast(self, value, what="bcast"):
        return self.decided(value)

    def gather(self, value, what="gather"):
        found = self.allgather(value)
        return found if self.rank == 0 else None

    def on_first_rank(self, work):
        return self.bcast(work() if self.rank == 0 else None)


def on_thread_ranks(size, work):
    """Return what ``work(world)`` returns on each of some ranks."""
    barrier, mailboxes, found = threading.Barrier(size), [None] * size, [None] * size

    def run(rank):
        try:
            found[rank] = work(ThreadRank(rank, size, barrier, mailboxes))
        except BaseException:
            barrier.abort()
            raise

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
