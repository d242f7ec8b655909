"""Read files, packages, imports and functions from the source code, without running it.

A package is a folder of code. `packages.py` draws the packages; `tests/test_layout.py` checks the rules for them.
"""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
TOP_FOLDERS = ("inference", "samplers", "mpi", "dmcmc")
"""The four top-level folders of code, in import order: a folder imports only from the folders before it."""


@dataclass(frozen=True)
class File:
    """A source file.

    Attributes
    ----------
    path : str
        Path relative to the root of the project, with slashes.
    """

    path: str

    @property
    def name(self) -> str:
        """The name of the file without its folder."""
        return self.path.rpartition("/")[2]

    @property
    def package(self) -> str:
        """The folder of the file. `dmcmc/__main__.py` counts as a part of the command line."""
        return "dmcmc/cli" if self.path == "dmcmc/__main__.py" else self.path.rpartition("/")[0]

    @property
    def module(self) -> str:
        """The name under which the file is imported; all top-level folders share the namespace `dmcmc`."""
        dotted = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return dotted if dotted.split(".")[0] == "dmcmc" else f"dmcmc.{dotted}"

    @property
    def compiled(self) -> bool:
        """Whether the file holds compiled code, by its name."""
        return self.name.endswith("_kernels.py")

    @cached_property
    def text(self) -> str:
        """The source text."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the source text."""
        return ast.parse(self.text)

    def functions(self) -> Iterator[ast.FunctionDef]:
        """Yield all functions and methods, including nested ones."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))

    @cached_property
    def imported(self) -> tuple[str, ...]:
        """The names of the modules that the file may import, at any depth; `from a import b` gives `a.b` and `a`.

        Imports that only type checkers see do not count.
        """
        names: list[str] = []
        checks = (node for node in ast.walk(self.tree) if isinstance(node, ast.If))
        for_types = {
            id(part) for node in checks if ast.unparse(node.test) == "TYPE_CHECKING" for part in ast.walk(node)
        }
        for node in ast.walk(self.tree):
            if id(node) in for_types:
                continue
            if isinstance(node, ast.Import):
                names += (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names += (*(f"{node.module}.{alias.name}" for alias in node.names), node.module)
        return tuple(names)


@cache
def _file(path: str) -> File:
    """Return the `File` for a path; the same object per path, so that each file is read once."""
    return File(path)


def files(*folders: str) -> list[File]:
    """Return the source files below some folders of the project, sorted by path; links are not followed."""
    found = []
    for folder in folders:
        for at, _, names in os.walk(ROOT / folder):
            found += [_file(Path(at, name).relative_to(ROOT).as_posix()) for name in names if name.endswith(".py")]
    return sorted(found, key=lambda file: file.path)


def imports(code: list[File]) -> list[tuple[File, File]]:
    """Return pairs (importing file, imported file) among the given files; enclosing packages are not counted."""
    by_module = {file.module: file for file in code}
    pairs = []
    for file in code:
        names = file.imported
        packages = {name.rpartition(".")[0] for name in names if name in by_module}
        targets = {by_module[name].path: by_module[name] for name in names if name in by_module}
        for package in packages & targets.keys():
            del targets[package]
        pairs += [(file, target) for path, target in sorted(targets.items()) if path != file.path]
    return pairs


def package_graph(code: list[File]) -> nx.DiGraph:
    """Return the import graph of packages; the edge attribute ``why`` lists the pairs of files behind an edge."""
    graph = nx.DiGraph()
    graph.add_nodes_from(sorted({file.package for file in code}))
    for source, target in imports(code):
        if source.package != target.package:
            graph.add_edge(source.package, target.package)
            graph.edges[source.package, target.package].setdefault("why", []).append((source.path, target.path))
    return graph
