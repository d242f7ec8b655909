"""What the code says of itself, read from its syntax without running it: files, rooms, imports, functions.

A room is a folder of code. Used by `rooms.py`, which draws them, and by `tests/test_layout.py`, which holds the rules.
"""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[1]
HOUSES = ("inference", "samplers", "mpi", "dmcmc")
"""The four folders of code at the top level, each above all before it."""


@dataclass(frozen=True)
class File:
    """A file of code.

    Attributes
    ----------
    path : str
        Relative to the root of the project, with slashes.
    """

    path: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def room(self) -> str:
        """Its folder. The door `python -m dmcmc` is a part of the command line."""
        return "dmcmc/cli" if self.path == "dmcmc/__main__.py" else self.path.rpartition("/")[0]

    @property
    def module(self) -> str:
        """The name under which it is imported: the top-level folders live in one namespace."""
        dotted = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return dotted if dotted.split(".")[0] == "dmcmc" else f"dmcmc.{dotted}"

    @property
    def compiled(self) -> bool:
        """Whether its name says that what stands in it is compiled."""
        return self.name.endswith("_kernels.py")

    @cached_property
    def text(self) -> str:
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def functions(self) -> Iterator[ast.FunctionDef]:
        """Yield all functions and methods, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))

    @cached_property
    def imported(self) -> tuple[str, ...]:
        """The names of modules that it may import, at any depth; `from a import b` is `a.b` and `a`."""
        names: list[str] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names += (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                names += (*(f"{node.module}.{alias.name}" for alias in node.names), node.module)
        return tuple(names)


@cache
def _file(path: str) -> File:
    """Return the file of a path: always the same one, which is read once."""
    return File(path)


def files(*folders: str) -> list[File]:
    """Return the files of code below some folders of the project, by path; links are not followed."""
    found = []
    for folder in folders:
        for at, _, names in os.walk(ROOT / folder):
            found += [_file(Path(at, name).relative_to(ROOT).as_posix()) for name in names if name.endswith(".py")]
    return sorted(found, key=lambda file: file.path)


def imports(code: list[File]) -> list[tuple[File, File]]:
    """Return which file imports which, both among those given: the file itself, not the packages that it lies in."""
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


def room_graph(code: list[File]) -> nx.DiGraph:
    """Return the rooms; an edge from a to b says that a file of a imports a file of b, and ``why`` says which."""
    graph = nx.DiGraph()
    graph.add_nodes_from(sorted({file.room for file in code}))
    for source, target in imports(code):
        if source.room != target.room:
            graph.add_edge(source.room, target.room)
            graph.edges[source.room, target.room].setdefault("why", []).append((source.path, target.path))
    return graph
