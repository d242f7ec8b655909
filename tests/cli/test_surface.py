"""Commands: exit codes, formats by file names, which command takes which file, and checks of output files."""

import gzip
import json
import lzma
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dmcmc
from dmcmc.cli.ending import describe
from dmcmc.cli.main import main
from dmcmc.formats import registry as formats
from dmcmc.generators import registry as generators
from dmcmc.inference.model.arithmetic import exact_sum

WCSP = "p 3 2 2 9\n2 2 2\n2 0 1 0 1\n1 1 3\n2 1 2 0 1\n0 1 2\n"
UAI = "MARKOV\n1\n2\n1\n1 0\n2\n 0.5 0.25\n"
CFN = '{ problem: { name: "p", mustbe: "<9" }, variables: { x: 2 }, functions: { f: { scope: [x], costs: [1, 2] } } }'
PYDCOP = """name: p
objective: min
domains: {d: {values: [0, 1]}}
variables: {x: {domain: d}}
constraints: {c: {type: intention, function: 2 * x}}
agents: [a]
"""
XCSP = """<instance><presentation name="p" maxConstraintArity="1" maximize="false" format="XCSP 2.1_FRODO"/>
<agents nbAgents="1"><agent name="a"/></agents>
<domains nbDomains="1"><domain name="d" nbValues="2">0..1</domain></domains>
<variables nbVariables="1"><variable name="x" domain="d" agent="a"/></variables>
<relations nbRelations="0"/><constraints nbConstraints="0"/></instance>
"""
CONFIG = "problem: {generator: random, agents: 2, variables_per_agent: 3, domain_size: 2}\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fails(capfd):
    def run(*arguments, code=2):
        assert main(list(arguments)) == code
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1 and err.startswith("dmcmc: error: ")
        return err.removeprefix("dmcmc: error: ").rstrip()

    return run


def odd_ring(n=3):
    """An infeasible ring: an odd number of binary variables of which neighbours must differ."""
    p = dmcmc.Problem.build("min", "ring")
    names = [p.variable(f"x{i}", 2, agent=f"a{i}") for i in range(n)]
    for i in range(n):
        p.factor((names[i], names[(i + 1) % n]), lambda a, b: float("inf") if a == b else 1)
    return p.problem()


@pytest.mark.parametrize(
    ("options", "code", "status"),
    [
        (["--method", "exact"], 3, "infeasible"),
        (["--set", "local.bound=none", "--method", "gibbs"], 1, "unsatisfied"),
    ],
)
def test_the_exit_code_without_a_feasible_assignment_is_not_0(folder, capfd, options, code, status):
    # The variables of a single agent are not eliminated here: sampling cannot prove infeasibility.
    ring = odd_ring()
    one = dmcmc.Problem(ring.variables, ring.domains, ("all",), [0, 0, 0], ring.factors, sense="min")
    formats.save(one, "ring.npz")
    assert main(["solve", "ring.npz", "--json", *options]) == code
    result = json.loads(capfd.readouterr().out)
    assert (result["status"], result["objective"]) == (status, None)
    assert (result["violation"] or 0) > 0 or status == "infeasible"


def test_the_exit_code_at_the_time_limit_depends_on_feasibility():
    fields = {"bound": 3, "gap": None, "assignment": {"x": 0}, "sense": "min", "time": 1.0, "status": "timeout"}
    assert dmcmc.Result(objective=None, violation=2, **fields).exit_code == 1
    assert dmcmc.Result(objective=4, violation=0, **fields).exit_code == 0


SMALL = ("generate", "random", "agents=2", "variables_per_agent=2", "domain_size=2", "--output")


@pytest.mark.parametrize("name", ["p.npz", "p.yaml", "p.xml", "p.cfn", "p.cfn.gz", "new/folder/p.yaml"])
def test_generate_writes_the_format_of_the_file_name(folder, name):
    drop = ("--drop", "agents") if ".cfn" in name else ()
    assert main([*SMALL, name, *drop]) == 0
    format, problem = formats.load_with_format(name)
    assert format is formats.by_suffix(name)
    expected = generators.generate("random", {"agents": 2, "variables_per_agent": 2, "domain_size": 2})
    found, known = problem.evaluate([1] * 4).objective, expected.evaluate([1] * 4).objective
    assert abs(found) == abs(known)


def test_generate_needs_drop_for_what_a_format_cannot_express(folder, fails):
    assert "--drop" in fails(*SMALL, "p.wcsp")
    assert not Path("p.wcsp").exists()
    assert main([*SMALL, "p.wcsp", "--drop", "agents", "--drop", "sense", "--drop", "names"]) in (0, 2)


@pytest.fixture
def never(monkeypatch):
    """Let the test fail if any work is done."""

    def work(*arguments, **options):
        pytest.fail("the work was done before")

    for name in ("dmcmc.generators.registry.generate", "dmcmc.formats.registry.load", "dmcmc.run.solve.solve"):
        monkeypatch.setattr(name, work)
    monkeypatch.setattr("dmcmc.formats.registry.load_with_format", work)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SMALL, "p.txt"], "p.txt: its suffix gives no format; use one of .npz"),
        ([*SMALL, "p.bif"], "p.bif: bif files can be read but not written"),
        ([*SMALL, "p.npz", "--drop", "everything"], "--drop everything: expected one of"),
        ([*SMALL, "file/p.npz"], "file/p.npz: cannot be written: "),
        ([*SMALL, "/proc/p.npz"], "/proc/p.npz: cannot be written: "),
        (["convert", "p.wcsp", "p.txt"], "p.txt: its suffix gives no format"),
        (["solve", "p.wcsp", "--output", "new/"], "--output: new/: cannot be written: is a folder"),
        (["graph", "p.wcsp", "--output", "g.bmp"], "g.bmp: unknown kind of picture; use a name that ends in .dot"),
        (["graph", "p.wcsp", "--output", "/proc/g.dot"], "/proc/g.dot: cannot be written"),
        (["solve", "p.wcsp", "--output", "/proc/r.json"], "--output: /proc/r.json: cannot be written"),
        (["run", "run.yaml", "--output", "file/r.json"], "--output: file/r.json: cannot be written"),
        (["run", "bad.yaml"], "bad.yaml:1: output: /proc/r.json: cannot be written"),
    ],
)
def test_files_that_cannot_be_written_are_reported_before_any_work(folder, fails, never, arguments, message):
    Path("p.wcsp").write_text(WCSP)
    Path("run.yaml").write_text(CONFIG)
    Path("bad.yaml").write_text("output: /proc/r.json\n" + CONFIG)
    Path("file").write_text("")
    assert fails(*arguments).startswith(message)


