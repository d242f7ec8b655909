"""A bound below an attained utility is an error that names its source, the agent and the row, never a proof."""

from types import SimpleNamespace

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.solving.agent import agent as agents
from dmcmc.solving.agent.bounds import BoundError


class FactorSums:
    """A bound of the rows: for each factor the result of a function over its hidden variables, at times too low."""

    exhausted = True

    def __init__(self, local, backend, function):
        self.local, self.backend, self.function = local, backend, function

    def improve(self, seconds=None, sweeps=None, rows=None):
        """Do nothing."""

    def tables(self, arithmetic):
        found = []
        for factor in self.local.factors:
            axes = tuple(i for i, v in enumerate(factor.scope) if v in self.local.hidden)
            scope = tuple(v for v in factor.scope if v in self.local.interface)
            found.append(arithmetic.encode(Factor(scope, np.asarray(self.function(factor.table, axis=axes)))))
        return tuple(found)


@pytest.fixture
def provider(monkeypatch):
    """Register a bound provider that applies a function to the factors."""

    def register(function):
        plugin = SimpleNamespace(name="sums", summary="sums", start=lambda local, on: FactorSums(local, on, function))
        entry = SimpleNamespace(name="sums", value="example", load=lambda: plugin)
        found = lambda group: [entry] if group == "dmcmc.bounds" else []  # noqa: E731
        monkeypatch.setattr("dmcmc.inference.runtime.plugins.entry_points", found)

    return register


def teams(seed, largest=20, agents=3, size=4):
    """Return agents with hidden variables, each of which shares a factor with the next one."""
    rng, build = np.random.default_rng(seed), Problem.build(sense=("max", "min")[seed % 2])
    for a in range(agents):
        own = [build.variable(f"x{a}.{i}", 3, agent=f"a{a}") for i in range(size)]
        for i, name in enumerate(own):
            build.factor((name, own[i - 1]), rng.integers(0, largest, (3, 3)) / (1 if seed % 3 else 7))
    for a in range(agents):
        build.factor((f"x{a}.0", f"x{(a + 1) % agents}.0"), rng.integers(0, largest, (3, 3)))
    return build.problem()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("settings", [{}, {"gap": 0.5}, {"presolve": "none", "rows": 2}])
def test_a_plug_in_that_is_no_bound_is_named_with_its_agent_and_row(provider, seed, settings):
    settings = {"local": {"method": "annealing", "bound": "sums"} | ({"rows": 2} if "rows" in settings else {})} | {
        name: value for name, value in settings.items() if name != "rows"
    }
    provider(np.max)
    best = dmcmc.solve(teams(seed)).objective
    found = dmcmc.solve(teams(seed), **settings)
    is_bounded = found.bound >= best if found.sense == "max" else found.bound <= best
    assert is_bounded or found.bound == pytest.approx(best)
    provider(np.min)
    with pytest.raises(BoundError, match=r"bound provider 'sums', a plug-in: agent 'a\d', row \d+ \(x\d") as error:
        dmcmc.solve(teams(seed), **settings)
    assert "\n" not in str(error.value)


def test_a_bound_of_our_own_that_is_too_low_is_an_error_of_the_program(monkeypatch):
    right = DualState.tables

    def too_low(self, arithmetic):
        first, *others = right(self, arithmetic)
        return (first._replace(values=first.values - 1000), *others)

    monkeypatch.setattr(DualState, "tables", too_low)
    with pytest.raises(BoundError, match="an error of dmcmc, please report it: agent"):
        dmcmc.solve(teams(1), method="annealing", bound="dual")


def test_a_bound_below_the_utility_of_the_incumbent_is_found_where_the_rows_attain_less(monkeypatch, provider):
    """Rows that are never better than their worst value do not show it, the incumbent does."""
    provider(np.min)
    worst = agents.Agent.rows
    monkeypatch.setattr(
        agents.Agent,
        "rows",
        lambda self, tables: np.minimum(worst(self, tables), worst(self, self.table.upper)),
    )
    with pytest.raises(BoundError, match="bound provider 'sums'"):
        dmcmc.solve(teams(1), method="annealing", bound="sums")
