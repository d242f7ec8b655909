"""The command line: exit codes, one line for every error, and no incomplete files."""

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import dmcmc
from dmcmc import __version__
from dmcmc.cli.main import main
from dmcmc.formats import native
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.errors import ResourceError

NO_GPU = pytest.mark.skipif(gpu_problem() is None, reason="has a GPU")
SMALL = "problem: {generator: meeting-scheduling, agents: 2, variables_per_agent: 3, domain_size: 3}\n"

Failing = Callable[..., str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run every test in a separate folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DMCMC_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def failing(capfd: pytest.CaptureFixture[str]) -> Failing:
    """Run a command line that must fail with one line on stderr, nothing on stdout and no new file."""

    def run(*argv: str, code: int = 2) -> str:
        before = sorted(os.listdir())
        assert main(argv) == code
        out, err = capfd.readouterr()
        assert out == ""
        assert err.startswith("dmcmc: ") and err.endswith("\n") and err.count("\n") == 1, err
        assert "Traceback" not in err
        assert sorted(os.listdir()) == before
        return err

    return run


def config(text: str = SMALL) -> str:
    Path("run.yaml").write_text(text)
    return "run.yaml"


def solved(capfd: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["run", config(), "--json", *argv]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return dict(json.loads(out))


def test_run_prints_the_result_and_writes_the_same_to_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    printed = solved(capfd, "--output", "results/run.json")
    assert printed == json.loads(Path("results/run.json").read_text())
    assert printed["status"] in ("optimal", "feasible")
    assert len(printed["assignment"]) == 6
    assert printed["provenance"]["config"]["output"] == "results/run.json"


def test_the_provenance_has_the_command_and_the_hash_of_the_problem_file(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["generate", "grid", "rows=2", "--output", "p.npz"]) == 0
    capfd.readouterr()
    monkeypatch.setattr(sys, "argv", ["/usr/bin/dmcmc", "solve", "p.npz", "--json"])
    assert main(["solve", "p.npz", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["provenance"]
    assert found["command"] == "dmcmc solve p.npz --json" and found["plugin"] is None
    assert found["problem_sha256"] == hashlib.sha256(Path("p.npz").read_bytes()).hexdigest()


PLUG_IN = """
from dmcmc.algorithms.agent import SynchronousAgent

class Idle(SynchronousAgent):
    name = "idle"

    def run(self):
        self.value = 0
        yield
"""


def test_the_provenance_names_the_package_of_a_plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "idle_algorithm.py").write_text(PLUG_IN)
    described = tmp_path / "idle_algorithm-1.2.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: idle-algorithm\nVersion: 1.2\n")
    (described / "entry_points.txt").write_text("[dmcmc.algorithms]\nidle = idle_algorithm:Idle\n")
    monkeypatch.syspath_prepend(tmp_path)
    problem = dmcmc.generate("grid", rows=3, tightness=0)
    assert dmcmc.solve(problem, algorithm="idle").provenance["plugin"] == "idle-algorithm 1.2"
    assert dmcmc.solve(problem, algorithm="mgm").provenance["plugin"] is None


def test_run_prints_a_table(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", config()]) == 0
    out, err = capfd.readouterr()
    assert "objective" in out and "status" in out
    assert err == ""


def test_seed_and_overrides_reach_the_run(capfd: pytest.CaptureFixture[str]) -> None:
    found = solved(capfd, "--seed", "5", "--set", "local.method=exact", "--set", "local.runs=3", "--device", "cpu")
    resolved = found["provenance"]["config"]
    assert (resolved["seed"], resolved["local"]["method"], resolved["local"]["runs"]) == (5, "exact", 3)
    assert resolved["device"] == "cpu"


def test_the_objective_is_the_assignments(capfd: pytest.CaptureFixture[str]) -> None:
    found = solved(capfd)
    arguments = ["agents=2", "variables_per_agent=3", "domain_size=3"]
    assert main(["generate", "meeting-scheduling", *arguments, "--output", "p.npz"]) == 0
    assert native.load("p.npz").evaluate(found["assignment"]).objective == found["objective"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SMALL + "lokal: {}", "run.yaml:2: lokal: unknown key; did you mean 'local'?"),
        (SMALL + "local: {runs: ten}", "run.yaml:2: local.runs: expected a whole number"),
        (SMALL + "local: {method: gibs}", "run.yaml:2: local.method: "),
        (SMALL + "combine: {mode: shraed}", "run.yaml:2: combine.mode: expected auto, dpop or shared"),
        pytest.param(SMALL + "device: cuda", "device: cuda: ", marks=NO_GPU),
        (SMALL + "budget: {time: 0}", "run.yaml:2: budget.time: expected seconds > 0, got 0"),
        ("problem: {file: no.npz}", "run.yaml:1: problem.file: no.npz: no such file"),
        ("problem: {generator: random, domain_size: -3}", "run.yaml:1: problem.domain_size: "),
        ("problem: {generator: random, agents: 1e9, variables_per_agent: 1e6}", "run.yaml:1: problem."),
        ("problem: {generator: rndom}", "run.yaml:1: problem.generator: "),
        ("problem: [", "run.yaml:2: not valid YAML"),
    ],
)
def test_a_wrong_configuration_is_one_line_of_error(failing: Failing, text: str, expected: str) -> None:
    assert expected in failing("run", config(text), "--output", "out.json")


def test_a_malformed_problem_file_is_one_line_of_error(failing: Failing) -> None:
    path = config("problem: {file: p.npz}")
    Path("p.npz").write_bytes(b"PK\x03\x04 no archive")
    assert "run.yaml:1: problem.file: p.npz: " in failing("run", path, "--output", "out.json")
    fine = {"agent": [0, 1], "dom": [2, 2], "edges": [[0, 1]], "tables": [1, 2, 3, 4]}
    for name, bad in (("dom", [2, -2]), ("tables", [1, 2, 3]), ("agent", [0, -1]), ("agent", [0])):
        arrays = {k: np.array(v, dtype=np.int32) for k, v in (fine | {name: bad}).items()}
        np.savez("p.npz", meta=np.array(json.dumps({})), **arrays)  # type: ignore[arg-type]
        assert f"'{name}'" in failing("run", path, "--output", "out.json")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], "COMMAND"),
        (["rnu"], "unknown command 'rnu'; did you mean 'run'?"),
        (["run"], "CONFIG.yaml"),
        (["run", "no.yaml"], "no.yaml: no such file"),
        (["run", "no.yaml", "--sede", "4"], "unknown argument '--sede'; did you mean '--seed'?"),
        (["run", "a.yaml", "b.yaml"], "unknown argument 'b.yaml'"),
        (["run", "a.yaml", "--out", "x"], "unknown argument '--out'; did you mean '--output'?"),
        (["info", "-x"], "unknown argument '-x'"),
        (["generate", "random"], "--output"),
        (["generate", "rndom", "--output", "p.npz"], "rndom"),
        (["generate", "random", "agents=-3", "--output", "p.npz"], "generate random: agents: "),
        (["generate", "random", "agents=x", "--output", "p.npz"], "generate random: agents: "),
        (["generate", "random", "agents", "--output", "p.npz"], "expected PARAM=VALUE"),
        (["generate", "random", "agents=2", "agents=3", "--output", "p.npz"], "agents: is given twice"),
        (["generate", "random", "seed=2", "--seed", "3", "--output", "p.npz"], "seed: is given twice"),
        (["generate", "random", "--seed", "x", "--output", "p.npz"], "seed: "),
        (["generate", "random", "agents=1e9", "variables_per_agent=1e6", "--output", "p.npz"], "generate random: "),
        (["generate", "random", "--output", "."], ".: its suffix gives no format; use one of .npz, "),
    ],
)
def test_a_wrong_command_line_is_one_line_of_error(failing: Failing, argv: list[str], expected: str) -> None:
    assert expected in failing(*argv)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--timeout", "0"], "--timeout: expected seconds > 0, got 0"),
        (["--timeout=soon"], "--timeout: expected seconds > 0, got 'soon'"),
        (["--gap", "-1"], "--gap: expected a number >= 0, got -1"),
    ],
)
def test_errors_name_the_options_of_budgets(failing: Failing, options: list[str], expected: str) -> None:
    assert expected in failing("run", config(), *options)


