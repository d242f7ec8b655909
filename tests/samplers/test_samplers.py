"""Local solvers: every row is a lower bound with a witness, independent of threads, and never worse with more work."""

import sys
from dataclasses import replace
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from support import naive
from support.problem_strategies import random_problem

from dmcmc import Factor, Problem
from dmcmc.inference.dpop.division import divide
from dmcmc.inference.execution.backend import CPU, Backend
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.errors import ConfigError, ResourceError
from dmcmc.samplers import registry
from dmcmc.samplers.blocks.starts import dual_states
from dmcmc.samplers.chain_solver import ChainSolver, DeviceSampling
from dmcmc.samplers.contract.protocol import Sampler, Sampling
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cpu.launch import Chains
from dmcmc.samplers.methods import gibbs, metropolis, tempering
from dmcmc.samplers.model.chain_model import build_model
from dmcmc.samplers.model.schedule import Round, Temperature, one_round
from dmcmc.samplers.model.state_kernels import random_state

PAPER_SAMPLERS = ("gibbs", "metropolis-hastings", "metropolis-hastings-single")  # one round from a random start
CHAINS = ("gibbs", "annealing", "tempering", "metropolis-hastings", "metropolis-hastings-single")
NUMBERS = {"int32": (9, False), "int64": (2**40, False), "floats": (1.0, True)}


def solved(problem, method, **options):
    """Return the local problems, their tables, and the arithmetic of the tables."""
    arithmetic = choose_arithmetic(problem.factors)
    locals_ = divide(problem).locals
    return locals_, registry.get(method).solve(locals_, Sampling(arithmetic=arithmetic, **options)), arithmetic


def rows(local, table, arithmetic):
    """Return V_i(b), dense over the interface, as plain numbers."""
    return naive.join(naive.plain_tables(table.lower, arithmetic), list(local.interface), local.domains)


def check_witnesses(local, table, values, tolerance):
    """Check that every row's value is the utility of its hidden assignment; rows proven infeasible may have any."""
    for b in np.ndindex(*values.shape):
        if table.exact and values[b] == -naive.INFINITY:
            continue
        interface = dict(zip(local.interface, b, strict=True))
        hidden = table.witness(interface)
        assert sorted(hidden) == list(local.hidden)
        assert all(0 <= hidden[v] < local.domains[v] for v in hidden)
        assert naive.same_numbers(naive.attained(local, interface | hidden), values[b], tolerance)


@pytest.mark.parametrize("method", ["metropolis-hastings-single", "annealing", "blocks"])
def test_rows_that_start_at_rounded_potentials_are_never_worse_than_these(method):
    problem = random_problem(45, 16, 3, 5, 24, 3, 1000, 0.05)
    locals_, tables, arithmetic = solved(problem, method, runs=2, samples=3, starts="dual")
    again = solved(problem, method, runs=2, samples=3, starts="dual")[1]
    for local, table, other in zip(locals_, tables, again, strict=True):
        found, same = rows(local, table, arithmetic), rows(local, other, arithmetic)
        assert (found == same).all()
        check_witnesses(local, table, found, arithmetic.rounding(len(local.factors)))
        states = dual_states(local, CPU)
        for b, hidden in zip(np.ndindex(*found.shape), states if local.hidden else (), strict=False):
            values = dict(zip(local.interface, b, strict=True)) | dict(zip(local.hidden, hidden.tolist(), strict=True))
            assert naive.attained(local, values) <= found[b]


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("method", ["exact", *CHAINS])
def test_sampled_rows_never_exceed_the_true_ones_and_witnesses_attain_them(method, numbers):
    magnitude, floats = NUMBERS[numbers]
    rows_below = 0
    for seed in range(40):
        problem = random_problem(seed, 8, 3, 3, 12, 4, magnitude, 0.1, floats)
        locals_, tables, arithmetic = solved(problem, method, runs=1, samples=2, seed=seed)
        tolerance = 0.0 if arithmetic.exact else 1e-9 * float(arithmetic.total)
        for local, table in zip(locals_, tables, strict=True):
            values, true = rows(local, table, arithmetic), naive.row_values(local)
            assert values.shape == true.shape == local.interface_shape
            for v, u in zip(values.ravel(), true.ravel(), strict=True):
                assert v <= u + tolerance
                rows_below += bool(v < u - tolerance)
            assert table.exact == (method == "exact")
            assert (table.upper is None) == (method != "exact")
            check_witnesses(local, table, values, tolerance)
    assert (rows_below > 0) == (method != "exact")  # one run of two trials does not find every optimum


