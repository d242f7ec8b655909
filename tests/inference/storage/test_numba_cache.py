"""A kernel cache that is damaged, foreign or full never ends a run, and its files are verified before they are used."""

import errno
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest
from numba import config
from numba.core.caching import NullCache

from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.storage import cache_folders, numba_cache
from dmcmc.inference.storage.cache_folders import compiled_marker, forget_folders, put_marker, stored_kernels
from dmcmc.inference.storage.checked_file import write_checked
from dmcmc.inference.storage.numba_cache import unsaved_kernels

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

KERNEL = """
from dmcmc.inference.runtime.compile import njit

@njit(nogil=True)
def doubled(x):
    return 2 * x
"""
HITS = "import kernel; assert kernel.doubled(4) == 8; print(sum(kernel.doubled.stats.cache_hits.values()))"
CRAFTED = """
import pickle, kernel
from pathlib import Path

class Crafted:
    def __reduce__(self):
        return Path.touch, (Path({target!r}),)

kernel.doubled._cache.cache_path  # makes the cache
kernel.doubled._cache._cache_file._dump = lambda data: pickle.dumps(Crafted())
assert kernel.doubled(4) == 8
"""
LIMITED = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); "


@pytest.fixture
def run(tmp_path):
    """Return a function that runs a program with a temporary cache folder; it returns its output and its errors."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "temporary").mkdir()

    def run(program, **environment):
        variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "DMCMC_CACHE"))
        }
        variables |= {"XDG_CACHE_HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")} | environment
        variables["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-W", "ignore", "-c", program]
        finished = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1500, check=False)
        assert finished.returncode == 0, finished.stderr[-2000:]
        return finished.stdout.split(), finished.stderr.splitlines()

    return run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a new kernel folder."""
    made = tmp_path / "kernels"
    made.mkdir()
    monkeypatch.setattr(numba_cache, "kernel_folder", lambda: made)
    forget_folders()
    return made


def doubled(x):
    return 2 * x


def hits(value=4):
    """Return how often a new kernel was loaded from the disk to double a value."""
    kernel = njit(nogil=True)(doubled)
    assert kernel(value) == 2 * value
    return sum(kernel.stats.cache_hits.values())


def test_a_kernel_is_loaded_from_one_file(folder):
    assert [hits(), hits()] == [0, 1]
    assert [hits(1.5), hits(1.5), hits()] == [0, 1, 1]
    assert len(stored_kernels(folder)) == 2


def test_the_llvm_code_of_a_loaded_kernel_is_parsed_when_it_is_needed(folder):
    hits()
    kernel = njit(nogil=True)(doubled)
    assert kernel(4) == 8
    (loaded,) = kernel.overloads.values()
    assert type(loaded.library).__name__ == "LoadedLibrary"
    engine, inner = loaded.library.codegen._engine, loaded.fndesc.llvm_func_name
    engine._defined_symbols.discard(inner)  # of the kernel that was compiled above
    assert loaded.library.get_pointer_to_function(inner) != 0
    assert engine.is_symbol_defined(inner)
    assert inner in {function.name for function in loaded.library._get_module_for_linking().functions}
    assert loaded.library.get_pointer_to_function("no such function") == 0


DAMAGES = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[: len(data) // 2],
    "without its end": lambda data: data[:-1],
    "longer": lambda data: data + b"\0",
    "a flipped bit in the checksum": lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
    "a flipped bit in the machine code": lambda data: data[:-900] + bytes([data[-900] ^ 64]) + data[-899:],
    "another program's": lambda data: pickle.dumps(("a version", {})),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_kernel_is_compiled_again_and_replaced(folder, caplog, damage):
    hits()
    hits(1.5)
    for path in stored_kernels(folder):
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert [hits(), hits(1.5)] == [0, 0]
    assert [hits(), hits(1.5)] == [1, 1]
    (line,) = caplog.messages  # once, for both
    assert line.startswith("dmcmc: a cached kernel is compiled again: ")
    assert line.endswith("is damaged (its checksum does not match)")


def test_a_damaged_kernel_lets_later_tasks_compile_ahead(folder, monkeypatch):
    monkeypatch.setattr(cache_folders, "kernel_folder", lambda: folder)
    marker = compiled_marker("task")
    put_marker(marker)
    hits()
    assert marker.is_file()
    (path,) = stored_kernels(folder)
    path.write_bytes(b"")
    hits()
    assert not marker.exists()


def test_the_file_of_another_kernel_is_not_used(folder):
    hits()
    hits(1.5)
    one, other = stored_kernels(folder)
    one.write_bytes(other.read_bytes())
    assert sorted([hits(), hits(1.5)]) == [0, 1]
    assert [hits(), hits(1.5)] == [1, 1]


def test_a_folder_in_the_place_of_a_kernel_is_no_error(folder, caplog):
    hits()
    (path,) = stored_kernels(folder)
    path.unlink()
    path.mkdir()
    assert [hits(), hits()] == [0, 0]
    assert len(caplog.messages) == 2 and caplog.messages[1].startswith("dmcmc: compiled kernels cannot be stored in")


def test_contents_that_cannot_be_unpickled_are_no_error(folder, caplog, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(numba_cache, "write_checked", lambda path, key, _: write_checked(path, key, b"not a pickle"))
        hits()
    assert [hits(), hits()] == [0, 1]
    assert "UnpicklingError" in caplog.messages[0]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), MemoryError()])
