import random

import pytest

from rocketpy.admin import Admin
from rocketpy.testing.sim_clock import SimClock
from tests.unit.admin.fakes import NAMESRVS, FakeRemoting


@pytest.fixture
def remoting() -> FakeRemoting:
    return FakeRemoting()


@pytest.fixture
def admin(remoting: FakeRemoting) -> Admin:
    return Admin(NAMESRVS, remoting, clock=SimClock(), rng=random.Random(1))
