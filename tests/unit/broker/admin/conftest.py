import pytest

from tests.unit.broker.admin.kit import Kit


@pytest.fixture
def kit() -> Kit:
    return Kit()
