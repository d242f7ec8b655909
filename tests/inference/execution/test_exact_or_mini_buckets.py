"""Queries are answered exactly if the memory allows it, otherwise by an upper bound that fits the memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.encoded_problems import problems

from dmcmc.inference.elimination.plan import EliminationQuery
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.exact_or_mini_buckets import (
    EXACT,
    Relaxation,
    Resources,
    eliminate_first_fitting,
    eliminate_within,
)
from dmcmc.inference.minibuckets.plan import least_z, plan_mini_buckets
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.runtime.deadline import Deadline
from dmcmc.inference.runtime.errors import OutOfTime, ResourceError

PARTITIONS = st.sampled_from(["scope", "content"])


@st.composite
def queries(draw):
    """Draw the query of some encoded tables that eliminates some of 6 variables."""
    flat, plan, arithmetic = draw(problems(whole=draw(st.booleans())))
    domains, order = plan.program.domains, plan.program.variable.tolist()
    tables = [
        EncodedTable(scope, flat.data[flat.at[t] : flat.at[t + 1]].reshape(domains[list(scope)]))
        for t, scope in enumerate(flat.scopes())
    ]
    return EliminationQuery(tables, domains, order, sorted(set(range(6)) - set(order)), arithmetic)


def exact_result(query):
    plain = naive.plain_tables(query.tables, query.arithmetic)
    return naive.marginal(plain, query.order, query.keep, query.domains).astype(float)


def result(query, done):
    plain = naive.plain_tables(done.elimination.remaining(), query.arithmetic)
    return naive.join(plain, query.keep, query.domains).astype(float)


def memory_of(query, done):
    """Return the bytes of the tables of a finished elimination."""
    return done.elimination.plan.entries * query.arithmetic.dtype.itemsize


@settings(max_examples=80)
@given(queries(), st.integers(0, 3000), PARTITIONS, st.booleans())
def test_any_memory_gives_an_upper_bound_that_fits_it_or_an_error_that_names_the_remedy(
    query, memory, partition, matching
):
    relaxation = Relaxation("auto", partition=partition, moment_matching=matching)
    try:
        done = eliminate_within(query, relaxation, Resources(memory=memory, owner="agent 7"))
    except ResourceError as error:
        assert str(error).startswith("agent 7") and "budget.memory" in str(error)
        return
    assert memory_of(query, done) <= memory
    exact, found = exact_result(query), result(query, done)
    slack = query.arithmetic.rounding(len(query.tables)) + done.margin
    assert (found + slack >= exact).all()
    if query.exact.entries * query.arithmetic.dtype.itemsize <= memory:
        assert done.z is None or done.z >= query.exact.width
        np.testing.assert_allclose(found, exact, atol=1e-9)


@settings(max_examples=80)
@given(queries(), st.integers(0, 4000))
def test_the_largest_z_whose_tables_fit_is_chosen(query, memory):
    relaxation = Relaxation("mini-bucket", moment_matching=False)
    try:
        done = eliminate_within(query, relaxation, Resources(memory=memory))
    except ResourceError:
        done = None
    least, entries = least_z(query.scopes, query.order), memory // query.arithmetic.dtype.itemsize
    if done is None:
        assert plan_mini_buckets(query.scopes, query.domains, query.order, query.keep, least).entries > entries
    elif done.z is not None and done.z < query.exact.width:
        for z in range(done.z + 1, query.exact.width + 1):
            plan = plan_mini_buckets(query.scopes, query.domains, query.order, query.keep, z)
            assert plan.width == done.z or plan.entries > entries


@settings(max_examples=60)
@given(queries(), st.integers(0, 3000))
def test_an_exact_query_is_answered_exactly_or_refused(query, memory):
    needed = query.exact.entries * query.arithmetic.dtype.itemsize
    if needed > memory:
        with pytest.raises(ResourceError, match=f"needs {needed:,} bytes"):
            eliminate_within(query, EXACT, Resources(memory=memory))
    else:
        np.testing.assert_allclose(
            result(query, eliminate_within(query, EXACT, Resources(memory=memory))), exact_result(query), atol=1e-9
        )


@settings(max_examples=60)
@given(queries(), st.integers(0, 4), PARTITIONS)
def test_no_message_is_wider_than_the_limit_unless_an_input_table_is(query, max_z, partition):
    least = least_z(query.scopes, query.order)
    for method in ("auto", "mini-bucket"):
        done = eliminate_within(query, Relaxation(method, partition=partition, max_z=max_z))
        assert done.elimination.plan.width <= max(max_z, least)
        assert done.z is not None or query.exact.width <= max(max_z, least)
        assert (result(query, done) + done.margin >= exact_result(query) - 1e-9).all()
    exact = Relaxation("exact", max_z=max_z)
    if query.exact.width > max_z:
        with pytest.raises(ResourceError, match=f"has {query.exact.width} variables; the limit is {max_z}"):
            eliminate_within(query, exact)


@settings(max_examples=60)
@given(queries(), st.lists(st.integers(0, 3000), min_size=1, max_size=4))
def test_the_first_attempt_that_fits_is_taken(query, memories):
    attempts = [
        (Relaxation("mini-bucket" if i % 2 else "exact", moment_matching=False), m) for i, m in enumerate(memories)
    ]
    expected, error = None, None
    for relaxation, memory in attempts:
        try:
            expected = eliminate_within(query, relaxation, Resources(memory=memory))
            break
        except ResourceError as raised:
            error = raised
    if expected is None:
        with pytest.raises(ResourceError) as refused:
            eliminate_first_fitting(query, attempts)
        assert str(refused.value) == str(error)
    else:
        found = eliminate_first_fitting(query, attempts)
        assert found.z == expected.z
        np.testing.assert_array_equal(result(query, found), result(query, expected))


@given(queries())
def test_an_expired_deadline_ends_the_attempts_without_trying_another(query):
    resources = Resources(backend=Backend(stop=Deadline(0.0)))
    with pytest.raises(OutOfTime):
        eliminate_first_fitting(query, [(EXACT, 0), (EXACT, None)], resources)
