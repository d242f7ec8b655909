"""Former names: keys, keywords, attributes and JSON fields of the last release still work, with one line of warning."""

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import dmcmc
from dmcmc.cli.main import main
from dmcmc.config import settings as settings_module
from dmcmc.config.configuration import Config, parse, read_config
from dmcmc.config.legacy_keys import RENAMED_KEYS, RENAMED_SETTINGS, RenamedWarning
from dmcmc.experiments.journal import read_records
from dmcmc.experiments.plan import read_experiment
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.results import result as result_module
from dmcmc.results.legacy_names import RENAMED_CLASSES, RENAMED_FIELDS, RENAMED_IMPROVERS, current_result
from dmcmc.results.result import AgentMetrics, PresolveReport, Result, RetainedEntries, TracePoint, WorkDone

CONFIG = "problem: {generator: random, agents: 2, variables_per_agent: 2, domain_size: 2, reduce: none}\npolish: none\n"


def small() -> dmcmc.Problem:
    return dmcmc.generate("random", agents=2, variables_per_agent=2, domain_size=2)


def written(folder: Path, text: str, name: str = "run.yaml") -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_former_keys_of_a_file_are_read_with_one_warning_each(tmp_path: Path) -> None:
    with pytest.warns(RenamedWarning) as caught:
        config, document = read_config(written(tmp_path, CONFIG))
    assert (config.presolve, config.local_search) == ("none", "none")
    messages = sorted(str(one.message).replace(f"{tmp_path}/", "") for one in caught)
    assert messages == [
        "run.yaml:1: problem.reduce: is now called 'problem.presolve'; the old name will be removed",
        "run.yaml:2: polish: is now called 'local_search'; the old name will be removed",
    ]
    assert document.at(("local_search",)).endswith("run.yaml:2: local_search")


@pytest.mark.parametrize(("old", "new"), RENAMED_KEYS.items())
def test_every_former_key_sets_the_present_one(old: tuple[str, ...], new: tuple[str, ...]) -> None:
    def data(key: tuple[str, ...]) -> dict[str, Any]:
        found: dict[str, Any] = {"problem": {"generator": "random"}}
        section = found["problem"] if key[:-1] else found
        section[key[-1]] = "none"
        return found

    with pytest.warns(RenamedWarning, match=f"{old[-1]}: is now called '{'.'.join(new)}'"):
        former = parse(data(old))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RenamedWarning)
        assert former == parse(data(new))


def test_a_former_key_next_to_the_present_one_is_an_error() -> None:
    problem = {"generator": "random"}
    with pytest.raises(ConfigError, match=r"^polish: is the old name of 'local_search', which is given, too$"):
        parse({"problem": problem, "polish": "none", "local_search": "none"})
    with pytest.raises(ConfigError, match=r"^reduce: is the old name of 'presolve', which is given, too$"):
        dmcmc.plan(small(), reduce="none", presolve="none")  # type: ignore[call-arg]


def test_an_override_by_the_present_name_replaces_a_former_key(tmp_path: Path) -> None:
    with pytest.warns(RenamedWarning):
        config, _ = read_config(written(tmp_path, CONFIG), ["local_search=auto", "problem.presolve=merge"])
    assert (config.local_search, config.presolve) == ("auto", "merge")


def test_a_wrong_value_of_a_former_key_names_the_line(tmp_path: Path) -> None:
    with pytest.warns(RenamedWarning), pytest.raises(ConfigError) as caught:
        read_config(written(tmp_path, CONFIG.replace("polish: none", "polish: some")))
    assert "run.yaml:2: local_search: expected auto or none, got 'some'" in str(caught.value)


