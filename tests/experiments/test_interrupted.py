"""Experiments that are killed, run in parallel or on ranks have the results of an undisturbed experiment."""

import json
import signal
import subprocess
import sys
import time

import pytest
from support.ranks import needs_mpirun, start

from dmcmc.cli.main import main
from dmcmc.experiments.job import carry_out
from dmcmc.experiments.journal import Journal, read_records
from dmcmc.experiments.plan import read_experiment
from dmcmc.experiments.run_experiment import run_experiment
from dmcmc.report.experiment.charts import summary
from dmcmc.report.experiment.statistics import findings_of

TEXT = """
title: Small
base: {problem: {generator: random, agents: 2, variables_per_agent: 2, domain_size: 3}, local: {runs: 2, samples: 5}}
grid: {problem.domain_size: [2, 3]}
seeds: 3
methods: {mgm: {algorithm: mgm}, dsa: {algorithm: dsa}, own: {local.method: gibbs, local_search: none}}
"""
TIMES = ("time", "time_compiling", "simulated_time", "trace", "course")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def undisturbed(file, tmp_path, monkeypatch):
    """The folder of an experiment that was carried out in this process."""

    def work(jobs, workers, limits, done):
        for place, job in enumerate(jobs):
            done(place, carry_out(job))

    with monkeypatch.context() as patched:
        patched.setattr("dmcmc.experiments.run_experiment.carry_out_all", work)
        assert main(["experiment", str(file), "--output", str(tmp_path / "undisturbed")]) == 0
    return tmp_path / "undisturbed"


def timeless(folder):
    """Return the results of a folder without times, by key; each run has one result."""
    records = read_records(folder / "runs.jsonl")
    found = {r["key"]: {k: v for k, v in r.items() if k not in TIMES} for r in records}
    assert len(found) == len(records)
    return found


def untimed_table(folder):
    """Return the table of the report without the columns of seconds."""
    head, rows, _ = summary(findings_of(folder))
    untimed = [i for i, name in enumerate(head) if not name.endswith(" (s)")]
    return [[row[i] for i in untimed] for row in [head, *rows]]


@pytest.mark.slow
def test_a_killed_experiment_resumed_on_four_processes_has_the_same_results(file, undisturbed, tmp_path):
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "dmcmc", "experiment", str(file), "--output", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as sweep:
        while not (folder / "runs.jsonl").exists() or not (folder / "runs.jsonl").read_bytes().count(b"\n"):
            assert sweep.poll() is None
            time.sleep(0.01)
        sweep.send_signal(signal.SIGKILL)
    assert subprocess.run([*command, "--resume", "--jobs", "4"], stderr=subprocess.DEVNULL).returncode == 0
    assert timeless(folder) == timeless(undisturbed) and len(timeless(folder)) == 18
    assert untimed_table(folder) == untimed_table(undisturbed)


@pytest.mark.slow
@needs_mpirun
def test_ranks_have_the_results_of_one_process(file, undisturbed, tmp_path):
    folder = tmp_path / "ranks"
    done = start(2, "-m", "dmcmc", "experiment", str(file), "--output", str(folder))
    assert done.returncode == 0, done.stderr
    assert timeless(folder) == timeless(undisturbed)


def test_a_journal_cut_off_within_a_line_has_the_same_report(file, undisturbed, tmp_path):
    folder = tmp_path / "cut"
    folder.mkdir()
    lines = (undisturbed / "runs.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "experiment.json").write_bytes((undisturbed / "experiment.json").read_bytes())
    (folder / "runs.jsonl").write_bytes(b"".join(lines[7:]) + lines[0][:30])
    journal = Journal(folder / "runs.jsonl")
    for line in lines[:7]:
        journal.add(json.loads(line))
    journal.close()
    assert untimed_table(folder) == untimed_table(undisturbed)
    experiment, runs = read_experiment(file)
    assert run_experiment(experiment, runs, folder, resume=True, report=str).before == 18
