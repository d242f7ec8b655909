"""Output in a terminal of 80 columns: no number is cut, no line is longer, and all names are complete."""

import logging
import re
import shutil
import subprocess

import numpy as np
import pytest
from rich.console import Console

import dmcmc
from dmcmc.cli.arguments import command_parsers
from dmcmc.cli.commands.setup import SHELLS, script
from dmcmc.cli.main import main
from dmcmc.cli.progress import PeriodicProgress
from dmcmc.inference.model.factor import Factor
from dmcmc.inference.model.problem import Problem
from dmcmc.report.explain import text_of
from dmcmc.report.graph import back_edges, dot, draw, facts_of
from dmcmc.report.graph import summary as graph_summary
from dmcmc.report.summary import result_summary as summary
from dmcmc.results.result import AgentMetrics, Result, TracePoint

LONG = "department of meetings that never end"


def shown(content, width=80):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(content)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def agent(name, **more):
    given = {"method": "annealing", "exact": False, "variables": 123, "interface": 12, "rows": 10**27}
    return AgentMetrics(**given | {"name": name, "cells": 208_369_728, "updates": 1_234_567_890, "time": 123.4} | more)


def result(**more):
    given = {"status": "optimal", "objective": 2, "bound": 2, "gap": 1e-17, "violation": 0, "assignment": None}
    return Result(**given | {"sense": "max", "time": 0.5} | more)


def test_the_summary_fits_80_columns_without_cut_numbers():
    text = shown(summary(result(agents=(agent("a0"), agent(LONG, method="metropolis-hastings-single")))))
    assert "…" not in text
    for word in ("variables", "shared", "1.0e27", "1.23 G updates", "123.400 s"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert re.search(r"gap +0 %\n", text)


def test_a_small_gap_is_not_shown_as_0():
    assert "less than 0.0001 %" in shown(summary(result(status="feasible", bound=3, gap=1e-9)))


def test_the_assignment_is_shown_by_agent_and_broken_constraints_by_name():
    clash = Factor.of((0, 1), [[0, -np.inf], [-np.inf, 0]], name="same slot")
    problem = Problem(("x", "y"), [2, 2], ("ann", "bob"), [0, 1], (clash, Factor.of((1,), [-np.inf, 0])))
    found = result(status="unsatisfied", objective=None, bound=None, violation=2, assignment={"x": 1, "y": 0})
    text = shown(summary(found, problem=problem, written="out.json"))
    assert re.search(r"broken +same slot \(x = 1, y = 0\); factor 1 \(y = 0\)", text)
    assert re.search(r"written to +out.json", text)
    assert re.search(r"\n ann +x = 1\n bob +y = 0\n", text)


def test_the_explanation_fits_80_columns_without_cut_numbers():
    plan = dmcmc.plan(dmcmc.generate("random", agents=3, variables_per_agent=9, domain_size=3, seed=1), device="cpu")
    narrow, wide = text_of(plan, Console(width=80)), text_of(plan)
    assert "…" not in narrow and all(len(line) <= 80 for line in narrow.splitlines())
    assert narrow.splitlines()[0].split()[:5] == ["agent", "vars", "shared", "rows", "width"]
    for one in plan.agents:
        assert " ".join(one.reason.split()) in " ".join(narrow.split())
        assert one.reason in wide


@pytest.fixture(scope="module")
def ring():
    differ = np.where(np.eye(3, dtype=bool), 0, 1)
    factors = tuple(Factor.of((i, (i + 1) % 4), differ) for i in range(4))
    return Problem(("w", "x", "y", LONG), [3] * 4, ("a", "b", LONG, "d"), [0, 1, 2, 3], factors)


def test_a_graph_is_shown_with_its_back_edges(ring, tmp_path):
    facts = facts_of(ring, 1 << 30)
    assert "…" not in shown(graph_summary(facts))
    (edge,) = back_edges(ring, facts)
    assert set(edge) <= {*ring.agents}
    assert "".join(dot(ring, facts)).count("style=dashed") == 1
    pytest.importorskip("matplotlib")
    draw(ring, facts, tmp_path / "g.svg")
    assert "department of meetings that never end" not in (tmp_path / "g.svg").read_text()


def test_the_help_of_generate_lists_families_with_parameters(capsys):
    assert main(["generate", "--help"]) == 0
    text = capsys.readouterr().out
    assert "interface_variables=1" in text and "tightness=0.5" in text


def test_a_log_file_has_lines_with_stage_objective_bound_and_time(capsys, clock):
    progress = PeriodicProgress(60.0)
    clock.skip(10.1)
    progress.stage("local tables", 4)
    clock.skip(10)
    progress.point(TracePoint(1.0, 90, 100))
    progress.advance()  # too soon for another line
    clock.skip(10)
    progress.advance()
    started, better, stepped = capsys.readouterr().err.splitlines()
    assert started == "dmcmc: 10 s: local tables"
    assert better == "dmcmc: 20 s: local tables: objective 90, bound 100, gap 11.1 %, 59 s left"
    assert stepped == "dmcmc: 30 s: local tables: objective 90, bound 100, gap 11.1 %, 49 s left"


def test_short_runs_print_nothing_unless_they_compile(capsys):
    progress = PeriodicProgress()
    progress.stage("local tables")
    assert capsys.readouterr().err == ""
    progress.stage("compiling kernels, once: tables")
    progress.stage("combining")
    assert capsys.readouterr().err == "dmcmc: 0 s: compiling kernels, once: tables\n"


@pytest.fixture
def log():
    """The log of the program; its state is restored at the end."""
    log = logging.getLogger("dmcmc")
    before = log.level, log.propagate, [*log.handlers]
    yield log
    log.level, log.propagate, log.handlers[:] = before
    log.manager._clear_cache()


def test_verbose_writes_a_log_and_quiet_writes_nothing(tmp_path, capfd, log):
    path = tmp_path / "p.npz"
    assert main(["generate", "random", "agents=2", "variables_per_agent=2", "--output", str(path)]) == 0
    for option, said in (("--verbose", True), ("--quiet", False)):
        capfd.readouterr()
        assert main(["solve", str(path), "--device", "cpu", option]) == 0
        assert ("dmcmc: " in capfd.readouterr().err) == said


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_contain_all_commands(shell):
    text = script(shell, command_parsers())
    assert all(word in text for word in ("solve", "algorithms", "timeout", "scale-free", "max-marginals"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes_commands_options_and_values():
    ask = "COMP_WORDS=(dmcmc {0}); COMP_CWORD={1}; _dmcmc; echo ${{COMPREPLY[@]}}\n"
    text = script("bash", command_parsers()) + ask.format("so", 1) + ask.format("solve f --tim", 3)
    text += ask.format("solve f --task ma", 4)
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:3] == ["solve", "--timeout", "mar max-marginals"]
