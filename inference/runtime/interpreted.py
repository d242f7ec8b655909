"""Run kernels interpreted: the Python functions behind them are called, and nothing is compiled.

The result of a kernel is the same bit for bit, and a step of its loops takes about a hundred times as long. For small
problems that is less than loading or compiling the kernels. :func:`interpreted_kernels` switches all kernels of this
process; kernels that other kernels call, and intrinsics (functions that are written in LLVM code), follow.

The work of interpreted kernels is counted in *steps*, each about a microsecond: one cell of an elimination, or part of
a character that is read. A process that solves many small problems interprets only the first ones, since it is faster
with compiled kernels once they are loaded.

By default a run with a time limit begins with the kernels that are compiled, and small problems are interpreted.
Measurements and tests compare what methods find, which must not depend on that. With ``first`` as the value of the
environment variable ``DMCMC_COMPILE``, each run compiles its kernels before its clock starts.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numba import config

from dmcmc.inference import tuning

COMPILE_FIRST = {"DMCMC_COMPILE": "first"}  # as an environment for other processes


def compiles_first() -> bool:
    """Return whether runs wait for their kernels."""
    return all(os.environ.get(name) == value for name, value in COMPILE_FIRST.items())


@contextmanager
def compiling_first() -> Iterator[None]:
    """Let the runs of this process in the block wait for their kernels."""
    before = {name: os.environ.get(name) for name in COMPILE_FIRST}
    os.environ.update(COMPILE_FIRST)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


_LOCK = threading.Lock()
_KERNELS: "weakref.WeakSet[Any]" = weakref.WeakSet()  # all kernels of this process
_uses = 0  # interpreted_kernels() blocks that are open, in all threads


class _Thread(threading.local):
    """Whether the current thread is inside of an interpreted kernel."""

    inside_kernel = False


_THREAD = _Thread()


class InterpretedSteps:
    """Counts the interpreted steps of a process, up to a limit.

    Attributes
    ----------
    limit : float
        Number of steps that may be interpreted in total.
    """

    def __init__(self, limit: float = tuning.MAX_INTERPRETED_STEPS) -> None:
        self.limit, self._taken = limit, 0.0

    @property
    def left(self) -> float:
        """The number of steps that may still be interpreted."""
        return 0.0 if compiles_first() else self.limit - self._taken

    def take(self, steps: float) -> bool:
        """Return whether a number of steps may still be interpreted; if so, they are counted.

        After work that would fit a new process, but not this one, nothing more is interpreted: from then on, the
        process has compiled kernels.
        """
        with _LOCK:
            fits = steps <= self.left
            self._taken += steps if fits else self.limit if steps <= self.limit else 0.0
        return fits


STEPS = InterpretedSteps()  # the steps of this process


def is_interpreting() -> bool:
    """Return whether kernels are interpreted: in :func:`interpreted_kernels`, or by ``NUMBA_DISABLE_JIT``."""
    return _uses > 0 or bool(config.DISABLE_JIT)


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Call the Python functions behind all kernels of this process in this block.

    Kernels that other threads call during the block are interpreted as well.
    """
    global _uses
    with _LOCK:
        _uses += 1
        if _uses == 1:
            _switch(True)
    try:
        yield
    finally:
        with _LOCK:
            _uses -= 1
            if _uses == 0:
                _switch(False)


@contextmanager
def interpreted_if_short(steps: float) -> Iterator[None]:
    """Interpret all kernels in this block if this process may still interpret a number of steps."""
    if STEPS.take(tuning.SWITCH_STEPS + steps):
        with interpreted_kernels():
            yield
    else:
        yield


def interpretable(kernel: Any) -> Any:
    """Let a kernel of ``numba.njit`` be interpreted in :func:`interpreted_kernels`; return it."""
    if hasattr(kernel, "py_func"):  # with NUMBA_DISABLE_JIT it is the Python function itself
        kernel_class: Any = type(kernel)
        with _LOCK:
            _KERNELS.add(kernel)
            if _uses:
                kernel.__class__ = interpreted_class(kernel_class)
    return kernel


def intrinsic(twin: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Return ``numba.extending.intrinsic`` for a function with a Python twin, which interpreted kernels call.

    Parameters
    ----------
    twin : callable
        Computes in Python or NumPy what the intrinsic computes, bit for bit. It has the arguments of the intrinsic
        without the typing context.
    """

    def decorate(definition: Callable[..., Any]) -> Any:
        if config.DISABLE_JIT:
            return twin
        intrinsic_class = _intrinsic_class()
        created = intrinsic_class(definition.__name__, definition)
        created.twin = twin
        created._register()
        return created

    return decorate


@cache
def _intrinsic_class() -> Any:
    """Return the class of intrinsics that can be called from Python."""
    from numba.core.extending import _Intrinsic

    class IntrinsicWithTwin(_Intrinsic):  # type: ignore[misc]
        """An intrinsic whose twin is called from Python."""

        twin: Callable[..., Any]

        def __call__(self, *args: Any) -> Any:
            """Call the twin."""
            return self.twin(*args)

    return IntrinsicWithTwin


def _switch(interpreted: bool) -> None:
    """Change the class of all kernels; so that compiled kernels are called without a detour."""
    for kernel in list(_KERNELS):
        compiled_class: Any = getattr(type(kernel), "compiled_class", type(kernel))
        kernel.__class__ = interpreted_class(compiled_class) if interpreted else compiled_class


@cache
def interpreted_class(kernel_class: Any) -> Any:
    """Return a subclass of Numba's class of kernels whose calls are interpreted."""

    class InterpretedKernel(kernel_class):  # type: ignore[misc]
        """A kernel whose calls run the Python function behind it."""

        compiled_class = kernel_class

        def __call__(self, *args: Any, **named: Any) -> Any:
            """Call the Python function; unsigned numbers wrap around, and divisions by zero do not warn."""
            if _THREAD.inside_kernel:
                return self.py_func(*args, **named)
            with np.errstate(all="ignore"):
                _THREAD.inside_kernel = True
                try:
                    return _as_compiled(self.py_func(*args, **named))
                finally:
                    _THREAD.inside_kernel = False

    return InterpretedKernel


def _as_compiled(result: Any) -> Any:
    """Return a kernel's result with Python's numbers in place of NumPy's, as compiled kernels return them."""
    if isinstance(result, np.generic):
        return result.item()
    if isinstance(result, tuple):
        values = map(_as_compiled, result)
        return type(result)(*values) if hasattr(result, "_fields") else tuple(values)
    return result
