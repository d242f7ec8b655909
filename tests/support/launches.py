"""Which kernels are launched under Numba's simulator, and with which types: each has to be loaded beforehand."""

from contextlib import contextmanager

import numpy as np
from numba.cuda.simulator.kernel import FakeCUDAKernel

from dmcmc.inference.runtime.device import Device


def kind_of(argument):
    """Return what a kernel is compiled for: an argument's numbers and axes."""
    if hasattr(argument, "ndim") and argument.ndim > 0:
        return f"{argument.dtype}[{argument.ndim}]"
    return "int64" if type(argument) is int else str(np.dtype(type(argument)))


def named(kernel, arguments):
    return f"{kernel.fn.__module__}.{kernel.fn.__qualname__}", id(kernel.fn), tuple(map(kind_of, arguments))


@contextmanager
def recorded(monkeypatch):
    """Yield two sets that are filled: what is loaded, and what is launched."""
    loaded, launched, launch = set(), set(), FakeCUDAKernel.__call__

    def load(self, kernel, arguments):
        loaded.add(named(kernel, arguments))

    def record(self, *arguments):
        if not self._device:
            launched.add(named(self, arguments))
        return launch(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Device, "load", load)
        patched.setattr(FakeCUDAKernel, "__call__", record)
        yield loaded, launched
