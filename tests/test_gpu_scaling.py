"""Scaling over GPUs: the configurations, the table and the measurement of small problems."""

import json

import pytest
from imports import ROOT
from support.ranks import MPIRUN, needs_mpirun

from benchmarks.gpu_scaling import configurations, efficiency_of, main, read_lines


def test_configurations_begin_with_one_gpu_and_all_gpus():
    found = configurations((1, 2, 4), mps=True)
    assert [(c.gpus, c.ranks_per_gpu) for c in found[:2]] == [(1, 1), (4, 1)]
    assert len(set(found)) == len(found)


def test_efficiency_of_strong_and_weak_scaling():
    one = {"gpus": 1, "times": 1, "seconds": 8.0}
    assert efficiency_of({"gpus": 4, "times": 1, "seconds": 4.0}, one) == 0.5
    assert efficiency_of({"gpus": 4, "times": 4, "seconds": 10.0}, one) == 0.8
    assert efficiency_of(one, None) is None


def test_the_table_marks_a_different_answer(monkeypatch, capsys, tmp_path):
    line = {
        "problem": "sample", "times": 1, "gpus": 1, "ranks": 1, "agents": 100, "status": "feasible", "mps": False,
        "seconds": 4.0, "phases": {"plan": 0.4, "local tables": 3.5}, "local": [3.4], "compiling": 0.0, "hash": "a",
        "gpu": "", "cores": 16,
    }  # fmt: skip
    more = [{"gpus": 2, "ranks": 2, "seconds": 2.5, "local": [1.0, 2.0]}, {"gpus": 4, "ranks": 4, "hash": "b"}]
    weak = {"gpus": 2, "ranks": 2, "times": 2, "agents": 200}
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps(line | change) + "\n" for change in [{}, *more, weak]))
    monkeypatch.setattr("sys.argv", ["gpu_scaling", "--lines", str(lines)])
    main()
    rows = [row.split() for row in capsys.readouterr().out.splitlines() if row.startswith("sample ")]
    assert [row[-1] for row in rows] == ["same", "same", "DIFFERENT", "-"]
    assert [row[-2] for row in rows] == ["100.0%", "80.0%", "25.0%", "100.0%"]
    assert rows[1][10] == "1.33"


@pytest.mark.slow
@needs_mpirun
def test_small_problems_are_measured_on_the_cpu(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    lines = tmp_path / "lines.jsonl"
    options = ["--measure", "--quick", "--seconds", "1500", "--mpirun", MPIRUN, "--lines", str(lines)]
    monkeypatch.setattr("sys.argv", ["gpu_scaling", *options])
    main()
    found = read_lines(lines)
    wanted = configurations((1, 2), mps=False)
    assert len(found) == sum(len(configuration.problems) for configuration in wanted)
    assert "DIFFERENT" not in capsys.readouterr().out
