"""Caches of derived results."""

import pickle

import numpy as np

from dmcmc.inference.runtime.memo import DerivedFacts, Memo, digest


def test_a_result_is_computed_once_and_the_oldest_results_are_dropped():
    memo, computed = Memo[int](2), []
    for key in (1, 2, 1, 3, 1):
        assert memo.get(key, lambda key=key: computed.append(key) or 10 * key) == 10 * key
    assert computed == [1, 2, 3, 1]
    memo.clear()
    assert memo.find(3) is None


def test_facts_are_computed_once_and_are_not_pickled():
    facts, computed = DerivedFacts(), []
    for _ in range(2):
        assert facts.get_or_compute(("two", 2), lambda: computed.append(2) or 4) == 4
    assert computed == [2]
    assert facts.find("three") is None
    assert pickle.loads(pickle.dumps(facts)).find(("two", 2)) is None


def test_the_digest_depends_on_the_boundaries_between_arrays():
    a, b = np.arange(4), np.arange(2)
    assert digest(a, b) == digest(np.arange(4), np.arange(2))
    assert digest(np.arange(6)) != digest(a, b) != digest(b, a)
