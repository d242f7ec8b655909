"""The kernel sets of a run on a GPU do not depend on what is measured, so that a later run finds all of them."""

from dataclasses import replace

import pytest

import dmcmc
from dmcmc.config.document import Document
from dmcmc.config.settings import settings_of
from dmcmc.inference.bounds.semidefinite.cuda import device_arrays
from dmcmc.mpi.world import World
from dmcmc.results.improver_names import SEMIDEFINITE
from dmcmc.run.compilation import prepare_gpu
from dmcmc.run.compilation.prepare_gpu import GpuKernels
from dmcmc.samplers.auto.rates import NOMINAL
from dmcmc.solving.planning.plan import prepare


@pytest.fixture
def needed(monkeypatch):
    """Return a function that returns the kernel sets of a GPU, by a time budget and this machine's slowness."""
    monkeypatch.setattr(prepare_gpu, "_gpu_available", lambda setup: True)
    monkeypatch.setattr(prepare_gpu, "gpu_table_widths", lambda bounds, backend, seconds: [24])
    monkeypatch.setattr(device_arrays, "relaxation_gpu_problem", lambda: None)
    problem = dmcmc.generate("meeting-scheduling", agents=3, variables_per_agent=20, domain_size=6, seed=1)

    def needed(seconds=10, slowness=1.0):
        config = settings_of(Document("", {"budget": {"time": seconds}}))
        rates = replace(NOMINAL, elimination=slowness * NOMINAL.elimination, update=slowness * NOMINAL.update)
        setup = prepare(problem, config, World(), lambda: rates)
        return setup, GpuKernels(setup, [*range(3)], searches=True)

    return needed


def test_later_runs_request_the_sets_that_earlier_runs_have_compiled(needed):
    (first_setup, first), (_, others) = needed(), needed(seconds=60, slowness=1.7)
    assert others.later.keys() == {SEMIDEFINITE}
    assert {kernels.name for kernels in others.first} <= {kernels.name for kernels in first.first}
    assert others.later[SEMIDEFINITE].name == first.later[SEMIDEFINITE].name
    slower_setup, slower = needed(slowness=3.0)
    assert [choice.seconds for choice in slower_setup.choices] != [choice.seconds for choice in first_setup.choices]
    assert slower.later[SEMIDEFINITE].name == first.later[SEMIDEFINITE].name


def test_relaxations_of_agents_with_other_domains_have_other_kernels(needed):
    setup, _ = needed()
    agents = list(setup.division.locals)
    names = {prepare_gpu.relaxations([agent], setup.backend).name for agent in agents}
    wider = replace(agents[0], domains=agents[0].domains + 1)
    assert prepare_gpu.relaxations([wider], setup.backend).name not in names
    assert prepare_gpu.relaxations([*agents, wider], setup.backend).name not in names
