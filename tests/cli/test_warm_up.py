"""``warm-up`` compiles in child processes; ``--cache-dir`` sets the folder of this process and those that it starts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmcmc.cli.main import main
from dmcmc.cli.setup_commands import warm_up, warm_up_child
from dmcmc.cli.setup_commands.warm_up import Kind, WarmUpError, all_kinds
from dmcmc.inference.storage import cache_folders
from dmcmc.inference.storage.cache_contents import describe_cache

KINDS = [Kind("first", "a"), Kind("second", "a"), Kind("third", "a"), Kind("fourth", "a")]
CHILD = """
import json, os, sys
for line in sys.stdin:
    problem, settings, device = json.loads(line)
    with open(os.environ["STARTED"], "a") as log:
        print(os.getpid(), problem, device, sep=";", file=log, flush=True)
    if problem == os.environ.get("DYING"):
        os._exit(7)
    print(json.dumps("it is too hard" if problem == os.environ.get("FAILING") else None), flush=True)
"""
CONFIG = """problem: {generator: random, agents: 2, variables_per_agent: 3, domain_size: 2}
output: result.json
checkpoint: tables
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Run every test in a folder, with a cache in it; ``--cache-dir`` is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DMCMC_CACHE_DIR", str(tmp_path / "cache"))
    cache_folders._find_folders.cache_clear()
    yield tmp_path
    cache_folders._find_folders.cache_clear()


@pytest.fixture
def children(tmp_path, monkeypatch):
    """Replace the child process by one that compiles nothing; return a function that reads what was started."""
    (tmp_path / "quick_child.py").write_text(CHILD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    monkeypatch.setattr(warm_up, "_CHILD", "quick_child")
    return lambda: [line.split(";") for line in (tmp_path / "started").read_text().splitlines()]


def runs(pid):
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_kind_is_given_to_one_of_several_processes_which_end(children):
    titles = []
    compiled = warm_up.warm_up("cpu", SimpleNamespace(stage=titles.append), 2, KINDS)
    assert sorted(words[1:] for words in children()) == sorted([kind.problem, "cpu"] for kind in KINDS)
    assert 1 <= len({words[0] for words in children()}) <= 2
    assert not any(runs(int(words[0])) for words in children())
    assert titles[0] == "compiling: 0 of 4 kinds of runs, 0 kernels"
    assert (compiled.new, compiled.stored) == (0, 0)


@pytest.mark.parametrize(("variable", "reason"), [("FAILING", "it is too hard"), ("DYING", "its process ended (exit ")])
def test_a_failure_is_named_and_the_other_kinds_are_compiled(children, monkeypatch, variable, reason):
    monkeypatch.setenv(variable, "second")
    with pytest.raises(WarmUpError) as caught:
        warm_up.warm_up("cpu", SimpleNamespace(stage=lambda title: None), 1, KINDS)
    assert str(caught.value).startswith(f"warm-up: 1 of 4 kinds of runs failed: second, a: {reason}")
    assert caught.value.exit_code == 1
    assert [words[1] for words in children()] == [kind.problem for kind in KINDS]


def test_a_complete_warm_up_stores_the_number_of_kernels(children, capfd):
    cache_folders.kernel_folder().joinpath("name-0.kernel").touch()
    assert main(["warm-up", "--jobs", "3"]) == 0
    assert capfd.readouterr().out.startswith("0 kernels compiled, 1 stored")
    assert {words[1] for words in children()} == set(warm_up_child.PROBLEMS)
    assert len(children()) == len(all_kinds()) == len(set(all_kinds()))
    next(cache_folders.kernel_folder().iterdir()).unlink()
    assert describe_cache()["kernels"].startswith("0 of about 1 ")


def test_the_kinds_of_runs_cover_methods_and_tables():
    problems = [make() for make in warm_up_child.PROBLEMS.values()]
    assert {"i", "f"} == {problem.factors[0].table.dtype.kind for problem in problems}
    assert any(problem.forbidden_entries() for problem in problems)
    assert {problem.n_agents for problem in problems} == {1, 3}
    assert {"search", "method", "combine"} <= {key for settings in warm_up_child.SETTINGS.values() for key in settings}


def test_a_child_process_reports_why_a_kind_of_runs_fails():
    with pytest.raises(WarmUpError, match="failed: no such problem, fixed work: KeyError: 'no such problem'"):
        warm_up.warm_up("cpu", SimpleNamespace(stage=lambda title: None), 1, [Kind("no such problem", "fixed work")])


def test_a_child_process_ends_when_its_input_is_closed():
    child = warm_up._start()
    child.stdin.close()
    assert child.wait(60) == 1
    child.stdout.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")
def test_ctrl_c_ends_the_child_processes():
    process = subprocess.Popen([sys.executable, "-m", "dmcmc", "warm-up", "--device", "cpu"], stderr=subprocess.PIPE)
    children, until = Path(f"/proc/{process.pid}/task/{process.pid}/children"), time.monotonic() + 60
    while not (pids := children.read_text().split()):
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    while any(runs(int(pid)) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_only_a_configuration_is_compiled_for_without_writing_its_files(monkeypatch, capfd):
    monkeypatch.delenv("DMCMC_CACHE_DIR")  # usually it has these kernels already
    Path("run.yaml").write_text(CONFIG)
    assert main(["warm-up", "--for", "run.yaml"]) == 0
    assert " kernels compiled, " in capfd.readouterr().out
    assert main(["warm-up", "--for", "run.yaml"]) == 0
    assert capfd.readouterr().out.startswith("0 kernels compiled, ")
    assert os.listdir() == ["run.yaml"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["warm-up", "--for", "none.yaml"], 1, "warm-up: none.yaml: "),
        (["warm-up", "--for", "bad.yaml"], 2, "bad.yaml:2: "),
        (["warm-up", "--jobs", "0"], 2, "--jobs: expected a whole number of at least 1"),
        (["info", "--cache-dir", "bad.yaml"], 2, "--cache-dir: {folder}/bad.yaml cannot be used (Not a directory)"),
        (["info", "--cache-dir", "/proc/none"], 2, "--cache-dir: /proc/none cannot be used ("),
        (["info", "--cache-dir", ""], 2, "--cache-dir: expected the name of a folder"),
    ],
)
def test_a_mistake_is_one_line(capfd, folder, arguments, code, message):
    Path("bad.yaml").write_text("problem: {generator: random}\nbudget: {time: soon}\n")
    assert main(arguments) == code
    lines = [line for line in capfd.readouterr().err.splitlines() if "compiling" not in line]
    assert len(lines) == 1 and lines[0].startswith("dmcmc: error: " + message.format(folder=folder))


def test_a_relative_cache_folder_holds_for_child_processes_elsewhere(folder, capfd):
    assert main(["info", "--json", "--cache-dir", "own"]) == 0
    assert json.loads(capfd.readouterr().out)["cache"] == f"{folder / 'own'} (writable)"
    assert os.environ["DMCMC_CACHE_DIR"] == str(folder / "own")


def test_the_cache_option_is_completed(capfd):
    assert main(["completion", "bash"]) == 0
    lines = {line.split(")")[0].strip(): line for line in capfd.readouterr().out.splitlines() if "words='" in line}
    assert all("--cache-dir" in lines[name] for name in ("run", "solve", "experiment", "info", "warm-up", "graph"))
    assert "--for" in lines["warm-up"] and "--cache-dir" not in lines["init"]
