"""Rules for the source tree: names of compiled files, import direction, sizes of packages and functions."""

import ast
import re
from itertools import combinations

import networkx as nx
import pytest
from imports import ROOT, TOP_FOLDERS, File, files, imports, package_graph

CODE = files(*TOP_FOLDERS)
TESTS = files("tests")
SCRIPTS = files("benchmarks", "docs")
LAYERS = [
    "inference/runtime",
    "inference/model",
    "inference/elimination",
    "inference/minibuckets",
    "inference/execution",
    "inference/dpop",
    "inference/bounds",
    "samplers",
    "mpi",
    "dmcmc/solving",
    "dmcmc/compilation",
    "dmcmc/cli",
]
# Pairs (below, above).
ORDERED = [*combinations(LAYERS, 2), ("dmcmc/solving", "dmcmc/anytime")]
MAX_PARAMETERS = 8
MAX_FUNCTION_LINES = 60
COMPILERS = {"njit", "jit", "cuda_jit", "vectorize", "guvectorize"}
DECORATORS = "inference/runtime/compile.py"  # defines the compiling decorators
TYPE_CHECK_EXEMPTION = "# mypy: ignore-errors"


@pytest.fixture(scope="module")
def graph():
    """The import graph of packages; built on first use, so that collecting tests stays fast."""
    return package_graph(CODE)


def compilations(file: File) -> list[str]:
    """Return the places where a file uses a compiling decorator."""
    found = []
    for node in ast.walk(file.tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if name in COMPILERS:
            found.append(f"{file.path}:{node.lineno}")
    return found


def location(file: File, function: ast.FunctionDef) -> str:
    return f"{file.path}:{function.name}"


def host_functions(code: list[File]) -> list[tuple[File, ast.FunctionDef]]:
    return [(file, function) for file in code if not file.compiled for function in file.functions()]


def parameters(function: ast.FunctionDef) -> int:
    given = function.args
    names = [a.arg for a in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    return len([name for name in names if name not in ("self", "cls")])


def code_lines(function: ast.FunctionDef) -> int:
    """Return the number of lines of a function without its docstring."""
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def excused(file: File, function: ast.FunctionDef) -> bool:
    """Return whether a comment `# long: why` stands at the head or the first line of a function."""
    lines = file.text.splitlines()[max(function.lineno - 2, 0) : function.body[0].lineno]
    return any(re.search(r"# long: \w+", line) for line in lines)


def test_compiled_code_is_only_in_files_named_kernels():
    host = [file for file in CODE if not file.compiled and file.path != DECORATORS]
    assert [at for file in host for at in compilations(file)] == []


def test_exactly_the_kernel_files_are_exempt_from_type_checks():
    exempt = {file.path for file in [*CODE, *SCRIPTS] if TYPE_CHECK_EXEMPTION in file.text}
    assert exempt == {file.path for file in [*CODE, *SCRIPTS] if file.compiled}
    assert [file.path for file in CODE if file.compiled and not file.text.startswith(TYPE_CHECK_EXEMPTION)] == []


def test_barriers_take_no_conditional_argument():
    """Python may copy the end of a function into both branches; threads of a warp then wait at different barriers."""
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


def test_imports_between_packages_have_no_cycles(graph):
    assert [sorted(ring) for ring in nx.strongly_connected_components(graph) if len(ring) > 1] == []


def test_top_level_folders_import_in_one_direction():
    order = {folder: number for number, folder in enumerate(TOP_FOLDERS)}
    upwards = [
        (source.path, target.path)
        for source, target in imports(CODE)
        if order[source.path.split("/")[0]] < order[target.path.split("/")[0]]
    ]
    assert upwards == []


@pytest.mark.parametrize(("below", "above"), ORDERED)
def test_no_package_imports_a_higher_layer(below, above, graph):
    def inside(package: str, folder: str) -> bool:
        return f"{package}/".startswith(f"{folder}/")

    assert [why for a, b, why in graph.edges.data("why") if inside(a, below) and inside(b, above)] == []


def test_inference_and_samplers_do_not_import_mpi():
    assert [file.path for file in files("inference", "samplers") if "mpi4py" in file.imported] == []


def test_every_package_has_a_docstring():
    heads = {file.path: ast.get_docstring(file.tree) for file in CODE if file.name == "__init__.py"}
    folders = {file.path.rpartition("/")[0] for file in CODE}
    assert [folder for folder in sorted(folders) if not heads.get(f"{folder}/__init__.py")] == []


def test_every_file_has_a_docstring():
    assert [file.path for file in [*CODE, *SCRIPTS, *TESTS] if not ast.get_docstring(file.tree)] == []


def test_host_functions_take_few_parameters():
    functions = host_functions([*CODE, *SCRIPTS])
    assert [location(*found) for found in functions if parameters(found[1]) > MAX_PARAMETERS] == []


def test_host_functions_are_short_or_explain_why_not():
    functions = host_functions([*CODE, *SCRIPTS])
    long = [(file, found) for file, found in functions if code_lines(found) > MAX_FUNCTION_LINES]
    assert [location(file, found) for file, found in long if not excused(file, found)] == []


def test_no_test_imports_another():
    tests = {file.name.removesuffix(".py") for file in TESTS if file.name.startswith("test_")}
    imported = {(file.path, name) for file in TESTS for name in file.imported}
    assert [at for at, name in imported if tests & set(name.split("."))] == []


def test_links_lead_to_the_top_level_folders():
    assert {path.name for path in (ROOT / "dmcmc").iterdir() if path.is_symlink()} == set(TOP_FOLDERS) - {"dmcmc"}