def test_an_output_that_cannot_be_written_is_reported_before_any_work(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        importlib.import_module("dmcmc.anytime.solve"), "solve", Mock(side_effect=AssertionError("the work was begun"))
    )
    Path("file").write_text("")
    assert "--output: file/run.json: cannot be written" in failing("run", config(), "--output", "file/run.json")
    assert "run.yaml:2: output: file/x: cannot" in failing("run", config(SMALL + "output: file/x"))


def test_errors_of_the_solver_end_the_run(failing: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: dict[type[BaseException], tuple[str, int, str]] = {
        ResourceError: ("the table of agent\na1 needs 9 TiB", 2, "error: the table of agent a1 needs 9 TiB"),
        ValueError: ("a\nb", 1, "internal error: ValueError: a b (dmcmc/algorithms/choice/choose_algorithm.py:"),
        MemoryError: ("", 1, "error: out of memory"),
        KeyboardInterrupt: ("", 130, "interrupted"),
    }
    for kind, (message, code, expected) in errors.items():
        monkeypatch.setattr(importlib.import_module("dmcmc.anytime.solve"), "solve", Mock(side_effect=kind(message)))
        assert expected in failing("run", config(), "--output", "out.json", code=code)


def test_debugging_shows_the_traceback(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMCMC_DEBUG", "1")
    assert main(["run", "no.yaml"]) == 2
    assert "Traceback" in capfd.readouterr().err


def test_generate_writes_a_problem_and_describes_it(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "random", "--output", "p.npz", "agents=3", "--seed", "4"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith("p.npz: 3 agents, ") and err == ""
    assert native.load("p.npz").n_agents == 3


def test_generate_writes_the_same_bytes_for_the_same_seed(capfd: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("a.npz", "4"), ("b.npz", "4"), ("c.npz", "5")):
        assert main(["generate", "random", "agents=2", "--output", name, "--seed", seed]) == 0
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes() != Path("c.npz").read_bytes()


def test_samplers_lists_the_plug_ins(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["samplers"]) == 0 and "gibbs" in capfd.readouterr().out
    assert main(["samplers", "--json"]) == 0
    assert {"exact", "gibbs", "metropolis-hastings"} <= set(json.loads(capfd.readouterr().out))


def test_help_names_commands_families_and_options(capfd: pytest.CaptureFixture[str]) -> None:
    texts = []
    for argv in (["--help"], ["run", "--help"], ["generate", "--help"]):
        assert main(argv) == 0
        texts.append(capfd.readouterr().out)
    assert all(word in texts[0] for word in ("run", "generate", "convert", "graph", "samplers", "info"))
    assert "meeting-scheduling" in texts[2]
    words = {word.strip(",.()[]'|") for text in texts for word in text.split()}
    assert words >= {"--timeout", "--gap", "--explain"}


def test_only_rank_0_prints(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "1")
    for argv, code in ((["--help"], 0), (["generate", "random", "--output", "p.npz"], 0), (["run"], 2)):
        assert main(argv) == code
        assert capfd.readouterr() == ("", "") and os.listdir() == []


def dmcmc_process(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dmcmc", *argv]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(command, text=True, timeout=1500, check=False, **pipes)


def test_info_is_json_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["dmcmc"] == __version__
    assert found["gpu"]
    assert {"python", "numpy", "numba", "mpi", "cores", "memory", "threads", "cache"} <= set(found)


def test_mpi_can_start_after_the_machine_was_described() -> None:
    pytest.importorskip("mpi4py")
    later = "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_size())"
    code = f"from dmcmc.results.stored_result import machine; assert 'not found' not in machine()['mpi']; {later}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_a_closed_pipe_is_not_an_error() -> None:
    for argv in (["samplers"], ["--help"]):
        reader, writer = os.pipe()
        os.close(reader)
        done = dmcmc_process(*argv, stdout=writer)
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, "")


def test_help_and_usage_errors_do_not_import_numba() -> None:
    commands = (["--help"], ["run", "--sede"], ["generate", "random", "--output", "p.npz", "agents=2"])
    code = f"import sys; from dmcmc.cli.main import main; codes = [main(argv) for argv in {commands}]; "
    code += "sys.exit(codes != [0, 2, 0] or 'numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))))


def on_ranks(ranks: int, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)


@pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec")
@pytest.mark.parametrize("rank", [0, 2])
def test_one_failing_rank_ends_all_ranks_soon(rank: int) -> None:
    config()
    Path("fail.py").write_text(
        "import sys, importlib, pathlib, dmcmc.cli.main\n"
        "def solve(problem, config, world=None, *others):\n"
        f"    if world.rank == {rank}:\n"
        "        pathlib.Path('failed').touch()\n"
        "        raise ValueError('boo')\n"
        "    for _ in range(4): world.bcast(None)\n"
        "    import time; time.sleep(3000)\n"
        "importlib.import_module('dmcmc.anytime.solve').solve = solve\n"
        "sys.exit(dmcmc.cli.main.main())\n"
    )
    done = on_ranks(3, "fail.py", "run", "run.yaml", "--output", "out.json")
    assert time.time() - Path("failed").stat().st_mtime < 60  # 10 s if the machine has one core per rank
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.count("internal error: ValueError: boo") == 1
    assert "Traceback" not in done.stderr
    assert not Path("out.json").exists()
