"""Limits of how far the code is spread: a small solve, chains of imports, sizes of classes, imports of a module.

The limits are what has been reached, so that a change can only lower them. The numbers in ``WANTED`` are the aim.
"""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import networkx as nx
import pytest
from imports import ROOT, TOP_FOLDERS, File, files, imports, package_graph
from support.structure.private_names import private_names

from dmcmc.inference.runtime.interpreted import COMPILE_FIRST

CODE = files(*TOP_FOLDERS)
WANTED = {"files": 30, "depth": 10, "steps back": 8, "chain": 20}
WANTED |= {"class lines": 200, "methods": 15, "imports": 15, "imports of cli": 25}
WANTED |= {"private patches": 20, "private imports": 0}
REACHED = {"files": 47, "depth": 10, "steps back": 7, "chain": 28}
REACHED_INTERPRETED = {"files": 43, "depth": 10, "steps back": 7}  # without kernels, as small problems are solved
REACHED |= {"private patches": 102, "private imports": 1}  # in tests, which should use what is public

# Classes that exceed the wanted lines or methods, with their present ones. `Problem` may stay large.
LARGE_CLASSES: dict[str, tuple[int, int]] = {
    "Agent": (326, 30),
    "DualState": (452, 27),
}
# Modules that import more of ours than wanted, with their present number.
WIDE_MODULES: dict[str, int] = {
    "dmcmc/anytime/background_engine.py": 17,
    "dmcmc/anytime/improvers/background_search.py": 24,
    "dmcmc/anytime/local_search.py": 19,
    "dmcmc/anytime/rank_run.py": 29,
    "dmcmc/anytime/solve_in_time.py": 32,
    "dmcmc/anytime/union/union_agent.py": 16,
    "dmcmc/api.py": 27,
    "dmcmc/assistant/calendar_tools.py": 16,
    "dmcmc/cli/commands.py": 47,
    "dmcmc/cli/solve_command.py": 33,
    "dmcmc/report/plan.py": 16,
    "dmcmc/run/algorithms/choose_algorithm.py": 17,
    "dmcmc/run/algorithms/synchronous_cycles.py": 20,
    "dmcmc/run/alternatives/find_alternatives.py": 23,
    "dmcmc/run/compilation/agent_kernel_sets.py": 21,
    "dmcmc/run/compilation/kernel_sets.py": 23,
    "dmcmc/run/compilation/prepare_gpu.py": 28,
    "dmcmc/run/incremental/incremental_run.py": 16,
    "dmcmc/run/resolving/kept_variable.py": 17,
    "dmcmc/run/resolving/value_bounds.py": 17,
    "dmcmc/run/resolving/value_search.py": 23,
    "dmcmc/run/solve.py": 16,
    "dmcmc/run/solve_directory.py": 27,
    "dmcmc/run/whole_problem/mini_bucket_solve.py": 26,
    "dmcmc/solving/agent/agent.py": 20,
    "dmcmc/solving/agent_steps.py": 19,
    "dmcmc/solving/coordinator.py": 21,
    "dmcmc/solving/local_tables.py": 31,
    "dmcmc/solving/metrics.py": 18,
    "dmcmc/solving/planning/combination_plan.py": 22,
    "dmcmc/solving/planning/divided_problem.py": 22,
    "dmcmc/solving/planning/plan.py": 24,
    "dmcmc/solving/planning/setup.py": 16,
    "dmcmc/solving/private/private_inputs.py": 19,
    "dmcmc/solving/private/rank_inputs.py": 18,
    "dmcmc/solving/rank_search.py": 20,
    "dmcmc/solving/rank_tables.py": 16,
    "dmcmc/solving/solve.py": 17,
    "dmcmc/solving/util_value_cycle.py": 20,
    "inference/bounds/dual/dual_bound.py": 18,
    "inference/bounds/mini_bucket.py": 17,
    "inference/bounds/semidefinite/cuda/batched_relaxation.py": 21,
    "inference/bounds/semidefinite/relaxation.py": 19,
    "inference/marginals/tables.py": 20,
    "inference/minibuckets/cuda/moment_matching.py": 18,
    "inference/sparse/function_filtering.py": 16,
    "samplers/cpu/launch.py": 16,
}

