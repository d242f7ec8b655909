"""Numba's simulator, made fit for many threads.

* The thread that launches a kernel asks all others all the time whether they have ended. It takes the interpreter lock
  for that, half of the time and more. Here it rests now and then.
* While a device function of another module runs, that module's ``cuda`` is the simulated one; the first thread that
  leaves would take it away from those that are still inside. Here the last one does.
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

    OFTEN = 8
    asked = itertools.count()

    def is_alive(thread: threading.Thread) -> bool:
        """Answer, every now and then after a moment that the others may use."""
        if next(asked) % OFTEN == 0:
            time.sleep(1e-6)
        return threading.Thread.is_alive(thread)

    BlockThread.is_alive = is_alive

    lock = threading.Lock()
    inside: dict[int, int] = {}  # threads in functions of a module, by its globals

    @contextmanager
    def swapped_cuda_module(function, simulated):
        """Let a function's module see the simulated ``cuda`` as long as any thread is in one of its functions."""
        names, key = function.__globals__, id(function.__globals__)
        with lock:
            inside[key] = inside.get(key, 0) + 1
            mine = [name for name, value in names.items() if value is cuda]
            names.update(dict.fromkeys(mine, simulated))
            swapped.setdefault(key, set()).update(mine)
        try:
            yield
        finally:
            with lock:
                inside[key] -= 1
                if inside[key] == 0:
                    names.update(dict.fromkeys(swapped.pop(key), cuda))

    swapped: dict[int, set[str]] = {}  # the names that are to be set back
    kernel.swapped_cuda_module = swapped_cuda_module


def kind_of(argument):
    """Return what a kernel is compiled for: an argument's numbers and axes."""
    if hasattr(argument, "ndim") and argument.ndim > 0:
        return f"{argument.dtype}[{argument.ndim}]"
    return "int64" if type(argument) is int else str(np.dtype(type(argument)))


def named(compiled, arguments):
    return f"{compiled.fn.__module__}.{compiled.fn.__qualname__}", id(compiled.fn), tuple(map(kind_of, arguments))


@pytest.fixture
def launches(monkeypatch):
    """Two sets that are filled as kernels are loaded and launched, with the types of arguments: simulated ones only."""
    if not config.ENABLE_CUDASIM:
        pytest.skip("only the simulator says what is launched")
    loaded, launched, launch = set(), set(), kernel.FakeCUDAKernel.__call__

    def record(self, *arguments):
        if not self._device:
            launched.add(named(self, arguments))
        return launch(self, *arguments)

    monkeypatch.setattr(Device, "load", lambda self, compiled, arguments: loaded.add(named(compiled, arguments)))
    monkeypatch.setattr(kernel.FakeCUDAKernel, "__call__", record)
    return loaded, launched


@pytest.fixture
def all_together(monkeypatch):
    """Return what has all threads of a block work on triangles together, as on large ones: simulated ones only."""

    def patch():
        if not config.ENABLE_CUDASIM:
            pytest.skip("kernels are compiled with what they know of the width")
        for module in (thread_block_kernels, triangle_kernels):
            monkeypatch.setattr(module, "ALONE", 0)

    return patch


@pytest.fixture
def exact_memory(monkeypatch):
    """Memory of the device as large as asked for and no larger, new each time, full of nonsense.

    Under the simulator a place beyond an array's end is an error anyhow; here one before its first entry is as well.
    """

    def nonsense(self, name, entries, dtype):
        held = self._cuda.device_array(max(1, entries), dtype)
        held.copy_to_device(np.full(held.size, 0x5A5A5A5A5A5A5A5A, dtype=np.int64).astype(dtype))
        return held

    monkeypatch.setattr(Device, "buffer", nonsense)
    monkeypatch.setattr(Device, "lease", lambda self, entries, dtype, owner: nonsense(self, "", entries, dtype))
    if config.ENABLE_CUDASIM:
        from numba.cuda.simulator.cudadrv.devicearray import FakeWithinKernelCUDAArray as Array

        def checked(access):
            def after_a_look(self, index, *value):
                first = index.start or 0 if isinstance(index, slice) else index
                if not isinstance(first, tuple) and first < 0:
                    raise IndexError(f"place {first} of an array")
                return access(self, index, *value)

            return after_a_look

        monkeypatch.setattr(Array, "__getitem__", checked(Array.__getitem__))
        monkeypatch.setattr(Array, "__setitem__", checked(Array.__setitem__))
