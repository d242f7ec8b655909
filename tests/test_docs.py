"""What the documentation says of files is true, and the picture of the rooms is of the rooms."""

import re

import pytest
import rooms
from imports import ROOT, files

DOCS = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md") if page.name != "rooms.md")
PAGES = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", *DOCS]
PATHS = {file.path for file in files("dmcmc", "inference", "samplers", "mpi", "tests", "benchmarks", "docs")}
OF_READERS = {"my_test.py", "my_bounds.py"}  # a file that the reader writes
PAST = {"benchmarks/SCRIPT.py", "bounds.py", "gpu_bounds.py", "minibuckets.py"}  # what results' heads name


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_are_there(page):
    named = set(
        re.findall(r"(?<![*\w./-])(?:\.\./)?([\w/-]+(?:\.\w+)*\.py)\b", (ROOT / page).read_text(encoding="utf-8"))
    )
    known = OF_READERS | (PAST if page.startswith("benchmarks") else set())
    assert [name for name in named - known if not any(f"/{path}".endswith(f"/{name}") for path in PATHS)] == []


@pytest.mark.parametrize("page", [*PAGES, "docs/rooms.md"])
def test_folders_and_links_of_a_page_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = [link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if not ((ROOT / page).parent / link).exists()] == []
    folders = re.findall(r"`((?:dmcmc|inference|samplers|mpi|benchmarks|tests|docs|configs)/[\w/]*)`", text)
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_every_script_is_listed_with_the_modules_that_there_are():
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    started = [f.path for f in files("benchmarks") if '__name__ == "__main__"' in (ROOT / f.path).read_text("utf-8")]
    scripts = {path.removesuffix(".py").split("/", 1)[1].replace("/", ".") for path in started}
    assert set(re.findall(r"^\| `([\w.]+)`", text, re.MULTILINE)) == scripts


def test_modules_that_pages_start_are_there():
    for page in PAGES:
        for module in re.findall(r"python -m (benchmarks\.[a-z_.]+)", (ROOT / page).read_text(encoding="utf-8")):
            assert module.replace(".", "/") + ".py" in PATHS, page


def test_the_picture_is_of_the_rooms():
    old = [name for name, text in rooms.draw().items() if (ROOT / "docs" / name).read_text(encoding="utf-8") != text]
    assert old == [], "python docs/rooms.py draws them anew"
