"""Contents of a distribution: the same packages with and without the links of the checkout."""

import importlib.util
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("setuptools")


EDITABLE = """
import sys
from setuptools import build_meta
print(build_meta.build_editable(sys.argv[1]))
"""
CODE = ("dmcmc", "inference", "samplers", "mpi")
SCRIPT = """
import dmcmc

p = dmcmc.Problem.build()
a = p.variable("a", 3)
reveal_type(dmcmc.solve(p.factor(a, [1, 2, 3]), timeout=2))
dmcmc.solve(p, timeout="2")
"""


@pytest.fixture
def packages():
    spec = importlib.util.spec_from_file_location("setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.packages


def folders():
    """Yield the import name of every code folder."""
    for top in ("dmcmc", "inference", "samplers", "mpi"):
        for path in (ROOT / top).rglob("__init__.py"):
            name = ".".join(path.parent.relative_to(ROOT).parts)
            yield name if top == "dmcmc" else f"dmcmc.{name}"


def links(folder, names):
    """Return the names in a folder that are links."""
    return [name for name in names if Path(folder, name).is_symlink()]


def test_every_folder_is_a_package(packages):
    assert packages(str(ROOT)) == sorted({*folders()})


def test_links_make_no_difference(packages, tmp_path):
    for top in ("dmcmc", "inference", "samplers", "mpi"):
        shutil.copytree(
            ROOT / top, tmp_path / top, ignore=lambda folder, names: [n for n in names if Path(folder, n).is_symlink()]
        )
    assert packages(str(tmp_path)) == packages(str(ROOT))


def editable_install(folder, with_links):
    """Copy the code into a folder, install it editably without dependencies, and return the Python that sees it."""
    source = folder / "source"
    ignored = shutil.ignore_patterns("__pycache__", ".mypy_cache", "*.egg-info")
    for top in CODE:
        shutil.copytree(ROOT / top, source / top, symlinks=True, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    if not with_links:
        for name in CODE[1:]:
            (source / "dmcmc" / name).unlink()
    command = [sys.executable, "-c", EDITABLE, str(folder)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    venv.create(folder / "venv", symlinks=True)
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(folder / built.stdout.split()[-1]) as wheel:
        wheel.extractall(site_packages)
    return source, site_packages, folder / "venv" / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("with_links", [True, False])
def test_an_editable_install_is_imported_from_the_source_tree(with_links, tmp_path):
    source, _, python = editable_install(tmp_path, with_links)
    command = [python, "-E", "-c", "import dmcmc, sys; print(dmcmc.__file__); import dmcmc.inference.runtime.errors"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(source / "dmcmc" / "__init__.py")


@pytest.mark.slow
def test_mypy_finds_the_types_of_an_editable_install(tmp_path):
    pytest.importorskip("mypy")
    source, site_packages, python = editable_install(tmp_path, with_links=True)
    assert [path.read_text().split() for path in site_packages.glob("__editable__*.pth")] == [[str(source)]]
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--python-executable", str(python), "--config-file=", "script.py"]
    found = subprocess.run(command, cwd=tmp_path / "user", capture_output=True, text=True).stdout
    assert 'Revealed type is "dmcmc.results.result.Result"' in found, found
    assert re.search(r'script.py:7: error: Argument "timeout" .*"str"; expected "float \| None"', found), found
    assert "Found 1 error in 1 file" in found, found
