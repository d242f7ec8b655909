"""The kernel sets of a GPU do not depend on what is measured; a run changes to the GPU as soon as they are loaded."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

import dmcmc
from dmcmc.anytime.rank_run import RankImprovers, RankRun
from dmcmc.compilation import gpu_components
from dmcmc.compilation.gpu_components import GpuKernels, PreparedRun, large_relaxations, relaxations
from dmcmc.compilation.run_components import RunComponents
from dmcmc.config.make_settings import settings_of
from dmcmc.files.document import Document
from dmcmc.inference.bounds.semidefinite.cuda import node_arrays as device_arrays
from dmcmc.inference.bounds.semidefinite.cuda.batched_relaxation import largest_domains, uses_large_arrays
from dmcmc.inference.runtime.deadline import CancellationToken
from dmcmc.mpi.world import World
from dmcmc.results.result import BRANCH, SEMIDEFINITE
from dmcmc.samplers.auto.rates import NOMINAL
from dmcmc.solving.planning.plan import prepare


@pytest.fixture
def needed(monkeypatch):
    """Return a function that returns the kernel sets of a GPU, by a time budget and this machine's slowness."""
    monkeypatch.setattr(gpu_components, "is_gpu_in_use", lambda: True)
    monkeypatch.setattr(gpu_components, "gpu_table_widths", lambda bounds, backend, seconds: [24])
    monkeypatch.setattr(device_arrays, "relaxation_gpu_problem", lambda: None)

    def needed(seconds=10, slowness=1.0, variables=20, domain=6):
        problem = dmcmc.generate(
            "meeting-scheduling", agents=3, variables_per_agent=variables, domain_size=domain, seed=1
        )
        config = settings_of(Document("", {"budget": {"time": seconds}}))
        rates = replace(NOMINAL, elimination=slowness * NOMINAL.elimination, update=slowness * NOMINAL.update)
        setup = prepare(problem, config, World(), lambda: rates)
        return setup, GpuKernels(setup, [*range(3)], searches=True)

    return needed


def test_later_runs_request_the_sets_that_earlier_runs_have_compiled(needed):
    (first_setup, first), (_, others) = needed(), needed(seconds=60, slowness=1.7)
    assert others.later.keys() == {BRANCH, SEMIDEFINITE}
    assert {kernels.name for kernels in others.first} <= {kernels.name for kernels in first.first}
    assert names_of(others.later[SEMIDEFINITE]) == names_of(first.later[SEMIDEFINITE])
    slower_setup, slower = needed(slowness=3.0)
    assert [choice.seconds for choice in slower_setup.choices] != [choice.seconds for choice in first_setup.choices]
    assert names_of(slower.later[SEMIDEFINITE]) == names_of(first.later[SEMIDEFINITE])


def test_relaxations_of_agents_are_shared_unless_their_domains_are_larger(needed):
    setup, _ = needed()
    agents = list(setup.divided.division.locals)
    sizes = largest_domains(agents)
    assert largest_domains(agents[:1]) == sizes == [6]
    wider = replace(agents[0], domains=agents[0].domains + 1)
    assert largest_domains([*agents, wider]) == [7]
    names = {relaxations(size, setup.backend).name for size in (6, 7)}
    assert len(names) == 2


def test_agents_with_large_arrays_need_more_kernels(needed):
    small, _ = needed(variables=8)
    assert not any(map(uses_large_arrays, small.divided.division.locals))
    setup, kernels = needed(variables=60, domain=24)
    assert all(map(uses_large_arrays, setup.divided.division.locals))
    assert names_of(kernels.later[SEMIDEFINITE]) == [
        relaxations(24, setup.backend).name,
        large_relaxations(setup.backend).name,
    ]


def test_a_time_slice_ends_as_soon_as_the_next_plan_can_be_carried_out(monkeypatch):
    """The run makes its tables by that plan after the combination that follows."""
    events, loaded = [], CancellationToken()
    improve, first_tables = RankImprovers.improve, RankRun.first_tables

    def improve_and_load(self, directive):
        stop = self._tables.setup.backend.stop
        events.append(("slice", stop.over, self._searches._search.stop.over))
        loaded.request()
        events.append(("loaded", stop.over, self._searches._search.stop.over))
        improve(self, directive)

    def tables(run):
        events.append(("tables", run.setup.backend.threads, run.setup.backend.stop.over))
        first_tables(run)

    def open_gpu(self, setup, *_):
        two_threads = replace(setup, backend=replace(setup.backend, threads=2))
        later = SimpleNamespace(
            loaded=loaded,
            later={},
            is_used=False,
            next_plan=lambda: two_threads if loaded.requested_at < 1e99 else None,
        )
        return PreparedRun(replace(setup, backend=replace(setup.backend, threads=1)), 0.0, later, True)

    monkeypatch.setattr(RankImprovers, "improve", improve_and_load)
    monkeypatch.setattr(RankRun, "first_tables", tables)
    monkeypatch.setattr(RunComponents, "open_gpu", open_gpu)
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=12, domain_size=6, seed=1)
    dmcmc.solve(problem, timeout=20, search="none", method="gibbs", bound="none", device="cpu")
    assert events[:4] == [
        ("tables", 1, False),
        ("slice", False, False),
        ("loaded", True, True),
        ("tables", 2, False),
    ]
    assert all(event == ("slice", False, False) or event == ("loaded", False, False) for event in events[4:])


def names_of(sets):
    return [kernels.name for kernels in sets]
