"""Compact sequences equal the tuples that they represent."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmcmc.inference.model.compact_sequences import (
    CompactNames,
    IndexGroups,
    LazySequence,
    RepeatedRecords,
    flatten_groups,
    narrow,
)

NUMBERS = st.integers(-(2**40), 2**40)


def assert_same(compact, plain):
    assert compact == tuple(plain) and list(compact) == list(plain) and len(compact) == len(plain)
    assert [compact[i] for i in range(-len(plain), len(plain))] == [*plain, *plain] and compact[1:] == list(plain[1:])
    with pytest.raises(IndexError):
        compact[len(plain)]


@given(st.lists(st.lists(NUMBERS, max_size=3).map(tuple), max_size=5))
def test_groups_equal_the_tuples_they_were_built_from(groups):
    assert_same(IndexGroups.of(groups), groups)
    assert_same(pickle.loads(pickle.dumps(IndexGroups.of(groups))), groups)
    assert [found.tolist() for found in flatten_groups(IndexGroups.of(groups))] == [
        found.tolist() for found in flatten_groups(groups)
    ]
    assert IndexGroups.of(groups).lengths.tolist() == list(map(len, groups))


@given(st.lists(st.integers(0, 4), max_size=9))
def test_members_are_collected_by_their_group_number(group):
    assert_same(
        IndexGroups.by_group(group, 5), [tuple(i for i, of in enumerate(group) if of == number) for number in range(5)]
    )


@given(st.lists(st.text(max_size=3), max_size=5))
def test_names_equal_the_strings_they_were_built_from(names):
    assert_same(CompactNames(names), names)


@given(st.lists(st.sampled_from("abc"), max_size=9))
def test_repeated_records_equal_the_records_they_were_built_from(records):
    assert_same(RepeatedRecords.of(records), records)
    assert RepeatedRecords.of(records).distinct == list(dict.fromkeys(records))


def test_lazy_entries_are_computed_unless_they_are_overridden():
    found = LazySequence(4, lambda number: -number, {2: 7})
    assert_same(found, [0, -1, 7, -3])


def test_integers_are_stored_in_32_bits_if_they_fit():
    assert narrow([2**31 - 1, -(2**31)]).dtype == np.int32 and narrow([2**31]).dtype == np.int64
