"""Chains on the GPU, or under Numba's simulator: the states are bitwise those of the CPU."""

import numpy as np
import pytest

from dmcmc.cli.warm_up_child import GPU_STAGES
from dmcmc.inference.bounds.dual.dual_bound import DualState
from dmcmc.inference.bounds.dual.rounding import rounding_of
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.model.problem import Factor
from dmcmc.inference.runtime.device import gpu_problem
from dmcmc.samplers.cpu.chain_kernels import compile_chains
from dmcmc.samplers.cuda import descriptors, launch
from dmcmc.samplers.cuda.batch import choose_launch, pack_models
from dmcmc.samplers.cuda.gibbs_kernels import ALL_COLUMNS, DOUBLE_BUFFER, GLOBAL, SINGLE_BUFFER, gibbs_kernel
from dmcmc.samplers.cuda.joint_proposals import choose_lanes
from dmcmc.samplers.cuda.launch import divide_into_launches, sample_rows
from dmcmc.samplers.cuda.load_gibbs import load_gibbs, needed_shapes, shapes_of_domain
from dmcmc.samplers.methods import gibbs, metropolis, metropolis_single
from dmcmc.samplers.model.chain_model import build_model
from dmcmc.samplers.model.evaluation import chain_utilities
from dmcmc.samplers.model.rng import chain_key
from dmcmc.samplers.model.rounds import Round

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

RUNS = 3
KINDS = [{}, {"hard": 0.3}, {"arity": 3}, {"floats": True}, {"hard": 0.3, "arity": 3}, {"domain": 40}]


def random_local(seed, agent, hard=0.0, arity=2, floats=False, domain=9):
    rng = np.random.default_rng(seed)
    n, interface = int(rng.integers(3, 6)), int(rng.integers(0, 3))
    domains = rng.integers(max(1, domain - 2), domain + 1, n)
    domains[:interface] = rng.integers(1, 4, interface)
    factors = []
    for _ in range(7):
        scope = tuple(int(v) for v in rng.choice(n, size=int(rng.integers(1, arity + 1)), replace=False))
        table = rng.integers(0, 100, [int(domains[v]) for v in scope]) * (0.37 if floats else 1.0)
        table[rng.random(table.shape) < hard] = -np.inf
        factors.append(Factor.of(scope, table))
    return LocalProblem(agent, tuple(range(interface)), tuple(range(interface, n)), tuple(factors), domains)


def rounds_of(model):
    hot = np.geomspace(2 * model.spread, 0.2 * model.spread, 2).astype(np.float32)
    cold = np.array([0.3 * model.spread], np.float32)
    return [
        Round(hot, ladder=3.0),
        Round(cold, warm=True, descent=2, ladder=3.0),
        Round(hot, warm=True, repair=True, ladder=3.0),
    ]


def on_cpu(sampler, local, model, key, rounds, begun=None):
    shape, rows = np.array(local.interface_shape, dtype=np.int64), local.rows
    before, after = (
        (np.full(rows, np.iinfo(np.int64).min), np.zeros((rows, model.hidden), dtype=np.uint8)) for _ in range(2)
    )
    first, after = 1, begun or after
    for round_ in rounds:
        before, after = after, before
        compile_chains(sampler)(
            model, shape, 0, rows, RUNS, round_.temperatures, round_.ladder_factors(RUNS), first, round_.warm,
            round_.repair, round_.descent,
            np.array(key, dtype=np.uint64), before, after, np.zeros(1, dtype=np.uint8),
        )  # fmt: skip
        first += round_.temperatures.size
    return after[1]


def check_states(sampler, locals_, limit=None, rounds_of=rounds_of):
    models = [build_model(local) for local in locals_]
    keys = [chain_key(5, local.agent) for local in locals_]
    rounds = [rounds_of(model) for model in models]
    found = sample_rows(sampler, models, keys, rounds, RUNS, limit)
    for local, model, key, of_agent, states in zip(locals_, models, keys, rounds, found, strict=True):
        np.testing.assert_array_equal(on_cpu(sampler, local, model, key, of_agent), states)


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("number", range(len(KINDS)))
def test_gibbs_chains_equal_those_of_the_cpu(number, exchange):
    locals_ = [random_local(10 * number + agent, agent, **KINDS[number]) for agent in range(2)]
    check_states(gibbs.SAMPLER._replace(exchange=exchange), locals_)


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("sampler", [metropolis.SAMPLER, metropolis_single.SAMPLER], ids=lambda s: s.name)
def test_chains_of_any_sampler_equal_those_of_the_cpu(sampler, exchange):
    locals_ = [random_local(seed, seed, **kind) for seed, kind in enumerate(KINDS[:4])]
    check_states(sampler._replace(exchange=exchange), locals_)


