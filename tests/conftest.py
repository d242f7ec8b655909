"""Fixtures and settings for all tests.

Hypothesis examples have no deadline, because they compile kernels and machines are shared. Tests that start ranks are
marked slow. The whole suite runs in several processes; a selection of tests runs in one.
"""

import logging
import os
import time
from importlib import import_module

import pytest
from hypothesis import HealthCheck, settings
from support.clock import MovableClock
from support.ranks import needs_mpirun

# Tests compare what methods find with compiled kernels; which of them are compiled in time must not matter.
os.environ.setdefault("DMCMC_COMPILE", "first")
import_module("dmcmc.inference.building.builder")  # gives Problem its builder, whichever module a test imports

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("shared")

_MAX_PROCESSES = 4  # number of processes at most; each compiles or loads the kernels of its tests


@pytest.fixture(autouse=True)
def same_log():
    """Restore the log after tests that call the command line, whose options change it for the whole process."""
    log = logging.getLogger("dmcmc")
    level, propagates, handlers = log.level, log.propagate, [*log.handlers]
    yield
    log.setLevel(level)
    log.propagate, log.handlers[:] = propagates, handlers


def pytest_xdist_auto_num_workers(config):
    # Not at the top, because numba's settings may have to be set first
    from dmcmc.inference.runtime.threads import cores

    return min(_MAX_PROCESSES, cores()) if config.args_source is config.ArgsSource.TESTPATHS else 0


@pytest.fixture
def clock(monkeypatch):
    """Replace ``time.perf_counter`` by a clock that a test can move forward."""
    movable = MovableClock()
    monkeypatch.setattr(time, "perf_counter", movable)
    return movable


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name != "test_cuda_simulated.py")  # the slowest file first
    for item in items:
        if needs_mpirun.mark in item.iter_markers("skipif"):
            item.add_marker(pytest.mark.slow)
