"""Numbers of waiting timed messages and open transactions change hands with the directory."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import make_request
from tests.interop.store_swap.test_delays_swap import Kit
from tests.peer.apache import require_peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.long]

TOPIC = "numbers"


class Numbers:
    """Return the statistics of a topic of the directory."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    async def add(self, timed: int, halves: int) -> None:
        """Send timed messages for in an hour, and leave transactions open."""
        async with rocketpy.connect(self.kit.namesrv) as client:
            producer = client.producer(group="p", timeout=15)
            await producer.send(TOPIC, b"plain")
            for number in range(timed):
                await producer.send(TOPIC, b"%d" % number, delay=3_600)
            for _ in range(halves):
                async with producer.transaction(TOPIC, b"open", check_after=3_600) as tx:
                    tx.unknown()
            async with producer.transaction(TOPIC, b"committed"):
                pass

    async def waiting(self, wanted: int) -> dict[str, Any]:
        """The answer to 61, once it says so many."""
        async with rocketpy.admin.connect(self.kit.namesrv) as admin:
            while True:
                [address] = (await admin.broker_addresses()).values()
                response = await admin.invoke(address, make_request(61))
                found = json.loads(response.body)
                if found["timingCount"].get(TOPIC, {}).get("count") == wanted:
                    return dict(found)
                await asyncio.sleep(0.1)

    def open(self) -> dict[str, Any]:
        """Return the open transactions in the file of an unused directory."""
        content = (self.kit.home / "store" / "config" / "transactionMetrics").read_bytes()
        document: Any = fastjson.loads(content)
        return dict(document["transactionCount"][TOPIC])


async def test_counts_continue_after_swap(tmp_path: Path) -> None:
    require_peer()
    kit = Kit(tmp_path)
    numbers = Numbers(kit)
    with kit.apache.running():
        await numbers.add(timed=3, halves=1)
        theirs = await numbers.waiting(3)
    assert numbers.open()["count"] == 1
    name_server, broker = await kit.start_ours()
    try:
        assert await numbers.waiting(3) == theirs
        await numbers.add(timed=2, halves=2)
        ours = await numbers.waiting(5)
        assert ours["dataVersion"]["counter"] == theirs["dataVersion"]["counter"] + 2
    finally:
        await broker.stop()
        await name_server.stop()
    assert numbers.open()["count"] == 3
    with kit.apache.running():
        again = await numbers.waiting(5)
        assert again["timingCount"] == ours["timingCount"]
        await numbers.add(timed=1, halves=1)
        await numbers.waiting(6)
    assert numbers.open()["count"] == 4
