"""Statistics of chains: autocorrelation times, recorded chains, and what a guarantee says of frozen chains."""

import numpy as np
import pytest
from rich.console import Console

import dmcmc
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor, choose_arithmetic
from dmcmc.report.summary import result_summary as summary
from dmcmc.results.result import ChainReport, guarantee_report
from dmcmc.samplers.contract.chain_statistics import autocorrelation_time, statistics_of
from dmcmc.samplers.contract.protocol import Sampling
from dmcmc.samplers.cpu.trace_kernels import compile_trace
from dmcmc.samplers.methods import gibbs
from dmcmc.samplers.model.schedule import Temperature
from dmcmc.samplers.registry import get


def test_independent_samples_have_an_autocorrelation_time_of_one():
    assert autocorrelation_time(np.random.default_rng(0).normal(size=20_000)) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("coefficient", [0.5, 0.9])
def test_the_time_of_an_autoregressive_series_is_the_theoretical_one(coefficient):
    rng, series = np.random.default_rng(1), np.zeros(100_000)
    for t, noise in enumerate(rng.normal(size=series.size - 1)):
        series[t + 1] = coefficient * series[t] + noise
    expected = (1 + coefficient) / (1 - coefficient)
    assert autocorrelation_time(series) == pytest.approx(expected, rel=0.15)


def test_a_frozen_chain_is_worth_one_sample_and_an_independent_one_all_of_its_samples():
    rng = np.random.default_rng(2)
    still = np.full(400, 7), np.zeros((400, 2), dtype=np.int32)
    moving = rng.integers(0, 1000, 400), rng.integers(0, 1000, (400, 2)).astype(np.int32)
    frozen, mixed = (statistics_of([u], [s], runs=3) for u, s in (still, moving))
    assert (frozen.distinct_states, frozen.frozen, frozen.effective_samples) == (1, 1, 3)
    assert mixed.frozen == 0 and mixed.distinct_states > 390
    assert 0.7 * 1200 < mixed.effective_samples <= 1200


def agent(largest):
    """Return an agent with four rows and five hidden variables of four values."""
    rng = np.random.default_rng(3)
    pairs = [(i, j) for i in range(6) for j in range(i)]
    factors = tuple(Factor.of(pair, rng.integers(0, largest, (4, 4))) for pair in pairs)
    return LocalProblem(0, (0,), (1, 2, 3, 4, 5), factors, np.full(6, 4, dtype=np.int64))


def test_recorded_chains_are_those_that_were_sampled():
    local = agent(4)
    settings = Sampling(arithmetic=choose_arithmetic(local.factors), runs=2, samples=30, temperature=Temperature(1, 1))
    chains = get("gibbs").start([local], settings)[0]
    trace = compile_trace(gibbs.SAMPLER)
    for row in range(local.rows):
        best = -np.inf
        for run in range(2):
            utilities, states = np.zeros(30, dtype=np.int64), np.zeros((30, 5), dtype=np.int32)
            temperatures = chains.current.rounds[0].temperatures
            trace(chains.model, chains.shape, row, run, temperatures, 1, chains.current.key, utilities, states)
            best = max(best, utilities.max())
            assert np.any(np.all(states == chains.states[row], axis=1)) or best < chains.best.after[0][row]
        assert best == chains.best.after[0][row]  # 30 sweeps improve on every random start


@pytest.mark.parametrize("method", ["gibbs", "metropolis-hastings"])
def test_a_guarantee_is_meaningful_only_if_enough_samples_are_effective(method):
    problem = dmcmc.generate("random", agents=2, variables_per_agent=5, domain_size=4)
    local = {"method": method, "guarantee": {"alpha": 0.2, "epsilon": 0.2}, "runs": 4, "bound": "none"}
    cold, hot = (
        dmcmc.solve(problem, local=local | {"temperature": temperature}, presolve="none")
        for temperature in (0.001, 1e9)
    )
    assert not cold.guarantee.meaningful and cold.guarantee.note.startswith("not meaningful")
    assert cold.guarantee.effective_samples < 25 <= cold.guarantee.samples
    assert {chain.chains for chain in (metrics.chains for metrics in hot.agents)} == {8}
    assert hot.agents[0].chains.distinct_states > cold.agents[0].chains.distinct_states
    assert "it assumes 25 independent samples" in hot.guarantee.note


def test_statistics_are_made_only_on_request():
    problem = dmcmc.generate("random", agents=2, variables_per_agent=4, domain_size=3)
    plain = dmcmc.solve(problem, method="gibbs", temperature=1, bound="none")
    asked = dmcmc.solve(problem, method="gibbs", temperature=1, bound="none", diagnose=True)
    annealed = dmcmc.solve(problem, method="annealing", bound="none", diagnose=True)
    assert [metrics.chains for metrics in (*plain.agents, *annealed.agents)] == [None] * 4
    assert all(metrics.chains.samples == 100 for metrics in asked.agents)
    assert plain.objective == asked.objective
    console = Console(width=200)
    with console.capture() as shown:
        console.print(summary(asked))
    assert "effective samples of a row" in shown.get() and "tables alone" in shown.get()


def test_the_report_of_a_guarantee_takes_the_agent_that_mixes_worst():
    mixing, frozen = (ChainReport(8, 100, states, 1.0, states, 1.0 - states / 100) for states in (100, 2))
    report = guarantee_report(0.1, 0.2, 100, 2, [mixing, None, frozen])
    assert (report.effective_samples, report.meaningful) == (2, False)
    assert guarantee_report(0.1, 0.2, 100, 2, [mixing]).meaningful
    assert guarantee_report(0.1, 0.2, 100, 2).effective_samples is None


def test_the_tables_alone_have_the_objective_of_a_run_without_local_search():
    problem = dmcmc.generate("meeting-scheduling", agents=4, variables_per_agent=5, domain_size=8, seed=5)
    options = {"method": "metropolis-hastings", "temperature": 1, "runs": 1, "samples": 5, "bound": "none"}
    alone = dmcmc.solve(problem, local_search="none", **options)
    searched = dmcmc.solve(problem, **options)
    assert alone.tables_objective == alone.objective
    assert searched.objective >= searched.tables_objective
