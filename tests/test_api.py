"""The Python interface: the public functions and classes of the package."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dmcmc
from dmcmc.algorithms.contract import Parameter
from dmcmc.mpi.world import World

ROOT = Path(__file__).parents[1]

IMPORT_SCRIPT = """
import os, sys, json
before = dict(os.environ), os.getcwd()
import dmcmc
print(json.dumps([dict(os.environ) == before[0], "numba" in sys.modules, "mpi4py" in sys.modules]))
"""
NAMES_SCRIPT = """
import json, types
import dmcmc
[getattr(dmcmc, name) for name in dmcmc.__all__]
names = [name for name, value in vars(dmcmc).items() if name[0] != "_" and not isinstance(value, types.ModuleType)]
print(json.dumps([dir(dmcmc), sorted(names), hasattr(dmcmc, "Any"), hasattr(dmcmc, "importlib")]))
"""
WCSP = "p 3 2 2 9\n2 2 2\n2 0 1 0 1\n1 1 3\n2 1 2 0 1\n0 1 2\n"


def small(seed=0, **parameters):
    return dmcmc.generate("random", agents=3, variables_per_agent=4, domain_size=3, seed=seed, **parameters)


def test_importing_changes_nothing_in_the_process():
    found = subprocess.run([sys.executable, "-c", IMPORT_SCRIPT], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [True, False, False]


def test_all_public_names_can_be_imported():
    assert all(getattr(dmcmc, name) is not None for name in dmcmc.__all__)


def test_the_package_shows_public_names_only():
    found = subprocess.run([sys.executable, "-c", NAMES_SCRIPT], capture_output=True, text=True, check=True)
    public = [name for name in dmcmc.__all__ if name != "__version__"]
    assert json.loads(found.stdout) == [dmcmc.__all__, public, False, False]


def builder():
    p = dmcmc.Problem.build("min")
    x, y = p.variable("x", ["low", "high"]), p.variable("y", 3, agent="other")
    return p.factor(x, {"low": 2}).factor((x, y), [[1, 2, 3], [6, 5, 4]])


@pytest.mark.parametrize("form", ["problem", "builder", "path", "text"])
@pytest.mark.parametrize("solve", [dmcmc.solve, lambda *given, **keywords: dmcmc.solve_on(World(), *given, **keywords)])
def test_a_problem_may_be_given_as_a_builder_or_a_file(form, solve, tmp_path):
    path = tmp_path / "p.wcsp"
    path.write_text(WCSP)
    given = {"problem": builder().problem(), "builder": builder(), "path": path, "text": str(path)}[form]
    problem = dmcmc.load(path) if form in ("path", "text") else builder().problem()
    assert solve(given, seed=7).assignment == dmcmc.solve(problem, seed=7).assignment
    assert dmcmc.plan(given).cells == dmcmc.plan(problem).cells


def test_a_junction_tree_takes_a_builder():
    assert dmcmc.JunctionTree(builder()).marginal("x") == dmcmc.JunctionTree(builder().problem()).marginal("x")


WRONG_CALLS = [
    (lambda: dmcmc.solve([[1, 2], [3, 4]]), "expected a Problem, got list object; dmcmc.load reads a file"),
    (lambda: dmcmc.solve(None), "expected a Problem, got None; "),
    (lambda: dmcmc.plan(dmcmc.solve), "expected a Problem, got function object; "),
    (lambda: dmcmc.solve_on(World(), None), "expected a Problem, got None; "),
    (lambda: dmcmc.solve_on(small(), World()), "world: expected an MPI communicator, got <Problem "),
    (lambda: dmcmc.JunctionTree("p.bif"), "expected a Problem, got str object; dmcmc.load reads a file"),
    (lambda: dmcmc.JunctionTree(builder(), tables="sparse"), "tables: expected one of auto, dense, incomplete, got "),
    (lambda: dmcmc.JunctionTree(builder(), device="gpu"), "device: expected one of auto, cpu, cuda, got 'gpu'"),
    (lambda: dmcmc.JunctionTree(builder()).set_evidence("x"), "evidence: expected a mapping from names of variables"),
    (lambda: dmcmc.solve("missing.wcsp"), "missing.wcsp: no such file"),
    (lambda: dmcmc.load(3), "path: expected the path of a problem file, got 3"),
    (lambda: dmcmc.load(small()), "path: expected the path of a problem file, got <Problem "),
    (lambda: dmcmc.load("p.wcsp", agents="2"), "agents: expected a whole number, got '2'"),
    (lambda: dmcmc.solve(small(), {"timeout": 3}), "settings: expected dmcmc.Settings, got dict; give its keys as"),
    (lambda: dmcmc.solve(small(), 3), "settings: expected dmcmc.Settings, got int; give keywords, as timeout=10"),
    (lambda: dmcmc.solve(small(), progress=True), "progress: expected a function, got True"),
    (lambda: dmcmc.solve(small(), trace=[]), "trace: expected a function, got []"),
    (lambda: dmcmc.solve(small(), solution="s"), "solution: expected a function, got 's'"),
]


@pytest.mark.parametrize(("call", "message"), WRONG_CALLS, ids=[message for _, message in WRONG_CALLS])
def test_a_wrong_argument_is_one_line_of_error(call, message):
    with pytest.raises(dmcmc.DmcmcError) as caught:
        call()
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_a_problem_is_solved_by_one_call():
    result = dmcmc.solve(small(), seed=7)
    assert isinstance(result, dmcmc.Result)
    assert (result.status, result.objective) == ("optimal", result.bound)
    assert small().evaluate(result.assignment) == (result.objective, 0)


def test_a_rank_of_a_launcher_solves_alone(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "4")
    monkeypatch.setenv("PMI_RANK", "2")
    assert dmcmc.solve(small()).status == "optimal"


def test_solve_on_gives_the_result_on_the_ranks_of_a_world():
    assert dmcmc.solve_on(World(), small(), seed=7).assignment == dmcmc.solve(small(), seed=7).assignment


def test_keywords_settings_and_sections_are_equivalent():
    config = {"method": "gibbs", "runs": 3, "samples": 7}
    budget = dmcmc.Budget(memory=2**30)  # by default a part of the free memory, which changes
    flat = dmcmc.solve(small(), seed=5, device="cpu", memory="1GiB", **config)
    section = dmcmc.solve(small(), local=config, seed=5, device="cpu", budget=budget)
    settings = dmcmc.Settings(local=dmcmc.Local(**config), seed=5, device="cpu", budget=budget)
    for result in (flat, section, dmcmc.solve(small(), settings)):
        assert result.provenance["config"] == flat.provenance["config"]
        assert (result.objective, result.bound) == (flat.objective, flat.bound)
    assert dmcmc.solve(small(), settings, runs=4).provenance["config"]["local"]["runs"] == 4


def test_files_are_loaded_and_their_variables_assigned_to_agents(tmp_path):
    path = tmp_path / "p.wcsp"
    path.write_text(WCSP)
    assert dmcmc.load(path).agents == ("all",)
    assert dmcmc.load(str(path), agents=3, split="blocks", format="wcsp").owner.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"timout": 3}, "unknown keyword 'timout'; did you mean 'timeout'? (keywords: "),
        ({"timeout": -3}, "timeout: expected seconds > 0, got -3"),
        ({"time": 1, "timeout": 1}, "timeout: is given twice"),
        ({"runs": 0}, "runs: expected a whole number >= 1"),
        ({"local": {"runz": 3}}, "local.runz: unknown key; did you mean 'runs'?"),
        ({"local": 3}, "local: expected a mapping of its keys, got 3"),
        ({"settings": dmcmc.Settings(seed=-1)}, "seed: expected a whole number >= 0 (and < 2^63), got -1"),
        ({"method": "gibs"}, "method: "),
        ({"z": 3, "combine": "exact"}, "z: applies to mini-buckets only"),
        ({"output": "/dev/full/x.json"}, "/dev/full/x.json: cannot be written"),
    ],
)
def test_a_wrong_keyword_is_one_line_of_error(keywords, message):
    with pytest.raises(dmcmc.DmcmcError) as caught:
        dmcmc.solve(small(), **keywords)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_the_samples_of_a_guarantee_are_computed_again_when_runs_change():
    settings = dmcmc.Settings(local=dmcmc.Local(method="gibbs", guarantee=dmcmc.Guarantee(0.1, 0.1)))
    found = dmcmc.solve(small(), settings, runs=50).provenance["config"]["local"]
    assert (settings.local.samples, found["samples"]) == (10, 2)


def test_an_error_of_a_generator_names_the_family():
    with pytest.raises(dmcmc.DmcmcError, match=r"^generate random: agentz: unknown parameter .*did you mean 'agents'"):
        dmcmc.generate("random", agentz=3)
    with pytest.raises(dmcmc.DmcmcError, match=r"^generate rndom: unknown generator .*did you mean 'random'"):
        dmcmc.generate("rndom")


def test_progress_is_reported_as_lines_or_as_stages():
    lines, stages = [], []

    class Stages:
        def stage(self, title, total=None):
            stages.append(title)

        def advance(self, steps=1):
            stages.append(steps)

    dmcmc.solve(small(), progress=lines.append)
    dmcmc.solve(small(), progress=Stages())
    assert any(line.endswith("local tables: 3") for line in lines)
    assert "combining" in stages and sum(s for s in stages if isinstance(s, int)) == 3


def test_the_trace_callback_receives_every_point():
    points = []
    result = dmcmc.solve(small(), method="gibbs", timeout=3, trace=points.append)
    assert points == list(result.trace) != []
    assert (points[-1].objective, points[-1].bound) == (result.objective, result.bound) and points[-1].found_by


@pytest.mark.parametrize(
    "keywords", [{}, {"timeout": 3, "method": "gibbs"}, {"algorithm": "dsa"}, {"presolve": "merge"}]
)
def test_the_solution_callback_receives_every_better_assignment(keywords):
    problem, solutions = small(), []
    result = dmcmc.solve(problem, solution=solutions.append, **keywords)
    assert [one.objective for one in solutions] == sorted({one.objective for one in solutions})
    assert all(problem.evaluate(one.assignment).objective == one.objective for one in solutions)
    assert (solutions[-1].objective, solutions[-1].assignment) == (result.objective, result.assignment)


def test_a_result_is_written_to_the_file_output(tmp_path):
    result = dmcmc.solve(small(), output=tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text()) == json.loads(result.to_json())
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_missing_folder_of_the_file_output_is_named_before_any_work(tmp_path):
    lines = []
    with pytest.raises(dmcmc.DmcmcError) as caught:
        dmcmc.solve(small(), output=tmp_path / "new" / "run.json", progress=lines.append)
    path, folder = tmp_path / "new" / "run.json", tmp_path / "new"
    assert str(caught.value) == f"{path}: cannot be written: the folder {folder} does not exist; create it first"
    assert lines == [] and os.listdir(tmp_path) == []


def test_a_plan_has_methods_reasons_and_costs():
    plan = dmcmc.plan(small())
    assert [agent.name for agent in plan.agents] == ["a0", "a1", "a2"]
    assert {agent.method for agent in plan.agents} == {"exact"} and all(agent.reason for agent in plan.agents)
    assert (plan.cells, plan.width) == (sum(a.cells for a in plan.agents), max(a.width for a in plan.agents))
    assert plan.bytes == max(a.bytes for a in plan.agents) > 0
    assert plan.combine.startswith("exact: joined tables need at most")
    assert all(word in str(plan) for word in ("a2", "exact", "width", "combination of the agents' tables: "))
    assert json.loads(plan.to_json())["arithmetic"] == "int32"
    result = dmcmc.solve(small())
    assert [a.cells for a in result.agents] == [a.cells for a in plan.agents]


def test_a_plan_without_exact_elimination_has_no_elimination_cost():
    plan = dmcmc.plan(small(), method="gibbs")
    assert (plan.width, plan.cells, plan.bytes) == (None, None, None)
    assert {agent.method for agent in plan.agents} == {"gibbs"}


@pytest.mark.slow
def test_the_readmes_examples_pass_mypy_strict(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "example.py").write_text("\n".join(re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "example.py"]
    places = os.environ | {"MYPYPATH": str(ROOT)}
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=places)
    assert found.returncode == 0, found.stdout


def test_integers_of_numpy_are_integers_wherever_a_number_is_given():
    two = np.int64(2)
    problem = dmcmc.generate("random", agents=two, variables_per_agent=np.int32(2), domain_size=two, seed=np.uint8(1))
    assert problem.n_agents == 2
    best = dmcmc.alternatives(problem, two, distance=np.int16(1), within=np.float64(1), seed=two).alternatives
    assert len(best) == 2 and best == dmcmc.alternatives(problem, 2, within=1.0).alternatives
    mixed = {"name": "mgm", "cycles": two}
    assert dmcmc.solve(problem, algorithm=mixed).cycle <= 2
    checked = Parameter(1, least=0, most=9).checked(two, "x")
    assert type(checked) is int and checked == 2
    for wrong in (True, np.bool_(True), 1.5):
        with pytest.raises(dmcmc.DmcmcError, match="whole number"):
            dmcmc.alternatives(problem, wrong)
