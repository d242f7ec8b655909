"""Statements of the documents about files are true, links lead somewhere, and the package drawing is up to date."""

import re

import packages
import pytest
from imports import ROOT, files

from dmcmc.config import settings
from dmcmc.results import result

GENERATED = "docs/packages.md"
DOCS = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))
NOTEBOOK = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "benchmarks/notebook").glob("*.md"))
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", *NOTEBOOK, *DOCS]
WRITTEN = [page for page in PAGES if page != GENERATED]
PATHS = {file.path for file in files("dmcmc", "inference", "samplers", "mpi", "tests", "benchmarks", "docs")}
FILES_OF_READERS = {
    "my_test.py",
    "my_bound.py",
    "my_bounder.py",
    "my_improver.py",
    "my_algorithm.py",
    "my_tree.py",
    "formats/edges.py",
}


def named_files(text):
    """Return the names of Python files in a text."""
    return set(re.findall(r"(?<![*\w./-])(?:\.\./)?([\w/-]+(?:\.\w+)*\.py)\b", text))


@pytest.mark.parametrize("page", WRITTEN)
def test_files_named_by_a_page_exist(page):
    named = named_files((ROOT / page).read_text(encoding="utf-8"))
    missing = [name for name in named - FILES_OF_READERS if not any(f"/{path}".endswith(f"/{name}") for path in PATHS)]
    assert [name for name in missing if not any(name.endswith(own) for own in FILES_OF_READERS)] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_and_folders_of_a_page_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    folders = re.findall(r"`((?:dmcmc|inference|samplers|mpi|benchmarks|tests|docs|configs)/[\w/]*/)`", text)
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


@pytest.mark.parametrize(
    ("page", "structs"),
    [
        ("configuration", ("Settings", "Local", "Combine", "Budget", "Cooling", "Guarantee", "AlgorithmSettings")),
        (
            "results",
            (
                *("Result", "Alternative", "AgentMetrics", "RetainedEntries", "TracePoint", "WorkDone"),
                *("PresolveReport", "ChainReport", "GuaranteeReport"),
            ),
        ),
    ],
)
def test_every_key_and_every_result_field_is_in_the_reference(page, structs):
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    words = {word for code in re.findall(r"`([^`]*)`", text) for word in re.findall(r"\w+", code)}
    module = settings if page == "configuration" else result
    fields = {field for struct in structs for field in getattr(module, struct).__struct_fields__}
    assert fields - words == set()


def test_every_script_is_listed_in_the_benchmarks():
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    started = [f.path for f in files("benchmarks") if '__name__ == "__main__"' in (ROOT / f.path).read_text("utf-8")]
    scripts = {path.removesuffix(".py").split("/", 1)[1].replace("/", ".") for path in started}
    assert set(re.findall(r"^\| `([\w.]+)`", text, re.MULTILINE)) == scripts


def test_modules_started_by_pages_exist():
    for page in PAGES:
        for module in re.findall(r"python -m (benchmarks\.[a-z_.]+)", (ROOT / page).read_text(encoding="utf-8")):
            assert module.replace(".", "/") + ".py" in PATHS, page


def test_the_heads_of_results_name_scripts_that_exist():
    missing = []
    for output in (ROOT / "benchmarks" / "results").rglob("*.txt"):
        text = output.read_text(encoding="utf-8")
        assert "python benchmarks/" not in text, output
        for module in re.findall(r"\bbenchmarks\.\w+(?:\.\w+)?", text):
            if not {f"{module.replace('.', '/')}.py", f"{module.rpartition('.')[0].replace('.', '/')}.py"} & PATHS:
                missing.append((output.name, module))
    assert missing == []


def test_the_glossary_has_a_meaning_and_a_reference_for_each_term():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 60
    assert [row[0] for row in rows if len(row) != 3 or not all(cell.strip() for cell in row)] == []
    terms = [row[0].strip().lower() for row in rows]
    assert terms == sorted(terms)


def test_the_drawing_of_the_packages_is_up_to_date():
    drawn = packages.draw().items()
    old = [name for name, text in drawn if (ROOT / "docs" / name).read_text(encoding="utf-8") != text]
    assert old == [], "run python docs/packages.py"