def test_a_kernel_that_cannot_be_stored_is_used(folder, caplog, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(numba_cache, "write_checked", fail)
    before = unsaved_kernels()
    assert [hits(), hits()] == [0, 0] and unsaved_kernels() == before + 2
    (line,) = caplog.messages
    assert line.startswith(f"dmcmc: compiled kernels cannot be stored in {folder} (")
    assert ("No space left on device" if isinstance(error, OSError) else "MemoryError") in line
    assert "to another folder that only you can write to" in line


def test_a_full_disk_leaves_no_partial_files(run, tmp_path):
    for _ in range(2):
        output, errors = run(LIMITED + HITS)
        assert output == ["0"]
        (line,) = errors
        assert line.startswith("dmcmc: compiled kernels cannot be stored in") and "File too large" in line
    assert [path for path in (tmp_path / "home").rglob("*") if path.is_file() and path.name != "locks"] == []


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no POSIX permissions")
def test_a_crafted_kernel_in_a_folder_that_others_can_write_is_not_executed(run, tmp_path):
    target = tmp_path / "executed"
    run(CRAFTED.format(target=str(target)))
    (tmp_path / "home" / "dmcmc").chmod(0o777)
    (found, (line,)) = run(HITS)
    assert found == ["0"] and not target.exists()
    assert f"all users can write to {tmp_path / 'home' / 'dmcmc'}; set XDG_CACHE_HOME to" in line
    assert run(HITS)[0] == ["1"]  # from the temporary folder
    (tmp_path / "temporary").chmod(0o777)
    assert run(HITS)[0] == ["0"] and not target.exists()  # from memory
    (tmp_path / "home" / "dmcmc").chmod(0o755)
    assert run(HITS)[0] == ["0"] and target.exists()  # the file is executed if only its user can have written it


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no POSIX permissions")
def test_a_kernel_that_others_can_write_is_not_loaded(folder, caplog):
    hits()
    (path,) = stored_kernels(folder)
    path.chmod(0o666)
    assert [hits(), hits()] == [0, 1]
    assert caplog.messages == [f"dmcmc: a cached kernel is compiled again: all users can write to {path}"]


def test_flushing_deletes_the_files_of_one_kernel(folder):
    hits()
    kernel = njit(nogil=True)(lambda x: x + 1)
    assert kernel(1) == 2 and len(stored_kernels(folder)) == 2
    kernel.recompile()
    assert kernel(1) == 2 and len(stored_kernels(folder)) == 2
    kernel._cache.flush()
    assert len(stored_kernels(folder)) == 1 and hits() == 1


def test_processes_that_write_at_once_store_all_kernels(run, tmp_path):
    types = ["4", "4.0", "True", "1j"]
    program = "import kernel; [kernel.doubled(x) for x in ({})]"
    writers = [
        threading.Thread(target=run, args=(program.format(", ".join(types[shift:] + types[:shift])),))
        for shift in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    check = "; print(len(kernel.doubled.stats.cache_hits))"
    assert run(program.format(", ".join(types)) + check) == (["4"], [])


def test_other_threads_never_see_a_kernel_without_a_cache(monkeypatch):
    kernel, find_folder = njit(nogil=True)(doubled), numba_cache.kernel_folder
    looking, seen = threading.Event(), []

    def find_slowly():
        looking.set()
        time.sleep(0.1)
        return find_folder()

    monkeypatch.setattr(numba_cache, "kernel_folder", find_slowly)
    first = threading.Thread(target=lambda: kernel._cache.cache_path)
    first.start()
    looking.wait(300)
    seen.append(type(kernel._cache))
    first.join()
    assert NullCache not in [*seen, type(kernel._cache)]
