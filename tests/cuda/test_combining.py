"""Agents combined on a GPU, from tables that stay there, give bit by bit the answer of message passing.

Runs under Numba's simulator.
"""

import numpy as np
import pytest

import dmcmc
from dmcmc import Factor, Problem
from dmcmc.inference import tuning
from dmcmc.inference.dpop.division import LocalProblem
from dmcmc.inference.elimination.cuda.eliminate import divide_work, eliminate_hybrid
from dmcmc.inference.elimination.eliminate import absorb, eliminate
from dmcmc.inference.elimination.plan import plan_elimination
from dmcmc.inference.execution import gpu_eliminations
from dmcmc.inference.execution.backend import Backend
from dmcmc.inference.execution.cost_model import CostModel
from dmcmc.inference.model.arithmetic import EncodedTable
from dmcmc.inference.model.device_table import DeviceTable, copy_table, largest_entry
from dmcmc.inference.model.factor import choose_arithmetic
from dmcmc.inference.runtime.device import Device, gpu_problem, shared_device
from dmcmc.samplers.cuda.evaluation import evaluate_on_device
from dmcmc.samplers.model.evaluation import evaluate_rows
from dmcmc.session.changes import Changes

pytestmark = pytest.mark.skipif(gpu_problem() is not None, reason=f"no GPU and no simulator: {gpu_problem()}")

DOMAINS = np.array([2, 3, 4, 3, 2])


@pytest.fixture
def all_on_gpu(monkeypatch):
    """Let even tiny buckets run on the GPU and their results stay there."""
    monkeypatch.setattr(tuning, "SMALL_STEP_CELLS", 2)
    monkeypatch.setattr("dmcmc.inference.tuning.GPU_THRESHOLDS", np.array([1]))
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", CostModel(seconds_per_cell=1.0))


@pytest.fixture
def copied(monkeypatch):
    """Return the list of tables whose entries were copied to the host."""
    tables, values = [], DeviceTable.values.fget
    monkeypatch.setattr(DeviceTable, "values", property(lambda table: tables.append(table) or values(table)))
    return tables


def encoded(*scopes):
    rng = np.random.default_rng(len(scopes))
    factors = [
        Factor.of(s, np.where(rng.random(DOMAINS[list(s)]) < 0.2, -np.inf, rng.integers(-9, 9, DOMAINS[list(s)])))
        for s in scopes
    ]
    arithmetic = choose_arithmetic(factors)
    return [arithmetic.encode(factor) for factor in factors], arithmetic


def both(tables, order, keep, arithmetic):
    plan = plan_elimination([t.scope for t in tables], DOMAINS, order, keep)
    on_device = eliminate_hybrid(tables, divide_work(plan, 1, 1), arithmetic)
    return eliminate([EncodedTable(t.scope, t.values) for t in tables], plan, arithmetic), on_device


def test_an_elimination_reads_the_tables_of_another_on_the_device(copied):
    tables, arithmetic = encoded((0, 1), (1, 2, 3), (3, 4), (2, 4))
    ((_, expected),), ((remaining),) = (done.remaining() for done in both(tables[:2], [1], [3, 0, 2], arithmetic))
    assert isinstance(remaining, DeviceTable) and not copied
    given = [tables[2], remaining, tables[3]]
    cpu, gpu = both(given, [4, 0], [2, 3], arithmetic)
    before = len(copied)  # the elimination on the CPU has read entries
    again = eliminate_hybrid(given, divide_work(cpu.plan, 1, 1), arithmetic)
    chosen = np.zeros((3, DOMAINS.size), dtype=np.int64)
    for done, values in zip((cpu, gpu, again), chosen, strict=True):
        done.choose(values)
    assert len(copied) == before
    assert np.array_equal(remaining.values, expected)
    assert (chosen == chosen[0]).all()
    for done in (gpu, again):
        assert all(np.array_equal(a.values, b.values) for a, b in zip(cpu.remaining(), done.remaining(), strict=True))


def test_entries_are_counted_compared_and_added_on_the_device(copied):
    tables, arithmetic = encoded((0, 1), (1, 2, 3), (3, 0), (2,))
    _, gpu = both(tables[:2], [1], [0, 2, 3], arithmetic)
    (left,) = gpu.remaining()
    counted, most = left.count(arithmetic.forbidden_below), largest_entry(left)
    (total,) = absorb([tables[2], left, tables[3]], arithmetic)
    assert isinstance(total, DeviceTable) and not copied
    assert counted == np.count_nonzero(left.values > arithmetic.forbidden_below)
    assert most == left.values.max()
    (expected,) = absorb([tables[2], EncodedTable(left.scope, left.values), tables[3]], arithmetic)
    assert total.scope == expected.scope
    assert np.array_equal(total.values, expected.values)


def test_a_copy_goes_to_the_host_where_the_device_is_full(monkeypatch, copied):
    tables, arithmetic = encoded((0, 1), (1, 2, 3))
    _, gpu = both(tables, [1], [0, 2, 3], arithmetic)
    (left,) = gpu.remaining()
    assert isinstance(copy_table(left), DeviceTable) and not copied

    def full(*_):
        raise MemoryError("CUDA_ERROR_OUT_OF_MEMORY")

    monkeypatch.setattr(Device, "lease", full)
    table = copy_table(left)
    assert not isinstance(table, DeviceTable)
    assert np.array_equal(table.values, left.values)


