"""Experiments: the runs of a file, the record of each run, and resuming without lost or repeated runs."""

import json
from pathlib import Path

import numpy as np
import pytest
from support import soundness
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.cli.main import main
from dmcmc.experiments import run_experiment as running
from dmcmc.experiments.job import carry_out, thinned, warm_up
from dmcmc.experiments.journal import Journal, read_records
from dmcmc.experiments.peers import PEERS
from dmcmc.experiments.plan import read_experiment
from dmcmc.experiments.pool import carry_out_all
from dmcmc.inference.runtime.errors import ConfigError, Unavailable

TEXT = """
title: Small
base: {problem: {generator: random, agents: 2, variables_per_agent: 2}, local: {runs: 2}}
grid: {problem.domain_size: [2, 3]}
cases: [{}, {local.samples: 5}]
seeds: 2
methods: {mgm: {algorithm: mgm}, own: {local.method: gibbs}}
quick: {seeds: [7], cases: [{}], methods: [mgm], set: {problem.agents: 3}}
"""


@pytest.fixture
def file(tmp_path):
    def write(text=TEXT):
        path = tmp_path / "experiment.yaml"
        path.write_text(text)
        return path

    return write


@pytest.fixture
def here(monkeypatch):
    """Carry out runs in this process."""

    def work(jobs, workers, limits, done):
        for place, job in enumerate(jobs):
            done(place, carry_out(job))

    monkeypatch.setattr(running, "carry_out_all", work)


def timeless(records):
    """The parts of records that do not depend on when and where a run is carried out."""
    return {
        r["key"]: {k: v for k, v in r.items() if k not in ("time", "simulated_time", "trace", "course")}
        | {"objectives": [point[1:] for point in r.get("trace", ())]}
        for r in records
    }


def test_an_experiment_has_all_combinations(file):
    _, runs = read_experiment(file())
    assert len(runs) == 2 * 2 * 2 * 2 == len({run.key for run in runs})
    last = runs[-1]
    assert (last.case, last.method, last.seed) == ({"local.samples": 5, "problem.domain_size": 3}, "own", 1)
    assert last.data["problem"] == {
        "generator": "random",
        "agents": 2,
        "variables_per_agent": 2,
        "domain_size": 3,
        "seed": 1,
    }
    assert last.data["local"] == {"runs": 2, "samples": 5, "method": "gibbs"} and last.data["seed"] == 1


def test_quick_applies_its_changes(file):
    _, runs = read_experiment(file(), quick=True)
    assert [(run.case, run.method, run.seed) for run in runs] == [
        ({"problem.domain_size": 2}, "mgm", 7),
        ({"problem.domain_size": 3}, "mgm", 7),
    ]
    assert runs[0].data["problem"]["agents"] == 3


def test_files_are_relative_to_the_experiment_and_environment_variables_are_expanded(file, monkeypatch):
    monkeypatch.setenv("PLACE", "/there")
    for name, expected in (("$PLACE/p.npz", "/there/p.npz"), ("p.npz", None)):
        path = file(f"title: t\nbase: {{problem: {{file: {name}}}}}\nmethods: {{a: {{}}}}\n")
        assert read_experiment(path)[1][0].data["problem"]["file"] == (expected or str(path.parent / "p.npz"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title: Small", "titel: Small", "unknown key; did you mean 'title'?"),
        ("base: {problem", "base: {problme", "base: the section 'problem' is missing"),
        ("algorithm: mgm", "algorithm: mgm7", "domain_size: 3): algorithm: unknown algorithm 'mgm7'"),
        ("algorithm: mgm", "peer: toolbar", "unknown peer; did you mean 'toulbar2'?"),
        ("algorithm: mgm", "task: marr", "unknown task; did you mean 'mar'?"),
        ("algorithm: mgm", "seconds: 3", "seconds: expected a number > 0, and only for a peer"),
        ("seeds: 2", "seeds: none", "seeds: expected how many seeds"),
        ("[{}, {local.samples: 5}]", "[{}, {}]", "a case is given twice"),
        ("methods: [mgm]", "methods: [nobody]", "unknown method 'nobody'; methods: mgm, own"),
        ("local.samples: 5", "local.samples: 0", "local.samples: expected a whole number >= 1 (and < 2^31), got 0"),
    ],
)
def test_a_wrong_experiment_is_one_line_of_error(file, old, new, message):
    assert old in TEXT
    with pytest.raises(ConfigError) as caught:
        read_experiment(file(TEXT.replace(old, new)), quick="nobody" in new)
    assert message in str(caught.value)


