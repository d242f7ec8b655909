"""One budget of how far the code is spread, and limits of constants that steer and of private names in tests.

The budget is what has been reached, so that a change can only lower it. The numbers in ``WANTED`` are the aim.
"""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import networkx as nx
import pytest
from imports import ROOT, TOP_FOLDERS, File, files, package_graph
from support.structure.budget import Structure, measure
from support.structure.private_names import private_names

from dmcmc.inference.runtime.interpreted import COMPILE_FIRST

CODE = files(*TOP_FOLDERS)
BUDGET = Structure(
    files=522,
    small_files=37,
    lines=71_031,
    import_lines=6_944,
    lazy_imports=59,
    in_cycles=0,
    chain=33,
    plan_files=22,
)
WANTED = Structure(
    files=520, small_files=60, lines=60_500, import_lines=5_445, lazy_imports=60, in_cycles=0, chain=24, plan_files=20
)
REACHED = {"steps back": 7, "constants": 401, "literals": 104}
REACHED |= {"private patches": 6, "private imports": 0}  # in tests, which should use what is public

# Steering constants stand in tuning files. Outside of them, a module-level number counts as one if it is a fraction, or
# if its name says what steers; numbers that say nothing but 0 or 1, and limits of number types, are no such constants.
STEERING_WORDS = {
    "COST", "EVERY", "FACTOR", "FEW", "FIRST", "GRACE", "GROWTH", "INTERVAL", "LARGE", "LEAST", "LIMIT", "MARGIN",
    "MAX", "MEMORY", "MIN", "MOST", "PART", "PATIENCE", "PROBABILITY", "RATE", "RATIO", "ROUNDS", "SAMPLES", "SECONDS",
    "SHARE", "SLICE", "SMALL", "STEPS", "SWEEPS", "TEMPERATURE", "TIME", "TRIALS", "WEIGHT", "WORK",
}  # fmt: skip
# Words of numbers that hardware, layouts or rounding prescribe, and of tiny problems that only compile kernels.
PRESCRIBED_WORDS = {
    "ARITY", "AXES", "BLOCKS", "DOMAIN", "LANES", "REGISTERS", "ROUNDING", "SHARED", "THREADS", "TIE", "TINY",
    "TOLERANCE",
}  # fmt: skip
# Packages whose numbers describe: files and what is accepted in them, pages and terminals, generated problems, other
# programs that are compared, and how launchers end processes.
DESCRIBING = {
    "algorithms", "calendars", "cli", "config", "experiments", "files", "formats", "generators", "report", "results",
}  # fmt: skip
# Numbers of steering constants outside tuning files: kernels have theirs, since all kernels are compiled anew when a
# file changes that one of them imports; the others are limits that engines, papers or arrays prescribe.
OUTSIDE: dict[str, int] = {
    "dmcmc/solving": 7,
    "inference/bounds": 15,
    "inference/elimination": 4,
    "inference/junction_tree": 2,
    "inference/marginals": 3,
    "inference/minibuckets": 1,
    "inference/model": 1,
    "inference/orders": 2,
    "inference/presolve": 1,
    "inference/sparse": 1,
    "inference/storage": 1,
    "mpi/compute_node": 1,
    "samplers/blocks": 3,
    "samplers/in_team": 1,
    "samplers/branch_and_bound": 1,
    "samplers/constraint_search": 1,
    "samplers/contract": 1,
    "samplers/cuda": 2,
    "samplers/model": 9,
    "samplers/toulbar2": 3,
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
scheduler = [name for name in sys.modules if name.startswith("dmcmc.anytime.scheduler")]
print(json.dumps({"files": len(files), "depth": deepest, "packages": packages, "scheduler": scheduler}))
"""


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


def is_tuning(file: File) -> bool:
    """Return whether a file holds steering constants only: `tuning.py`, or a file of a folder `tuning`."""
    return "tuning" in file.path.removesuffix(".py").split("/")


def describes(file: File) -> bool:
    """Return whether the numbers of a file describe something that others prescribe."""
    return file.path.startswith("dmcmc/") and file.path.split("/")[1] in DESCRIBING


def numeric_constants(file: File) -> list[tuple[str, ast.Assign | ast.AnnAssign]]:
    """Return the names and assignments of the constants of a module whose values contain numbers."""
    found = []
    for node in file.tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and any(_is_number(part) for part in ast.walk(node.value)):
                found.append((target.id, node))
    return found


def steers(name: str, value: ast.expr) -> bool:
    """Return whether a constant outside the tuning files seems to steer: it is a fraction, or its name says so."""
    try:
        number = eval(compile(ast.Expression(value), "constant", "eval"), {"__builtins__": {}})
    except (NameError, TypeError, AttributeError):  # made from other constants
        return False
    words = set(name.strip("_").split("_"))
    if type(number) not in (int, float) or number in (-1, 0, 1) or abs(number) >= 1 << 30 or words & PRESCRIBED_WORDS:
        return False
    return isinstance(number, float) or bool(words & STEERING_WORDS)


def steering_outside() -> dict[str, list[str]]:
    """Return the constants outside the tuning files that seem to steer, by package: a direct part of a top folder."""
    found: dict[str, list[str]] = {}
    for file in CODE:
        if not is_tuning(file) and not describes(file):
            names = [name for name, node in numeric_constants(file) if steers(name, node.value)]
            package = "/".join(file.path.removesuffix(".py").split("/")[:2])
            found.setdefault(package, []).extend(f"{file.path}: {name}" for name in names)
    return {package: names for package, names in found.items() if names}


def steering_literals() -> list[str]:
    """Return the places of numbers in functions that may steer: fractions, and integers above 16.

    They are compared, multiplied, divided, limit something, or are defaults. Halves, doubles and hundredths (percent)
    do not count, nor do packages whose numbers describe.
    """
    found = []
    for file in CODE:
        if not describes(file):
            bodies = [node for node in file.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
            for node in (part for body in bodies for part in ast.walk(body)):
                operands = (part.operand if isinstance(part, ast.UnaryOp) else part for part in _operands(node))
                found += [f"{file.path}:{part.lineno}" for part in operands if _may_steer(part)]
    return found


@pytest.fixture(scope="module", params=["compiled", "interpreted"])
def second_solve(request):
    """Packages of the second solve of a small problem in a process."""
    compiled = request.param == "compiled"
    environment = {name: value for name, value in os.environ.items() if name not in COMPILE_FIRST}
    environment |= COMPILE_FIRST if compiled else {}
    done = subprocess.run(
        [sys.executable, "-c", TRACE], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    return json.loads(done.stdout)


def test_the_code_is_spread_no_further_than_before():
    found = measure(CODE)
    grown = {
        name: (number, most)
        for name, number, most in zip(Structure._fields, found, BUDGET, strict=True)
        if number > most
    }
    assert grown == {}, "merge files, cut imports or delete code; the budget only falls"


@pytest.mark.parametrize(
    "text, lines, lazy",
    [
        ('"""Head."""\n# comment\nimport dmcmc.b\n\ndef f():\n    """Doc."""\n    from dmcmc import b\n', 3, 1),
        ('"""Head."""\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dmcmc.b\n', 3, 0),
        ('"""Head."""\nfrom importlib import import_module\nx = import_module("dmcmc.b")\n', 2, 1),
    ],
)
def test_the_measure_counts_all_ways_to_import(text, lines, lazy):
    def file(name, text):
        return SimpleNamespace(module=f"dmcmc.{name}", name=f"{name}.py", text=text, tree=ast.parse(text))

    other = file("b", '"""Head."""\nimport dmcmc.a\n')
    found = measure([file("a", text), other])
    assert (found.files, found.lines, found.lazy_imports) == (2, lines + 1, lazy)
    assert (found.in_cycles, found.chain) == ((0, 2) if "TYPE_CHECKING" in text else (2, 1))


def test_who_follows_the_problem_through_a_solve_seldom_goes_back_up(second_solve):
    steps = steps_back_up(second_solve["packages"])
    assert len(steps) <= REACHED["steps back"], steps


def test_a_solve_with_fixed_work_loads_no_scheduler(second_solve):
    assert second_solve["scheduler"] == []


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


def test_constants_that_steer_are_few_and_explained():
    """Each has its own name, and a comment on its line or above, perhaps of several constants without a blank line."""
    constants = [(file, *constant) for file in CODE if is_tuning(file) for constant in numeric_constants(file)]
    assert len(constants) <= REACHED["constants"], "merge, derive or delete"
    counts = Counter(name for _, name, _ in constants)
    assert [name for name in counts if counts[name] > 1] == []
    unexplained = [
        f"{file.path}: {name}"
        for file, name, node in constants
        if "#" not in "\n".join(file.text.splitlines()[: node.end_lineno]).rpartition("\n\n")[2]
    ]
    assert unexplained == [], "say the unit and the reason"


def test_constants_that_steer_stand_in_tuning_files():
    found = steering_outside()
    grown = {package: names for package, names in found.items() if len(names) > OUTSIDE.get(package, 0)}
    assert grown == {}, "move these to a tuning file, or name what prescribes them"
    assert {package for package in OUTSIDE if package not in found} == set(), "remove these from the limits"


def test_functions_have_few_numbers_that_steer():
    found = steering_literals()
    assert len(found) <= REACHED["literals"], f"name these numbers: {found}"


def _is_number(node: ast.AST) -> bool:
    """Return whether a part of an expression is a number; True and False are none."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _operands(node: ast.AST) -> list[ast.expr]:
    """Return what is compared, multiplied or divided, limits something, or is the default of an argument."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv):
        return [node.left, node.right]
    if isinstance(node, ast.arguments):
        return [*node.defaults, *(default for default in node.kw_defaults if default is not None)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        return node.args
    return []


def _may_steer(node: ast.expr) -> bool:
    """Return whether an operand is a fraction other than a half, or an integer above 16 other than 100 (percent)."""
    if not _is_number(node):
        return False
    return node.value not in (0.0, 0.5, 1.0, 2.0) if isinstance(node.value, float) else 16 < node.value != 100
