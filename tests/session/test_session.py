"""A session solves a changed problem as a new run would, and keeps what the change does not concern."""

import itertools

import numpy as np
import pytest
from support.constraints.random_constraints import KINDS, best_objective, random_problem

import dmcmc


def team(agents=4):
    """Return a chain of agents with two variables each; the first one is shared with the next agent."""
    rng, builder = np.random.default_rng(5), dmcmc.Problem.build()
    for a in range(agents):
        builder.variable(f"s{a}", 3, agent=f"a{a}")
        builder.variable(f"h{a}", 3, agent=f"a{a}")
        builder.factor((f"s{a}", f"h{a}"), rng.integers(0, 50, (3, 3)), name=f"own{a}")
    for a in range(agents - 1):
        builder.factor((f"s{a}", f"s{a + 1}"), rng.integers(0, 50, (3, 3)), name=f"link{a}")
    return builder.problem()


def optimum(problem):
    ranges = [range(size) for size in problem.domains.tolist()]
    found = [problem.evaluate(list(values)) for values in itertools.product(*ranges)]
    return max((one.objective for one in found if one.violation == 0), default=None)


def check(session):
    result, best = session.solve(), optimum(session.problem)
    assert result.objective == best
    if best is None:
        assert result.status == "infeasible"
    else:
        assert (result.status, result.bound) == ("optimal", best)
        assert session.problem.evaluate(dict(result.assignment)).objective == best


def test_one_changed_table_leaves_all_other_agents_tables_and_messages_outside_the_path_to_the_root():
    session = dmcmc.Session(team(6), presolve="none")
    session.solve()
    assert session.reused == (0, 0, 0)
    session.solve()
    assert session.reused == (6, 6, 0)
    session.set_table("own2", np.arange(9).reshape(3, 3))
    result = session.solve()
    assert session.reused.tables == 5 and 0 < session.reused.messages < 6
    assert result.objective == dmcmc.solve(session.problem).objective


def random_change(rng, changes, problem, number):
    kind = rng.integers(8)
    variables, sizes = list(problem.variables), problem.domains.tolist()
    table = lambda shape: np.where(rng.random(shape) < 0.1, -np.inf, rng.integers(0, 30, shape))  # noqa: E731
    v = int(rng.integers(len(variables))) if variables else 0
    if kind <= 1 and problem.factors:
        factor = int(rng.integers(len(problem.factors)))
        changes.set_table(factor, table(problem.factors[factor].shape))
    elif kind == 2 and variables:
        pair = rng.choice(len(variables), min(2, len(variables)), replace=False).tolist()
        changes.add_factor([variables[w] for w in pair], table([sizes[w] for w in pair]))
    elif kind == 3 and problem.factors:
        changes.remove_factor(int(rng.integers(len(problem.factors))))
    elif kind == 4 and len(variables) < 6 and problem.agents:
        changes.add_variable(f"new{number}", int(rng.integers(1, 4)), str(rng.choice(list(problem.agents))))
    elif kind == 5 and len(variables) > 2:
        changes.remove_variable(variables[v])
    elif kind == 6 and variables:
        labels = problem.labels[v] or range(sizes[v])
        changes.set_domain(variables[v], list(labels)[: max(1, sizes[v] - 1)])
    elif kind == 7:
        if len(problem.agents) > 2 and rng.random() < 0.5:
            changes.remove_agent(problem.agents[0])
        else:
            changes.add_agent(f"agent{number}")


@pytest.mark.parametrize("seed", range(40))
def test_after_any_sequence_of_changes_the_answer_is_the_optimum(seed):
    rng, session = np.random.default_rng(seed), dmcmc.Session(team(2 + seed % 2))
    for number in range(4):
        with session.changes() as changes:
            random_change(rng, changes, session.problem, number)
        check(session)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.set_table("own9", [1]), "factor 'own9' does not exist"),
        (lambda c: c.set_table(99, [1]), "factor 99 does not exist"),
        (lambda c: c.set_table("own0", [[1, 2], [3, 4]]), "axis 0 has 2 entries"),
        (lambda c: c.add_factor(["s9"], [1, 2]), "variable 's9' does not exist"),
        (lambda c: c.add_variable("x", 2, "nobody"), "agent 'nobody' does not exist"),
        (lambda c: c.add_variable("s0", 2, "a0"), "variable 's0' is defined twice"),
        (lambda c: c.add_agent("a0"), "two agents have the same name"),
        (lambda c: c.remove_agent("a9"), "agent 'a9' does not exist"),
        (lambda c: c.set_domain("s0", 5), "axis 0 has 3 entries"),
        (lambda c: c.set_domain("s0", 2.5), "whole number is needed"),
        (lambda c: c.set_table(True, [1, 2, 3]), "is True"),
        (lambda c: c.remove_factor(False), "is False"),
        (lambda c: c.remove_factor(np.bool_(False)), "is False"),
        (lambda c: c.remove_factor(0.5), "is 0.5"),
        (lambda c: c.add_factor("s0", [1, 2, 3], name=False), "name must be text"),
        (lambda c: c.add_factor("s0", [1, 2, 3], level=False), "level False does not exist"),
    ],
)
def test_an_invalid_change_leaves_the_session_as_it_was(change, message):
    session = dmcmc.Session(team())
    before = session.problem
    with pytest.raises(dmcmc.DmcmcError, match=message), session.changes() as changes:
        changes.remove_factor("link0")
        change(changes)
    assert session.problem is before


