"""The house: what is compiled is named so, imports run one way, rooms and functions stay small."""

import ast
import re
from collections import Counter
from itertools import combinations

import networkx as nx
import pytest
from imports import HOUSES, ROOT, File, files, imports, room_graph

CODE = files(*HOUSES)
TESTS = files("tests")
SCRIPTS = files("benchmarks", "docs")
FLOORS = [
    "inference/runtime",
    "inference/model",
    "inference/elimination",
    "inference/minibuckets",
    "inference/execution",
    "inference/dpop",
    "inference/bounds",
    "samplers",
    "mpi",
    "dmcmc/run",
    "dmcmc/cli",
]
MOST_FILES = 15
MOST_PARAMETERS = 8
MOST_LINES = 60
COMPILERS = {"njit", "jit", "cuda_jit", "vectorize", "guvectorize"}
DECORATORS = "inference/runtime/compile.py"  # Numba's, for our kernels
HEAD = "# mypy: ignore-errors"


@pytest.fixture(scope="module")
def graph():
    """The rooms and what imports what: drawn up when it is asked for, not wherever tests are collected."""
    return room_graph(CODE)


def compilations(file: File) -> list[str]:
    """Return where a file names what compiles: as a decorator or otherwise."""
    found = []
    for node in ast.walk(file.tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in COMPILERS:
            found.append(f"{file.path}:{node.lineno}")
    return found


def place(file: File, function: ast.FunctionDef) -> str:
    return f"{file.path}:{function.name}"


def host_functions(code: list[File]) -> list[tuple[File, ast.FunctionDef]]:
    return [(file, function) for file in code if not file.compiled for function in file.functions()]


def parameters(function: ast.FunctionDef) -> int:
    given = function.args
    names = [a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    return len([name for name in names if name not in ("self", "cls")])


def excused(file: File, function: ast.FunctionDef) -> bool:
    """Whether a comment `# long: why` stands beside its head or its first line."""
    lines = file.text.splitlines()[max(function.lineno - 2, 0) : function.body[0].lineno]
    return any(re.search(r"# long: \w+", line) for line in lines)


def test_compiled_code_stands_only_in_files_that_are_named_kernels():
    host = [file for file in CODE if not file.compiled and file.path != DECORATORS]
    assert [at for file in host for at in compilations(file)] == []


def test_files_that_are_named_kernels_are_exempt_from_type_checks_and_no_others_are():
    exempt = {file.path for file in [*CODE, *SCRIPTS] if HEAD in file.text}
    assert exempt == {file.path for file in [*CODE, *SCRIPTS] if file.compiled}
    assert [file.path for file in CODE if file.compiled and not file.text.startswith(HEAD)] == []


def test_barriers_take_no_condition_from_which_each_branch_could_get_a_barrier_of_its_own():
    """Python copies a short end of a function into the branches before it; threads of a warp may then never meet."""
    calls = [
        (file, call)
        for file in CODE
        for call in ast.walk(file.tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("cuda.sync")
    ]
    assert len(calls) > 50
    found = [
        f"{file.path}:{call.lineno}"
        for file, call in calls
        for given in call.args
        if any(isinstance(part, ast.IfExp | ast.BoolOp) for part in ast.walk(given))
    ]
    assert found == []


def test_rooms_import_each_other_in_one_direction(graph):
    assert [sorted(ring) for ring in nx.strongly_connected_components(graph) if len(ring) > 1] == []


def test_houses_stand_above_each_other():
    order = {house: floor for floor, house in enumerate(HOUSES)}
    upwards = [
        (source.path, target.path)
        for source, target in imports(CODE)
        if order[source.path.split("/")[0]] < order[target.path.split("/")[0]]
    ]
    assert upwards == []


@pytest.mark.parametrize(("below", "above"), list(combinations(FLOORS, 2)))
def test_no_room_imports_one_above_it(below, above, graph):
    def inside(room: str, folder: str) -> bool:
        return f"{room}/".startswith(f"{folder}/")

    assert [why for a, b, why in graph.edges.data("why") if inside(a, below) and inside(b, above)] == []


def test_what_samples_and_infers_knows_nothing_of_messages():
    assert [file.path for file in files("inference", "samplers") if "mpi4py" in file.imported] == []


def test_a_folder_has_few_files():
    own = Counter(file.path.rpartition("/")[0] for file in [*CODE, *SCRIPTS, *TESTS] if file.name != "__init__.py")
    assert [folder for folder, count in own.items() if count > MOST_FILES] == []


def test_every_folder_says_what_lives_in_it():
    heads = {file.path: ast.get_docstring(file.tree) for file in CODE if file.name == "__init__.py"}
    folders = {file.path.rpartition("/")[0] for file in CODE}
    assert [folder for folder in sorted(folders) if not heads.get(f"{folder}/__init__.py")] == []


def test_every_file_says_what_it_is():
    assert [file.path for file in [*CODE, *SCRIPTS, *TESTS] if not ast.get_docstring(file.tree)] == []


def test_host_functions_take_few_parameters():
    functions = host_functions([*CODE, *SCRIPTS])
    assert [place(*found) for found in functions if parameters(found[1]) > MOST_PARAMETERS] == []


def test_host_functions_are_short_or_say_why_not():
    functions = host_functions([*CODE, *SCRIPTS])
    long = [(file, found) for file, found in functions if found.end_lineno - found.lineno >= MOST_LINES]
    assert [place(file, found) for file, found in long if not excused(file, found)] == []


def test_no_test_imports_another():
    tests = {file.name.removesuffix(".py") for file in TESTS if file.name.startswith("test_")}
    imported = {(file.path, name) for file in TESTS for name in file.imported}
    assert [at for at, name in imported if tests & set(name.split("."))] == []


def test_links_lead_to_the_top_level_folders():
    assert {path.name for path in (ROOT / "dmcmc").iterdir() if path.is_symlink()} == set(HOUSES) - {"dmcmc"}