@pytest.mark.parametrize("method", CHAINS)
def test_enough_samples_find_the_true_rows(method):
    for seed in range(10):
        problem = random_problem(seed, 6, 2, 3, 9, 3, 9, 0.05)
        locals_, tables, arithmetic = solved(problem, method, runs=10, samples=200)
        for local, table in zip(locals_, tables, strict=True):
            assert naive.same_numbers(rows(local, table, arithmetic), naive.row_values(local))


def bytes_of(locals_, tables):
    """Return everything that a solver found: the tables' bytes, and every witness."""
    return [
        (
            [(t.scope, t.values.tobytes()) for t in table.lower],
            [table.witness(dict(zip(local.interface, b, strict=True))) for b in np.ndindex(*local.interface_shape)],
        )
        for local, table in zip(locals_, tables, strict=True)
    ]


WIDE = random_problem(45, 16, 3, 5, 24, 3, 1000, 0.05)  # 108 rows with 7 hidden variables


@pytest.mark.parametrize("method", CHAINS)
def test_the_table_depends_on_the_seed_only_not_on_threads_or_batches(method):
    options = {"runs": 3, "samples": 4, "seed": 9}
    locals_, tables, arithmetic = solved(WIDE, method, **options)
    assert max(local.rows for local in locals_) > 20
    expected = bytes_of(locals_, tables)
    for threads in (2, 5):
        assert bytes_of(locals_, solved(WIDE, method, backend=Backend(threads=threads), **options)[1]) == expected
    alone = [registry.get(method).solve([p], Sampling(arithmetic, **options))[0] for p in reversed(locals_)]
    assert bytes_of(locals_, alone[::-1]) == expected
    assert bytes_of(locals_, solved(WIDE, method, **options | {"seed": 10})[1]) != expected


@pytest.mark.parametrize("method", PAPER_SAMPLERS)
def test_more_runs_or_samples_never_lower_a_row(method):
    """At a constant temperature a longer run repeats the shorter one and continues."""
    hot = Temperature.constant(50.0)
    wider = longer = 0
    for seed in range(8):
        problem = random_problem(seed, 14, 2, 3, 24, 3, 99, 0.05)

        def values(runs, samples, problem=problem, seed=seed):
            found = solved(problem, method, runs=runs, samples=samples, seed=seed, temperature=hot)
            return [rows(local, table, found[2]) for local, table in zip(*found[:2], strict=True)]

        start, more_runs, more_samples = values(1, 2), values(5, 2), values(1, 9)
        for little, wide, long in zip(start, more_runs, more_samples, strict=True):
            assert (wide >= little).all() and (long >= little).all()
            wider += bool((wide > little).any())
            longer += bool((long > little).any())
    assert wider and longer  # the additional chains are different chains


@pytest.mark.parametrize("method", CHAINS)
def test_without_a_feasible_state_the_witness_breaks_fewest_constraints_then_has_most_utility(method):
    """Of a ≠ b and a = b one is violated; a = 2 is forbidden too; utilities decide among the others."""
    hard = -naive.INFINITY
    unequal, equal = np.where(np.eye(3) > 0, hard, 0), np.where(np.eye(3) > 0, 0, hard)
    problem = Problem(
        variables=("a", "b"),
        domains=np.array([3, 3]),
        agents=("me",),
        owner=np.array([0, 0]),
        factors=(
            Factor.of((0, 1), unequal),
            Factor.of((1, 0), equal),
            Factor.of((0,), [1, 5, hard]),
            Factor.of((1,), [2, -7, 8]),
        ),
    )
    (local,), (table,), arithmetic = solved(problem, method, runs=20, samples=100)
    assert rows(local, table, arithmetic).item() == hard
    assert table.witness({}) == {0: 1, 1: 2}


def test_an_interface_too_large_to_enumerate_is_refused_with_advice():
    problem = random_problem(4, 14, 3, 5, 24, 3)
    local = max(divide(problem).locals, key=lambda p: p.rows)
    with pytest.raises(ResourceError, match=r"gibbs: .* rows .*local\.method: exact"):
        registry.get("gibbs").check(local, 50, choose_arithmetic(problem.factors))


def test_columns_that_do_not_fit_are_refused_with_advice():
    factors = (Factor.of((0, 1), np.zeros((99, 99))), Factor.of((1, 2), np.zeros((99, 99))))
    problem = Problem(("a", "b", "c"), np.array([99] * 3), ("me",), np.array([0] * 3), factors)
    local, arithmetic = divide(problem).locals[0], choose_arithmetic(factors)
    registry.get("gibbs").check(local, 1 << 20, arithmetic)
    with pytest.raises(ResourceError, match=r"gibbs: .* column entries.*divide it into more agents"):
        registry.get("gibbs").check(local, 1 << 17, arithmetic)