@pytest.mark.parametrize("kind", KINDS)
def test_joint_proposal_chains_equal_those_of_the_cpu(kind):
    def one_round(model):
        return [Round(np.full(6, 2 * model.spread, dtype=np.float32))]

    locals_ = [random_local(seed, seed, **kind) for seed in range(3)]
    check_states(metropolis.SAMPLER, locals_, rounds_of=one_round)
    check_states(metropolis.SAMPLER, locals_, limit=200, rounds_of=one_round)


def test_lanes_per_chain_depend_on_work_and_number_of_chains():
    headers = np.zeros((2, descriptors.HEADER_SIZE), dtype=np.int64)
    headers[:, descriptors.ROWS], headers[:, descriptors.RUNS] = 24, 10
    headers[:, descriptors.FACTORS], headers[:, descriptors.HIDDEN], headers[:, descriptors.VARIABLES] = 600, 50, 51
    assert choose_lanes(headers, True, 200_000) == (32, 128)
    assert choose_lanes(headers, True, 4_000) == (8, 128)
    headers[:, descriptors.VARIABLES] = 2_000
    assert choose_lanes(headers, False, 1_000) == (8, 32)
    headers[:, descriptors.VARIABLES] = 100_000
    assert choose_lanes(headers, False, 1_000) is None
    headers[:, descriptors.FACTORS], headers[:, descriptors.HIDDEN], headers[:, descriptors.VARIABLES] = 3, 2, 3
    assert choose_lanes(headers, True, 200_000) == (4, 128)


def test_chains_start_from_dual_starts():
    locals_ = [random_local(seed, seed, hard=0.1, arity=3, domain=4) for seed in (2, 3)]
    models, begun = [build_model(local) for local in locals_], []
    for local, model in zip(locals_, models, strict=True):
        rows, rounding = np.arange(local.rows), rounding_of(DualState(local, triangles=True), 0, fixed_interface=True)
        states = rounding.rows(rows)
        begun.append((chain_utilities(model, local.interface_shape, rows, states), states.astype(np.uint8)))
    keys = [chain_key(5, local.agent) for local in locals_]
    rounds = [[round_._replace(warm=True) for round_ in rounds_of(model)] for model in models]
    found = sample_rows(gibbs.SAMPLER, models, keys, rounds, RUNS, initial=begun)
    for args in zip(locals_, models, keys, rounds, begun, found, strict=True):
        np.testing.assert_array_equal(on_cpu(gibbs.SAMPLER, *args[:-1]), args[-1])


def test_rows_that_exceed_the_memory_are_sampled_in_several_launches():
    locals_ = [random_local(seed, seed) for seed in range(3)]
    check_states(gibbs.SAMPLER, locals_, limit=2000)
    check_states(metropolis_single.SAMPLER, locals_, limit=2000)


