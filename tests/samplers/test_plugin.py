"""A sampler of another distribution: found by its entry point, run by name, equal on any threads and on a GPU.

Run as a script, this module writes the states that the GPU path reaches to the given file. Numba's simulator must be
chosen before Numba is imported, so that needs its own process.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from dmcmc import Factor, Problem
from dmcmc.cli.main import main
from dmcmc.formats import native
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.inference.runtime.errors import ConfigError
from dmcmc.samplers import registry
from dmcmc.samplers.chain_solver import ChainSolver
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.model.chain_model import build_model, chain_key
from dmcmc.samplers.model.schedule import Temperature, one_round
from dmcmc.samplers.model.state_kernels import evaluate

TESTS = Path(__file__).resolve().parents[1]
GUIDE = TESTS.parent / "docs" / "samplers.md"
DISTRIBUTION = TESTS / "plugin"
NAME = "threshold-accepting"


def install(folder, pyproject):
    """Write what an installer adds to a distribution's modules: its name and its entry points."""
    project = tomllib.loads(pyproject)["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {to}\n" for name, to in points.items()) for group, points in groups]
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Put the distribution on the path, and work in an empty folder."""
    site = tmp_path / "site"
    site.mkdir()
    install(site, (DISTRIBUTION / "pyproject.toml").read_text())
    for path in (DISTRIBUTION, site):
        monkeypatch.syspath_prepend(path)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return site


def sampler():
    return registry.get(NAME).sampler


def example(hard):
    """Return two agents, each with three hidden variables and two that the other also sees: 12 and 20 rows."""
    rng = np.random.default_rng(3)
    domains = np.array([3, 4, 5, 4, 3, 2, 3, 1, 4, 5])
    scopes = [(v,) for v in range(10)] + [(0, 1), (2, 0), (1, 2, 3), (4, 0), (3, 4), (5, 6), (7, 5, 8), (8, 6), (9, 6)]
    scopes += [(0, 4, 2), (5, 8, 9), (3, 8), (4, 9)]
    tables = [rng.integers(-99, 100, domains[list(s)]).astype(float) for s in scopes]
    tables = [np.where(rng.random(t.shape) < (hard if t.ndim > 1 else 0.0), -np.inf, t) for t in tables]
    factors = tuple(Factor.of(s, t) for s, t in zip(scopes, tables, strict=True))
    owner = np.array([0] * 5 + [1] * 5)
    return Problem(tuple(f"x{v}" for v in range(10)), domains, ("me", "you"), owner, factors)


HARD = (0.0, 0.15)  # 16-bit scores, and 32-bit scores with violations
SEED, RUNS, SAMPLES = 7, 3, 6


def cpu_states(hard, threads=1):
    """Return the best hidden values of every row of every agent, by the compiled loop."""
    problem = example(hard)
    locals_ = divide(problem).locals
    settings = Sampling(choose_arithmetic(problem.factors), SEED, RUNS, SAMPLES, backend=Backend(threads=threads))
    found = zip(locals_, registry.get(NAME).solve(locals_, settings), strict=True)
    return [
        [list(table.witness(dict(zip(p.interface, b, strict=True))).values()) for b in np.ndindex(*p.interface_shape)]
        for p, table in found
    ]


def gpu_states(hard):
    """Return the same by the kernel around the same two functions."""
    from dmcmc.samplers.cuda.launch import sample_rows

    locals_ = divide(example(hard)).locals
    models = [build_model(p) for p in locals_]
    rounds = [one_round(model, SAMPLES, Temperature()) for model in models]
    keys = [chain_key(SEED, p.agent) for p in locals_]
    return [states.tolist() for states in sample_rows(sampler(), models, keys, rounds, RUNS)]


def test_it_is_found_by_its_entry_point(capfd):
    assert sampler().name == NAME
    assert registry.names()[NAME] == sampler().summary
    assert main(["samplers", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)[NAME] == sampler().summary


def test_a_run_by_its_name_reports_the_true_utility_of_its_assignment(capfd):
    arguments = ["agents=3", "variables_per_agent=5", "domain_size=4", "interface_variables=1"]
    assert main(["generate", "random", *arguments, "--output", "p.npz"]) == 0
    Path("run.yaml").write_text(f"problem: {{file: p.npz}}\nlocal: {{method: {NAME}}}\ndevice: cpu\n")
    capfd.readouterr()
    found = {}
    for method in (NAME, "exact"):
        assert main(["run", "run.yaml", "--json", "--set", f"local.method={method}"]) == 0
        found[method] = json.loads(capfd.readouterr().out)
    ours, optimum = found[NAME], found["exact"]
    assert {agent["method"] for agent in ours["agents"]} == {NAME}
    assert ours["status"] in ("feasible", "optimal") and ours["bound"] >= optimum["objective"]
    assert ours["objective"] == native.load("p.npz").evaluate(ours["assignment"]).objective
    assert 0.9 * optimum["objective"] <= ours["objective"] <= optimum["objective"]


@pytest.mark.parametrize("hard", HARD)
def test_threads_change_nothing(hard):
    assert cpu_states(hard, threads=2) == cpu_states(hard, threads=1)


@pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU: {gpu_problem()}")
@pytest.mark.parametrize("hard", HARD)
def test_a_gpu_reaches_the_states_that_the_cpu_reaches(hard):
    assert gpu_states(hard) == cpu_states(hard)


def test_a_simulated_gpu_reaches_the_states_that_the_cpu_reaches(folder):
    paths = [folder, DISTRIBUTION, TESTS, TESTS.parent]
    environment = {
        "NUMBA_ENABLE_CUDASIM": "1",
        "NUMBA_DISABLE_JIT": "1",
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }
    command = [sys.executable, "-W", "ignore", __file__, "states.json"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(Path("states.json").read_text()) == [cpu_states(hard) for hard in HARD]


def visited_states(threshold, trials):
    """Return a chain's states, as numbers, and the utilities passed from step to step, which are checked."""
    init, step = njit(sampler().init), njit(sampler().step)

    @njit
    def visit(model, z, key, trials, threshold, states, utilities):
        scores = np.zeros((model.hidden, model.lanes), dtype=model.data.dtype)
        scratch = np.zeros(max(model.lanes, model.hidden), dtype=np.int32)
        rng = (key[0], key[1], np.uint64(0), np.uint64(0))
        utility = init(model, z, scores, rng)
        for trial in range(1, trials + 1):
            utility = step(model, z, scores, utility, scratch, rng, trial, threshold)
            utilities[trial - 1] = utility
            if utility != evaluate(model, z):
                return False
            for v in range(model.hidden):
                states[trial - 1] = states[trial - 1] * model.domains[v] + z[v]
        return True

    model = build_model(divide(example(0.0)).locals[0])
    z, key = np.zeros(model.domains.size, dtype=np.int32), np.array(chain_key(SEED, 0), dtype=np.uint64)
    states, utilities = np.zeros(trials, dtype=np.int64), np.zeros(trials, dtype=np.int64)
    assert visit(model, z, key, trials, np.float32(threshold), states, utilities)
    return states, utilities, int(model.domains[: model.hidden].prod())