@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_rows_are_evaluated_on_the_device_as_on_the_host(dtype, copied):
    rng = np.random.default_rng(4)
    factors = []
    for scope in ((0, 1), (1, 2, 3), (3,), (2, 4), (0, 4)):
        table = rng.integers(-9, 9, DOMAINS[list(scope)]) / (1 if dtype is np.int32 else 7)
        factors.append(Factor.of(scope, np.where(rng.random(table.shape) < 0.2, -np.inf, table)))
    local = LocalProblem(0, (0, 3, 4), (1, 2), tuple(factors), DOMAINS)
    arithmetic, flat = choose_arithmetic(factors), local.graph.flat
    assert arithmetic.dtype == dtype
    domains = DOMAINS[[*local.hidden, *local.interface]].astype(np.int32)
    states = (rng.random((local.rows, 2)) * DOMAINS[list(local.hidden)]).astype(np.uint8)
    found = evaluate_on_device(flat, domains, states, local.interface, arithmetic)
    assert not copied
    assert np.array_equal(found.values, evaluate_rows(flat, domains, states, local.interface_shape, arithmetic))
    assert (found.values == arithmetic.lowest).any()


@pytest.mark.parametrize("mode", ["dpop", "shared"])
def test_sampled_tables_stay_on_the_device_from_sampling_to_value(mode, all_on_gpu, copied, monkeypatch):
    monkeypatch.setattr(Backend, "samples_on_gpu", lambda *_: False)  # the simulator is too slow for chains
    problem, wanted = (
        dmcmc.generate("random", agents=3, variables_per_agent=4, domain_size=2, interface_variables=2, seed=3),
        {"method": "annealing", "runs": 1, "samples": 5, "bound": "none", "local_search": "none", "seed": 7},
    )
    shared_device()  # chains on the device would have opened it
    expected, found = (
        dmcmc.solve(problem, device=device, combine={"mode": mode}, **wanted) for device in ("cpu", "cuda")
    )
    assert (found.objective, found.assignment) == (expected.objective, expected.assignment)
    assert not copied


@pytest.mark.parametrize("mode", ["dpop", "shared"])
def test_a_run_leaves_its_tables_on_the_device(mode, all_on_gpu, copied):
    problem = dmcmc.generate(
        "random", agents=3, variables_per_agent=4, domain_size=2, interface_variables=2, local_density=0.9, seed=3
    )
    expected, found = (
        dmcmc.solve(problem, method="exact", device=device, combine={"mode": mode}, seed=7)
        for device in ("cpu", "cuda")
    )
    assert (found.objective, found.bound, found.assignment) == (
        expected.objective,
        expected.bound,
        expected.assignment,
    )
    assert found.agents[0].messages == expected.agents[0].messages
    assert not copied


def test_a_session_leaves_its_tables_on_the_device(all_on_gpu, copied):
    """After a change no table is fetched to compare it with that of the last run; a root's table is its bound."""
    problem = dmcmc.generate("random", agents=3, variables_per_agent=3, domain_size=2, interface_variables=2, seed=3)
    session = dmcmc.Session(problem, method="exact", combine={"mode": "dpop"}, device="cuda")
    session.solve()
    own = next(i for i, f in enumerate(session.problem.factors) if len(set(session.problem.owner[list(f.scope)])) == 1)
    session.set_table(own, 2 * session.problem.factors[own].table)
    copied.clear()
    assert session.solve().objective == dmcmc.solve(Changes(session.problem).problem(), device="cpu").objective
    assert session.reused.tables == 2 and all(not table.scope for table in copied)


def two_trees(agents=8):
    """Return agents of two components with two interface variables each; few different entries give many ties."""
    rng = np.random.default_rng(3)
    edges = [(a, (a - 1) // 2 if a < 5 else 5) for a in range(agents) if a not in (0, 5)]
    scopes = [(2 * a, 2 * a + 1) for a in range(agents)]
    scopes += [(2 * a + k, 2 * b + 1 - k) for a, b in edges for k in (0, 1)]
    names = tuple(f"x{v}" for v in range(2 * agents)), tuple(f"a{a}" for a in range(agents))
    factors = tuple(Factor.of(scope, rng.integers(0, 4, (3, 3))) for scope in scopes)
    return Problem(names[0], np.full(2 * agents, 3), names[1], np.repeat(np.arange(agents), 2), factors)


def test_one_plan_on_the_device_gives_the_answer_of_message_passing(monkeypatch):
    problem, plans = two_trees(), []
    expected = dmcmc.solve(problem, local={"method": "exact"}, combine={"mode": "dpop"}, device="cpu")
    before = gpu_eliminations.eliminate_hybrid

    def recording(flat, hybrid, *given, **named):
        plans.append(hybrid.plan)
        return before(flat, hybrid, *given, **named)

    monkeypatch.setattr(gpu_eliminations, "eliminate_hybrid", recording)
    costs = CostModel(gpu_round_trip=-1.0, seconds_per_wave=0.0, seconds_per_cell=1.0)  # all work runs on the GPU
    monkeypatch.setattr("dmcmc.inference.execution.cost_model.COSTS", costs)
    found = dmcmc.solve(problem, local={"method": "exact"}, combine={"mode": "shared"}, device="cuda")
    assert (found.objective, found.bound, found.assignment) == (
        expected.objective,
        expected.bound,
        expected.assignment,
    )
    assert max(plan.buckets for plan in plans) == problem.n_variables  # both components, all agents
