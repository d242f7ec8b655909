"""What holds for all tests: hypothesis minds no clock, since examples compile kernels and machines are shared."""

from hypothesis import HealthCheck, settings

settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("shared")
