"""Code blocks of the documents work: Python runs, commands parse, calendars are read, the developer examples solve."""

import contextlib
import importlib
import io
import json
import re
import shlex
import time
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from follow import blocks
from imports import ROOT
from support import naive
from support.runs import HurriedProgress, hard_problem
from support.semidefinite.dense_agents import dense_agent

import dmcmc
from dmcmc.anytime.improvers import registry as improvers
from dmcmc.anytime.improvers.protocol import RankState, TimeSlice
from dmcmc.anytime.scheduler.proposal import Allocation
from dmcmc.calendars.file.problem import read as read_calendar
from dmcmc.cli.arguments import parse_arguments
from dmcmc.files.text import SourceFile
from dmcmc.formats import native
from dmcmc.formats import registry as formats
from dmcmc.inference.bounds import search_rows as bounders
from dmcmc.inference.bounds.branch_and_bound.row_search import (
    BoundarySearch,
    BoundarySearchRequest,
    run_boundary_searches,
)
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.search_rows import create_boundary_search
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.storage.cache_folders import CACHE_VARIABLE
from dmcmc.results.outcome import quality_of
from dmcmc.samplers.constraint_search.constraint_search import ConstraintSearch

DOCS = sorted((ROOT / "docs").rglob("*.md"))
TESTED_BY_OTHER_TESTS = {"samplers.md"}  # by tests/samplers/test_plugin.py
PYTHON = [page for page in DOCS if "```python" in page.read_text("utf-8") and page.name not in TESTED_BY_OTHER_TESTS]
COMMAND = re.compile(r"^(?:mpirun -n \d+ )?dmcmc (.*)$", re.MULTILINE)
EDGES = "# edges 3 2\n0 1 5\n1 2 4\n0 2 3\n"


