"""Collective calls of MPI ranks: how they begin together, and how an error of one rank reaches all of them.

A collective call returns only if every rank makes it. Each one therefore begins with a small header from all ranks: a
number for the name of the call, whether the rank has failed, and the number of bytes that it will send. So a rank whose
work has failed can report its error in whichever call the others make next, and ranks that make different calls end
with an error instead of waiting for each other. A call must not depend on a rank's own clock, memory or cache; what
depends on them is agreed on first. Ranks wait by polling with pauses, so that the cores stay free for other ranks.
"""

import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dmcmc.inference.runtime.device import gpu_fault
from dmcmc.inference.runtime.errors import DmcmcError, OutOfTime
from dmcmc.mpi import tuning
from dmcmc.mpi.tuning import LONGEST_PAUSE_SECONDS


class IdleWait:
    """Pauses between polls: at first another process may use the core in between, then the pauses get longer.

    Parameters
    ----------
    longest : float
        The longest pause, in seconds.
    """

    def __init__(self, longest: float = tuning.LONGEST_PAUSE_SECONDS) -> None:
        self._polls, self._seconds, self._longest = 0, tuning.LONGEST_PAUSE_SECONDS / 16, longest

    def take(self) -> None:
        """Pause for a moment; in the first polls only let another process run that waits for this core."""
        self._polls += 1
        if self._polls <= tuning.IMMEDIATE_POLLS:
            os.sched_yield()
        else:
            time.sleep(self._seconds)
            self._seconds = min(self._longest, 1.2 * self._seconds)  # 20 % longer each time


def wait_for(request: Any, longest: float = tuning.LONGEST_PAUSE_SECONDS) -> None:
    """Wait until a request of MPI is complete; a blocking call would wait without a pause.

    Parameters
    ----------
    request : mpi4py request
        The request, of a collective call or a message.
    longest : float
        The longest pause between polls, in seconds.
    """
    idle = IdleWait(longest)
    while not request.Test():
        idle.take()


T = TypeVar("T")

_AGREE, _LEAVE = "agree", "leave"


class OtherRankError(DmcmcError):
    """Another rank has failed with an error that is not meant for users; that rank raises the error itself."""

    exit_code = 1


class OutOfStep(RuntimeError):
    """Ranks have made different collective calls; this is an error of the program."""


