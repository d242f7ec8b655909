"""Scaling over GPUs: the fitted model, the configurations, the table and the measurement of small problems."""

import json
import math

import pytest
from imports import ROOT
from support.ranks import MPIRUN, needs_mpirun

from benchmarks.gpu_scaling import configurations, efficiency_of, main, read_lines
from benchmarks.scaling_model import (
    TERMS,
    Constants,
    Run,
    fitted_constants,
    imbalance,
    predicted_seconds,
    saved_runs,
    seconds_by_term,
)

RUNS = [Run(120, gpus, gpus * per_gpu) for gpus in (1, 2) for per_gpu in (1, 2, 3)]


@pytest.mark.parametrize("constants", [Constants(1e-3, 3e-3, 1e-2), Constants(0, 3e-3, 1e-2, 8), Constants(2e-3, 0, 0)])
def test_the_fit_finds_the_constants_of_predicted_runs_again(constants):
    runs = [run._replace(seconds=predicted_seconds(constants, run)) for run in RUNS]
    assert fitted_constants(runs, constants.launches) == pytest.approx(constants, abs=1e-9)


def test_no_fitted_constant_is_negative():
    runs = [run._replace(seconds=1.0 + 0.3 * run.gpus) for run in RUNS]  # more GPUs are slower
    assert min(fitted_constants(runs)) >= 0


@pytest.mark.parametrize(("agents", "parts"), [(7, 2), (8, 4), (100, 8), (3, 8)])
def test_the_imbalance_is_that_of_agents_that_are_distributed(agents, parts):
    counts = [len(range(part, agents, parts)) for part in range(parts)]
    assert imbalance(agents, parts) == pytest.approx(max(counts) / (agents / parts))


def test_more_gpus_divide_only_the_divided_terms():
    constants = Constants(1e-3, 2e-3, 3e-3, 4)
    one, four = (seconds_by_term(constants, Run(128, gpus, gpus)) for gpus in (1, 4))
    serial, *divided, messages = TERMS
    assert one[serial] == four[serial]
    assert [one[term] / four[term] for term in divided] == pytest.approx([4] * 3)
    assert one[messages] == 0 < four[messages]


def test_the_model_predicts_saved_runs_on_two_gpus_from_the_others():
    for runs in saved_runs().values():
        assert len(runs) == 5
        for run in [run for run in runs if run.gpus == 2]:
            constants = fitted_constants([other for other in runs if other is not run])
            assert math.isclose(predicted_seconds(constants, run), run.seconds, rel_tol=0.1)


def test_configurations_begin_with_one_gpu_and_all_gpus():
    found = configurations((1, 2, 4), mps=True)
    assert [(c.gpus, c.ranks_per_gpu) for c in found[:2]] == [(1, 1), (4, 1)]
    assert len(set(found)) == len(found)


def test_efficiency_of_strong_and_weak_scaling():
    one = {"gpus": 1, "times": 1, "seconds": 8.0}
    assert efficiency_of({"gpus": 4, "times": 1, "seconds": 4.0}, one) == 0.5
    assert efficiency_of({"gpus": 4, "times": 4, "seconds": 10.0}, one) == 0.8
    assert efficiency_of(one, None) is None


def test_the_table_marks_a_different_answer_and_is_drawn(monkeypatch, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    line = {
        "problem": "sample", "times": 1, "gpus": 1, "ranks": 1, "agents": 100, "status": "feasible", "mps": False,
        "seconds": 4.0, "phases": {"plan": 0.4, "local tables": 3.5}, "local": [3.4], "compiling": 0.0, "hash": "a",
        "gpu": "", "cores": 16,
    }  # fmt: skip
    more = [{"gpus": 2, "ranks": 2, "seconds": 2.5, "local": [1.0, 2.0]}, {"gpus": 4, "ranks": 4, "hash": "b"}]
    weak = {"gpus": 2, "ranks": 2, "times": 2, "agents": 200}
    lines, plot = tmp_path / "lines.jsonl", tmp_path / "plot.png"
    lines.write_text("".join(json.dumps(line | change) + "\n" for change in [{}, *more, weak]))
    monkeypatch.setattr("sys.argv", ["gpu_scaling", "--lines", str(lines), "--plot", str(plot)])
    main()
    rows = [row.split() for row in capsys.readouterr().out.splitlines() if row.startswith("sample ")]
    assert [row[-1] for row in rows] == ["same", "same", "DIFFERENT", "-"]
    assert [row[-2] for row in rows] == ["100.0%", "80.0%", "25.0%", "100.0%"]
    assert rows[1][10] == "1.33"
    assert plot.stat().st_size > 0


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