def test_an_incomplete_last_line_is_removed(tmp_path):
    record = {"key": "k", "case": {}, "method": "m", "seed": 0, "outcome": "failed", "error": "e"}
    journal = Journal(tmp_path / "runs.jsonl")
    journal.add(record)
    journal.close()
    with open(tmp_path / "runs.jsonl", "a") as stream:
        stream.write('{"key": "half')
    assert read_records(tmp_path / "runs.jsonl") == [record]
    journal = Journal(tmp_path / "runs.jsonl")
    journal.add(record | {"key": "next"})
    journal.close()
    assert [r["key"] for r in read_records(tmp_path / "runs.jsonl")] == ["k", "next"]


def test_an_interrupted_experiment_is_continued_without_lost_or_repeated_runs(file, tmp_path, here, capfd):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["experiment", str(file()), "--output", str(whole)]) == 0
    lines = (whole / "runs.jsonl").read_text().splitlines(keepends=True)
    parts.mkdir()
    for name in ("experiment.json", "runs.jsonl"):
        (parts / name).write_text((whole / name).read_text())
    (parts / "runs.jsonl").write_text("".join(lines[:5]) + lines[5][:40])
    arguments = ["experiment", str(file()), "--output", str(parts)]
    capfd.readouterr()
    assert main(arguments) == 2
    assert "has results of 5 runs; continue with --resume" in capfd.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert "16 runs, 11 of them new" in capfd.readouterr().out
    resumed, complete = read_records(parts / "runs.jsonl"), read_records(whole / "runs.jsonl")
    assert timeless(resumed) == timeless(complete) and len(resumed) == 16
    file(TEXT + "text: what a reader should know\n")
    assert main([*arguments, "--resume"]) == 0, "texts may be edited"
    assert "16 runs, 0 of them new" in capfd.readouterr().out
    assert main([*arguments, "--resume", "--quick"]) == 2
    assert "of another experiment" in capfd.readouterr().err


def test_methods_can_be_run_one_after_the_other(file, tmp_path, here, capfd):
    arguments = ["experiment", str(file()), "--output", str(tmp_path / "out"), "--resume"]
    assert main([*arguments, "--method", "own"]) == 0
    assert {record["method"] for record in read_records(tmp_path / "out" / "runs.jsonl")} == {"own"}
    assert main([*arguments, "--method", "mgm", "--method", "own"]) == 0
    assert len(read_records(tmp_path / "out" / "runs.jsonl")) == 16
    assert main([*arguments, "--method", "mgn"]) == 2
    assert "--method: unknown method 'mgn'; did you mean 'mgm'?" in capfd.readouterr().err


def test_methods_can_be_added_to_an_experiment(file, tmp_path, here, capfd, monkeypatch):
    arguments = ["experiment", str(file()), "--output", str(tmp_path / "out"), "--resume"]
    assert main(arguments) == 0
    before = read_records(tmp_path / "out" / "runs.jsonl")
    file(TEXT.replace("methods: {", "methods: {added: {algorithm: dsa}, "))
    monkeypatch.setattr(running, "machine", lambda: {"cores": "another number"})
    assert main([*arguments, "--method", "added"]) == 0
    after = read_records(tmp_path / "out" / "runs.jsonl")
    assert after[: len(before)] == before and {record["method"] for record in after[len(before) :]} == {"added"}
    plan = json.loads((tmp_path / "out" / "experiment.json").read_text())
    assert "added" in plan["experiment"]["methods"] and plan["machine"]["cores"].endswith("; another number")
    file(TEXT)
    assert main(arguments) == 2, "a method with runs must not be removed"
    assert "of another experiment" in capfd.readouterr().err


