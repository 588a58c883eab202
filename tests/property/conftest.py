"""Disables deadlines of examples, which a busy machine would exceed."""

from hypothesis import settings

settings.register_profile("rocketpy", deadline=None)
settings.load_profile("rocketpy")
