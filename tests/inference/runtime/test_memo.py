"""What has been worked out before is kept by all that it depends on."""

import numpy as np

from dmcmc.inference.runtime.memo import Memo, digest


def test_a_result_is_made_once_and_the_oldest_go():
    memo, made = Memo[int](2), []
    for key in (1, 2, 1, 3, 1):
        assert memo.get(key, lambda key=key: made.append(key) or 10 * key) == 10 * key
    assert made == [1, 2, 3, 1]
    memo.clear()
    assert memo.find(3) is None


def test_arrays_that_are_divided_elsewhere_have_other_digests():
    a, b = np.arange(4), np.arange(2)
    assert digest(a, b) == digest(np.arange(4), np.arange(2))
    assert digest(np.arange(6)) != digest(a, b) != digest(b, a)
