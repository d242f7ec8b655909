"""Where single-variable draws freeze, block moves continue; chains of agents and of the whole problem show it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problem_strategies import random_problem

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.bounds.branch_and_bound.row_search import run_boundary_searches
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.samplers.blocks.block_gibbs_kernels import conditional_utilities, mobility, typical_spread
from dmcmc.samplers.chain_solver import DeviceSampling
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.methods.blocks import BlockChains, agent_graph, assignment_of, draws_are_frozen
from dmcmc.samplers.model.evaluation import chain_utilities
from dmcmc.samplers.registry import get
from dmcmc.solving.agent.agent import Agent, AgentContext
from dmcmc.solving.agent.tables import LowerTable


def rings(agents=2, hidden=14, forbidden=0.6, size=4, seed=0):
    """Agents with one boundary variable each and a ring of hidden ones; a share of the entries is forbidden."""
    rng = np.random.default_rng(seed)
    factors, owner = [], np.repeat(np.arange(agents), hidden + 1)
    known = rng.integers(0, size, owner.size)
    for a in range(agents):
        first = a * (hidden + 1)
        scopes = [(first + i, first + i + step) for step in (1, 2, 5) for i in range(hidden + 1 - step)]
        for scope in scopes:
            table = rng.integers(0, 100, (size, size)).astype(float)
            table[rng.random((size, size)) < forbidden] = -np.inf
            table[tuple(known[list(scope)])] = 0.0
            if first in scope:  # any value of the boundary variable is possible
                table[:] = rng.integers(0, 100, (size, size))
            factors.append(Factor.of(scope, table))
        if a:
            factors.append(Factor.of((0, first), rng.integers(0, 9, (size, size))))
    names = tuple(f"x{v}" for v in range(owner.size))
    return Problem(names, [size] * owner.size, tuple(f"a{i}" for i in range(agents)), owner, tuple(factors))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), share=st.floats(0.05, 2.0))
def test_mobility_is_the_mean_probability_of_another_value(seed, share):
    problem = random_problem(seed)
    local = divide(replace(problem, owner=np.zeros(problem.n_variables, dtype=np.int64))).locals[0]
    graph = agent_graph(local)
    z = np.random.default_rng(seed).integers(0, graph.domains)
    temperature, moves, scores = (
        share * typical_spread(graph, z) or 1.0,
        [],
        np.zeros(int(graph.domains.max(initial=1))),
    )
    for v in np.flatnonzero(graph.domains > 1).tolist():
        conditional_utilities(graph, z, v, scores)
        weights = np.exp((scores[: graph.domains[v]] - scores[: graph.domains[v]].max()) / temperature)
        moves.append(1 - weights[z[v]] / weights.sum())
    assert mobility(graph, z, share) == pytest.approx(np.mean(moves) if moves else 1.0, abs=1e-12)


def after_gibbs(problem):
    sampling = Sampling(choose_arithmetic(problem.factors), seed=1, runs=2, samples=50)
    local = divide(problem).locals[0]
    (chains,) = get("gibbs").start([local], sampling)
    return local, sampling, chains


def test_chains_freeze_where_most_entries_are_forbidden():
    local, _, chains = after_gibbs(rings())
    assert draws_are_frozen(local, chains.states)
    local, _, chains = after_gibbs(rings(forbidden=0.0))
    assert not draws_are_frozen(local, chains.states)


def test_rows_only_get_better_and_mostly_do():
    local, sampling, chains = after_gibbs(rings())
    blocks = BlockChains(local, sampling, np.zeros_like(chains.states))
    before = blocks.table().lower[0].values
    for _ in range(100):  # the first may load kernels
        blocks.improve(np.arange(local.rows), 0.1, 1)
        after = blocks.table().lower[0].values
        assert (after >= before).all()
        if (after > before).any():
            break
    assert (after > before).any()
    exact = get("exact").solve([local], sampling)[0]
    assert (after <= sum(table.values for table in exact.lower)).all()
    row = assignment_of(local, blocks.states, 1)
    found = blocks.table().witness({local.interface[0]: 1})
    assert [found[v] for v in local.hidden] == row[:-1].tolist()


@pytest.mark.parametrize("kind", ["chains", "chains on a GPU", "blocks"])
@pytest.mark.parametrize("forbidden", [0.0, 0.6])
def test_given_states_replace_worse_ones(forbidden, kind):
    local, sampling, chains = after_gibbs(rings(forbidden=forbidden))
    exact = get("exact").solve([local], sampling)[0]
    (interface,), best = local.interface, list[list[int]]()
    for row in range(local.rows):
        found = exact.witness({interface: row})
        best.append([found[v] for v in local.hidden])
    chains.best.after[1][:] = (chains.states + 1) % local.domains[list(local.hidden)]  # any other states
    chains.best.after[0][:] = chain_utilities(chains.model, local.interface_shape, np.arange(local.rows), chains.states)
    worse = chains.states.astype(np.int64)
    if kind != "chains":
        chains = BlockChains(local, sampling, worse) if kind == "blocks" else DeviceSampling(chains, chains.states)
    before = chains.table().lower[0].values
    assert chains.take_better(np.array([0, 2]), np.array(best)[[0, 2]])
    after, optimum = chains.table().lower[0].values, sum(table.values for table in exact.lower)
    assert after[[0, 2]].tolist() == optimum[[0, 2]].tolist() and after[[1, 3]].tolist() == before[[1, 3]].tolist()
    assert (after[[0, 2]] > before[[0, 2]]).all()
    assert not chains.take_better(np.arange(4), worse) and (chains.table().lower[0].values == after).all()


def test_an_agent_takes_the_assignments_that_the_boundary_search_finds():
    problem = rings(hidden=6, forbidden=0.3)
    local, sampling, chains = after_gibbs(problem)
    optimum = sum(table.values for table in get("exact").solve([local], sampling)[0].lower)
    chains.best.after[1][:], chains.best.after[0][:] = 0, np.iinfo(np.int64).min
    agent = Agent(AgentContext(sampling, 0.0), local, chains.table(), LowerTable(local, chains))
    agent.start_bound("triangles")
    limits = np.full(local.rows, -(1 << 40))
    while not (request := agent.boundary_search(limits, 1.0, 1 << 24)).search.exhausted or not request.search.nodes:
        run_boundary_searches([request], batches=20)
        agent.take_search_results(limits)
    assert (agent.rows(agent.table.lower) == optimum).all() and (agent.rows(agent.table.upper) == optimum).all()


def test_auto_switches_to_blocks_where_chains_freeze():
    def methods(problem):
        result = dmcmc.solve(problem, cells=10, presolve="none", runs=2, samples=20)
        assert result.objective is None or problem.evaluate(result.assignment).objective == result.objective
        return {agent.method for agent in result.agents}

    assert "blocks" in methods(rings(3))
    assert "blocks" not in methods(rings(3, forbidden=0.0))


@pytest.mark.parametrize(("forbidden", "kind"), [(0.6, BlockChains), (0.0, Chains)])
def test_an_agent_continues_with_blocks_where_its_chains_are_frozen(forbidden, kind):
    local, sampling, chains = after_gibbs(rings(forbidden=forbidden))
    agent = Agent(
        AgentContext(sampling, 0.0), local, chains.table(), LowerTable(local, chains), checks_for_frozen_chains=True
    )
    agent.sample(None, 0.05)
    assert type(agent.lower.chains) is kind and not agent.checks_for_frozen_chains
    assert (agent.table.lower[0].values >= chains.table().lower[0].values).all()
