"""Results: finite JSON numbers, atomic files, gaps and guarantees."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.console import Console

import dmcmc
from dmcmc.config.configuration import parse
from dmcmc.files.write import check_writable
from dmcmc.inference.runtime.errors import FileError
from dmcmc.report.summary import result_summary as summary
from dmcmc.results.outcome import gap_of
from dmcmc.results.result import AgentMetrics, LevelReport, Result, Solution, TracePoint, guarantee_report
from dmcmc.results.stored_result import provenance

RESULT_FIELDS = [
    "format_version", "status", "objective", "bound", "gap", "violation", "assignment", "sense", "time",
    "time_compiling", "simulated_time", "msg_count",
    "msg_size", "extra_msg_count", "extra_msg_size", "ncccs", "messages", "control", "cycle", "course", "note",
    "presolve", "work", "max_marginals", "levels", "alternatives", "moves", "agents", "trace", "guarantee",
    "provenance", "tables_objective",
]  # fmt: skip


def result_with(**changes: Any) -> Result:
    fields: dict[str, Any] = {
        "status": "feasible", "objective": 10, "bound": 12, "gap": 0.2, "violation": 0,
        "assignment": {"x": 1, "y": "late"}, "sense": "max", "time": 0.5,
    }  # fmt: skip
    return Result(**(fields | changes))


def agent(name: str) -> AgentMetrics:
    return AgentMetrics(name=name, method="gibbs", exact=False, variables=10, interface=2, rows=576, updates=1234567)


def test_json_has_exactly_the_documented_fields() -> None:
    assert list(json.loads(result_with().to_json())) == RESULT_FIELDS


def test_an_agent_discloses_at_most_the_entries_of_its_message() -> None:
    builder = dmcmc.Problem.build()
    for name, values, owner in (("x", 3, "A"), ("y", 2, "B")):
        builder.variable(name, values, agent=owner)
        builder.factor([name], list(range(values)))
    builder.factor(["x", "y"], np.arange(6).reshape(3, 2))
    agents = dmcmc.solve(builder.problem(), presolve="none", device="cpu").agents
    assert [a.own_utilities for a in agents] == [3, 2]
    assert sorted(a.disclosed for a in agents) in ([0, 2], [0, 3])  # only the child sends a UTIL message
    assert all(a.disclosed <= a.own_utilities for a in agents)


def test_levels_are_shown_with_their_bounds() -> None:
    levels = (LevelReport("hard", None, None, 2), LevelReport("soft", -30, -12, 0))
    console = Console(width=100)
    with console.capture() as captured:
        console.print(summary(result_with(levels=levels)))
    text = captured.get()
    assert "level hard" in text and "2 broken" in text
    assert "-30 (bound -12)" in text
    data = json.loads(result_with(levels=levels).to_json())
    assert data["levels"][1] == {"name": "soft", "objective": -30, "bound": -12, "violation": 0}


def test_json_numbers_are_finite_or_null() -> None:
    points = (TracePoint(0.1, None, float("inf")), TracePoint(0.2, float("-inf"), 3.5))
    plan = {"nan": float("nan"), "numpy": np.float64("inf"), "array": np.array([1.5, np.nan]), 7: {"deep": [np.inf]}}
    text = result_with(bound=float("inf"), trace=points, provenance=plan).to_json()
    assert "NaN" not in text and "Infinity" not in text
    data = json.loads(text)
    assert data["bound"] is None
    assert [p["bound"] for p in data["trace"]] == [None, 3.5]
    assert data["provenance"] == {"nan": None, "numpy": None, "array": [1.5, None], "7": {"deep": [None]}}


def test_the_text_of_a_result_is_one_short_line() -> None:
    values = {f"x{i}": i for i in range(10_000)}
    text = "objective 10 (maximise), bound 12, gap 0.2, variables 10,000, time 0.500 s"
    assert repr(result_with(assignment=values)) == f"<Result feasible: {text}>"
    nothing = result_with(status="unsatisfied", objective=None, bound=None, gap=None, assignment=None, violation=None)
    text = "objective None (maximise), bound None, gap None, variables no assignment, time 0.500 s"
    assert str(nothing) == f"<Result unsatisfied: {text}>"
    assert "broken hard constraints 3" in repr(result_with(violation=3))
    assert "objective -about 2^40001" in repr(result_with(objective=-(2**40_000)))
    assert len(repr(Solution(0.5, 2**40_000, values, "local search"))) < 200


def test_a_notebook_shows_a_result_with_all_texts_escaped() -> None:
    values = {"<b>": "<i>"} | {f"x{i}": i for i in range(10_000)}
    page = result_with(assignment=values, note="<u>")._repr_html_()
    assert "&lt;b&gt;" in page and "&lt;i&gt;" in page and "&lt;u&gt;" in page
    assert not any(tag in page for tag in ("<b>", "<i>", "<u>"))
    assert "of 10,001 variables" in page and len(page) < 20_000


@pytest.mark.parametrize(
    ("changes", "work"),
    [
        ({}, "1,234,567 updates"),
        ({"updates": 0}, "0 updates"),
        ({"updates": 0, "cells": 7}, "7 cells"),
        ({"updates": 0, "method": "exact", "exact": True}, "0 cells"),
        ({"updates": 0, "variables": 1, "interface": 1}, "nothing hidden"),
        ({"updates": 0, "variables": 1, "interface": 1, "method": "exact", "exact": True}, "nothing hidden"),
        ({"variables": 1, "interface": 1}, "1,234,567 updates"),
    ],
)
def test_the_table_of_agents_names_the_work_of_each_method(changes: dict[str, Any], work: str) -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(summary(result_with(agents=(msgspec.structs.replace(agent("one"), **changes),))))
    (line,) = (line for line in captured.get().splitlines() if line.startswith(" one"))
    assert f" {work} " in line and line.count("cells") == work.count("cells")


def test_json_integers_are_exact() -> None:
    data = json.loads(result_with(objective=2**53 + 1, bound=2**70 + 1, msg_size=np.int64(2**62 + 1)).to_json())
    assert (data["objective"], data["bound"], data["msg_size"]) == (2**53 + 1, 2**70 + 1, 2**62 + 1)


def test_json_keeps_names_and_labels() -> None:
    names = {"größe": "ü", 'a"b\n': 0.5, "[red]": -3, "\ud800": 1}
    assert json.loads(result_with(assignment=names).to_json())["assignment"] == names


def test_a_result_is_written_atomically_into_new_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "run.json"
    result_with().write(path)
    assert json.loads(path.read_text())["objective"] == 10
    result_with(objective=11).write(path)
    assert json.loads(path.read_text())["objective"] == 11
    assert os.listdir(path.parent) == ["run.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match=r"run\.json: cannot be written: No space left"):
        result_with().write(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    result_with().write(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["objective"] == 10


def test_unwritable_paths_are_detected_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for bad in (tmp_path, tmp_path / "file" / "run.json", Path("/dev/stdout"), tmp_path / ("x" * 300), "a\0b"):
        with pytest.raises(FileError, match="cannot be written"):
            check_writable(bad)
    check_writable(tmp_path / "new" / "run.json")
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (100, 110, 0.1),
        (-100, -90, 0.1),
        (0, 0.5, 0.5),
        (0.25, 0.5, 0.25),
        (5, 5, 0.0),
        (10**400, 10**400, 0.0),
        (None, 5, None),
        (5, None, None),
        (5, float("inf"), None),
        (float("nan"), 5, None),
    ],
)
def test_the_gap_is_relative_to_the_objective_but_at_least_to_one(
    objective: float | None, bound: float | None, gap: float | None
) -> None:
    assert gap_of(objective, bound) == (None if gap is None else pytest.approx(gap))


def test_theorem_1_multiplies_over_the_sampling_agents() -> None:
    report = guarantee_report(0.01, 0.05, 2000, 10)
    assert report.probability == pytest.approx(0.95**10)
    assert guarantee_report(0.01, 0.05, 2000, 0).probability == 1
    assert "claim" in report.note and "not a proof" in report.note


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"status": "optimal"}, 0),
        ({"status": "feasible"}, 0),
        ({"status": "timeout"}, 0),
        ({"status": "unsatisfied", "objective": None, "violation": 2}, 1),
        ({"status": "timeout", "objective": None, "violation": 2}, 1),
        ({"status": "timeout", "objective": None, "assignment": None, "violation": None}, 1),
        ({"status": "infeasible", "assignment": None}, 3),
    ],
)
def test_the_exit_code_is_0_with_a_feasible_assignment(changes: dict[str, Any], code: int) -> None:
    assert result_with(**changes).exit_code == code


def rendered(result: Result) -> str:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(summary(result))
    return capture.get()


def test_the_summary_shows_status_numbers_and_agents() -> None:
    text = rendered(result_with(agents=(agent("alice"), agent("[bold]bob")), msg_count=18, msg_size=2048))
    for word in (
        "feasible",
        "10 (maximise)",
        "12",
        "20 %",
        "0.500 s",
        "18 (2.0 KiB)",
        "alice",
        "[bold]bob",
        "1,234,567",
    ):
        assert word in text


def test_the_summary_of_many_agents_is_short() -> None:
    text = rendered(result_with(agents=tuple(agent(f"agent{i}") for i in range(50))))
    assert "agent19" in text and "agent20" not in text
    assert "30 more agents" in text


def test_the_summary_of_a_violated_problem_has_no_objective() -> None:
    text = rendered(result_with(status="unsatisfied", objective=None, bound=None, gap=None, violation=3))
    assert "violations" in text and "3" in text
    assert "None" not in text


def test_provenance_repeats_a_run_and_names_no_host() -> None:
    config = parse({"problem": {"generator": "random"}, "seed": 9})
    found = provenance(config, 4, 2, {"order": ["a"]})
    assert (found["seed"], found["ranks"], found["threads"], found["device"]) == (9, 4, 2, "cpu")
    assert parse(found["config"]) == config
    assert found["plan"] == {"order": ["a"]}
    assert found["versions"]["dmcmc"] and found["versions"]["numpy"]
    assert os.uname().nodename not in json.dumps(found)
