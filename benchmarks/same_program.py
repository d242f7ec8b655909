"""Check that two versions of Python files are the same program, up to names, docstrings and texts.

    python -m benchmarks.same_program REVISION [--moved MOVED.tsv] FILE [FILE ...]

``MOVED.tsv`` has one line per moved file: the former path, a tab, the present path. Two files are the same program if
their syntax trees agree when names, docstrings, string constants and the order of imports are left out, and a
constant tuple assigned to several names counts as one assignment per name. In addition, no function may give two names
of the former version the same new name. The exit code is 1 if any file differs.
"""

import argparse
import ast
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

NAMES = ("id", "attr", "arg", "name", "asname", "module", "rest", "kwd_attrs")
IGNORED = ("type_comment", "kind", "ctx")
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class Difference(Exception):
    """The structure of two syntax trees differs."""


@dataclass
class NameMap:
    """The names of one scope.

    Attributes
    ----------
    former : dict of str to str
        Former name by new name.
    merged : list of str
        Descriptions of new names that stand for two former names.
    """

    former: dict[str, str] = field(default_factory=dict)
    merged: list[str] = field(default_factory=list)

    def add(self, old: str, new: str) -> None:
        """Record a pair of names."""
        if self.former.setdefault(new, old) != old:
            self.merged.append(f"{self.former[new]} and {old} are both {new}")


def without_texts(tree: ast.Module) -> ast.Module:
    """Return the tree without docstrings and imports; constant tuples become single assignments."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [item for item in body if not _is_text(item)] or [ast.Pass()]  # type: ignore[attr-defined]
    statements: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple):
            target = statement.targets[0]
            if isinstance(target, ast.Tuple) and len(target.elts) == len(statement.value.elts):
                pairs = zip(target.elts, statement.value.elts, strict=True)
                statements += [ast.Assign(targets=[name], value=value) for name, value in pairs]
                continue
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            statements.append(statement)
    tree.body = statements
    return tree


def _is_text(statement: ast.AST) -> bool:
    """Return whether a statement is a string: a docstring."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def compare(old: object, new: object, names: NameMap, merged: list[str]) -> None:
    """Compare two parts of syntax trees and collect merged names.

    Raises
    ------
    Difference
        If the structure or a number differs.
    """
    if type(old) is not type(new):
        if {type(old), type(new)} <= {str, type(None)}:
            return
        line = getattr(new, "lineno", "?")
        raise Difference(f"line {line}: {type(old).__name__} became {type(new).__name__}")
    if isinstance(old, ast.AST) and isinstance(new, ast.AST):
        inner = NameMap() if isinstance(old, SCOPES) else names
        for part in old._fields:
            before, after = getattr(old, part, None), getattr(new, part, None)
            if part in NAMES and isinstance(before, str) and isinstance(after, str):
                if isinstance(old, ast.Name | ast.arg):
                    inner.add(before, after)
            elif part not in IGNORED:
                compare(before, after, inner, merged)
        if inner is not names:
            merged += inner.merged
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            line = next((node.lineno for node in new if hasattr(node, "lineno")), "?")
            raise Difference(f"line {line}: {len(old)} parts became {len(new)}")
        for before, after in zip(old, new, strict=True):
            compare(before, after, names, merged)
    elif not isinstance(old, str) and old != new:
        raise Difference(f"constant {old!r} became {new!r}")


def problems_of(path: str, former: str, revision: str) -> list[str]:
    """Return the differences between a file and its former version."""
    shown = subprocess.run(["git", "show", f"{revision}:{former}"], capture_output=True, text=True, check=False)
    if shown.returncode:
        return [f"not in {revision}"]
    names, merged = NameMap(), list[str]()
    before, now = (ast.parse(text) for text in (shown.stdout, Path(path).read_text(encoding="utf-8")))
    try:
        compare(without_texts(before), without_texts(now), names, merged)
    except Difference as difference:
        return [str(difference)]
    return merged + names.merged


def main() -> int:
    """Print a line per difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--moved", type=Path, help="a file with a line per moved file")
    given = parser.parse_args()
    lines = given.moved.read_text(encoding="utf-8").splitlines() if given.moved else []
    moved = {new: old for old, new in (line.split("\t") for line in lines)}
    found = [(path, line) for path in given.files for line in problems_of(path, moved.get(path, path), given.revision)]
    for path, line in found:
        print(f"{path}: {line}")
    print(f"{len(given.files)} files, {len({path for path, _ in found})} differ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
