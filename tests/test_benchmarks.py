"""Every benchmark script prints its help, and those that need no GPU run with a small amount of work."""

import json
import runpy
import sys

import pytest
from imports import ROOT, files

from dmcmc.formats import native
from dmcmc.generators import registry as generators

MAIN_GUARD = '__name__ == "__main__"'  # files without this are modules that scripts share
SCRIPTS = sorted(f.path.removesuffix(".py").replace("/", ".") for f in files("benchmarks") if MAIN_GUARD in f.text)
WCSP = "small 4 2 4 100 2 2 2 2 2 0 1 0 2 0 1 3 1 0 5 2 1 2 1 1 0 0 4 2 2 3 0 1 1 1 6 1 0 1 1 1 2"
QUICK = {
    "benchmarks.bounds.counted_nodes": "--only ms_A10_n10_D24 --nodes 3 --batches 1",
    "benchmarks.constraints.random_problems": "--problems 2 --solved 0",
    "benchmarks.elimination.instances": "--device cpu",
    "benchmarks.elimination.sparse_sizes": "--only spot5/404 --seconds 5",
    "benchmarks.elimination.minibuckets": "--only spot5/404",
    "benchmarks.elimination.orders": "--seconds 0.05",
    "benchmarks.robustness.mutated_own_files": "--count 5",
    "benchmarks.scheduler_simulation": "--seconds 1",
    "benchmarks.solving.answers": "--keep {folder}/kept.json --ways auto --only spot5",
    "benchmarks.solving.solve_instances": "--only spot5",
    "benchmarks.solving.soundness": "--problems 2",
    "benchmarks.solving.utility_over_time": "--only spot5/404 --runs 0.2 --times 0.2",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with small problems under the names that the scripts look for."""
    root = tmp_path_factory.mktemp("shared")
    small = generators.generate("meeting-scheduling", {"agents": 2, "domain_size": 4, "variables_per_agent": 4})
    for part in ("meetings", "generated", "instances/spot5"):
        (root / part).mkdir(parents=True)
    for name in ("ms_A10_n10_D24", "ms_A10_n5_D24", "ms_A10_n25_D24"):
        native.save(small, root / "meetings" / f"{name}_pl0.5_s0.npz")
    for file in ("instances/spot5/404.wcsp", "generated/one.wcsp"):
        (root / file).write_text(WCSP)
    names = "family,file,format,optimum,optimum_status,log10_largest_table,pr_log10_ours,pr_log10_list"
    (root / "instances" / "MANIFEST.csv").write_text(f"{names}\nspot5,404.wcsp,wcsp,,,1,,\n")
    (root / "generated" / "MANIFEST.csv").write_text("file,optimum,optimum_status\none.wcsp,,\n")
    return root


def run(monkeypatch, script, *arguments):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.delitem(sys.modules, script, raising=False)  # another script may have imported the module
    try:
        runpy.run_module(script, run_name="__main__")
    except SystemExit as exit_:
        return exit_.code
    return 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_prints_its_help(script, monkeypatch, capsys):
    assert run(monkeypatch, script, "--help") == 0
    assert f"python -m {script}" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("script", QUICK)
def test_a_script_runs_and_writes_its_output_to_a_file(script, monkeypatch, capsys, folder, tmp_path):
    monkeypatch.setenv("DMCMC_INSTANCES", str(folder))
    arguments = QUICK[script].format(folder=tmp_path).split()
    assert not run(monkeypatch, script, *arguments, "--output", str(tmp_path / "kept.txt"))
    written = (tmp_path / "kept.txt").read_text()
    assert written.startswith(f"# DMCMC_INSTANCES=... python -m {script} {arguments[0]}")
    assert written == capsys.readouterr().out
    assert str(tmp_path) not in written.replace(" ".join(arguments), "")


@pytest.mark.slow
def test_differing_answers_are_reported(monkeypatch, capsys, folder, tmp_path):
    monkeypatch.setenv("DMCMC_INSTANCES", str(folder))
    script, common = "benchmarks.solving.answers", ["--ways", "z", "--only", "spot5"]
    assert not run(monkeypatch, script, *common, "--keep", str(tmp_path / "one.json"))
    compare = [*common, "--keep", str(tmp_path / "two.json"), "--compare", str(tmp_path / "one.json")]
    assert not run(monkeypatch, script, *compare)
    assert capsys.readouterr().out.endswith("0 of 1 answers differ\n")
    before = json.loads((tmp_path / "one.json").read_text())
    (name,) = before
    before[name]["bound"] = 7
    (tmp_path / "one.json").write_text(json.dumps(before))
    assert run(monkeypatch, script, *compare) == 1
    assert f"{name}: bound 7 -> " in capsys.readouterr().out


def test_without_instances_one_line_names_the_variable_to_set(monkeypatch):
    monkeypatch.delenv("DMCMC_INSTANCES", raising=False)
    message = run(monkeypatch, "benchmarks.elimination.orders")
    assert message == "set DMCMC_INSTANCES to a folder that holds generated/"
