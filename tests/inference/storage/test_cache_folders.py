"""Cached files are kept in a folder that nobody else can write to, or else in a temporary folder, or not at all."""

import os
import tempfile
from pathlib import Path

import pytest

from dmcmc.inference.storage import cache_folders
from dmcmc.inference.storage.cache_folders import (
    all_versions,
    compiled_marker,
    current_name,
    describe_cache,
    find_folders,
    forget_folders,
    kernel_folder,
    make_folder,
    preferred_root,
    put_marker,
    sources_digest,
    store_total,
)

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no POSIX permissions")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return the folder of ``XDG_CACHE_HOME``; the folder for temporary files is in the same folder."""
    for variable in ("DMCMC_CACHE_DIR", "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    forget_folders()
    yield tmp_path / "home"
    forget_folders()


def test_the_environment_determines_the_folder(home, monkeypatch, tmp_path):
    assert preferred_root() == ("XDG_CACHE_HOME", home / "dmcmc")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
    assert preferred_root() == ("NUMBA_CACHE_DIR", tmp_path / "own")
    monkeypatch.setenv("DMCMC_CACHE_DIR", str(tmp_path / "first"))
    assert preferred_root() == ("DMCMC_CACHE_DIR", tmp_path / "first")
    for variable in ("NUMBA_CACHE_DIR", "DMCMC_CACHE_DIR"):
        monkeypatch.delenv(variable)
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert preferred_root()[1].name == "dmcmc"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "home")
    assert preferred_root()[1] == home / "dmcmc"


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022])
def test_only_the_owner_can_write_to_new_folders(home, umask):
    before = os.umask(umask)
    try:
        folder = kernel_folder()
    finally:
        os.umask(before)
    assert folder == home / "dmcmc" / current_name("kernels")
    assert {path.stat().st_mode & 0o777 for path in (home, home / "dmcmc", folder)} == {0o755}


@needs_owners
@pytest.mark.parametrize("above", [False, True])
def test_a_folder_that_others_can_write_to_is_replaced_by_a_temporary_one(home, above, caplog):
    make_folder(home / "dmcmc")
    unsafe = home if above else home / "dmcmc"
    unsafe.chmod(0o777)
    expected = Path(tempfile.gettempdir(), f"dmcmc-{os.getuid()}")
    assert [kernel_folder(), kernel_folder()] == [expected / current_name("kernels")] * 2
    (line,) = caplog.messages
    assert line == (
        f"dmcmc: compiled kernels are kept in {expected}: all users can write to {unsafe}; "
        "set XDG_CACHE_HOME to a folder that only you can write to"
    )
    assert list((home / "dmcmc").iterdir()) == []  # nothing is created there
    assert describe_cache()["cache"].endswith(line.split(": ", 1)[1])


@needs_owners
def test_without_a_safe_folder_nothing_is_kept(home, caplog):
    make_folder(home)
    for folder in (home, home.parent / "temporary"):
        folder.chmod(0o777)
    assert kernel_folder() is None and compiled_marker("task") is None
    (line,) = caplog.messages
    assert line.startswith("dmcmc: no compiled kernels are kept, so every process compiles its own: all users can ")
    assert describe_cache()["cache"].startswith("none: no compiled kernels are kept")


def test_a_folder_that_cannot_be_made_is_reported(home, caplog):
    home.touch()
    assert "temporary" in str(kernel_folder())
    (line,) = caplog.messages
    assert f"{home / 'dmcmc'} cannot be used (" in line and "set XDG_CACHE_HOME to" in line


def test_a_user_without_a_home_folder_has_a_temporary_folder(home, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache_folders, "user_cache_path", fail)
    found = find_folders()
    assert "temporary" in str(found.root) and "there is no home folder" in found.problem


def test_old_kernel_folders_of_this_node_are_deleted(home, monkeypatch):
    monkeypatch.setattr(cache_folders, "sources_digest", lambda: "f" * 16)
    name, _, versions = current_name("kernels").partition("f" * 16)
    old = [home / "dmcmc" / f"{name}{number:016x}{versions}" for number in range(6)]
    other = home / "dmcmc" / f"{name}x-{'0' * 16}{versions}"
    for number, folder in enumerate([*old, other]):
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    folder = kernel_folder()
    assert set(all_versions(home / "dmcmc", "kernels")) == {folder, *old[3:]} and other.is_dir()


def test_a_marker_that_cannot_be_written_is_reported(home, caplog):
    marker = compiled_marker("task")
    put_marker(marker)
    assert marker.is_file() and caplog.messages == []
    for _ in range(2):
        put_marker(marker / "below")
    (line,) = caplog.messages
    assert line.startswith("dmcmc: compiled kernels cannot be stored in") and "set XDG_CACHE_HOME to" in line


@pytest.mark.parametrize("shared", [False, True])
def test_machines_share_a_folder_that_is_named_explicitly(home, monkeypatch, shared, tmp_path):
    """A container has another node name than the one that filled the cache, but the same type of processor."""
    if shared:
        monkeypatch.setenv("DMCMC_CACHE_DIR", str(tmp_path / "shared"))
    files = []
    for node in ("build", "run"):
        monkeypatch.setattr("platform.node", lambda node=node: node)
        files.append((kernel_folder(), compiled_marker("task")))
    assert (files[0] == files[1]) is shared
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert (kernel_folder() != files[1][0]) is shared


def test_a_folder_inside_installed_packages_is_used_and_reported_once(home, monkeypatch, caplog):
    inside = home / "lib" / "site-packages" / "cache"
    monkeypatch.setenv("DMCMC_CACHE_DIR", str(inside))
    assert [kernel_folder().parent, kernel_folder().parent] == [inside, inside]
    (line,) = caplog.messages
    assert line.endswith(
        "inside installed packages, where an update can delete them; set DMCMC_CACHE_DIR to another folder"
    )
    assert describe_cache()["cache"].endswith(line.removeprefix("dmcmc: "))


def test_the_folder_is_described_with_its_contents(home):
    folder = kernel_folder()
    for number in range(2):
        folder.joinpath(f"name-{number}.kernel").write_bytes(bytes(1 << 20))
    rows = describe_cache()
    assert rows["cache"] == f"{home / 'dmcmc'} (writable)"
    assert rows["kernels"].startswith("2 (2.0 MiB) for dmcmc ") and sources_digest() in rows["kernels"]
    assert "outdated kernels" not in rows


def test_the_description_says_how_full_the_cache_is(home, monkeypatch):
    """The number of kernels after a warm-up is known to later versions too, whose kernels are in another folder."""
    for number in range(3):
        kernel_folder().joinpath(f"name-{number}.kernel").touch()
    store_total(find_folders())
    assert describe_cache()["kernels"].startswith("3 (0.0 MiB) for")
    monkeypatch.setattr(cache_folders, "sources_digest", lambda: "f" * 16)
    kernel_folder().joinpath("name-0.kernel").touch()
    rows = describe_cache()
    assert rows["kernels"].startswith("1 of about 3 (0.0 MiB) for") and rows["outdated kernels"] == "3 (0.0 MiB)"


@pytest.mark.parametrize("text", ["", "many", "\xff"])
def test_a_damaged_number_of_kernels_is_ignored(home, text):
    store_total(find_folders())
    (number,) = [path for path in (home / "dmcmc").iterdir() if path.is_file()]
    number.write_bytes(text.encode("latin-1"))
    assert describe_cache()["kernels"].startswith("0 (0.0 MiB) for")