@pytest.mark.parametrize(("old", "new"), RENAMED_SETTINGS.items())
def test_former_keywords_and_attributes_of_settings(old: str, new: str) -> None:
    with pytest.warns(RenamedWarning, match=f"^{old}: is now called '{new}'") as caught:
        settings = dmcmc.Settings(**{old: "none"})
    assert len(caught) == 1 and caught[0].filename == __file__
    assert settings == dmcmc.Settings(**{new: "none"})
    with pytest.warns(RenamedWarning, match=rf"^Settings\.{old}: is now called '{new}'") as caught:
        assert getattr(settings, old) == "none"
    assert len(caught) == 1
    for _ in range(2):  # also if the settings are in the cache
        with pytest.warns(RenamedWarning, match=f"^{old}: ") as caught:
            result = dmcmc.solve(small(), **{old: "none"})  # type: ignore[arg-type]
        assert len(caught) == 1 and caught[0].filename == __file__
    assert result.provenance["config"][new] == "none" and old not in result.provenance["config"]
    assert issubclass(RenamedWarning, DeprecationWarning)


def test_present_names_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", RenamedWarning)
        config = Config(problem={"generator": "random"}, local_search="none", presolve="none")
        assert dmcmc.solve(small(), presolve="none", local_search="none").presolve is None
    assert (config.local_search, config.presolve) == ("none", "none")


def test_former_classes_are_the_present_ones() -> None:
    with pytest.warns(RenamedWarning, match="is now called 'AlgorithmSettings'"):
        former = settings_module.Algorithm
    assert former is settings_module.AlgorithmSettings
    for old, new in RENAMED_CLASSES.items():
        with pytest.warns(RenamedWarning, match=f"is now called '{new}'"):
            assert getattr(result_module, old) is getattr(result_module, new)
    with pytest.raises(AttributeError, match="Algorism"):
        settings_module.Algorism  # noqa: B018


