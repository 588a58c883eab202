"""Several name servers: the next one is asked when one fails, and none takes all the time."""

import asyncio
import random
from typing import Any

import pytest

from rocketpy.client.cluster.name_servers import NameServers, parse_addresses
from rocketpy.errors import (
    ConnectError,
    NameServerAddressError,
    NoNameServerError,
    RequestTimeoutError,
)
from rocketpy.proto.wire.command import RemotingCommand, make_response


class FakeRemoting:
    def __init__(self, **ends: Exception | int | None) -> None:
        self.ends = {f"{name}:9876": end for name, end in ends.items()}
        self.asked: list[tuple[str, int]] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        await asyncio.sleep(0)
        self.asked.append((address[0], timeout_ms))
        end = self.ends[address]
        if isinstance(end, Exception):
            raise end
        return make_response(command, end or 0)


def servers(remoting: FakeRemoting, timeout_ms: int = 3000) -> NameServers:
    fake: Any = remoting
    addresses = parse_addresses(";".join(remoting.ends))
    found = NameServers(addresses, fake, random.Random(1), timeout_ms)
    found._index = 0
    return found


async def test_one_that_is_frozen_costs_its_share_and_is_left_out_afterwards() -> None:
    remoting = FakeRemoting(a=RequestTimeoutError("silent"), b=None)
    names = servers(remoting)
    assert (await names.invoke(105, {})).code == 0
    assert (await names.invoke(105, {})).code == 0
    assert remoting.asked == [("a", 1500), ("b", 1500), ("b", 1500)]
    assert names.current == "b:9876"


@pytest.mark.parametrize(
    ("count", "timeout_ms", "share_ms"), [(1, 3000, 3000), (10, 3000, 500), (10, 300, 300)]
)
async def test_share_is_half_a_second_at_least(count: int, timeout_ms: int, share_ms: int) -> None:
    remoting = FakeRemoting(**dict.fromkeys("abcdefghij"[:count]))
    await servers(remoting, timeout_ms).invoke(105, {})
    assert remoting.asked == [("a", share_ms)]


@pytest.mark.parametrize("count", range(1, 8))
async def test_requests_at_once_leave_a_hung_name_server_together(count: int) -> None:
    remoting = FakeRemoting(
        a=RequestTimeoutError("silent"), b=None, c=RequestTimeoutError("silent")
    )
    names = servers(remoting)
    responses = await asyncio.gather(*(names.invoke(105, {}) for _ in range(count)))
    assert [response.code for response in responses] == [0] * count
    assert [name for name, _ in remoting.asked] == ["a"] * count + ["b"] * count
    assert names.current == "b:9876"


async def test_request_whose_name_server_failed_asks_the_one_that_others_found() -> None:
    remoting = FakeRemoting(a=RequestTimeoutError("silent"), b=ConnectError("refused"), c=None)
    names = servers(remoting)
    late = asyncio.create_task(names.invoke(105, {}))
    await asyncio.sleep(0)
    names._index = 2  # requests that began before have found it
    assert (await late).code == 0
    assert [name for name, _ in remoting.asked] == ["a", "c"]
    assert names.current == "c:9876"


async def test_unreachable_name_servers_are_all_in_the_error() -> None:
    remoting = FakeRemoting(a=RequestTimeoutError("silent"), b=ConnectError("b:9876 refuses"))
    with pytest.raises(NoNameServerError, match="a:9876: silent; b:9876 refuses"):
        await servers(remoting).invoke(105, {})
    with pytest.raises(NoNameServerError, match="no name server given"):
        await NameServers((), FakeRemoting(), random.Random(1), 1).invoke(105, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [105, 106, 206, 224])
async def test_broker_in_place_of_a_name_server_raises(code: int) -> None:
    with pytest.raises(NameServerAddressError, match="a:9876 is no name server"):
        await servers(FakeRemoting(a=3)).invoke(code, {})
    assert (await servers(FakeRemoting(a=3, b=None)).invoke(code, {})).code == 0
