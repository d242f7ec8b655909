"""Find where tests replace or import private names: names with an underscore at the beginning, in any part of a path.

A test that replaces such a name depends on how something is done, and fails when that changes although the result is
the same.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

OWN = ("dmcmc", "support")  # packages whose private names must not be imported
REPLACING = {"setattr", "delattr", "object", "patch"}  # functions of pytest, unittest.mock and Python


def is_private(path: str) -> bool:
    """Return whether a part of a dotted name is private; names such as ``__init__`` are not."""
    return any(part.startswith("_") and not part.endswith("__") for part in path.split("."))


def programs(text: str) -> Iterator[ast.Module]:
    """Yield a program, and those in its strings of several lines or statements, which tests run in other processes."""
    tree = ast.parse(text)
    yield tree
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and {"\n", ";"} & set(node.value):
            try:
                inner = ast.parse(node.value)
            except SyntaxError:  # another language
                continue
            if any(isinstance(part, ast.Import | ast.ImportFrom) for part in inner.body):
                yield inner


def replaced_names(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that a program replaces: by assignment, or by functions that patch.

    An object may replace its own attributes (``self._x = ...``).
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete):
            targets = [node.target] if isinstance(node, ast.AugAssign) else node.targets
            yield from (name for target in targets for name in _assigned(target))
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
    elif isinstance(target, ast.Attribute) and ast.unparse(target.value) not in ("self", "cls"):
        yield ast.unparse(target)


def _text(node: ast.expr) -> str:
    """Return the name that an argument stands for: the contents of a string, or the expression."""
    return str(node.value) if isinstance(node, ast.Constant) else ast.unparse(node)


def imported_names(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names that a program imports from our packages."""
    for node in ast.walk(tree):
        names = list[str]()
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name for name in names if name.split(".")[0] in OWN)


def private_replacements(path: Path) -> list[str]:
    """Return the private names that a file of tests replaces, as often as it does."""
    return [name for tree in programs(path.read_text()) for name in replaced_names(tree) if is_private(name)]


def private_imports(path: Path) -> list[str]:
    """Return the private names of ours that a file of tests imports."""
    return [name for tree in programs(path.read_text()) for name in imported_names(tree) if is_private(name)]
