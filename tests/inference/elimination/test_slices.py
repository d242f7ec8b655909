"""Elimination in slices: the same remaining tables as at once, within the memory."""

import numpy as np
import pytest
from support.problem_strategies import random_table

import dmcmc
from dmcmc import Factor
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.elimination.cuda.descriptor_kernels import choose_low_axes
from dmcmc.inference.elimination.eliminate import choose_slices, eliminate, eliminate_in_slices
from dmcmc.inference.elimination.plan import kept_by_first_use, plan_elimination
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.samplers.contract import tuning
from dmcmc.samplers.methods import exact


def random_case(seed):
    """Return factors over 6 variables of up to 7 values, domain sizes, and an order of three of the variables."""
    rng = np.random.default_rng(seed)
    domains = rng.integers(1, 8, 6)
    scopes = [rng.permutation(6)[: rng.integers(1, 4)].tolist() for _ in range(8)]
    factors = [Factor.of(s, random_table(rng, tuple(domains[s]), 100, 0.2, False)) for s in scopes]
    shuffled = rng.permutation(6).tolist()
    return factors, domains, shuffled[:3], shuffled[3:]


@pytest.mark.parametrize("seed", range(20))
def test_slices_give_the_tables_of_the_undivided_elimination(seed):
    factors, domains, order, keep = random_case(seed)
    arithmetic, scopes = choose_arithmetic(factors), [f.scope for f in factors]
    tables = [arithmetic.encode(f) for f in factors]
    plan = plan_elimination(scopes, domains, order, keep)
    whole = dict(eliminate(tables, plan, arithmetic).remaining())
    made = set()
    for max_entries in range(plan.entries, 0, -max(1, plan.entries // 7)):
        for parts in (1, 2):
            slices = choose_slices(scopes, domains, plan, keep, max_entries, parts)
            if slices is None or slices in made:
                continue
            made.add(slices)
            assert slices.entries <= max_entries
            half = -(-int(domains[slices.variable]) // parts)
            found = eliminate_in_slices(
                tables, domains, order, keep, slices, range(half), lambda t, p: eliminate(t, p, arithmetic)
            )
            assert [scope for scope, _ in found] == list(whole)
            for scope, values in found:
                axis = tuple(slice(half) if v == slices.variable else slice(None) for v in scope)
                assert (values == whole[scope][axis]).all()
    assert made


def cells_that_read_a_message(plan):
    """Return the joined cells of buckets in which, on a GPU, a table depends on both parts of the separator."""
    cells = 0
    for bucket in range(plan.buckets):
        scope, low = plan.scope(plan.output(bucket)), choose_low_axes(plan.program, bucket)
        rows, columns = set(scope[: len(scope) - low]), set(scope[len(scope) - low :])
        tables = [set(plan.scope(t)) for t in plan.inputs(bucket)]
        cells += int(plan.program.cells[bucket]) * any(t & rows and t & columns for t in tables)
    return cells


def test_kept_variables_in_the_order_of_their_first_bucket_let_a_gpu_read_large_messages_once():
    sizes = {"agents": 2, "variables_per_agent": 8, "domain_size": 120, "interface_variables": 2}
    read = []
    for local in divide(dmcmc.generate("meeting-scheduling", local_density=0.8, **sizes)).locals:
        plans = [
            plan_elimination([f.scope for f in local.factors], local.domains, local.order.variables, keep)
            for keep in (local.interface, local.interface[::-1], kept_by_first_use(local.plan, local.interface))
        ]
        *others, ordered = map(cells_that_read_a_message, plans)
        assert ordered == min(others) < 0.6 * max(others)
        read.append(ordered)
    assert read[0] == read[1]  # two agents with equal cells do equal work


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_kept_variables_changes_the_axes_of_the_tables_only(seed):
    factors, domains, order, keep = random_case(seed)
    arithmetic, scopes = choose_arithmetic(factors), [f.scope for f in factors]
    plan = plan_elimination(scopes, domains, order, keep)
    ordered = plan_elimination(scopes, domains, order, kept_by_first_use(plan, keep))
    assert sorted(kept_by_first_use(plan, keep)) == sorted(keep)
    tables = [arithmetic.encode(f) for f in factors]
    pairs = zip(*(eliminate(tables, p, arithmetic).remaining() for p in (plan, ordered)), strict=True)
    for (scope, values), (new_scope, new_values) in pairs:
        assert (new_values == values.transpose([scope.index(v) for v in new_scope])).all()


def test_an_agent_too_large_for_the_memory_is_eliminated_in_slices(monkeypatch):
    sizes = {"agents": 2, "variables_per_agent": 8, "domain_size": 12, "interface_variables": 2}
    problem = dmcmc.generate("meeting-scheduling", local_density=0.8, seed=1, **sizes)
    ways = {"method": "exact", "local_search": "none"}
    whole, sliced = dmcmc.solve(problem, **ways), dmcmc.solve(problem, memory="1MiB", **ways)
    assert (sliced.status, sliced.objective, sliced.bound) == ("optimal", whole.objective, whole.bound)
    assert problem.evaluate(sliced.assignment) == (whole.objective, 0)
    # as on a GPU with 0.5 MB: slices in place of streaming
    monkeypatch.setattr(Backend, "resident_bytes", lambda backend, plan: 5e5)
    monkeypatch.setattr(tuning, "MAX_RETAINED_BYTES", 1)
    made = []
    monkeypatch.setattr(exact, "eliminate_in_slices", lambda *given: made.append(1) or eliminate_in_slices(*given))
    resident = dmcmc.solve(problem, **ways)
    assert made and (resident.status, resident.objective, resident.bound) == ("optimal", whole.objective, whole.bound)
    with pytest.raises(dmcmc.DmcmcError, match="exact for an agent of 8 variables needs"):
        dmcmc.solve(problem, memory="120KiB", **ways)
