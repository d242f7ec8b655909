"""Contents of a distribution: the same packages with and without the links of the checkout."""

import importlib.util
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytest.importorskip("setuptools")


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
