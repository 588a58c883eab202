"""Examples may take as long as they like: a busy machine is no failure."""

from hypothesis import settings

settings.register_profile("rocketpy", deadline=None)
settings.load_profile("rocketpy")
