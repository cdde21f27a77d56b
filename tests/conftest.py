"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# How fast a machine is, is not what the tests are about.
settings.register_profile("flotilla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("flotilla")