TRACE = """
import json, sys
import dmcmc
from dmcmc.inference.model.problem import Problem
from dmcmc.solving.planning.divided_problem import DividedProblem

def solve():
    problem = dmcmc.Problem.build(sense="max")
    problem.variable("desk", ["window", "door", "hall"], agent="ann")
    problem.variable("floor", 2, agent="bob")
    problem.factor(("desk", "floor"), [[1, 2], [3, float("-inf")], [0, 4]])
    problem = problem.problem()
    def called(frame, event, argument):
        global deepest
        code = frame.f_code
        if not code.co_filename.startswith(root) or code.co_filename.endswith(KERNELS) or code.co_name in INLINE:
            return
        if event == "call":
            stack.append(code.co_filename)
            files.add(code.co_filename)
            deepest = max(deepest, len(stack))
            names = [name for name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount] if name != "self"]
            if any(isinstance(frame.f_locals.get(name), (Problem, DividedProblem)) for name in names):
                followed.setdefault(code, code.co_filename)
        elif event == "return" and stack:
            stack.pop()
    sys.setprofile(called)
    dmcmc.solve(problem, seed=7, memory="1 GiB")  # the free memory, on which plans depend, changes every second
    sys.setprofile(None)

KERNELS, INLINE = ("_kernels.py", "interpreted.py"), ("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>")
root, stack, files, deepest, followed = dmcmc.__file__.rpartition("/")[0] + "/", [], set(), 0, {}
solve()
files.clear()
followed.clear()
deepest = 0
solve()
packages = [path.removeprefix(root).rpartition("/")[0] for path in followed.values()]
print(json.dumps({"files": len(files), "depth": deepest, "packages": packages}))
"""


def module_imports(file: File) -> list[str]:
    """Return the names that a file imports when it is loaded itself, not later in a function or for types only."""
    names, nodes = [], list(file.tree.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [*(f"{node.module}.{alias.name}" for alias in node.names), node.module]
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef):
            nodes += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return names


def steps_back_up(packages: Sequence[str]) -> list[tuple[str, str]]:
    """Return the steps back up to a package that was left before, as pairs (package that is left, package).

    A package is up from another one if it imports it, also through others. The packages are those of the functions that
    get a problem or its plan as an argument, in the order of their first calls.
    """
    folders = [name if name.split("/")[0] in TOP_FOLDERS else f"dmcmc/{name}".rstrip("/") for name in packages]
    graph, left, steps = package_graph(CODE), set[str](), list[tuple[str, str]]()
    for old, new in pairwise(folders):
        if new != old:
            left.add(old)
            if new in left and nx.has_path(graph, new, old):
                steps.append((old, new))
    return steps


def import_chain() -> list[str]:
    """Return the longest chain of modules that import each other when they are loaded."""
    graph, modules = nx.DiGraph(), {file.module for file in CODE}
    for file in CODE:
        named = modules.intersection(module_imports(file))
        packages = {name.rpartition(".")[0] for name in named}
        graph.add_edges_from((file.module, name) for name in named - packages if name != file.module)
    return nx.dag_longest_path(graph)


def large_classes() -> dict[str, tuple[int, int]]:
    """Return the lines and methods of each class that has more than wanted."""
    found = {}
    for file in CODE:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                lines = node.end_lineno - node.lineno + 1
                methods = sum(isinstance(part, ast.FunctionDef) for part in node.body)
                if lines > WANTED["class lines"] or methods > WANTED["methods"]:
                    found[node.name] = lines, methods
    return found