SIZES = RetainedEntries(3, 1, 64.0, 9.0, 72)
STRUCTS: dict[str, Any] = {
    "Result": Result(
        status="optimal", objective=1, bound=1, gap=0.0, violation=0, assignment={}, sense="max", time=1.0,
        presolve=PresolveReport(fixed=2),
    ),
    "AgentMetrics": AgentMetrics(name="a", method="exact", exact=True, variables=1, interface=0, retained=SIZES),
    "RetainedEntries": SIZES,
    "TracePoint": TracePoint(1.0, 2, 3, "bound", SIZES, {"bound": 1.0}),
    "WorkDone": WorkDone("bound", 1.0, 2.0, 3.0),
    "Solution": dmcmc.Solution(1.0, 2, {}, "bound"),
    "Plan": dmcmc.Plan(
        agents=(), width=None, cells=None, bytes=None, arithmetic="int32", division="", combine="exact",
        presolve="removed", sparse_tables=("a",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", RENAMED_FIELDS)
def test_former_attributes_of_results_are_read_with_a_warning(kind: str) -> None:
    for old, new in RENAMED_FIELDS[kind].items():
        with pytest.warns(RenamedWarning, match=rf"^{kind}\.{old}: is now called '{new}'") as caught:
            assert getattr(STRUCTS[kind], old) == getattr(STRUCTS[kind], new)
        assert len(caught) == 1 and caught[0].filename == __file__


def test_results_have_a_format_version_and_older_ones_are_converted() -> None:
    result = dmcmc.solve(small(), method="gibbs", timeout=1, search="none")
    data = json.loads(result.to_json())
    assert next(iter(data.items())) == ("format_version", 2)
    assert current_result(data) == data
    back = {kind: {new: old for old, new in names.items()} for kind, names in RENAMED_FIELDS.items()}
    former = {improver: old for old, improver in RENAMED_IMPROVERS.items()}

    def renamed(kind: str, one: dict[str, Any]) -> dict[str, Any]:
        return {back[kind].get(name, name): value for name, value in one.items()}

    old = renamed("Result", {name: value for name, value in data.items() if name != "format_version"})
    old["agents"] = [renamed("AgentMetrics", agent) for agent in old["agents"]]
    old["work"] = [renamed("WorkDone", one) for one in old["work"]]
    old["work"] = [one | {"kind": former.get(one["kind"], one["kind"])} for one in old["work"]]
    old["trace"] = [renamed("TracePoint", point) for point in old["trace"]]
    for point in old["trace"]:
        point["by"] = ", ".join(former.get(name, name) for name in point["by"].split(", "))
        point["parts"] = {former.get(name, name): share for name, share in point["parts"].items()}
    config = dict(old["provenance"]["config"])
    config |= {"polish": config.pop("local_search"), "reduce": config.pop("presolve")}
    old["provenance"] = old["provenance"] | {"config": config}
    assert {"format_version": 2, **current_result(old)} == data
    assert "format_version" not in old and "polish" in old["provenance"]["config"], "the argument is not changed"


def test_the_command_line_prints_one_line_for_each_former_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, CONFIG)
    expected = [
        f"dmcmc: warning: {path}:1: problem.reduce: is now called 'problem.presolve'; the old name will be removed",
        f"dmcmc: warning: {path}:2: polish: is now called 'local_search'; the old name will be removed",
    ]
    assert main(["run", path, "--json"]) == 0
    out, err = capfd.readouterr()
    assert sorted(err.splitlines()) == expected and json.loads(out)["provenance"]["config"]["local_search"] == "none"
    assert main(["run", path, "--json", "--quiet"]) == 0
    assert capfd.readouterr().err == ""
    problem = str(tmp_path / "p.npz")
    assert main(["convert", path, problem]) == 0
    assert sorted(capfd.readouterr().err.splitlines()) == expected
    command = [sys.executable, "-m", "dmcmc", "solve", problem, "--set", "polish=none", "--set", "problem.reduce=none"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["provenance"]["config"]["presolve"] == "none"
    assert sorted(line for line in done.stderr.splitlines() if "compiling" not in line) == [
        "dmcmc: warning: --set polish: is now called 'local_search'; the old name will be removed",
        "dmcmc: warning: --set problem.reduce: is now called 'problem.presolve'; the old name will be removed",
    ]


EXPERIMENT = """
title: Old names
base: {problem: {generator: random, agents: 2, variables_per_agent: 2, domain_size: 2}, algorithm: mgm, polish: none}
cases: [{problem.reduce: auto}, {problem.reduce: none}]
seeds: 1
methods: {polish: {}, other: {polish: none}}
"""


def test_experiments_with_former_keys_have_one_warning_per_key(tmp_path: Path) -> None:
    with pytest.warns(RenamedWarning) as caught:
        experiment, runs = read_experiment(written(tmp_path, EXPERIMENT, "e.yaml"))
    assert sorted(str(one.message).partition(": ")[2].partition(":")[0] for one in caught) == [
        "polish",
        "problem.reduce",
    ]
    assert set(experiment.methods) == {"polish", "other"}, "names of methods are not keys"
    assert [run.case for run in runs[::2]] == [{"problem.presolve": "auto"}, {"problem.presolve": "none"}]
    assert all(run.data["local_search"] == "none" for run in runs)


def test_an_experiment_of_an_earlier_version_is_continued_and_reported_without_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmcmc.experiments import run_experiment
    from dmcmc.experiments.job import carry_out

    def in_this_process(jobs: list[Any], workers: int, limits: Any, done: Any) -> None:
        for place, job in enumerate(jobs):
            done(place, carry_out(job))

    monkeypatch.setattr(run_experiment, "carry_out_all", in_this_process)
    present = EXPERIMENT.replace("polish: none", "local_search: none").replace("problem.reduce", "problem.presolve")
    path, folder = written(tmp_path, present, "e.yaml"), tmp_path / "out"
    assert main(["experiment", path, "--output", str(folder)]) == 0
    for name in ("experiment.json", "runs.jsonl"):  # as the earlier version wrote them
        text = (folder / name).read_text().replace("problem.presolve", "problem.reduce")
        (folder / name).write_text(text.replace('"local_search": "none"', '"polish": "none"'))
    lines = (folder / "runs.jsonl").read_text().splitlines(keepends=True)
    (folder / "runs.jsonl").write_text("".join(lines[:3]))
    assert "problem.reduce" in lines[0]
    capfd.readouterr()
    assert main(["experiment", path, "--output", str(folder), "--resume"]) == 0
    out, err = capfd.readouterr()
    assert "4 runs, 1 of them new" in out and "warning" not in err
    assert all("problem.presolve" in record["case"] for record in read_records(folder / "runs.jsonl"))
    assert main(["report", str(folder)]) == 0
    assert "warning" not in capfd.readouterr().err
    assert (folder / "table.md").read_text().count("presolve") == 2
