"""Kernels are kept in a folder of their own, and nothing else of the process moves there."""

import gc
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import event
from numba.core.caching import NullCache

from dmcmc.inference.runtime import compile as compiling
from dmcmc.inference.runtime.compile import counted_compiling, njit, with_stack, writable, writable_once
from dmcmc.inference.runtime.kernel_cache import kernel_cache

KERNEL = """
from dmcmc.inference.runtime.compile import njit

@njit(nogil=True)
def doubled(x):
    return 2 * x
"""
FOREIGN = """
from numba import njit

@njit(cache=True)
def tripled(x):
    return 3 * x
"""
UNCHANGED = """
import os, sys
import numba, numba.cuda
settings = lambda: {name: value for name, value in vars(numba.config).items() if name.isupper()}
before = dict(os.environ), settings()
import importlib, pkgutil, dmcmc
for module in pkgutil.walk_packages(dmcmc.__path__, "dmcmc."):
    if "__main__" not in module.name:
        importlib.import_module(module.name)
assert (dict(os.environ), settings()) == before
"""


@pytest.fixture
def run(tmp_path):
    """Run a program in a new process whose home for caches is a folder of the test's; return what it prints."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "foreign.py").write_text(FOREIGN)

    def run(program, **environment):
        whole = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        whole |= {"XDG_CACHE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)} | environment
        command = [sys.executable, "-W", "ignore", "-c", program]
        finished = subprocess.run(command, env=whole, capture_output=True, text=True, timeout=1500, check=False)
        assert finished.returncode == 0, finished.stderr[-2000:]
        return finished.stdout.split()

    return run


def folders(root, kernel):
    return {path.parent.parent for path in Path(root).rglob(f"{kernel}*.nbi")}


HITS = "import kernel; assert kernel.doubled(4) == 8; print(sum(kernel.doubled.stats.cache_hits.values()))"


def test_importing_any_module_changes_nothing_in_the_process(run):
    run(UNCHANGED)


def test_what_one_process_compiled_the_next_one_finds(run, tmp_path):
    assert run(HITS) == ["0"]
    assert run(HITS) == ["1"]
    assert folders(tmp_path, "kernel") == {tmp_path / "home" / "dmcmc" / kernel_cache().name}


def test_the_simulator_of_the_gpu_finds_the_cpus_kernels_too(run):
    assert run(HITS, NUMBA_ENABLE_CUDASIM="1") == ["0"]
    assert run(HITS, NUMBA_ENABLE_CUDASIM="1") == ["1"]


def test_a_foreign_function_stays_where_it_was(run, tmp_path):
    run("import kernel, foreign; foreign.tripled(kernel.doubled(4))")
    assert folders(tmp_path, "foreign") == {tmp_path}
    assert folders(tmp_path, "kernel") != {tmp_path}


def test_a_users_own_folder_goes_first(run, tmp_path):
    run(HITS, NUMBA_CACHE_DIR=str(tmp_path / "own"))
    assert folders(tmp_path, "kernel") == {tmp_path / "own"}


def test_without_a_home_to_write_to_kernels_work(run, tmp_path):
    (tmp_path / "file").touch()
    assert run(HITS, XDG_CACHE_HOME=str(tmp_path / "file"), HOME=str(tmp_path / "file")) == ["0"]


def test_a_folder_that_was_deleted_meanwhile_comes_back(run):
    used = "import kernel, shutil, os; kernel.doubled._cache.cache_path; "
    gone = used + "shutil.rmtree(os.environ['XDG_CACHE_HOME']); assert kernel.doubled(4) == 8; "
    run(gone)
    assert run(HITS) == ["1"]


def test_where_nothing_can_be_kept_kernels_are_compiled_anew(run):
    none = "import numba.core.caching as c; c.CompileResultCacheImpl._locator_classes = []; "
    assert run(none + HITS) == ["0"]


@njit()
def added(x, y):
    return x + y


@njit()
def added_thrice(x):
    return added(x, 1) + added(x, 2) + added(x, x)


def test_constants_share_what_is_compiled_for_their_type():
    assert added_thrice(5) == 6 + 7 + 10
    assert len(added.signatures) <= 1  # none where the caller came from the cache


def test_the_garbage_collector_waits_while_a_kernel_is_compiled():
    heard = []

    class Hears(event.Listener):
        def on_start(self, event):
            heard.append(gc.isenabled())

        def on_end(self, event):
            heard.append(gc.isenabled())

    fresh = numba.njit(lambda x: x + 1)
    with event.install_listener("numba:compile", Hears()):
        assert fresh(1) == 2
    assert not heard[0]
    assert gc.isenabled()


class Left:
    """What can be in a circle, and be watched."""


def test_what_a_kernel_leaves_is_collected_before_the_next_one_is_compiled_for_the_same():
    kernel = {"data": {"dispatcher": SimpleNamespace(py_func=test_constants_share_what_is_compiled_for_their_type)}}
    with event.trigger_event("numba:compile", **kernel):
        with event.trigger_event("numba:compile", **kernel):
            left = Left()
            left.itself, gone = left, weakref.ref(left)
            del left
            assert gone() is not None
        assert gone() is None
        assert not gc.isenabled()


def test_the_passes_over_a_kernel_are_given_back():
    passes = pytest.importorskip("llvmlite.binding.newpassmanagers")
    assert numba.njit(lambda x: x + 2)(1) == 3
    nothing = passes.ffi.ObjectRef._dispose
    if not numba.config.DISABLE_JIT:
        assert passes.FunctionPassManager._dispose is not nothing
        assert passes.ModulePassManager._dispose is not nothing


@pytest.mark.parametrize(("module", "counts"), [("dmcmc.inference", [1, 2]), ("elsewhere", [])])
def test_our_kernels_are_counted_while_they_are_compiled(module, counts):
    told = []
    kernel = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
    with counted_compiling(told.append):
        for _ in range(2):
            with event.trigger_event("numba:compile", data={"dispatcher": kernel}):
                pass
    assert told == counts


def test_what_cannot_be_written_is_copied_and_the_rest_is_not():
    free = np.arange(3)
    frozen = free.copy()
    frozen.flags.writeable = False
    assert writable(free) is free
    assert writable(frozen).flags.writeable
    assert writable(frozen).tolist() == [0, 1, 2]


def test_the_compiler_has_a_large_block_of_stack_and_loses_nothing_by_it():
    def sum_of(first, *rest, times=1):
        if not rest:
            return first * times
        return first * times + sum_of(*rest, times=times)

    assert with_stack(sum_of)(*range(200), times=2) == 199 * 200
    with pytest.raises(TypeError, match="surplus"):
        with_stack(sum_of)(1, surplus=2)


def test_a_kernel_is_never_seen_without_a_cache_while_its_own_is_looked_for(monkeypatch):
    @njit(nogil=True)
    def doubled(x):
        return 2 * x

    if not hasattr(doubled, "enable_caching"):
        pytest.skip("nothing is compiled")
    looking, seen, enable = threading.Event(), [], type(doubled).enable_caching

    def slow(kernel):
        looking.set()
        time.sleep(0.1)
        enable(kernel)

    monkeypatch.setattr(type(doubled), "enable_caching", slow)
    first = threading.Thread(target=lambda: doubled._cache.cache_path)
    first.start()
    looking.wait(300)
    seen.append(type(doubled._cache))
    first.join()
    assert NullCache not in [*seen, type(doubled._cache)]


def test_what_cannot_be_written_is_copied_once_as_long_as_it_lives():
    """Or the plan of each agent has its own copy of the whole problem's domain sizes."""
    sizes, free = np.arange(3), np.arange(3)
    sizes.flags.writeable = False
    copy = writable_once(sizes)
    assert copy.flags.writeable and copy.tolist() == [0, 1, 2] and writable_once(sizes) is copy
    assert writable_once(free) is free
    key = id(sizes)
    del sizes
    assert key not in compiling._COPIES
