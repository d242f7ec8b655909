"""Names and texts use the field's terms: unique class names, no private words, complete docstrings, short documents."""

import ast
import csv
import importlib
import inspect
import re
from collections import defaultdict

import pytest
from imports import ROOT, TOP_FOLDERS, files
from numpydoc.docscrape import get_doc_object
from numpydoc.validate import Validator, validate

import dmcmc

CODE = files(*TOP_FOLDERS)
ALL = [*CODE, *files("tests", "benchmarks")]

with (ROOT / "tests" / "support" / "private_words.csv").open(encoding="utf-8", newline="") as table:
    PRIVATE_WORDS = {row["private"]: row["standard"] for row in csv.DictReader(table)}
"""Words that this project once used in a private sense, and the field's terms for them."""

MAX_LINES = {
    "README.md": 120,
    "docs/architecture.md": 250,
    **{f"docs/methods/{page.name}": 150 for page in (ROOT / "docs" / "methods").glob("*.md")},
}
"""Largest number of lines of a document. The changelog's limit holds per version."""

OPTIONAL_SECTIONS = {"EX01", "SA01", "ES01"}  # numpydoc's codes: no examples, no "See Also", no extended summary


def words(name: str) -> list[str]:
    """Split an identifier or a text into lower-case words."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def identifiers(tree: ast.AST) -> set[str]:
    """Return all names that a file defines or uses: classes, functions, variables, parameters, attributes, keywords."""
    found = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.add(value)
    return found


def docstrings(tree: ast.AST) -> list[tuple[str, str]]:
    """Return the docstrings of a module, its classes and functions, each with its owner's name."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef)
    return [
        (getattr(node, "name", "module"), text)
        for node in ast.walk(tree)
        if isinstance(node, owners) and (text := ast.get_docstring(node))
    ]


def allowed(path: str, word: str) -> bool:
    """Return whether a word has its usual meaning in a file about calendars, or about the algorithm MGM2."""
    if word in ("room", "rooms"):
        return "calendar" in path or "meetings" in path
    return word in ("offer", "offers", "offered") and ("algorithms" in path or "baselines" in path)


def public_objects() -> dict[str, object]:
    """Return what users import or implement: the package's public names, and the classes of the Python reference."""
    reference = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: (dmcmc\.[\w.]+)$", reference, re.MULTILINE)
    found = {}
    for name in {*named, *(f"dmcmc.{public}" for public in dmcmc.__all__ if public != "__version__")}:
        module, _, last = name.rpartition(".")
        found[name] = getattr(importlib.import_module(module), last)
    return found


def documented_members() -> list[str]:
    """Return the full names of all public objects, and of the public methods of those that are classes."""
    found = set()
    for thing in public_objects().values():
        name = f"{thing.__module__}.{thing.__qualname__}"
        found.add(name)
        if inspect.isclass(thing):
            kinds = (classmethod, staticmethod, property)
            members = [
                key for key, value in vars(thing).items() if inspect.isfunction(value) or isinstance(value, kinds)
            ]
            found |= {f"{name}.{key}" for key in members if not key.startswith("_")}
    return sorted(found)


def fields_are_attributes(name: str) -> bool:
    """Return whether a class is a protocol, or a record whose Attributes section documents every field."""
    checked = Validator(get_doc_object(Validator._load_obj(name)))
    documented = {attribute.name for attribute in checked.doc["Attributes"]}
    listed = {part.strip() for names in documented for part in names.split(",")}
    if getattr(checked.obj, "_is_protocol", False):
        return True
    return inspect.isclass(checked.obj) and set(inspect.signature(checked.obj).parameters) <= listed


def test_each_class_name_stands_for_one_class():
    homes = defaultdict(list)
    for file in CODE:
        for node in ast.walk(file.tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(file.path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


def test_identifiers_have_no_private_words():
    found = [
        f"{file.path}: {name}: {word} ({PRIVATE_WORDS[word]})"
        for file in ALL
        for name in sorted(identifiers(file.tree))
        for word in words(name)
        if word in PRIVATE_WORDS and not allowed(file.path, word)
    ]
    assert found == []


def test_docstrings_have_no_private_words():
    found = [
        f"{file.path}:{owner}: {word} ({PRIVATE_WORDS[word]})"
        for file in ALL
        for owner, text in docstrings(file.tree)
        for word in words(text)
        if word in PRIVATE_WORDS and not allowed(file.path, word)
    ]
    assert found == []


@pytest.mark.parametrize("name", documented_members())
def test_public_functions_have_complete_docstrings(name):
    errors = [code for code, _ in validate(name)["errors"] if code not in OPTIONAL_SECTIONS]
    if "PR01" in errors and fields_are_attributes(name):
        errors.remove("PR01")
    assert errors == []


@pytest.mark.parametrize(("path", "limit"), MAX_LINES.items())
def test_no_document_is_too_long(path, limit):
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= limit


def test_the_changelog_has_few_lines_per_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert versions and [part.splitlines()[0] for part in versions if len(part.splitlines()) > 60] == []
