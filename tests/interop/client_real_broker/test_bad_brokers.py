"""Our client and two of Apache's brokers, one of them killed or frozen while a load runs."""

import asyncio
import signal
from collections.abc import Iterator

import pytest

from tests.integration.client.load import Load
from tests.peer.apache import Apache, require_peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.long]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Apache, Apache]]:
    """A name server and the brokers `apache-a` and `apache-b`."""
    require_peer()
    first = Apache(tmp_path_factory.mktemp("first"))
    # The second broker's own name server has nothing to do: both register with the first one's.
    home = tmp_path_factory.mktemp("second")
    second = Apache(home, ("brokerName=apache-b",), other_namesrv=first.namesrv)
    with first.borrowed(), second.borrowed():
        yield first, second


# In this order: a broker that was killed stays away.
@pytest.mark.parametrize("kind", ["frozen", "killed"])
async def test_no_send_is_lost_when_one_of_apache_s_brokers_is_bad(
    brokers: tuple[Apache, Apache], kind: str
) -> None:
    first, second = brokers
    load = Load(first.namesrv, latency_fault=True)
    bad, good = second.address, first.address
    async with load.running():
        await asyncio.sleep(2)
        load.phase = "noticing"
        second.signal(signal.SIGSTOP if kind == "frozen" else signal.SIGKILL)
        await asyncio.sleep(2)
        await load.watch(bad)
        if kind == "frozen":
            second.signal(signal.SIGCONT)
    assert load.failed == {}
    assert load.attempts["before"][bad] > 0
    assert load.attempts["trouble"][bad] == 0 or "apache-a" in load.ever_avoided
    assert load.attempts["trouble"][good] > load.workers
    if kind == "killed":
        await asyncio.to_thread(second.kill)
        await asyncio.to_thread(second.start)
    await load.check_stored()
