"""The shared thread pools of a process and of its forked children."""

import multiprocessing
import sys

import pytest

from dmcmc.inference.runtime.threads import run_parallel


def work_done(threads=2):
    """Run four tasks in parallel and return what they did."""
    done = []
    run_parallel([lambda task=task: done.append(task) for task in range(4)], threads)
    return sorted(done)


def send_work_done(connection):
    """Send the result of ``work_done`` to the parent process."""
    connection.send(work_done())


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not forked")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_has_its_own_threads():
    assert work_done() == [0, 1, 2, 3]
    receiver, sender = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=send_work_done, args=(sender,), daemon=True)
    child.start()
    assert receiver.poll(60) and receiver.recv() == [0, 1, 2, 3]
    child.join(60)
    assert child.exitcode == 0