def test_a_zero_threshold_never_loses_utility_and_a_high_one_visits_states_uniformly():
    _, utilities, _ = visited_states(0.0, 200)
    assert (np.diff(utilities) >= 0).all()
    visited, _, states = visited_states(1e9, 100_000)
    shares = np.bincount(visited, minlength=states) / visited.size
    assert np.abs(shares - 1 / states).sum() / 2 < 0.015


BROKEN = {
    "absent": ("no_such_module:SAMPLER", "ModuleNotFoundError: No module named 'no_such_module'"),
    "nameless": ("dmcmc_threshold:SAMPLE", "AttributeError"),
    "function": ("dmcmc_threshold:step", "is neither a Sampler nor a LocalSolver"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plug_in_is_named_in_one_line(folder, capfd, name):
    value, expected = BROKEN[name]
    points = f'[project.entry-points."{registry.GROUP}"]\n{name} = "{value}"\n'
    install(folder, f'[project]\nname = "broken"\nversion = "1"\n{points}')
    problem = "{generator: random, agents: 2, variables_per_agent: 2, domain_size: 2}"
    Path("run.yaml").write_text(f"problem: {problem}\nlocal: {{method: {name}}}\n")
    assert main(["run", "run.yaml"]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"dmcmc: error: run.yaml:2: local.method: plug-in '{name}' ({value})") and expected in err
    assert main(["samplers", "--json"]) == 0
    lines = json.loads(capfd.readouterr().out)
    assert lines[name].startswith("cannot be loaded: ") and expected in lines[name]
    assert lines[NAME] == sampler().summary  # the other plug-ins are not affected


def test_a_sampler_that_does_not_compile_is_named_with_its_line(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(tmp_path)
    source = (DISTRIBUTION / "dmcmc_threshold.py").read_text()
    (tmp_path / "allocating.py").write_text(source.replace("utility = proposed", "utility += np.zeros(1)[0]"))
    problem = divide(example(0.0)).locals[:1]
    solver = ChainSolver(importlib.import_module("allocating").SAMPLER)
    with pytest.raises(ConfigError, match=rf"'{NAME}' does not compile \(.*allocating\.py:\d+\): .*zeros"):
        solver.solve(problem, Sampling(choose_arithmetic(example(0.0).factors)))


@pytest.mark.parametrize(("language", "path"), [("python", "dmcmc_threshold.py"), ("toml", "pyproject.toml")])
def test_the_code_in_the_guide_is_that_of_the_example(language, path):
    blocks = re.findall(rf"^```{language}\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks[0] == (DISTRIBUTION / path).read_text()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps([gpu_states(hard) for hard in HARD]))
