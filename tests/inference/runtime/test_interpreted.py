"""Interpreted kernels: nothing is compiled, and results are those of compiled kernels bit for bit."""

import warnings

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.orders import bitset_kernels
from dmcmc.inference.runtime.compile import njit
from dmcmc.inference.runtime.interpreted import InterpretedSteps, interpreted_kernels, intrinsic, is_interpreting
from dmcmc.samplers.model import draw_kernels
from dmcmc.samplers.model.draw_kernels import fma

needs_compiler = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")

float32s = st.floats(width=32, allow_nan=False, allow_infinity=False)


def tripled():
    """Return a kernel that calls another one, and both."""

    @njit()
    def triple(x):
        return np.uint64(3) * x

    @njit()
    def wrapped(x):
        return triple(x) + np.uint64(1), x > np.uint64(2)

    return wrapped, triple


@needs_compiler
def test_interpreted_kernels_compile_nothing_and_return_what_compiled_kernels_return():
    number = np.uint64(2**63 + 5)
    kernels = tripled()
    with interpreted_kernels(), warnings.catch_warnings():
        warnings.simplefilter("error")  # unsigned numbers wrap around without a warning
        found = kernels[0](number)
    assert [kernel.signatures for kernel in kernels] == [[], []]
    assert kernels[0](number) == found == ((3 * (2**63 + 5) + 1) % 2**64, True)
    assert [type(value) for value in found] == [int, bool]
    assert all(kernel.signatures for kernel in kernels)


@needs_compiler
def test_kernels_that_are_made_inside_of_a_block_are_interpreted_until_it_ends():
    assert not is_interpreting()
    with interpreted_kernels():
        with interpreted_kernels():
            kernel, _ = tripled()
        assert is_interpreting()
        assert kernel(np.uint64(1)) == (4, False)
        assert not kernel.signatures
    assert not is_interpreting()
    assert kernel(np.uint64(1)) == (4, False)
    assert kernel.signatures


@needs_compiler
def test_an_error_of_an_interpreted_kernel_ends_the_block():
    @njit()
    def entry(array, i):
        if i < 0:
            raise ValueError("negative")
        return array[i]

    with pytest.raises(ValueError, match="negative"), interpreted_kernels():
        entry(np.zeros(1), -1)
    assert not is_interpreting()
    with interpreted_kernels():
        assert entry(np.ones(1), 0) == 1.0


@needs_compiler
def test_an_intrinsic_is_compiled_in_kernels_and_calls_its_twin_in_python():
    @intrinsic(lambda x: "twin")
    def incremented(context, x):
        return numba.types.int64(numba.types.int64), lambda context, builder, signature, args: builder.add(
            args[0], args[0].type(1)
        )

    kernel = njit()(lambda x: incremented(x))
    assert kernel(1) == 2
    with interpreted_kernels():
        assert kernel(1) == "twin"


@needs_compiler
@given(float32s, float32s, float32s)
def test_the_twin_of_a_fused_multiply_add_rounds_once(a, b, c):
    arguments = np.float32(a), np.float32(b), np.float32(c)
    with np.errstate(all="ignore"):
        found = np.float32(fma(*arguments))
    assert found.tobytes() == np.float32(_compiled_fma(*arguments)).tobytes()


def test_the_twin_of_a_fused_multiply_add_is_not_rounded_to_float64_first():
    """The sum lies 2^-70 below the midpoint of two float32; rounded to float64, it is the midpoint."""
    step, odd = 2.0**-23, np.float32(1 + 2.0**-23)
    a, b = np.float32(2.0**-12 * (1 + step)), np.float32(2.0**-12 * (1 - step))
    assert np.float32(np.float64(a) * np.float64(b) + np.float64(odd)) == np.float32(1 + 2 * step)
    assert draw_kernels._naive_fma(a, b, odd) == odd


@njit()
def _compiled_fma(a, b, c):
    return fma(a, b, c)


@needs_compiler
@given(st.integers(1, 2**64 - 1))
def test_the_twins_of_bit_operations(word):
    assert _compiled_bits(np.uint64(word)) == (bitset_kernels.popcount(word), bitset_kernels.lowest(word))


@njit()
def _compiled_bits(word):
    return bitset_kernels.popcount(word), bitset_kernels.lowest(word)


@pytest.mark.parametrize(
    ("work", "interpreted_work"),
    [((60, 101, 30, 10), (True, False, True, True)), ((60, 50, 10, 1), (True, False, False, False))],
)
def test_a_process_interprets_a_limited_number_of_steps(work, interpreted_work, monkeypatch):
    """Large work does not matter; small work that comes too late ends it."""
    monkeypatch.delenv("DMCMC_COMPILE", raising=False)
    assert tuple(map(InterpretedSteps(limit=100.0).take, work)) == interpreted_work
