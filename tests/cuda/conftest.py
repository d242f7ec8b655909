"""Adapt Numba's simulator to kernels with many threads.

* The thread that launches a kernel polls whether the others have ended. It would hold the interpreter lock for half of
  the time and more; here it sleeps now and then.
* While a device function of another module runs, that module's ``cuda`` is the simulated one. The first thread that
  leaves would restore it while others are still inside; here the last one does.
"""

import itertools
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from numba import config

from dmcmc.inference.bounds.dual.cuda import thread_block_kernels, triangle_kernels
from dmcmc.inference.runtime.device import Device

if config.ENABLE_CUDASIM:
    from numba import cuda
    from numba.cuda.simulator import kernel
    from numba.cuda.simulator.kernel import BlockThread

    POLLS_PER_SLEEP = 8
    polls = itertools.count()

    def is_alive(thread: threading.Thread) -> bool:
        """Return whether a thread runs, now and then after a short sleep that other threads can use."""
        if next(polls) % POLLS_PER_SLEEP == 0:
            time.sleep(1e-6)
        return threading.Thread.is_alive(thread)

    BlockThread.is_alive = is_alive

    lock = threading.Lock()
    inside: dict[int, int] = {}  # number of threads in functions of a module, by its globals

    @contextmanager
    def swapped_cuda_module(function, simulated):
        """Make a function's module see the simulated ``cuda`` while any thread is in one of its functions."""
        names, key = function.__globals__, id(function.__globals__)
        with lock:
            inside[key] = inside.get(key, 0) + 1
            simulated_names = [name for name, value in names.items() if value is cuda]
            names.update(dict.fromkeys(simulated_names, simulated))
            swapped.setdefault(key, set()).update(simulated_names)
        try:
            yield
        finally:
            with lock:
                inside[key] -= 1
                if inside[key] == 0:
                    names.update(dict.fromkeys(swapped.pop(key), cuda))

    swapped: dict[int, set[str]] = {}  # names to restore
    kernel.swapped_cuda_module = swapped_cuda_module


def kind_of(argument):
    """Return what a kernel is compiled for: dtype and number of axes of an argument."""
    if hasattr(argument, "ndim") and argument.ndim > 0:
        return f"{argument.dtype}[{argument.ndim}]"
    if isinstance(argument, tuple):
        return f"{len(argument)} integers"
    return "int64" if type(argument) is int else str(np.dtype(type(argument)))


def named(compiled, arguments):
    """Return the name of a kernel, its function, and the types of its arguments."""
    return f"{compiled.fn.__module__}.{compiled.fn.__qualname__}", id(compiled.fn), tuple(map(kind_of, arguments))


@pytest.fixture
def launches(monkeypatch):
    """Return two sets of kernels with argument types, filled as they are loaded and launched; simulator only."""
    if not config.ENABLE_CUDASIM:
        pytest.skip("only the simulator reports launches")
    loaded, launched, launch = set(), set(), kernel.FakeCUDAKernel.__call__

    def record(self, *arguments):
        if not self._device:
            launched.add(named(self, arguments))
        return launch(self, *arguments)

    monkeypatch.setattr(Device, "load", lambda self, compiled, arguments: loaded.add(named(compiled, arguments)))
    monkeypatch.setattr(kernel.FakeCUDAKernel, "__call__", record)
    return loaded, launched


@pytest.fixture
def recorded(launches, monkeypatch):
    """Return the set of kernels that are loaded or launched, none of which runs."""
    loaded, _ = launches
    call = kernel.FakeCUDAKernel.__call__

    def record(self, *arguments):
        if self._device:
            return call(self, *arguments)
        return loaded.add(named(self, arguments))

    monkeypatch.setattr(kernel.FakeCUDAKernel, "__call__", record)
    return loaded


@pytest.fixture
def all_together(monkeypatch):
    """Return a function that makes all threads of a block share a triangle's work; simulator only."""

    def patch():
        if not config.ENABLE_CUDASIM:
            pytest.skip("kernels are compiled for a fixed width")
        for module in (thread_block_kernels, triangle_kernels):
            monkeypatch.setattr(module, "MAX_WARP_COLUMNS", 0)

    return patch


@pytest.fixture
def exact_memory(monkeypatch):
    """Make device memory exactly as large as requested, new at each request, and filled with arbitrary values.

    Under the simulator an access beyond an array's end is an error anyhow; here one before its first entry is as well.
    """

    def filled_buffer(self, name, entries, dtype):
        buffer = self._cuda.device_array(max(1, entries), dtype)
        buffer.copy_to_device(np.full(buffer.size, 0x5A5A5A5A5A5A5A5A, dtype=np.int64).astype(dtype))
        return buffer

    monkeypatch.setattr(Device, "buffer", filled_buffer)
    monkeypatch.setattr(Device, "lease", lambda self, entries, dtype, owner: filled_buffer(self, "", entries, dtype))
    if config.ENABLE_CUDASIM:
        from numba.cuda.simulator.cudadrv.devicearray import FakeWithinKernelCUDAArray as Array

        def checked(access):
            def after_check(self, index, *value):
                first = index.start or 0 if isinstance(index, slice) else index
                if not isinstance(first, tuple) and first < 0:
                    raise IndexError(f"place {first} of an array")
                return access(self, index, *value)

            return after_check

        monkeypatch.setattr(Array, "__getitem__", checked(Array.__getitem__))
        monkeypatch.setattr(Array, "__setitem__", checked(Array.__setitem__))