def test_failures_are_results(file, tmp_path, here, capfd):
    text = TEXT.replace("generator: random, agents: 2, variables_per_agent: 2", "file: nowhere.npz")
    text = text.replace("problem.domain_size: [2, 3]", "local.runs: [1]")
    assert main(["experiment", str(file(text)), "--output", str(tmp_path / "out")]) == 1
    records = read_records(tmp_path / "out" / "runs.jsonl")
    assert {record["outcome"] for record in records} == {"failed"} and "nowhere.npz" in records[0]["error"]
    printed = capfd.readouterr()
    assert "8 of them failed" in printed.out
    lines = [line for line in printed.err.splitlines() if line.startswith("dmcmc: no answer: ")]
    assert len(lines) == 4  # two methods for two cases
    assert all("nowhere.npz" in line and "'dmcmc report " in line for line in lines)


def test_a_method_without_an_answer_for_a_case_is_a_failure_with_its_reason_on_the_page(
    file, tmp_path, capfd, monkeypatch
):
    def work(jobs, workers, limits, done):
        for place, job in enumerate(jobs):
            slow = job["data"].get("algorithm") == "mgm" and job["data"]["problem"]["domain_size"] == 3
            done(place, {"outcome": "out of time", "error": "more than 9 s"} if slow else carry_out(job))

    monkeypatch.setattr(running, "carry_out_all", work)
    assert main(["experiment", str(file()), "--output", str(tmp_path / "out")]) == 1
    lines = [line for line in capfd.readouterr().err.splitlines() if line.startswith("dmcmc: no answer: ")]
    assert [line.partition(";")[0] for line in lines] == [
        "dmcmc: no answer: domain_size 3, mgm: out of time: more than 9 s (all 2 runs)",
        "dmcmc: no answer: samples 5, domain_size 3, mgm: out of time: more than 9 s (all 2 runs)",
    ]
    assert main(["report", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Methods without an answer" in page and page.count("out of time: more than 9 s (2 of 2 runs)") == 2


@pytest.mark.slow
def test_several_processes_give_the_same_results_and_obey_the_limits():
    problem = {"generator": "random", "agents": 2, "variables_per_agent": 3, "domain_size": 3}
    quick = [{"data": {"problem": problem | {"seed": s}, "algorithm": "dsa", "seed": s}} for s in range(3)]
    long = {"data": {"problem": problem, "algorithm": "dsa", "budget": {"time": 60}}}
    found = {}
    carry_out_all([long], 1, (0.5, 1 << 32), found.__setitem__)
    assert found.pop(0)["outcome"] == "out of time"
    carry_out_all(quick, 2, (300.0, 1 << 32), found.__setitem__)
    alone = [carry_out(job) for job in quick]
    timeless_fields = [k for k in alone[0] if "time" not in k and k not in ("trace", "course")]
    assert [[found[i][k] for k in timeless_fields] for i in range(3)] == [
        [record[k] for k in timeless_fields] for record in alone
    ]
    carry_out_all(quick[:1], 1, (60.0, 1 << 20), found.__setitem__)
    assert found[0]["outcome"] == "out of memory"


def test_a_run_can_compute_marginals():
    problem = {"generator": "random", "agents": 2, "variables_per_agent": 2, "domain_size": 2}
    record = carry_out({"data": {"problem": problem, "device": "cpu"}, "task": "mar"})
    assert (record["outcome"], record["status"], record["violation"]) == ("done", "exact", 0)
    assert record["cliques"] >= 1 and record["time"] >= 0 <= record["planning"]


def test_a_run_can_time_the_largest_bucket():
    problem = {"generator": "grid", "rows": 3, "domain_size": 4, "tightness": 0.5}
    record = carry_out({"data": {"problem": problem, "device": "cpu"}, "task": "bucket"})
    assert (record["outcome"], record["cells"], record["width"]) == (
        "done",
        4 ** (record["width"] + 1),
        record["width"],
    )
    assert record["width"] in (2, 3) and record["time"] > 0
    assert 0 < record["objective"] <= 100 * 4


def test_the_first_gpu_run_of_a_case_is_carried_out_once_before_it_is_timed(monkeypatch):
    """A GPU's kernels are compiled for a problem's shape."""
    done = []
    monkeypatch.setattr("dmcmc.experiments.job.carry_out", lambda job: done.append(job["data"]["problem"]))
    warmed = set()
    for size, seed in ((3, 0), (3, 1), (4, 0)):
        problem = {"generator": "random", "domain_size": size, "seed": seed}
        warm_up({"data": {"problem": problem, "device": "cuda", "seed": seed}}, warmed)
    assert [p["domain_size"] for p in done if p["generator"] == "random"] == [3, 4]


def test_a_thinned_trace_has_its_last_point():
    points = [(float(i), i, None) for i in range(1234)]
    assert len(thinned(points)) <= 200 and thinned(points)[-1] == [1233.0, 1233, None]


def test_pydcop_solves_in_a_separate_process():
    pytest.importorskip("pydcop")
    problem = random_problem(33, variables=6, hard=0.1, sense="max")
    answer = PEERS["pydcop-dsa"].solve(problem, 1.0, 0)
    assert answer.bound is None and not answer.infeasible
    assert answer.values is None or problem.evaluate(answer.values).objective is not None


def test_a_missing_pydcop_is_an_error(monkeypatch):
    monkeypatch.setattr("dmcmc.experiments.peers.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pyDCOP is not installed; pip install 'dmcmc\[pydcop\]'"):
        PEERS["pydcop-mgm"].solve(random_problem(5), 1.0, 0)


@pytest.mark.parametrize("peer", ["toulbar2", "cp-sat"])
def test_peers_find_the_optimum_on_the_original_factors(peer):
    pytest.importorskip({"toulbar2": "pytoulbar2", "cp-sat": "ortools"}[peer])
    for seed, sense in ((21, "max"), (22, "min"), (33, "max")):
        problem = random_problem(seed, variables=6, hard=0.1, sense=sense)
        answer = PEERS[peer].solve(problem, 10.0, 0)
        sign, best = 1 if sense == "max" else -1, soundness.optimum(problem)
        if answer.infeasible:
            assert best == -np.inf
            continue
        evaluation = problem.evaluate(answer.values)
        assert (evaluation.violation, sign * evaluation.objective) == (0, best)
        assert sign * answer.bound == best


def test_a_run_of_a_missing_peer_is_a_failed_run(monkeypatch):
    monkeypatch.setattr("dmcmc.samplers.toulbar2.background_search.available", lambda: False)
    problem = {"generator": "random", "agents": 2, "variables_per_agent": 2, "domain_size": 2}
    record = carry_out({"data": {"problem": problem}, "peer": "toulbar2", "seconds": 1.0})
    assert record == {"outcome": "failed", "error": "toulbar2 is not installed; pip install 'dmcmc[toulbar2]'"}


def test_a_peer_proves_infeasibility():
    pytest.importorskip("pytoulbar2")
    table = np.full((2, 2), -np.inf)
    problem = Problem(("a", "b"), [2, 2], ("one",), [0, 0], (Factor.of((0, 1), table),))
    assert PEERS["toulbar2"].solve(problem, 5.0, 0).infeasible


def test_all_experiment_files_of_the_project_are_valid():
    folder = Path(__file__).parents[2] / "configs"
    files = [path for path in folder.rglob("*.yaml") if "\nmethods:" in path.read_text()]
    assert files
    for path in files:
        for quick in (False, True):
            experiment, runs = read_experiment(path, quick)
            assert runs and json.loads(json.dumps(runs[0].data)) == runs[0].data
            for row in experiment.paper:
                assert row.keys() <= {"case", "method", "time", "simulated_time", "objective", "ratio", "bound"}, path
                assert "method" in row and isinstance(row.get("case", {}), dict), path
