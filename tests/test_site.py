"""The built documents: no warning, no missing picture or file, and no markup that was not rendered."""

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from imports import ROOT

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocstrings")

pytestmark = pytest.mark.slow
ROLE = re.compile(r":(?:mod|class|func|meth|attr|data|exc|obj|ref|doc|py):")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return folder


def pages(site):
    """Return the text of each page by its file."""
    return {page: page.read_text(encoding="utf-8") for page in site.rglob("*.html") if page.name != "404.html"}


def local_targets(page, text):
    """Yield the files that a page shows or links to."""
    for address in re.findall(r'(?:src|href)="([^"]+)"', text):
        parts = urlsplit(unescape(address))
        if not parts.scheme and not parts.netloc and parts.path:
            yield address, (page.parent / unquote(parts.path)).resolve()


def test_every_picture_and_every_link_of_a_page_is_a_file_of_the_site(site):
    missing = [
        (page.relative_to(site).as_posix(), address)
        for page, text in pages(site).items()
        for address, target in local_targets(page, text)
        if not target.exists()
    ]
    assert missing == []


def test_the_page_of_calendars_shows_its_picture(site):
    text = Path(site / "howto" / "calendars" / "index.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<img [^>]*src="([^"]*calendar[^"]*)"', text)
    assert pictures and all((site / "howto" / "calendars" / picture).resolve().is_file() for picture in pictures)


def test_no_page_has_unrendered_markup(site):
    raw = [page.relative_to(site).as_posix() for page, text in pages(site).items() if ROLE.search(text)]
    assert raw == []
    assert ROLE.search((site / "search" / "search_index.json").read_text(encoding="utf-8")) is None