class CollectiveCalls:
    """The collective calls of a communicator's ranks.

    Parameters
    ----------
    comm : mpi4py communicator or None
        The communicator; None for this process alone.
    count : callable
        ``count(messages, size)`` counts the messages, and their bytes, by which ranks agree that none has failed.

    Attributes
    ----------
    agreed_error : Exception or None
        The error that was last raised on all ranks; None before the first one.
    """

    def __init__(self, comm: Any, count: Callable[[int, int], None]) -> None:
        self._comm, self._count = comm, count
        self.agreed_error: Exception | None = None
        self._ended: Exception | None = None  # the error of all further calls, after a rank has left

    def leave(self) -> None:
        """Make the last call of this process; ranks that make another one receive an error instead of waiting."""
        with suppress(Exception):
            self._exchange_headers(_LEAVE, None)

    def begin(self, name: str, longest: float = LONGEST_PAUSE_SECONDS, size: int = 0) -> NDArray[np.int64]:
        """Wait until all ranks begin the call with this name; waiting ranks leave the cores to working ones.

        Parameters
        ----------
        name : str
            Name of the call.
        longest : float
            The longest pause between polls, in seconds.
        size : int
            Number of bytes that this rank will send.

        Returns
        -------
        (ranks,) int64
            The number of bytes that each rank will send.

        Raises
        ------
        Exception
            If a rank has failed: its error, on all ranks.
        OutOfStep
            If ranks make calls with different names.
        """
        return self._exchange_headers(name, None, longest, size)

    def agree(self, failure: Exception | None) -> None:
        """Raise an error on all ranks if there is one on any of them; a collective call.

        Parameters
        ----------
        failure : Exception or None
            The exception of this rank's work. A failure of its GPU becomes an error that all ranks can handle.
        """
        self._exchange_headers(_AGREE, failure if failure is None else gpu_fault(failure) or failure)

    def after(self, work: Callable[[], T]) -> T:
        """Return the result of this rank's part of some work; an exception on one rank is raised on all.

        Parameters
        ----------
        work : callable
            The part. It must not wait for other ranks.
        """
        if self._comm is None:
            return work()
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        self.agree(failure)
        return cast(T, result)

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of work that makes collective calls; its other errors are raised on all ranks too."""
        if self._comm is None:
            return work()
        try:
            result = work()
        except Exception as error:
            if error is not self.agreed_error:
                self.agree(error)
            raise
        self.agree(None)
        return result

    def _exchange_headers(
        self, name: str, failure: Exception | None, longest: float = LONGEST_PAUSE_SECONDS, size: int = 0
    ) -> NDArray[np.int64]:
        """Exchange the calls' names, failures and sizes, and return the sizes.

        An error is raised on all ranks if any rank has failed or the names differ.
        """
        ranks = 1 if self._comm is None else self._comm.Get_size()
        if ranks == 1:
            if failure is not None:
                self.agreed_error = failure
                raise failure
            return np.array([size])
        if self._ended is not None:
            self.agreed_error = self._ended
            raise self._ended
        header = np.array([crc32(name.encode()), failure is not None, size], dtype=np.int64)
        headers = np.zeros((ranks, header.size), dtype=np.int64)
        wait_for(self._comm.Iallgather(header, headers), longest)
        if name == _AGREE:
            self._count(ranks - 1, (ranks - 1) * header.nbytes)
        left = np.flatnonzero(headers[:, 0] == crc32(_LEAVE.encode())).tolist()
        if left:
            self._ended = OtherRankError(f"rank {', '.join(map(str, left))} has ended; a session needs all ranks")
        if headers[:, 1].any():
            self._raise_worst(failure)
        if 0 < len(left) < ranks:
            self.agreed_error = self._ended
            raise cast(Exception, self._ended)
        if (headers[:, 0] != headers[0, 0]).any():
            calls = "; ".join(f"rank {rank}: {called}" for rank, called in enumerate(self._comm.allgather(name)))
            self.agreed_error = OutOfStep(f"ranks make different collective calls: {calls}")
            raise self.agreed_error
        return headers[:, 2]

    def _raise_worst(self, failure: Exception | None) -> None:
        """Raise the worst error of all ranks."""
        rank, others = self._comm.Get_rank(), self._comm.Get_size() - 1
        report = pickle.dumps(shared_form(failure, rank))
        self._count(others, others * len(report))
        reports = [pickle.loads(received) for received in self._comm.allgather(report)]
        error = worst_error(reports, failure, rank)
        assert error is not None, "a rank has failed"
        if isinstance(error, DmcmcError) and error is not failure:
            error.order += (
                1  # if it is agreed on again among more ranks, that of the rank where it occurred comes first
            )
        self.agreed_error = error
        raise error


def shared_form(failure: Exception | None, rank: int) -> DmcmcError | None:
    """Return what other ranks receive of an error: itself if it is meant for users, else its rank and text.

    The result is None if there is no error.
    """
    if failure is None or isinstance(failure, DmcmcError):
        return failure
    message = " ".join(str(failure).split())[:500]
    return OtherRankError(f"rank {rank} has failed: {type(failure).__name__}{message and ': '}{message}")


def worst_error(reports: Sequence[DmcmcError | None], failure: Exception | None, rank: int) -> Exception | None:
    """Return the worst of all ranks' errors, with this rank's own error in its original form; None if there is none.

    The worst has the lowest (severity, ``order``, rank).
    """
    failures = [(_severity(e), e.order, number, e) for number, e in enumerate(reports) if e is not None]
    if not failures:
        return None
    _, _, owner, error = min(failures, key=lambda found: found[:3])
    return failure if failure is not None and owner == rank else error


def _severity(error: Exception) -> int:
    """Return 0 for an unforeseen error, 1 for the end of the time limit, 2 for others."""
    return 0 if isinstance(error, OtherRankError) else 1 if isinstance(error, OutOfTime) else 2


def gathered(comm: Any, data: bytes, sizes: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes of every rank on rank 0, and no bytes on the others; waiting ranks leave the cores to others.

    Parameters
    ----------
    comm : mpi4py communicator
        The ranks.
    data : bytes
        The bytes of this rank.
    sizes : (ranks,) int64
        The number of bytes of each rank.
    """
    if comm.Get_rank() > 0:
        wait_for(comm.Igatherv(np.frombuffer(data, dtype=np.uint8), None, root=0))
        return []
    received = np.zeros(int(sizes.sum()), dtype=np.uint8)
    wait_for(comm.Igatherv(np.frombuffer(data, dtype=np.uint8), [received, sizes], root=0))
    return _parts_of(received, sizes)


def gathered_on_all(comm: Any, data: bytes, sizes: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes of every rank on all of them; the parameters are those of :func:`gathered`."""
    received = np.zeros(int(sizes.sum()), dtype=np.uint8)
    wait_for(comm.Iallgatherv(np.frombuffer(data, dtype=np.uint8), [received, sizes]))
    return _parts_of(received, sizes)


def _parts_of(received: NDArray[np.uint8], sizes: NDArray[np.int64]) -> list[bytes]:
    """Return the bytes of each rank, from those of all ranks one after the other."""
    ends = np.cumsum(sizes).tolist()
    return [received[end - size : end].tobytes() for end, size in zip(ends, sizes.tolist(), strict=True)]