def test_launches_cover_every_row_once():
    headers = np.zeros((3, descriptors.HEADER_SIZE), dtype=np.int64)
    headers[:, descriptors.ROWS], headers[:, descriptors.RUNS] = [5, 1, 40], 3
    for max_blocks in (1, 2, 7, 100):
        seen = []
        for parts, part_of_block in divide_into_launches(headers, 8, max_blocks):
            for number, (agent, row, rows, block) in enumerate(parts.reshape(-1, 4).tolist()):
                assert (part_of_block[block : block + -(-rows * 3 // 8)] == number).all()
                seen += [(agent, row + i) for i in range(rows)]
        assert seen == [(agent, row) for agent, rows in enumerate((5, 1, 40)) for row in range(rows)]


def test_the_staging_of_columns_depends_on_the_shared_memory():
    locals_ = [random_local(1, 0, domain=12)]
    batch = pack_models([build_model(local) for local in locals_], [(1, 2)], 100)
    stages = [choose_launch(batch, 100, 1, limit, 132, 768).shape.stage for limit in (200_000, 5_000, 3_000, 500)]
    assert stages == sorted(stages, reverse=True)
    assert (
        stages[0] == ALL_COLUMNS
        and stages[-1] == GLOBAL
        and set(stages) <= {ALL_COLUMNS, DOUBLE_BUFFER, SINGLE_BUFFER, GLOBAL}
    )
    assert choose_launch(batch, 100, 1, 8, 132, 768) is None


def test_a_loaded_kernel_is_preferred_if_it_fits(monkeypatch):
    local = random_local(1, 0, domain=12)
    batch = pack_models([build_model(local)], [(1, 2)], 100)
    assert choose_launch(batch, 100, 1, 200_000, 132, 768).shape.stage == ALL_COLUMNS
    assert choose_launch(batch, 100, 1, 200_000, 132, 768, [GLOBAL]).shape.stage == GLOBAL
    assert choose_launch(batch, 100, 1, 500, 132, 768, [ALL_COLUMNS]).shape.stage == GLOBAL

    stages = []
    monkeypatch.setattr(launch, "LAUNCHED_SHAPES", {batch.shape._replace(stage=GLOBAL)})
    monkeypatch.setattr(launch, "gpu_limits", lambda registers: (200_000, 132, 768))
    monkeypatch.setattr(
        launch, "gibbs_kernel", lambda shape, registers: stages.append(shape.stage) or gibbs_kernel(shape, registers)
    )
    for at_hand in (True, False, True):
        model = build_model(local)
        sample_rows(gibbs.SAMPLER, [model], [(1, 2)], [[Round(np.ones(1, dtype=np.float32))]], 1, prefer_loaded=at_hand)
    assert stages == [GLOBAL, ALL_COLUMNS, ALL_COLUMNS]


@pytest.fixture
def chosen(monkeypatch):
    """The Gibbs kernels that are chosen for launches, which are left out, on a card with the limits of an H100."""
    found = set()
    monkeypatch.setattr(launch, "gibbs_kernel", lambda shape, registers: found.add(shape))
    monkeypatch.setattr(launch, "gpu_limits", lambda registers: (227 << 10, 132, 768))
    monkeypatch.setattr(launch.ChainLauncher, "run", lambda self, rounds, limit, initial=None: [None] * len(rounds))
    return found


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_that_agents_need_is_loaded_without_them(kind, exchange, chosen):
    sampler = gibbs.SAMPLER._replace(exchange=exchange)
    models = [build_model(random_local(seed, 0, **kind)) for seed in range(4)]
    needed = needed_shapes(sampler, models, [1, RUNS])
    for shape in needed:
        load_gibbs(shape)
    assert chosen == set(needed)
    for runs in (1, RUNS):
        sample_rows(sampler, models, [(1, 2)] * len(models), [[Round(np.ones(1, dtype=np.float32))]] * 4, runs)
    assert chosen == set(needed)


@pytest.mark.parametrize("size", [3, 10, 24, 96, 300])
def test_the_kernel_of_each_place_of_the_columns_is_loaded(size, chosen):
    shapes = shapes_of_domain(size)
    for shape in shapes:
        load_gibbs(shape)
    assert chosen == set(shapes)


def test_a_domain_has_a_kernel_for_each_place_of_the_columns():
    shapes = shapes_of_domain(24)
    assert [shape.stage for shape in shapes] == [GLOBAL, SINGLE_BUFFER, DOUBLE_BUFFER, ALL_COLUMNS]
    assert len(shapes) == GPU_STAGES, "the warm-up compiles all of them"
    assert {shape.max_words for shape in shapes} == {6} and shapes[0].no_padding
    assert not shapes_of_domain(10)[0].no_padding


@pytest.mark.parametrize("exchange", [False, True])
@pytest.mark.parametrize("hard", [0.0, 0.3])
def test_draws_are_inside_the_domain_at_any_temperature(exchange, hard):
    """A denormal temperature used to give NaN weights, and values beyond the domain, on both processors."""
    sampler, local = gibbs.SAMPLER._replace(exchange=exchange), random_local(3, 0, hard)
    model, key = build_model(local), chain_key(5, 0)
    temperatures = [1e-30, 3e38] if exchange else [1e-44, 1e-38, 1e-30, 3e38, np.inf, np.nan]
    rounds = [Round(np.array(temperatures, dtype=np.float32), descent=1)]
    with np.errstate(all="ignore"):
        (states,) = sample_rows(sampler, [model], [key], [rounds], RUNS)
        assert states is not None
        assert (states < model.domains[: model.hidden]).all()
        np.testing.assert_array_equal(on_cpu(sampler, local, model, key, rounds), states)