def wide_modules() -> dict[str, int]:
    """Return the number of our modules that each module imports, if it is more than wanted."""
    counts = Counter(source.path for source, _ in imports(CODE))
    return {
        path: count
        for path, count in counts.items()
        if count > WANTED["imports of cli" if path.startswith("dmcmc/cli/") else "imports"]
    }


@pytest.fixture(scope="module", params=["compiled", "interpreted"])
def second_solve(request):
    """Files, depth and packages of the second solve of a small problem in a process, and their limits."""
    compiled = request.param == "compiled"
    environment = {name: value for name, value in os.environ.items() if name not in COMPILE_FIRST}
    environment |= COMPILE_FIRST if compiled else {}
    done = subprocess.run(
        [sys.executable, "-c", TRACE], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return json.loads(done.stdout), REACHED if compiled else REACHED_INTERPRETED


def test_the_second_solve_of_two_variables_visits_few_files(second_solve):
    found, reached = second_solve
    assert (found["files"] <= reached["files"], found["depth"] <= reached["depth"]) == (True, True), found


def test_who_follows_the_problem_through_a_solve_seldom_goes_back_up(second_solve):
    found, reached = second_solve
    steps = steps_back_up(found["packages"])
    assert len(steps) <= reached["steps back"], steps


def test_chains_of_imports_are_short():
    chain = import_chain()
    assert len(chain) <= REACHED["chain"], chain


def test_classes_are_small():
    found = {name: size for name, size in large_classes().items() if name != "Problem"}
    grown = {name: size for name, size in found.items() if not _within(size, LARGE_CLASSES.get(name, (0, 0)))}
    assert grown == {}, "split these classes; only those of LARGE_CLASSES may be larger, and may not grow"


def test_modules_have_few_collaborators():
    found = wide_modules()
    grown = {path: count for path, count in found.items() if count > WIDE_MODULES.get(path, 0)}
    assert grown == {}, "import less; only the modules of WIDE_MODULES may import more, and may not grow"


PATCHING = [
    "import dmcmc.config._hidden",
    "from dmcmc.config import settings, _limits as limits",
    "settings._MOST, other = 1, self._own",
    "settings.sections['a']._order[0] += 1",
    "monkeypatch.setattr(settings, '_read', None)",
    "monkeypatch.setattr('dmcmc.config._hidden.read', None)",
    "monkeypatch.setattr(settings.read, '__call__', setattr(settings, 'MOST', 2))",
    "self._own = 'import a; a._b = 1'",
]


def test_private_names_are_found_in_assignments_patches_and_programs_of_other_processes(tmp_path):
    (tmp_path / "a.py").write_text("\n".join(PATCHING))
    patches = ["a._b", "dmcmc.config._hidden.read", "settings._MOST", "settings._read", "settings.sections['a']._order"]
    found = private_names(tmp_path / "a.py")
    assert sorted(found.replaced) == patches
    assert found.imported == ["dmcmc.config._hidden", "dmcmc.config._limits"]


def test_tests_use_what_is_public():
    found = {str(path.relative_to(ROOT)): private_names(path) for path in sorted((ROOT / "tests").rglob("*.py"))}
    patches = [f"{path}: {name}" for path, names in found.items() for name in names.replaced]
    imported = [f"{path}: {name}" for path, names in found.items() for name in names.imported]
    assert len(patches) <= REACHED["private patches"], patches
    assert len(imported) <= REACHED["private imports"], imported


@pytest.mark.parametrize("limits", [LARGE_CLASSES, WIDE_MODULES])
def test_limits_name_what_exists(limits):
    existing = {*large_classes(), *wide_modules()}
    assert [name for name in limits if name not in existing] == [], "remove these from the limits"


def _within(size: tuple[int, int], limit: tuple[int, int]) -> bool:
    """Return whether the lines and methods of a class are within its limit."""
    return all(number <= most for number, most in zip(size, limit, strict=True))
