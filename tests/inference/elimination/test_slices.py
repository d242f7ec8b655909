"""Elimination in slices: the same remaining tables as at once, within the memory."""

import numpy as np
import pytest
from support.problem_strategies import random_table

import dmcmc
from dmcmc import Factor
from dmcmc.inference.elimination.eliminate import eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.elimination.slices import choose_slices, eliminate_in_slices
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.model.arithmetic import choose_arithmetic
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


def test_an_agent_too_large_for_the_memory_is_eliminated_in_slices(monkeypatch):
    sizes = {"agents": 2, "variables_per_agent": 8, "domain_size": 12, "interface_variables": 2}
    problem = dmcmc.generate("meeting-scheduling", local_density=0.8, seed=1, **sizes)
    ways = {"method": "exact", "local_search": "none"}
    whole, sliced = dmcmc.solve(problem, **ways), dmcmc.solve(problem, memory="1MiB", **ways)
    assert (sliced.status, sliced.objective, sliced.bound) == ("optimal", whole.objective, whole.bound)
    assert problem.evaluate(sliced.assignment) == (whole.objective, 0)
    # as on a GPU with 0.5 MB: slices in place of streaming
    monkeypatch.setattr(Backend, "resident_bytes", lambda backend, plan: 5e5)
    monkeypatch.setattr(exact, "_MAX_RETAINED_BYTES", 1)
    made = []
    monkeypatch.setattr(exact, "eliminate_in_slices", lambda *given: made.append(1) or eliminate_in_slices(*given))
    resident = dmcmc.solve(problem, **ways)
    assert made and (resident.status, resident.objective, resident.bound) == ("optimal", whole.objective, whole.bound)
    with pytest.raises(dmcmc.DmcmcError, match="exact for an agent of 8 variables needs"):
        dmcmc.solve(problem, memory="120KiB", **ways)
