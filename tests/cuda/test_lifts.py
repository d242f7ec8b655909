"""A batch of descents makes the same steps on the GPU; runs under Numba's simulator, without CuPy."""

import numpy as np
import pytest
from support.naive_batch import NaiveArrays, descents

from dmcmc.inference.bounds.semidefinite.batch import Batch
from dmcmc.inference.bounds.semidefinite.cuda.arrays import DeviceArrays
from dmcmc.inference.bounds.semidefinite.cuda.step_kernels import WORDS
from dmcmc.inference.runtime.device import gpu_problem

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")


@pytest.mark.parametrize("sizes", [((4, 3, 2, 5), (1, 5, 0, 0)), ((9, 9, 2),)])
def test_smooth_maxima_of_all_pairs_are_those_of_the_naive_twin(sizes):
    rng, (agents, h), d = np.random.default_rng(0), np.shape(sizes), max(map(max, sizes))
    n, like = h * d, {"dtype": np.float32}
    given = [rng.standard_normal(s, **like) for s in ((agents, n, n), (agents, n, n), (agents, h, n))]
    given[0][rng.random(given[0].shape) < 0.1] = -1e9
    words = rng.random((2, agents, WORDS), **like) + 2
    given += [np.array(sizes, dtype=np.int32), words]
    twins = []
    for arrays in (NaiveArrays(), DeviceArrays()):
        there = tuple(map(arrays.put, given))
        found = [arrays.put(np.zeros(s, dtype=np.float32)) for s in ((agents, n, n), (agents, h, n), (agents, h, h))]
        arrays.smooth(there, tuple(found), (agents, h, d))(1)
        twins.append(list(map(arrays.get, found)))
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*twins, strict=True))
    assert (twins[1][0] > 0).any()


def test_steps_are_those_of_the_naive_twin():
    rng, agents = np.random.default_rng(0), 3
    given = [rng.standard_normal((agents, 5, 4), dtype=np.float32) for _ in range(3)]
    given.append(rng.random((agents, 5, 4), dtype=np.float32))
    words = rng.random((2, agents, WORDS), dtype=np.float32) + 1
    twins = []
    for arrays in (NaiveArrays(), DeviceArrays()):
        there = tuple(map(arrays.put, given))
        arrays.adam(there, arrays.put(words), agents)(1)
        twins.append(list(map(arrays.get, there)))
    assert all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*twins, strict=True))
    assert not np.allclose(twins[1][0], given[0])


def test_a_batch_goes_where_its_naive_twin_goes():
    (one, targets), (other, _) = descents(), descents()
    points = [Batch(own, targets, arrays).run(lambda made: 3 - made) for own, arrays in
              ((one, NaiveArrays()), (other, DeviceArrays()))]  # fmt: skip
    for a, b in zip(*points, strict=True):
        assert all(np.allclose(x, y, atol=1e-3) for x, y in zip(a, b, strict=True))
