"""Find where tests replace or import private names: names with an underscore at the beginning, in any part of a path.

A test that replaces such a name depends on how something is done, and fails when that changes although the result is
the same.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

OWN = ("dmcmc", "support")  # packages whose private names must not be imported
REPLACING = {"setattr", "delattr", "object", "patch"}  # functions of pytest, unittest.mock and Python
PRIVATE = re.compile(r"(^|\.)_(?!\w*__($|\W))")  # names such as ``__init__`` are not private


class PrivateNames(NamedTuple):
    """The private names that a file of tests depends on, each as often as it occurs.

    Attributes
    ----------
    replaced : list of str
        Dotted names that it replaces, by assignment (except attributes of ``self``) or by functions that patch.
    imported : list of str
        Dotted names that it imports from our packages.
    """

    replaced: list[str]
    imported: list[str]


def private_names(path: Path) -> PrivateNames:
    """Return the private names in a file, also in the programs in its strings, which tests run in other processes."""
    found = PrivateNames([], [])
    nodes = list(ast.walk(ast.parse(path.read_text())))
    for node in nodes:  # grows
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and {"\n", ";"} & set(node.value):
            nodes += _program(node.value)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [f"{module}{alias.name}" for alias in node.names]
            found.imported.extend(name for name in names if name.split(".")[0] in OWN and PRIVATE.search(name))
        else:
            found.replaced.extend(name for name in _replaced(node) if PRIVATE.search(name))
    return found


def _program(text: str) -> list[ast.AST]:
    """Return the nodes of a program in a string; none if it imports nothing, or is in another language."""
    try:
        tree = ast.parse(text) if "import " in text else ast.Module([], [])
    except SyntaxError:
        return []
    return list(ast.walk(tree)) if any(isinstance(part, ast.Import | ast.ImportFrom) for part in tree.body) else []


def _replaced(node: ast.AST) -> Iterator[str]:
    """Yield the dotted names that a node replaces."""
    if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
        for target in [node.target] if isinstance(node, ast.AugAssign) else node.targets:
            yield from _assigned(target)
    elif isinstance(node, ast.Call) and node.args:
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in REPLACING:
            has_path = isinstance(node.args[0], ast.Constant)
            yield ".".join(map(_text, node.args[:1] if has_path else node.args[:2]))


def _assigned(target: ast.expr) -> Iterator[str]:
    """Yield the attributes that an assignment changes, also in part, except those of ``self`` and ``cls``."""
    if isinstance(target, ast.Tuple | ast.List):
        yield from (name for part in target.elts for name in _assigned(part))
    elif isinstance(target, ast.Subscript):
        yield from _assigned(target.value)
    elif isinstance(target, ast.Attribute) and not (isinstance(of := target.value, ast.Name) and of.id in _OWN_NAMES):
        yield ast.unparse(target)


_OWN_NAMES = ("self", "cls")  # what methods call their object


def _text(node: ast.expr) -> str:
    """Return the name that an argument stands for: the contents of a string, or the expression."""
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)
