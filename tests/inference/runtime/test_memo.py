"""What has been worked out before is kept by all that it depends on."""

import pickle

import numpy as np

from dmcmc.inference.runtime.memo import Known, Memo, digest


def test_a_result_is_made_once_and_the_oldest_go():
    memo, made = Memo[int](2), []
    for key in (1, 2, 1, 3, 1):
        assert memo.get(key, lambda key=key: made.append(key) or 10 * key) == 10 * key
    assert made == [1, 2, 3, 1]
    memo.clear()
    assert memo.find(3) is None


def test_facts_are_worked_out_once_and_stay_in_this_process():
    known, made = Known(), []
    for _ in range(2):
        assert known.once(("two", 2), lambda: made.append(2) or 4) == 4
    assert made == [2]
    assert known.find("three") is None
    assert pickle.loads(pickle.dumps(known)).find(("two", 2)) is None


def test_arrays_that_are_divided_elsewhere_have_other_digests():
    a, b = np.arange(4), np.arange(2)
    assert digest(a, b) == digest(np.arange(4), np.arange(2))
    assert digest(np.arange(6)) != digest(a, b) != digest(b, a)
