"""Compact sequences are the tuples that they stand for."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.model.compact_sequences import Groups, Made, Names, Repeated, flat_of, narrow

NUMBERS = st.integers(-(2**40), 2**40)


def same(compact, plain):
    assert compact == tuple(plain) and list(compact) == list(plain) and len(compact) == len(plain)
    assert [compact[i] for i in range(-len(plain), len(plain))] == [*plain, *plain] and compact[1:] == list(plain[1:])
    with pytest.raises(IndexError):
        compact[len(plain)]


@given(st.lists(st.lists(NUMBERS, max_size=3).map(tuple), max_size=5))
def test_groups(groups):
    same(Groups.of(groups), groups)
    same(pickle.loads(pickle.dumps(Groups.of(groups))), groups)
    assert [found.tolist() for found in flat_of(Groups.of(groups))] == [found.tolist() for found in flat_of(groups)]
    assert Groups.of(groups).lengths.tolist() == list(map(len, groups))


@given(st.lists(st.integers(0, 4), max_size=9))
def test_groups_by_what_each_belongs_to(group):
    same(Groups.by(group, 5), [tuple(i for i, of in enumerate(group) if of == number) for number in range(5)])


@given(st.lists(st.text(max_size=3), max_size=5))
def test_names(names):
    same(Names(names), names)


@given(st.lists(st.sampled_from("abc"), max_size=9))
def test_repeated(records):
    same(Repeated.of(records), records)
    assert Repeated.of(records).kinds == list(dict.fromkeys(records))


def test_made():
    found = Made(4, lambda number: -number, {2: 7})
    same(found, [0, -1, 7, -3])
    same(found.mapped(lambda value: value + 1), [1, 0, 8, -2])


def test_numbers_are_narrow_where_they_fit():
    assert narrow([2**31 - 1, -(2**31)]).dtype == np.int32 and narrow([2**31]).dtype == np.int64
