"""What the documents tell a reader to type works: Python runs, commands are understood, calendars are read."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest
from follow import blocks
from imports import ROOT

import dmcmc
from dmcmc.cli.arguments import parse_arguments
from dmcmc.files.text import Source
from dmcmc.formats.calendar.problem import read as read_calendar
from dmcmc.inference.bounds import registry

DOCS = sorted((ROOT / "docs").rglob("*.md"))
OF_PLUGINS = {"samplers.md"}  # tests/samplers/test_plugin.py runs those
PYTHON = [page for page in DOCS if "```python" in page.read_text("utf-8") and page.name not in OF_PLUGINS]
COMMAND = re.compile(r"^(?:mpirun -n \d+ )?dmcmc (.*)$", re.MULTILINE)


def run(text, names):
    """Run a block; hold what it prints against the comments behind its ``print``."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(text, names)
    for expected in re.findall(r"^print\(.*\)  # (.*)$", text, re.MULTILINE):
        assert expected in out.getvalue().splitlines()


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_python_of_the_documents_runs(page):
    names = {}
    for kind, text in blocks(page.read_text(encoding="utf-8")):
        if kind == "python":
            run(text, names)


def test_the_notebook_runs():
    names = {}
    for cell in json.loads((ROOT / "docs" / "first-steps.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            run("".join(cell["source"]), names)


def test_the_bound_of_the_documents_is_one(monkeypatch):
    names = {}
    ((_, text),) = blocks((ROOT / "docs" / "howto" / "bounds.md").read_text(encoding="utf-8"))
    exec(text, names)
    monkeypatch.setitem(registry._PLUGINS.ours, "largest", names["PROVIDER"])
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3, seed=3)
    best = dmcmc.solve(problem, device="cpu").objective
    loose = dmcmc.solve(problem, method="gibbs", bound="largest", device="cpu")
    assert loose.objective <= best < loose.bound


@pytest.mark.parametrize("page", [ROOT / "README.md", *DOCS], ids=lambda page: page.stem)
def test_commands_of_the_documents_are_understood(page):
    for kind, text in blocks(page.read_text(encoding="utf-8")):
        for words in COMMAND.findall(text) if kind == "sh" else []:
            parse_arguments(shlex.split(words.split("<")[0], comments=True))


def test_calendars_of_the_documents_are_read():
    for page in DOCS:
        for text in re.findall(r"^```yaml\n(calendar:.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            assert read_calendar(Source(page.name, text.encode())).n_agents == 2
    assert Path(ROOT / "mkdocs.yml").exists()


def test_every_page_is_in_the_contents():
    contents = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page.name for page in DOCS if page.relative_to(ROOT / "docs").as_posix() not in contents] == []
