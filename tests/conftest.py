"""What holds for all tests.

Hypothesis minds no clock: examples compile kernels, and machines are shared. What starts ranks is slow.
"""

import pytest
from hypothesis import HealthCheck, settings
from support.ranks import needs_mpirun

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("shared")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if needs_mpirun.mark in item.iter_markers("skipif"):
            item.add_marker(pytest.mark.slow)
