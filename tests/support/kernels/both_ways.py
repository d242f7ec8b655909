"""Call each kernel twice, compiled and interpreted, and compare results and changed arrays bit for bit."""

import struct
from contextlib import contextmanager
from functools import cache

import numpy as np

from dmcmc.inference.runtime import interpreted


def _base_of(array):
    """Return the array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def copied(value, bases):
    """Return a copy of an argument; arrays that share memory share it in the copies too (``bases``: by id)."""
    if isinstance(value, np.ndarray):
        base = _base_of(value)
        if not base.flags.forc or base.size == 0:
            return value.copy(order="K")
        if id(base) not in bases:
            bases[id(base)] = base, base.ravel(order="K").copy()
        offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        copy = np.ndarray(value.shape, value.dtype, bases[id(base)][1].view(np.uint8), offset, value.strides)
        copy.flags.writeable = value.flags.writeable
        return copy
    if isinstance(value, tuple):
        values = [copied(item, bases) for item in value]
        return type(value)(*values) if hasattr(value, "_fields") else tuple(values)
    return value


def bits(value):
    """Return a value as something whose equality is that of its bits."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(map(bits, value))
    if isinstance(value, float):
        return "nan" if value != value else struct.pack("d", value)
    return value


@contextmanager
def kernels_called_both_ways():
    """Compare both ways of each kernel that Python calls in this block; yield the list of the kernels' names."""
    called = []

    interpreted_class_of = interpreted.interpreted_class

    @cache
    def class_of(kernel_class):
        class ComparedKernel(interpreted_class_of(kernel_class)):
            def __call__(self, *args, **named):
                if interpreted._THREAD.inside_kernel:
                    return self.py_func(*args, **named)
                name = f"{self.py_func.__module__}.{self.py_func.__name__}"
                given, given_names = copied((args, tuple(named.values())), {})
                error = None
                try:
                    expected = kernel_class.__call__(self, *given, **dict(zip(named, given_names, strict=True)))
                except Exception as raised:
                    error = raised
                try:
                    found = super().__call__(*args, **named)
                except Exception as raised:
                    assert type(raised) is type(error), f"{name}: raised {raised!r}, not {error!r}"
                    raise
                assert error is None, f"{name}: did not raise {error!r}"
                called.append(name)
                assert bits(found) == bits(expected), f"{name}: {found!r} is not {expected!r}"
                changed = bits((args, tuple(named.values()))), bits((given, given_names))
                assert changed[0] == changed[1], f"{name}: changed its arguments differently"
                return found

        return ComparedKernel

    interpreted.interpreted_class = class_of
    try:
        with interpreted.interpreted_kernels():
            yield called
    finally:
        interpreted.interpreted_class = interpreted_class_of
