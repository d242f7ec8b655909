"""Compiler metadata is released, and later kernels can still call the compiled ones."""

import numba
import pytest

from dmcmc.inference.runtime.compile import release_compiler_metadata

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


@numba.njit()
def callee(x):
    return x + 1


def test_the_metadata_of_a_kernel_is_released_and_its_callers_can_be_compiled_later():
    caller = numba.njit(lambda x: callee(x) + 1)
    with release_compiler_metadata():
        assert caller(1) == 3
    for kernel in (caller, callee):
        (compiled,) = kernel.overloads.values()
        assert compiled.library._shared_module is None
        assert not compiled.type_annotation.typemap
    later_caller = numba.njit(lambda x: callee(x) + caller(x))
    assert later_caller(1) == 2 + 3
    assert callee(5) == 6