def packed(name, text):
    data = text.encode() if isinstance(text, str) else text
    data = gzip.compress(data) if name.endswith(".gz") else lzma.compress(data) if name.endswith(".xz") else data
    Path(name).write_bytes(data)


PROBLEMS = {
    "p.wcsp": WCSP, "p.wcsp.xz": WCSP, "any.dat": WCSP, "p.uai": UAI, "p.cfn": CFN, "p.cfn.gz": CFN, "p.yaml": PYDCOP,
    "p.yaml.gz": PYDCOP, "p.txt": PYDCOP, "p.xml": XCSP,
}  # fmt: skip
CONFIGS = {
    "run.yaml": CONFIG, "flow.yaml": "{problem: {generator: random}, seed: 3}", "quoted.yaml": '"problem": {file: x}',
    "run.yaml.gz": CONFIG, "settings.yaml": "local: {method: exact}\nseed: 3\n", "slip.yaml": "seed: 1\nproblem: [\n",
    "domains.yaml": "# variables:\n" + CONFIG, "p.cfn": "problem: {file: other.cfn}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PROBLEMS)
def test_run_names_the_command_for_a_problem_file(folder, fails, name):
    packed(name, PROBLEMS[name])
    message = fails("run", name)
    assert message.startswith(f"{name}: is a problem file (") and message.endswith(f"use 'dmcmc solve {name}'")


def test_run_recognises_a_native_archive(folder, fails):
    np.savez("p.npz", a=1)
    assert fails("run", "p.npz") == "p.npz: is a problem file (native), not a configuration; use 'dmcmc solve p.npz'"


@pytest.mark.parametrize("name", CONFIGS)
def test_solve_names_the_command_for_a_configuration(folder, fails, name):
    packed(name, CONFIGS[name])
    assert fails("solve", name) == f"{name}: is a configuration, not a problem file; use 'dmcmc run {name}'"


def test_errors_of_a_compressed_and_of_a_misspelt_configuration(folder, fails):
    packed("run.yaml.gz", CONFIG)
    assert fails("run", "run.yaml.gz").startswith("run.yaml.gz: is compressed; decompress the configuration")
    packed("slip.yaml", "problm: {generator: random}\n")
    assert fails("run", "slip.yaml").startswith("slip.yaml:1: problm: unknown key; did you mean 'problem'?")
    assert fails("run", "none.yaml") == "none.yaml: no such file"


def test_names_that_are_not_known_are_one_error_line_with_the_known_ones(folder, fails):
    Path("p.wcsp").write_text(WCSP)
    Path("run.yaml").write_text("problem: {file: p.wcsp, agents: 2, partition: grow}\n")
    assert fails("run", "run.yaml").startswith("run.yaml:1: problem.partition: unknown key; keys of a problem file: ")
    assert fails("run", "run.yaml", "--set", "presolv=none").startswith("--set presolv: unknown key; did you mean")
    assert fails("solve", "p.wcsp", "--splt", "grow").startswith(
        "solve: unknown argument '--splt'; did you mean '--split'?"
    )
    assert fails("solve", "p.wcsp", "--set", "polish=none").startswith("--set polish: unknown key; known: ")


@pytest.mark.parametrize(
    ("work", "place"),
    [
        (lambda: exact_sum(["a"]), "dmcmc/inference/model/arithmetic.py:"),
        (lambda: formats.format_named(3).nothing, "dmcmc/formats/registry.py:"),
    ],
)
def test_an_internal_error_names_the_place_in_dmcmc(work, place):
    with pytest.raises(Exception) as caught:
        work()
    error = RuntimeError("boo").with_traceback(caught.value.__traceback__)
    assert f"internal error: RuntimeError: boo ({place}" in describe(error)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("command", ["samplers", "--help", "completion bash", "solve small.wcsp --json"])
def test_a_full_disk_behind_standard_output_is_one_error_line(command, tmp_path):
    (tmp_path / "small.wcsp").write_text("p 1 2 1 9\n2\n1 0 0 1\n0 4\n")
    arguments = [sys.executable, "-m", "dmcmc", *command.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "dmcmc: error: standard output cannot be written: No space left on device"
    assert "internal error" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_module_in_the_working_directory_is_not_loaded_by_either_name_of_the_program(folder):
    for name in ("numpy", "random", "typing", "yaml", "json", "sampler_of_others"):
        (folder / f"{name}.py").write_text("raise SystemExit('loaded from the working directory')\n")
    (folder / "team.yaml").write_text(CONFIG + "local: {method: sampler_of_others:make}\n")
    for command in ([sys.executable, "-m", "dmcmc"], [str(Path(sys.executable).with_name("dmcmc"))]):
        done = subprocess.run([*command, "run", "team.yaml"], capture_output=True, text=True, check=False)
        assert (done.returncode, "loaded" in done.stderr) == (2, False), done.stderr
