"""Threads that are shared, in a process and in those forked from it."""

import multiprocessing
import sys

import pytest

from dmcmc.inference.runtime.threads import run_parallel


def work_done(threads=2):
    done = []
    run_parallel([lambda place=place: done.append(place) for place in range(4)], threads)
    return sorted(done)


def send_work_done(connection):
    connection.send(work_done())


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    assert work_done() == [0, 1, 2, 3]
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=send_work_done, args=(there,), daemon=True)
    child.start()
    assert here.poll(60) and here.recv() == [0, 1, 2, 3]
    child.join(60)
    assert child.exitcode == 0
