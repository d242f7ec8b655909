"""``warm-up`` compiles in child processes; ``--cache-dir`` sets the folder of this process and those that it starts."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from dmcmc.cli import warm_up_child
from dmcmc.cli.arguments import parse_arguments
from dmcmc.cli.commands import warm_up
from dmcmc.cli.commands.warm_up import compile_in_children
from dmcmc.cli.main import main
from dmcmc.inference.storage import cache_folders
from dmcmc.inference.storage.cache_folders import describe_cache

TASKS = ["first", "second", "third", "fourth"]
SILENT = SimpleNamespace(stage=lambda title: None)
CHILD = """
import json, os, sys
for line in sys.stdin:
    name, device = json.loads(line)
    with open(os.environ["STARTED"], "a") as log:
        print(os.getpid(), name, device, sep=";", file=log, flush=True)
    if name == os.environ.get("DYING"):
        os._exit(7)
    print(json.dumps("it is too hard" if name == os.environ.get("FAILING") else None), flush=True)
"""
CONFIG = """problem: {generator: random, agents: 2, variables_per_agent: 3, domain_size: 2}
output: result.json
algorithm: dsa
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Run every test in a folder, with a cache in it; ``--cache-dir`` is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DMCMC_CACHE_DIR", str(tmp_path / "cache"))
    cache_folders.forget_folders()
    yield tmp_path
    cache_folders.forget_folders()


@pytest.fixture
def children(tmp_path, monkeypatch):
    """Replace the child process by one that compiles nothing; return a function that reads what was started."""
    script = tmp_path / "quick_child.py"
    script.write_text(CHILD)
    monkeypatch.setenv("STARTED", str(tmp_path / "started"))
    monkeypatch.setattr(warm_up, "python_command", lambda: [sys.executable, str(script)])
    return lambda: [line.split(";") for line in (tmp_path / "started").read_text().splitlines()]


def runs(pid):
    """Return whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_every_task_is_given_to_one_of_several_processes_which_end(children):
    titles = []
    progress = SimpleNamespace(stage=titles.append)
    assert compile_in_children(TASKS, "cpu", 2, cache_folders.find_folders(), progress) == []
    assert sorted(words[1:] for words in children()) == sorted([name, "cpu"] for name in TASKS)
    assert 1 <= len({words[0] for words in children()}) <= 2
    assert not any(runs(int(words[0])) for words in children())
    assert titles[0] == "compiling: 0 of 4 tasks, 0 kernels so far"


@pytest.mark.parametrize(("variable", "reason"), [("FAILING", "it is too hard"), ("DYING", "its process ended (exit ")])
def test_a_failure_is_named_and_the_other_tasks_are_carried_out(children, monkeypatch, variable, reason):
    monkeypatch.setenv(variable, "second")
    (failure,) = compile_in_children(TASKS, "cpu", 1, cache_folders.find_folders(), SILENT)
    assert failure.startswith(f"second: {reason}")
    assert [words[1] for words in children()] == TASKS


def test_a_warm_up_with_a_failure_is_one_line_and_exit_code_1(children, monkeypatch, capfd):
    monkeypatch.setenv("FAILING", "one agent, fixed work")
    assert main(["warm-up"]) == 1
    out, err = capfd.readouterr()
    (line,) = [line for line in err.splitlines() if "compiling" not in line]
    assert (out, line.partition(" of ")[0]) == ("", "dmcmc: error: warm-up: 1")
    assert line.endswith("tasks failed: one agent, fixed work: it is too hard")
    assert "of about" not in describe_cache()["kernels"]


def test_a_complete_warm_up_stores_the_number_of_kernels_and_measures_the_machine_last(children, capfd):
    cache_folders.kernel_folder().joinpath("name-0.kernel").touch()
    assert main(["warm-up", "--jobs", "3"]) == 0
    assert capfd.readouterr().out.startswith("0 kernels compiled, 1 stored")
    names = [words[1] for words in children()]
    assert set(names[:-1]) == set(warm_up_child.tasks()) and names[-1] == warm_up_child.MEASURE
    next(cache_folders.kernel_folder().iterdir()).unlink()
    assert describe_cache()["kernels"].startswith("0 of about 1 ")


def test_the_tasks_cover_methods_and_tables():
    problems = [make() for make in warm_up_child._PROBLEMS.values()]
    assert {"i", "f"} == {problem.factors[0].table.dtype.kind for problem in problems}
    assert any(problem.forbidden_entries() for problem in problems)
    assert {problem.n_agents for problem in problems} == {
        1,
        3,
        25,
    }  # one agent, agents of a kind, one variable per agent
    assert {"search", "method", "combine"} <= {key for keys in warm_up_child._SETTINGS.values() for key in keys}


@pytest.mark.parametrize("function", warm_up_child._FUNCTIONS.values())
def test_the_functions_that_compile_exist(function):
    module, _, name = function.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert callable(getattr(found, "compile", found))


def test_a_child_process_reports_why_a_task_fails():
    failures = compile_in_children(["no such task"], "cpu", 1, cache_folders.find_folders(), SILENT)
    assert failures == ["no such task: KeyError: 'no such task'"]


def test_a_child_process_ends_when_its_input_is_closed():
    child = warm_up._start()
    assert child.poll() is None
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


@pytest.mark.parametrize(
    ("text", "command", "limits"),
    [
        (CONFIG, "run", [["--timeout", "1"], []]),
        (CONFIG + "budget: {time: 60}\n", "run", [["--timeout", "1"]]),
        ("p 1 2 1 9\n2\n1 0 0 1\n0 4\n", "solve", [["--timeout", "1"], []]),
    ],
)
def test_a_file_without_a_time_limit_is_compiled_for_with_and_without_one(monkeypatch, text, command, limits):
    commands = []

    def record(asked, progress):
        commands.extend(asked)
        return warm_up.Compiled(0, 0, 0.0)

    monkeypatch.setattr(warm_up, "warm_up_by_runs", record)
    Path("a.wcsp").write_text(text)
    assert main(["warm-up", "--for", "a.wcsp", "--device", "cpu"]) == 0
    assert [words[:2] for words in commands] == [[command, "a.wcsp"]] * len(limits)
    assert [words[words.index("cpu") + 1 :] for words in commands] == limits
    for words in commands:
        parse_arguments(words)


def test_only_a_configuration_is_compiled_for_without_writing_its_files(monkeypatch, capfd):
    monkeypatch.delenv("DMCMC_CACHE_DIR")  # usually it has these kernels; other tests may add some
    Path("run.yaml").write_text(CONFIG)
    assert main(["warm-up", "--for", "run.yaml"]) == 0
    assert " kernels compiled, " in capfd.readouterr().out
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


def test_child_processes_are_given_the_absolute_path_of_a_relative_folder(folder, capfd):
    assert main(["info", "--json", "--cache-dir", "own"]) == 0
    assert json.loads(capfd.readouterr().out)["cache"] == f"{folder / 'own'} (writable)"
    assert os.environ["DMCMC_CACHE_DIR"] == str(folder / "own")


def test_the_cache_option_is_completed(capfd):
    assert main(["completion", "bash"]) == 0
    lines = {line.split(")")[0].strip(): line for line in capfd.readouterr().out.splitlines() if "words='" in line}
    assert all("--cache-dir" in lines[name] for name in ("run", "solve", "experiment", "info", "warm-up", "graph"))
    assert "--for" in lines["warm-up"] and "--cache-dir" not in lines["init"]