@pytest.mark.parametrize("hidden", [True, False])
def test_exact_tables_that_do_not_fit_are_refused_with_advice(hidden):
    owner = np.array([0, 0]) if hidden else np.array([0, 1])
    factors = (Factor.of((0, 1), np.zeros((9, 9))), Factor.of((0,), np.zeros(9)))
    problem = Problem(("a", "b"), np.array([9, 9]), ("me", "you"), owner, factors)
    local = divide(problem).locals[0]
    with pytest.raises(ResourceError, match=r"local\.method: exact .*budget\.memory leaves it 10"):
        registry.get("exact").check(local, 10, choose_arithmetic(problem.factors))


def model_of(scale):
    rng = np.random.default_rng(0)
    factors = (Factor.of((0, 1), scale * rng.integers(0, 99, (4, 5))), Factor.of((0,), scale * rng.integers(0, 99, 4)))
    problem = Problem(("a", "b"), np.array([4, 5]), ("me",), np.array([0, 0]), factors)
    return build_model(divide(problem).locals[0])


def test_temperatures():
    model = model_of(1)
    assert Temperature.constant(2.5).of_trials(model, 4).tolist() == [2.5] * 4
    assert np.allclose(Temperature(8.0, 1.0).of_trials(model, 4), [8, 4, 2, 1])
    assert np.allclose(Temperature(8.0, 2.0, "linear").of_trials(model, 4), [8, 6, 4, 2])
    assert np.allclose(Temperature(1.0, 8.0).of_trials(model, 4), [1, 2, 4, 8])
    assert Temperature(8.0, 1.0).of_trials(model, 1).tolist() == [1.0]


@pytest.mark.parametrize("shape", ["geometric", "linear"])
def test_a_temperature_of_zero_is_kept_and_other_trials_stay_finite(shape):
    model = model_of(1)
    assert Temperature(0.0, 0.0, shape).of_trials(model, 3).tolist() == [0, 0, 0]
    for start, end in ((4.0, 0.0), (0.0, 4.0)):
        found = Temperature(start, end, shape).of_trials(model, 5)
        assert (found[0], found[-1]) == (start, end) and (found[1:-1] > 0).all() and (found <= 4).all()
        assert Temperature(start, end, shape).of_trials(model, 1).tolist() == [end]


def test_a_ladder_of_temperatures_may_begin_at_zero():
    model = model_of(1)
    (frozen,), (mixed,) = (tempering.rounds(model, 3, Temperature(0.0, hot)) for hot in (0.0, 4.0))
    assert frozen.temperatures.tolist() == [0, 0, 0] and frozen.ladder_factors(4).tolist() == [1] * 4
    temperatures = mixed.temperatures[0] * mixed.ladder_factors(4)
    assert (temperatures > 0).all() and temperatures[-1] == pytest.approx(4.0)


def test_automatic_temperatures_cool_and_scale_with_the_utilities():
    cooled = Temperature().of_trials(model_of(1), 50)
    assert (cooled > 0).all() and (np.diff(cooled) < 0).all()
    assert np.allclose(Temperature().of_trials(model_of(1000), 50), 1000 * cooled, rtol=1e-4)


def test_an_unknown_sampler_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"unknown sampler 'gibs'; did you mean 'gibbs'\?") as caught:
        registry.get("gibs")
    assert all(name in str(caught.value) for name in ("auto", "exact", *CHAINS))
    assert list(registry.names()) == ["exact", "blocks", "toulbar2", "cp-sat", *CHAINS]


def _start(model, z, scores, rng):
    random_state(model, z, rng)
    return 0


def _stay(model, z, scores, utility, scratch, rng, trial, temperature):
    return utility


LAZY = Sampler(name="lazy", summary="stays where it starts", init=_start, step=_stay)
EXACT_AGAIN = replace(ChainSolver(metropolis.SAMPLER), sampler=LAZY)
NEITHER = 7


@pytest.mark.slow
def test_plug_ins_of_other_distributions_are_found_and_broken_ones_say_why(monkeypatch):
    values = {"lazy": "LAZY", "solver": "EXACT_AGAIN", "bad": "NEITHER", "absent": "NOTHING", "gibbs": "LAZY"}
    points = [EntryPoint(name, f"plug_ins_for_this_test:{what}", registry.GROUP) for name, what in values.items()]
    monkeypatch.setattr(
        "dmcmc.inference.runtime.plugins.entry_points", lambda group: [p for p in points if p.group == group]
    )
    monkeypatch.setitem(sys.modules, "plug_ins_for_this_test", sys.modules[__name__])
    assert registry.get("gibbs").summary != LAZY.summary  # built-in samplers are not replaced
    assert registry.names()["lazy"] == registry.names()["solver"] == LAZY.summary
    assert "neither a Sampler nor a LocalSolver" in registry.names()["bad"]
    assert "AttributeError" in registry.names()["absent"]
    with pytest.raises(ConfigError, match="'bad'"):
        registry.get("bad")
    locals_, tables, arithmetic = solved(WIDE, "lazy", runs=1, samples=3)
    for local, table in zip(locals_, tables, strict=True):
        check_witnesses(local, table, rows(local, table, arithmetic), 0.0)


