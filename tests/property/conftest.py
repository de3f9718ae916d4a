"""Hypothesis on a busy machine: a slow example is no finding, so examples have no deadline."""

from hypothesis import HealthCheck, settings

settings.register_profile("arauto", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("arauto")
