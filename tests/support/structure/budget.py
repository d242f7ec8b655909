"""Measure the structure of the code from its imports: files, lines, small files, cycles, and chains of imports.

Every import counts, also one inside a function and one by name (``import_module("dmcmc...")``); imports for type
checkers alone do not. Lines of code are those without blanks, comments and docstrings.
"""

import ast
import io
import tokenize
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import networkx as nx
from imports import File

SMALL_FILE_LINES = 50
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
_WITH_DOCSTRING = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Structure(NamedTuple):
    """Numbers that say how far the code is spread.

    Attributes
    ----------
    files, small_files : int
        Number of files, and of those of at most ``SMALL_FILE_LINES`` lines of code, without ``__init__.py``.
    lines, import_lines : int
        Lines of code, and those of imports.
    lazy_imports : int
        Imports inside functions.
    in_cycles : int
        Files in cycles of imports.
    chain : int
        Length of the longest chain of imports; a cycle counts as one.
    plan_files : int
        Files that name the plan of a run, ``Setup``.
    """

    files: int
    small_files: int
    lines: int
    import_lines: int
    lazy_imports: int
    in_cycles: int
    chain: int
    plan_files: int


def measure(code: Sequence[File]) -> Structure:
    """Return the numbers of some files."""
    modules, graph = {file.module for file in code}, nx.DiGraph()
    sizes, import_lines, lazy = dict[str, int](), 0, 0
    graph.add_nodes_from(modules)
    for file in code:
        sizes[file.module] = len(code_lines(file))
        for node, targets, is_lazy in _imports(file, modules):
            import_lines += 0 if isinstance(node, ast.Call) else node.end_lineno - node.lineno + 1
            graph.add_edges_from((file.module, target) for target in targets)
            lazy += bool(targets) and is_lazy
    components = nx.condensation(graph)
    names = {file.module: file.name for file in code}
    small = sum(size <= SMALL_FILE_LINES and names[module] != "__init__.py" for module, size in sizes.items())
    in_cycles = sum(len(members) for _, members in components.nodes(data="members") if len(members) > 1)
    chain, plans = nx.dag_longest_path_length(components) + 1, sum("Setup" in _words(file) for file in code)
    return Structure(len(code), small, sum(sizes.values()), import_lines, lazy, in_cycles, chain, plans)


def code_lines(file: File) -> set[int]:
    """Return the numbers of the lines of code."""
    docstrings, lines = set[int](), set[int]()
    for node in ast.walk(file.tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
        if token.type not in _NO_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def _imports(file: File, modules: set[str]) -> Iterator[tuple[ast.AST, set[str], bool]]:
    """Yield each import: its node, the modules of ours that it loads, and whether it stands inside a function."""
    for_types = {
        part
        for node in ast.walk(file.tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for part in ast.walk(node)
    }
    for node in ast.walk(file.tree):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module:
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in full]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func) and node.args:
            names = [str(node.args[0].value)] if isinstance(node.args[0], ast.Constant) else []
        if names:
            targets = set() if node in for_types else modules.intersection(names) - {file.module}
            yield node, targets, node not in file.tree.body


def _words(file: File) -> set[str]:
    """Return the names that a file uses."""
    nodes = list(ast.walk(file.tree))
    imported = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    return imported | {node.id for node in nodes if isinstance(node, ast.Name)}
