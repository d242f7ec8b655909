"""The time limit of a run holds its work, not importing and compiling."""

import os
import subprocess
import sys

import pytest
from numba import config

from dmcmc.experiments import pool, run_experiment
from dmcmc.experiments.plan import read_experiment
from dmcmc.experiments.pool import COMPILING, READY, WORKING, WorkClock, Worker
from dmcmc.tuning.run import COMPILE_SECONDS

SLEEPER = """
import sys, time
for line in sys.stdin:
    print("compiling", "working", "ready", sep="\\n", flush=True)
    print({before!r}, flush=True)
    time.sleep(0.8)
    print("working", '{{"outcome": "done"}}', sep="\\n", flush=True)
"""
COMPILE = """
import sys, numba
from dmcmc.experiments.pool import AnswerLines

answers = AnswerLines(sys.stdout.buffer)
answers.report_compiling()
inner = numba.njit(lambda x: x + 1)
outer = numba.njit(lambda x: 2 * inner(x))
answers.write(str(outer(3)).encode())
"""


def test_the_limit_counts_only_the_time_between_ready_and_the_record_without_compiling(clock):
    run = WorkClock(10.0)
    for line, seconds in ((COMPILING, 300), (WORKING, 50), (READY, 6), (COMPILING, 500), (WORKING, 3.5)):
        assert run.notice(line)
        clock.skip(seconds)
        assert run.exceeded == ""
    clock.skip(1)
    assert run.exceeded == "more than 10 s"
    assert not run.notice(b'{"outcome": "done"}')


@pytest.mark.parametrize("lines", [[], [READY, COMPILING]])
def test_compiling_has_a_limit_too(clock, lines):
    run = WorkClock(10.0)
    for line in lines:
        run.notice(line)
    clock.skip(COMPILE_SECONDS + 1)
    assert run.exceeded == "more than 900 s of compiling"


@pytest.mark.parametrize(("before", "outcome"), [("compiling", "done"), ("working", "out of time")])
def test_a_run_is_ended_when_it_works_too_long_but_not_when_it_compiles(monkeypatch, before, outcome):
    sleeper = SLEEPER.format(before=before)
    monkeypatch.setattr(pool, "python_command", lambda: [sys.executable, "-c", sleeper])
    worker = Worker([])
    record = worker.carry_out({}, 0.3, 1 << 40)
    worker.end()
    assert record["outcome"] == outcome
    assert record.get("error", "") == ("" if outcome == "done" else "more than 0.3 s")


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_worker_reports_the_compilation_of_a_kernel_and_those_that_it_calls_once():
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0] == COMPILING and lines[-2:] == [WORKING, b"8"]
    assert lines[:-1] == [COMPILING, WORKING] * (len(lines) // 2)


def test_runs_of_an_experiment_wait_for_their_kernels_before_their_clocks_start(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setenv("DMCMC_COMPILE", "later")
    monkeypatch.setattr(run_experiment, "carry_out_all", lambda *_: seen.append(os.environ["DMCMC_COMPILE"]))
    (tmp_path / "one.yaml").write_text("title: t\nbase: {problem: {generator: random}}\nmethods: {dmcmc: {}}\n")
    run_experiment.run_experiment(*read_experiment(tmp_path / "one.yaml"), tmp_path / "results")
    assert seen == ["first"] and os.environ["DMCMC_COMPILE"] == "later"
