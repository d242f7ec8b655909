"""What holds for all tests.

Hypothesis minds no clock: examples compile kernels, and machines are shared. What starts ranks is slow. All tests
together run in several processes; some of them, by their names, in one.
"""

import time

import pytest
from hypothesis import HealthCheck, settings
from support.clock import MovableClock
from support.ranks import needs_mpirun

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("shared")

_MOST = 4  # processes: each compiles or loads what its tests need


def pytest_xdist_auto_num_workers(config):
    from dmcmc.inference.runtime.threads import cores  # not at the top: numba may have to be told something before

    return min(_MOST, cores()) if config.args_source is config.ArgsSource.TESTPATHS else 0


@pytest.fixture
def clock(monkeypatch):
    """The clock of all that asks for the time: it may be moved on."""
    movable = MovableClock()
    monkeypatch.setattr(time, "perf_counter", movable)
    return movable


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name != "test_cuda_simulated.py")  # the longest first
    for item in items:
        if needs_mpirun.mark in item.iter_markers("skipif"):
            item.add_marker(pytest.mark.slow)