@pytest.mark.parametrize("kind", KINDS)
def test_constraints_keep_their_kinds_when_domains_shrink_and_change_their_order(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(3):
        session = dmcmc.Session(random_problem(rng, [kind], 4, 4, agents=2))
        session.solve()
        for name in session.problem.variables:
            kinds, before = [type(factor) for factor in session.problem.factors], session.problem
            v = before.variables.index(name)
            labels = list(before.labels[v] or range(before.domains[v]))
            session.set_domain(name, rng.permutation(labels)[: rng.integers(1, len(labels) + 1)])
            assert [type(factor) for factor in session.problem.factors] == kinds
            result, best = session.solve(), best_objective(session.problem)
            assert result.objective == best and (best is not None or result.status == "infeasible")
            if best is not None:
                assert before.evaluate(result.assignment) == (best, 0)


def test_a_constraint_whose_table_would_be_too_large_stays_one_when_a_domain_shrinks():
    build = dmcmc.Problem.build()
    names = [build.variable(f"x{i}", 20, agent=f"a{i % 3}") for i in range(14)]
    session = dmcmc.Session(build.all_different(names))
    session.set_domain("x3", range(19))
    assert session.problem.factors[0].kind == "all_different" and session.problem.factors[0].shape[3] == 19


def test_a_domain_may_grow_if_its_tables_are_set_in_the_same_batch():
    session = dmcmc.Session(team(2))
    with session.changes() as changes:
        changes.set_domain("h0", 4)
        changes.set_table("own0", np.arange(12).reshape(3, 4) * 100)
    check(session)


def test_with_a_time_budget_the_last_answer_is_the_first_incumbent():
    session = dmcmc.Session(team(3))
    first = session.solve()
    again = session.solve(timeout=20)
    assert again.trace[0].objective == first.objective == again.objective


def test_after_changes_the_levels_of_the_objective_are_still_compared_one_after_the_other():
    """Utilities are in the unit of their level; larger ones need larger weights of all earlier levels."""
    rng, levels = np.random.default_rng(2), ("hard", "soft")
    builder, tables = dmcmc.Problem.build(levels=levels), dict[str, tuple[str, list[int], np.ndarray]]()
    for v in range(4):
        builder.variable(f"x{v}", 3, agent=f"a{v // 2}")
    for level in levels:
        builder.level(level)
        for v in range(3):
            tables[f"{level}{v}"] = level, [v, v + 1], rng.integers(0, 3, (3, 3))
            builder.factor((f"x{v}", f"x{v + 1}"), tables[f"{level}{v}"][2], name=f"{level}{v}")

    def check_levels():
        rows = list(itertools.product(range(3), repeat=4))
        sums = {
            level: [sum(t[tuple(row[v] for v in s)] for own, s, t in tables.values() if own == level) for row in rows]
            for level in levels
        }
        result = session.solve()
        assert result.status == "optimal" and [one.name for one in result.levels] == list(levels)
        assert tuple(one.objective for one in result.levels) == max(zip(sums["hard"], sums["soft"], strict=True))

    session = dmcmc.Session(builder)
    check_levels()
    for number in range(6):
        name = str(rng.choice(list(tables)))
        table = rng.integers(0, (3, 500)[number % 2], (3, 3))
        session.set_table(name, table)
        tables[name] = (*tables[name][:2], table)
        check_levels()
    session.add_factor(("x0", "x3"), [[9, 0, 0], [0, 9, 0], [0, 0, 9]], name="late", level="soft")
    tables["late"] = "soft", [0, 3], 9 * np.eye(3, dtype=int)
    check_levels()
    session.remove_factor("hard1")
    del tables["hard1"]
    check_levels()
    with pytest.raises(dmcmc.DmcmcError, match="level 'later' does not exist"):
        session.add_factor(("x0",), [1, 2, 3], level="later")


def test_initial_values_that_still_exist_are_kept_after_a_change_of_structure():
    problem = team(2)
    session = dmcmc.Session(dmcmc.Problem(**problem.__dict__ | {"initial_values": {"s0": 2, "h0": 2, "s1": 1}}))
    with session.changes() as changes:
        changes.remove_variable("h0")
        changes.set_domain("s0", 2)
    assert session.problem.initial_values == {"s1": 1}
