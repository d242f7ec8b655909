"""UTIL messages without the rows that their receivers cannot use: the same answers and proofs, and fewer entries."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import naive

import dmcmc
from dmcmc.inference.dpop.agent_step import UsableRows, UtilNode, rows_for_children, usable_part
from dmcmc.inference.execution.exact_or_mini_buckets import Resources
from dmcmc.inference.model.arithmetic import EncodedTable, narrowest

ARITHMETIC = narrowest(10_000, True)
DOMAINS = np.array([3, 2, 3, 3])
INFINITY = float("inf")


def random_tables(rng, count, forbidden, variables=4):
    """Return random encoded tables over one to three variables, with a share of forbidden entries."""
    tables = []
    for _ in range(count):
        scope = tuple(rng.permutation(variables)[: rng.integers(1, 4)].tolist())
        values = rng.integers(-9, 9, DOMAINS[list(scope)]).astype(np.int32)
        values[rng.random(values.shape) < forbidden] = ARITHMETIC.lowest
        tables.append(EncodedTable(scope, values))
    return tables


def joined(tables):
    return naive.join(naive.plain_tables(tables, ARITHMETIC), range(4), DOMAINS)


@given(st.integers(0, 10**9))
def test_no_row_with_a_solution_is_unusable(seed):
    rng = np.random.default_rng(seed)
    own, child = random_tables(rng, 3, 0.4), tuple(rng.permutation(4)[: rng.integers(1, 4)].tolist())
    node = UtilNode(own[:2], own[2:], (), (0, 1), (2, 3), DOMAINS, ARITHMETIC)
    (usable,) = rows_for_children(node, (), [child], Resources())
    possible = joined(own) > -np.inf
    for rows in usable:
        others = tuple(v for v in range(4) if v not in rows.scope)
        seen = possible.any(axis=others)
        expected = rows.rows.transpose(np.argsort(rows.scope))
        assert set(rows.scope) <= set(child) and (expected | ~seen).all()


@given(st.integers(0, 10**9))
def test_rows_that_are_left_out_matter_to_no_sufficient_solution(seed):
    """The receiver's tables forbid the unusable rows; any others that are left out are below the least utility."""
    rng = np.random.default_rng(seed)
    receiver, message = random_tables(rng, 2, 0.4), random_tables(rng, 2, 0.1)
    usable = [UsableRows(t.scope, t.values > ARITHMETIC.lowest) for t in receiver]
    least = None if rng.random() < 0.3 else int(rng.integers(-20, 10))
    sent = usable_part(message, usable, least, DOMAINS, ARITHMETIC)
    before, after = joined([*receiver, *message]), joined([*receiver, *sent])
    enough = np.full(before.shape, True) if least is None else joined(message) >= least
    np.testing.assert_array_equal(before[enough], after[enough])
    assert (after <= before).all()


def meetings(seed, participants=None, slots=4, hard=0.2):
    """Return people with copies of their meetings: equal copies, unlike slots, and random busy slots."""
    rng, build = np.random.default_rng(seed), dmcmc.Problem.build(sense="min")
    people = participants or [sorted(rng.permutation(4)[: rng.integers(2, 4)].tolist()) for _ in range(3)]
    unlike = np.where(np.eye(slots, dtype=bool), INFINITY, 0.0)
    equal = np.where(np.eye(slots, dtype=bool), 0.0, INFINITY)
    for meeting, of in enumerate(people):
        for person in of:
            costs = rng.integers(0, 9, slots).astype(float)
            costs[rng.random(slots) < hard] = INFINITY
            build.variable(f"{person}.{meeting}", slots, agent=f"person {person}")
            build.factor([f"{person}.{meeting}"], costs)
        for person in of[1:]:
            build.factor([f"{of[0]}.{meeting}", f"{person}.{meeting}"], equal)
    for (one, of_one), (two, of_two) in itertools.combinations(enumerate(people), 2):
        for person in set(of_one) & set(of_two):
            build.factor([f"{person}.{one}", f"{person}.{two}"], unlike)
    return build.problem()


@pytest.mark.parametrize("seed", range(12))
def test_answers_and_proofs_do_not_change(seed):
    problem, best = meetings(seed), naive.optimum(meetings(seed))
    runs = {
        rows: dmcmc.solve(problem, presolve="none", device="cpu", combine={"rows": rows}) for rows in ("all", "usable")
    }
    assert runs["all"].status == runs["usable"].status
    if runs["all"].status == "optimal":
        assert runs["all"].objective == runs["usable"].objective == -best
        assert runs["usable"].bound == runs["usable"].objective


def test_fewer_bytes_are_sent_and_the_requests_are_counted():
    """Two people with three meetings in common, of seven slots: the full table has 343 entries."""
    problem = meetings(3, [[0, 1]] * 3, slots=7, hard=0.0)
    before, after = (
        dmcmc.solve(problem, presolve="none", device="cpu", combine={"rows": rows}) for rows in ("all", "usable")
    )
    everything, filtered = (
        sum(agent.messages["UTIL"].size for agent in run.agents if "UTIL" in agent.messages) for run in (before, after)
    )
    requests = sum(agent.messages["USABLE"].size for agent in after.agents if "USABLE" in agent.messages)
    assert before.objective == after.objective and requests > 0 and requests + filtered < everything / 2
    assert not any("USABLE" in agent.messages for agent in before.agents)
    for one, other in zip(before.agents, after.agents, strict=True):
        assert other.disclosed <= one.disclosed


@pytest.mark.parametrize("method", ["gibbs", "auto"])
@pytest.mark.parametrize("combine", [{}, {"method": "mini-bucket", "z": 1}])
def test_sampled_tables_and_mini_buckets_stay_sound(method, combine):
    rng = np.random.default_rng(7)
    problem = dmcmc.generate("random", agents=5, variables_per_agent=3, domain_size=3, seed=int(rng.integers(99)))
    local = {"method": method, "runs": 1, "samples": 5}
    best = dmcmc.solve(problem, local={"method": "exact"}).objective
    found = dmcmc.solve(problem, local=local, combine={"rows": "usable", **combine}, device="cpu")
    assert found.objective <= best and (found.bound is None or found.bound >= best)
