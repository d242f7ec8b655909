"""What compiling leaves is given back, and kernels that call what was compiled before are compiled all the same."""

import numba
import pytest

from dmcmc.inference.runtime.compiler_metadata import leftovers_returned

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


@numba.njit()
def called(x):
    return x + 1


def test_what_is_left_of_a_kernel_is_given_back_and_callers_are_compiled_later():
    once = numba.njit(lambda x: called(x) + 1)
    with leftovers_returned():
        assert once(1) == 3
    for kernel in (once, called):
        (compiled,) = kernel.overloads.values()
        assert compiled.library._shared_module is None
        assert not compiled.type_annotation.typemap
    again = numba.njit(lambda x: called(x) + once(x))
    assert again(1) == 2 + 3
    assert called(5) == 6
