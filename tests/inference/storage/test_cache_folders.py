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
    kernel_folder,
    make_folder,
    preferred_root,
    put_marker,
)

needs_owners = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no POSIX permissions")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Return the folder of ``XDG_CACHE_HOME``; the folder for temporary files is in the same folder."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(cache_folders, "_REPORTED", set())
    cache_folders._find_folders.cache_clear()
    yield tmp_path / "home"
    cache_folders._find_folders.cache_clear()


def test_the_environment_determines_the_folder(home, monkeypatch, tmp_path):
    assert preferred_root() == ("XDG_CACHE_HOME", home / "dmcmc")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
    assert preferred_root() == ("NUMBA_CACHE_DIR", tmp_path / "own")
    monkeypatch.delenv("NUMBA_CACHE_DIR")
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
    assert describe_cache().endswith(line.split(": ", 1)[1])


@needs_owners
def test_without_a_safe_folder_nothing_is_kept(home, caplog):
    make_folder(home)
    for folder in (home, home.parent / "temporary"):
        folder.chmod(0o777)
    assert kernel_folder() is None and compiled_marker("task") is None
    (line,) = caplog.messages
    assert line.startswith("dmcmc: no compiled kernels are kept, so every process compiles its own: all users can ")
    assert describe_cache().startswith("none: no compiled kernels are kept")


def test_a_folder_that_cannot_be_made_is_reported(home, caplog):
    home.touch()
    assert "temporary" in str(kernel_folder())
    (line,) = caplog.messages
    assert f"{home / 'dmcmc' / current_name('kernels')} cannot be used (" in line and "set XDG_CACHE_HOME to" in line


def test_a_user_without_a_home_folder_has_a_temporary_folder(home, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache_folders, "user_cache_path", fail)
    found = find_folders()
    assert "temporary" in str(found.root) and "there is no home folder" in found.problem


def test_old_kernel_folders_of_this_node_are_deleted(home, monkeypatch):
    monkeypatch.setattr(cache_folders, "sources_digest", lambda: "f" * 16)
    name = current_name("kernels").removesuffix("f" * 16)
    old = [home / "dmcmc" / f"{name}{number:016x}" for number in range(6)]
    other = home / "dmcmc" / f"{name}x-{'0' * 16}"
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


def test_the_folder_is_described_with_its_contents(home):
    kernel_folder().joinpath("name-1.kernel").write_bytes(bytes(1 << 20))
    assert describe_cache() == f"{kernel_folder()} (1 kernels, 1.0 MiB)"
