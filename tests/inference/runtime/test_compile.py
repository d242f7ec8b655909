"""Kernels are cached in the project's folder; functions of other packages are not affected."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace

import numba
import numpy as np
import pytest
from numba.core import event

from dmcmc.inference.runtime import compile as compiling
from dmcmc.inference.runtime.compile import (
    count_compilations,
    njit,
    uncached_njit,
    with_large_stack,
    writable,
    writable_once,
)
from dmcmc.inference.storage.cache_folders import current_name

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
    """Return a function that runs a program in a new process with a temporary cache folder, and returns its output."""
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "foreign.py").write_text(FOREIGN)

    def run(program, **environment):
        given = os.environ.items()
        variables = {name: value for name, value in given if not name.startswith(("NUMBA_", "DMCMC_CACHE"))}
        variables |= {"XDG_CACHE_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)} | environment
        command = [sys.executable, "-W", "ignore", "-c", program]
        finished = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1500, check=False)
        assert finished.returncode == 0, finished.stderr[-2000:]
        return finished.stdout.split()

    return run


def folders(root, pattern):
    """Return the folders below ``root`` that contain certain files."""
    return {path.parent for path in Path(root).rglob(pattern)}


HITS = "import kernel; assert kernel.doubled(4) == 8; print(sum(kernel.doubled.stats.cache_hits.values()))"


def test_importing_any_module_changes_nothing_in_the_process(run):
    run(UNCHANGED)


def test_a_process_loads_what_an_earlier_one_compiled(run, tmp_path):
    assert run(HITS) == ["0"]
    assert run(HITS) == ["1"]
    assert folders(tmp_path, "*.kernel") == {tmp_path / "home" / "dmcmc" / current_name("kernels")}


def test_cpu_kernels_are_cached_under_the_gpu_simulator_too(run):
    assert run(HITS, NUMBA_ENABLE_CUDASIM="1") == ["0"]
    assert run(HITS, NUMBA_ENABLE_CUDASIM="1") == ["1"]


def test_functions_of_other_packages_keep_their_cache_folder(run, tmp_path):
    run("import kernel, foreign; foreign.tripled(kernel.doubled(4))")
    assert folders(tmp_path, "foreign*.nbi") == {tmp_path / "__pycache__"}
    assert folders(tmp_path, "*.kernel") == {tmp_path / "home" / "dmcmc" / current_name("kernels")}


def test_the_folder_set_by_the_user_takes_precedence(run, tmp_path):
    run(HITS, NUMBA_CACHE_DIR=str(tmp_path / "own"))
    assert folders(tmp_path, "*.kernel") == {tmp_path / "own" / current_name("kernels")}


def test_kernels_work_without_a_writable_cache_folder(run, tmp_path):
    (tmp_path / "file").touch()
    without = {name: str(tmp_path / "file") for name in ("XDG_CACHE_HOME", "HOME")} | {"TMPDIR": str(tmp_path)}
    assert run(HITS, **without) == ["0"]
    assert folders(tmp_path, "*.kernel") == {tmp_path / f"dmcmc-{os.getuid()}" / current_name("kernels")}


def test_a_deleted_cache_folder_is_created_again(run):
    used = "import kernel, shutil, os; kernel.doubled._cache.cache_path; "
    deleted = used + "shutil.rmtree(os.environ['XDG_CACHE_HOME']); assert kernel.doubled(4) == 8; "
    run(deleted)
    assert run(HITS) == ["1"]


def test_without_any_cache_kernels_are_compiled_in_every_process(run):
    none = "import dmcmc.inference.storage.numba_cache as c; c.kernel_folder = lambda: None; "
    assert run(none + HITS) == ["0"]
    assert run(none + HITS) == ["0"]


@njit()
def added(x, y):
    return x + y


@njit()
def added_thrice(x):
    return added(x, 1) + added(x, 2) + added(x, x)


def test_calls_with_constants_share_the_code_for_their_type():
    assert added_thrice(5) == 6 + 7 + 10
    assert len(added.signatures) <= 1  # none where the caller came from the cache


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
def test_a_kernel_that_counts_no_references_is_refused_if_it_would_keep_an_array():
    """Such a kernel neither releases an array that it gets nor counts a reference to one that it returns."""
    first = uncached_njit()(lambda array: array[:1])
    array = np.arange(3.0)
    for kernel in (lambda array: first(array)[0], lambda array: array):
        with pytest.raises(numba.TypingError, match=r"counts no references, but (gets an array|returns)"):
            uncached_njit(allocates=False)(kernel)(array)
        uncached_njit()(kernel)(array)
    assert uncached_njit(allocates=False)(lambda array: array[1:].sum() + array.reshape(3, 1)[2, 0])(array) == 5


def test_the_garbage_collector_is_disabled_while_a_kernel_is_compiled():
    enabled = []

    class RecordCollectorState(event.Listener):
        def on_start(self, event):
            enabled.append(gc.isenabled())

        def on_end(self, event):
            enabled.append(gc.isenabled())

    fresh = numba.njit(lambda x: x + 1)
    with event.install_listener("numba:compile", RecordCollectorState()):
        assert fresh(1) == 2
    assert not enabled[0]
    assert gc.isenabled()


class CyclicObject:
    """An object that can refer to itself and be observed by a weak reference."""


def test_garbage_of_a_kernel_is_collected_before_the_next_compilation_for_the_same_caller():
    kernel = {"data": {"dispatcher": SimpleNamespace(py_func=test_calls_with_constants_share_the_code_for_their_type)}}
    with event.trigger_event("numba:compile", **kernel):
        with event.trigger_event("numba:compile", **kernel):
            garbage = CyclicObject()
            garbage.itself, reference = garbage, weakref.ref(garbage)
            del garbage
            assert reference() is not None
        assert reference() is None
        assert not gc.isenabled()


def test_pass_managers_of_a_kernel_are_freed():
    passes = pytest.importorskip("llvmlite.binding.newpassmanagers")
    assert numba.njit(lambda x: x + 2)(1) == 3
    does_nothing = passes.ffi.ObjectRef._dispose
    if not numba.config.DISABLE_JIT:
        assert passes.FunctionPassManager._dispose is not does_nothing
        assert passes.ModulePassManager._dispose is not does_nothing


@pytest.mark.parametrize(("module", "counts"), [("dmcmc.inference", [1, 2]), ("other_package", [])])
def test_only_kernels_of_the_project_are_counted(module, counts):
    reported = []
    kernel = SimpleNamespace(py_func=SimpleNamespace(__module__=module))
    with count_compilations(reported.append):
        for _ in range(2):
            with event.trigger_event("numba:compile", data={"dispatcher": kernel}):
                pass
    assert reported == counts


def test_only_read_only_arrays_are_copied():
    free = np.arange(3)
    frozen = free.copy()
    frozen.flags.writeable = False
    assert writable(free) is free
    assert writable(frozen).flags.writeable
    assert writable(frozen).tolist() == [0, 1, 2]


def test_the_compiler_runs_with_a_large_stack_block_and_unchanged_arguments():
    def sum_of(first, *rest, times=1):
        if not rest:
            return first * times
        return first * times + sum_of(*rest, times=times)

    assert with_large_stack(sum_of)(*range(200), times=2) == 199 * 200
    with pytest.raises(TypeError, match="surplus"):
        with_large_stack(sum_of)(1, surplus=2)


def test_a_read_only_array_is_copied_once_during_its_lifetime():
    """Otherwise, the plan of each agent would copy the domain sizes of the whole problem."""
    sizes, free = np.arange(3), np.arange(3)
    sizes.flags.writeable = False
    copy = writable_once(sizes)
    assert copy.flags.writeable and copy.tolist() == [0, 1, 2] and writable_once(sizes) is copy
    assert writable_once(free) is free
    key = id(sizes)
    del sizes
    assert key not in compiling._COPIES