def run(text, names):
    """Run a block; compare what it prints with the comments behind its ``print`` calls."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(text, names)
    for expected in re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE):
        assert expected in out.getvalue().splitlines()


@pytest.fixture
def developed(tmp_path, monkeypatch):
    """Return a function that imports the first Python block of a section of docs/developing.md as a module."""
    page = (ROOT / "docs" / "developing.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    monkeypatch.syspath_prepend(tmp_path)

    def load(section, module):
        text = next(text for kind, text in blocks(sections[section]) if kind == "python")
        (tmp_path / f"{module}.py").write_text(f'"""An example."""\n\n{text}', encoding="utf-8")
        importlib.invalidate_caches()
        return importlib.import_module(module)

    return load


@pytest.fixture
def register(monkeypatch):
    """Return a function that registers a plug-in under an entry-point group for the time of a test."""

    def add(group, name, plugin):
        entry = SimpleNamespace(name=name, value="example", load=lambda: plugin)
        found = lambda group: [entry] if group == wanted else []  # noqa: E731
        wanted = group
        monkeypatch.setattr("dmcmc.inference.runtime.plugins.entry_points", found)

    return add


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_python_of_the_documents_runs(page):
    names = {}
    for kind, text in blocks(page.read_text(encoding="utf-8")):
        if kind == "python":
            run(text, names)


@pytest.mark.parametrize("notebook", ["first-steps", "your-algorithm"])
def test_a_notebook_runs(notebook):
    names = {}
    for cell in json.loads((ROOT / "docs" / f"{notebook}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            run("".join(cell["source"]), names)


def test_the_example_bound_is_sound_and_loose(developed, register):
    register("dmcmc.bounds", "largest", developed("A bound", "my_bound").PROVIDER)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3, seed=3)
    best = dmcmc.solve(problem, device="cpu").objective
    loose = dmcmc.solve(problem, method="gibbs", bound="largest", device="cpu")
    assert loose.objective <= best < loose.bound


def test_the_example_bounder_finds_the_exact_bounds_of_rows(developed):
    bounder, local = developed("A bounder", "my_bounder").LargestEntriesBounder, dense_agent(2, hidden=3, max_domain=4)
    state, cutoffs = DualState(local, triangles=False), np.full(local.rows, -np.inf)
    search = BoundarySearch(state, bounder(local))
    run_boundary_searches([BoundarySearchRequest(search, cutoffs, cutoffs)])
    found = [state.layout.scale.decode(int(bound)) for bound in state.bounds]
    assert search.exhausted and found == naive.row_values(local).ravel().tolist()


def test_the_example_constraint_is_solved_searched_and_stored(developed, register, tmp_path):
    register("dmcmc.constraints", "increasing", developed("A constraint", "my_constraint").IncreasingConstraint)
    for cost in (None, 2):
        build = dmcmc.Problem.build(sense="max")
        names = [build.variable(f"x{i}", range(4)) for i in range(5)]
        for i, name in enumerate(names):
            build.factor(name, [(7 * i + 3 * x) % 5 for x in range(4)])
        problem = build.constraint("increasing", names, {"numbers": [range(4)] * 5}, cost).problem()
        chosen = max(
            (problem.evaluate(values) for values in product(range(4), repeat=5)),
            key=lambda evaluation: (-evaluation.violation, evaluation.objective),
        )
        assert dmcmc.solve(problem).objective == chosen.objective
        search = ConstraintSearch(problem, 0)
        assert problem.evaluate(search.improve_by_moves(np.zeros(5, dtype=np.int64), 5000, Deadline())) == chosen
        native.save(problem, tmp_path / "stored.npz")
        stored = native.load(tmp_path / "stored.npz")
        assert [stored.evaluate(x) for x in ([3, 2, 1, 0, 0], [0, 0, 1, 2, 2])] == [
            problem.evaluate(x) for x in ([3, 2, 1, 0, 0], [0, 0, 1, 2, 2])
        ]


def test_the_example_improver_works_in_a_run_and_improves_assignments(developed, register, clock):
    example = developed("An improver", "my_improver").IMPROVER
    register("dmcmc.improvers", "pair-moves", example)
    improvers.installed.cache_clear()
    try:
        assert improvers.names()["pair-moves"] == example.summary
        progress = HurriedProgress(clock, "improving", times=3)
        options = {"local": {"method": "gibbs"}, "search": "none", "device": "cpu", "progress": progress}
        result = dmcmc.solve(hard_problem(), timeout=600, **options)
    finally:
        improvers.installed.cache_clear()
    assert example.name in {work.improver for work in result.work}
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3, seed=3)
    improver, best, utilities = example(), np.zeros(problem.n_variables, dtype=np.int64), []
    while improver.propose(RankState({}, {}, best)):
        utilities.append(quality_of(problem, best).utility)
        time_slice = TimeSlice({}, lambda agent: None, Backend(), problem=problem, best=best)
        improver.run(time_slice, [Allocation(example.name, None, 60.0)])
        best = [best, *time_slice.found][-1]
    assert utilities[0] < utilities[-1] and utilities == sorted(utilities)


def test_the_example_bounder_can_be_registered_and_is_tried(developed, register):
    example = developed("A bounder", "my_bounder")
    register("dmcmc.bounders", "largest-entries", example.FACTORY)
    assert bounders.names()["largest-entries"] == example.FACTORY.summary
    backend = Backend(stop=Deadline(time.perf_counter() + 100))
    state = DualState(dense_agent(2, hidden=3, interface=0, max_domain=4), triangles=False, backend=backend)
    tried = list(bounders.other_bounders(state, 1 << 20))
    assert [type(bounder) for bounder in tried] == [example.LargestEntriesBounder]
    search = create_boundary_search(state, 1 << 20)
    assert search.nodes and state.layout.scale.decode(int(state.bounds[0])) >= naive.row_values(state.local).max()


def test_the_example_algorithm_improves_its_first_assignment(developed, register):
    example = developed("An algorithm to compare with", "my_algorithm").ALGORITHM
    register("dmcmc.algorithms", "round-robin", example)
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3, seed=3)
    result = dmcmc.solve(problem, algorithm="round-robin")
    assert result.cycle == 3 * problem.n_variables + 1
    assert result.trace[0].objective < result.objective


def test_the_example_tree_is_a_pseudo_tree_with_the_asked_root(developed, register):
    register("dmcmc.trees", "few-rows", developed("A pseudo-tree heuristic", "my_tree").TREE)
    problem = dmcmc.generate("random", agents=6, variables_per_agent=2, domain_size=3, seed=3)
    result = dmcmc.solve(problem, tree="few-rows", root="a4", presolve="none")
    assert result.provenance["plan"]["pseudo_tree"]["a4"] is None
    assert result.objective == dmcmc.solve(problem).objective


def test_the_example_format_is_read_and_names_the_line_of_a_mistake(developed, monkeypatch, tmp_path):
    example = developed("A file format", "my_format")
    added = formats.Format("edges", (".edges",), "weighted edges", example.PATTERN, "my_format")
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, added))
    (tmp_path / "triangle.edges").write_text(EDGES)
    problem = dmcmc.load(tmp_path / "triangle.edges")
    assert dmcmc.solve(problem).objective == 3  # two colours for a triangle: the cheapest edge is broken
    (tmp_path / "broken.edges").write_text(EDGES + "1 0\n")
    with pytest.raises(dmcmc.DmcmcError, match="line 5: expected three whole numbers"):
        dmcmc.load(tmp_path / "broken.edges")


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda page: page.stem)
def test_commands_of_the_documents_are_understood(page):
    for kind, text in blocks(page.read_text(encoding="utf-8")):
        for words in COMMAND.findall(text) if kind == "sh" else []:
            parse_arguments(shlex.split(words.split("<")[0], comments=True))


def test_images_of_the_documents_are_filled_by_commands_that_are_understood():
    """The page about start-up has a complete Dockerfile, whose cache is where the commands look for it."""
    text = (ROOT / "docs" / "howto" / "start-up.md").read_text(encoding="utf-8")
    image = re.findall(r"^```dockerfile\n(FROM .*?)^```", text, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^RUN dmcmc (.*)$", image[0], re.MULTILINE)
    assert [parse_arguments(shlex.split(words)).command for words in commands] == ["warm-up"]
    assert image[0].index(f"ENV {CACHE_VARIABLE}=/") < image[0].index("RUN dmcmc")


def test_calendars_of_the_documents_are_read():
    for page in DOCS:
        for text in re.findall(r"^```yaml\n(calendar:.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert read_calendar(SourceFile(page.name, text.encode())).n_agents >= 2


def test_every_page_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in DOCS if page.relative_to(ROOT / "docs").as_posix() not in contents] == []
