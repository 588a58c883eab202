"""Apache's own name server and broker, one pair for the tests of this folder that only use it."""

from collections.abc import Iterator

import pytest

from tests.peer.apache import Apache, require_peer


@pytest.fixture(scope="package")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_peer()
    with Apache(tmp_path_factory.mktemp("apache"), heap="1g").borrowed() as servers:
        yield servers.namesrv