@pytest.mark.parametrize("method", CHAINS)
def test_the_samples_drawn_for_a_row_are_counted(method):
    """A guarantee depends on this number: R·S for the paper's samplers, never more than the draws that were made."""
    problem = random_problem(3, 8, 2, 3, 14, 3, 9, 0.0)
    for local, table in zip(*solved(problem, method, runs=3, samples=20)[:2], strict=True):
        assert table.drawn == 60
        assert table.updates == 60 * local.rows * len(local.hidden)
    assert all(table.drawn == 0 for table in solved(problem, "exact")[1])


@pytest.mark.parametrize("hard", [0.1, 0.45])
def test_later_passes_keep_the_state_with_fewest_violations_then_most_utility(hard):
    """Two infeasible states of a row both have utility −∞, but VALUE should end in the better assignment."""
    problem = random_problem(11, 7, 1, 3, 16, 2, 9, hard)
    undivided = divide(problem).locals[0]
    local = replace(undivided, interface=undivided.hidden[:2], hidden=undivided.hidden[2:])
    sampling = Sampling(arithmetic=choose_arithmetic(problem.factors))
    chains = Chains(local, sampling, gibbs.SAMPLER, compile_chains(gibbs.SAMPLER))
    rng, shape = np.random.default_rng(0), local.interface_shape
    passes = [rng.integers(0, local.domains[list(local.hidden)], (local.rows, len(local.hidden))) for _ in range(40)]

    def worth(row, state):
        values = dict(zip(local.interface, np.unravel_index(row, shape), strict=True))
        values |= dict(zip(local.hidden, state.tolist(), strict=True))
        entries = [naive.utilities(f.table)[tuple(values[v] for v in f.scope)] for f in local.factors]
        violations = sum(entry == -naive.INFINITY for entry in entries)
        return -violations, sum(entry for entry in entries if entry > -naive.INFINITY)

    found = DeviceSampling(chains, passes[0].astype(np.uint8))
    for states in passes[1:]:
        found.keep_better(states.astype(np.uint8))
    best = [max(worth(row, states[row]) for states in passes) for row in range(local.rows)]
    assert [worth(row, found.states[row]) for row in range(local.rows)] == best


@pytest.mark.parametrize("hard", [0.0, 0.2])
@pytest.mark.parametrize("temperature", [1e-44, 1e-38, 1e-30, 3e38, float("inf"), float("nan")])
def test_a_draw_is_inside_the_domain_at_any_temperature(temperature, hard):
    """A denormal temperature used to give NaN weights, and a value of 124 in a domain of 6."""
    problem = random_problem(5, 8, 1, 4, 16, 2, 9, hard)
    round_ = Round(np.full(30, temperature, dtype=np.float32))
    solver = ChainSolver(gibbs.SAMPLER._replace(rounds=lambda model, samples, temperature: [round_]))
    (local,) = divide(problem).locals
    arithmetic = choose_arithmetic(problem.factors)
    (table,) = solver.solve([local], Sampling(arithmetic=arithmetic, runs=4))
    check_witnesses(local, table, rows(local, table, arithmetic), 0.0)


@pytest.mark.parametrize(("start", "end"), [(1e-300, 1e-320), (1e300, 1e-300), (1e-30, 1e30)])
@pytest.mark.parametrize("shape", ["geometric", "linear"])
@pytest.mark.parametrize("method", CHAINS)
def test_temperatures_fit_single_precision(method, shape, start, end):
    model = build_model(divide(random_problem(5, 8, 1, 4, 16, 2, 9, 0.1)).locals[0])
    sampler = registry.get(method).sampler
    for scale in (1.0, 2.0**-1000, 2.0**800):
        for round_ in (sampler.rounds or one_round)(model._replace(scale=scale), 9, Temperature(start, end, shape)):
            temperatures = (
                np.outer(round_.temperatures, round_.ladder_factors(5)) if sampler.exchange else round_.temperatures
            )
            assert np.isfinite(temperatures).all() and (temperatures > 1e-30).all() and (1 / temperatures > 1e-30).all()
