"""A slave that acts as master, as processes: it serves consumers, and delivers what is due."""

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

import rocketpy
import rocketpy.admin
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import make_request
from rocketpy.runtime.clock import SystemClock
from tests.integration.broker.pair import Pair, Requests, new_client, until
from tests.integration.broker.test_pair import is_streaming
from tests.unit.broker.pop.kit import PopResponse

TOPIC, GROUP = "orders", "billing"
LOCK = {"consumerGroup": GROUP, "clientId": "c", "mqSet": []}


def acting_pair(directory: Path, **properties: str) -> Pair:
    pair = Pair(directory, **{"enableSlaveActingMaster": "true", **properties})
    pair.set_namesrv(supportActingMaster="true")
    return pair


async def route_of(pair: Pair, topic: str) -> dict[str, Any]:
    """Return the route's addresses and permission of the pair."""
    client = new_client()
    try:
        ext = {"topic": topic, "acceptStandardJsonOnly": "true"}
        request = make_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext)
        response = await client.invoke(pair.namesrv, request, 3_000)
    finally:
        await client.close()
    if response.code != 0:
        return {}
    route: dict[str, Any] = orjson.loads(response.body)
    brokers = {each["brokerName"]: each for each in route["brokerDatas"]}
    queues = {each["brokerName"]: each for each in route["queueDatas"]}
    addresses = brokers.get("broker-a", {}).get("brokerAddrs", {})
    return {"addresses": addresses, "perm": queues.get("broker-a", {}).get("perm")}


async def send_code(ask: Requests, name: str) -> int:
    ext = {"a": "p", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0"}
    return (await ask.ask(name, RequestCode.SEND_MESSAGE_V2, ext, b"x")).code


async def knows_group(ask: Requests, name: str) -> bool:
    """Return whether a broker has the group, which is fetched after the topics."""
    found = await ask.ask(name, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return f'"{GROUP}"'.encode() in found.body


async def test_slave_of_killed_master_serves_consumers_within_seconds(tmp_path: Path) -> None:
    pair = acting_pair(tmp_path, slaveReadEnable="false", inSyncReplicas="2")
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
            await admin.create_group(GROUP)
        async with rocketpy.connect(pair.namesrv) as client, client.producer() as producer:
            for number in range(5):
                await producer.send(TOPIC, b"%d" % number)
        assert await send_code(ask, "slave") == 2
        await until(lambda: knows_group(ask, "slave"), "the slave has the tables")

        pair.kill("master")
        began = time.monotonic()

        async def acts() -> bool:
            return await send_code(ask, "slave") == 14

        await until(acts, "the slave acts as master", 10)
        assert time.monotonic() - began < 5, "about a second; this machine may be busy"
        route = await route_of(pair, TOPIC)
        assert route == {"addresses": {"0": pair.addresses["slave"]}, "perm": 4}
        assert await ask.read_queue("slave", TOPIC, GROUP, 0) == [b"%d" % each for each in range(5)]
        assert await ask.commit("slave", TOPIC, GROUP, 5) == 0
        locked = await ask.ask("slave", RequestCode.LOCK_BATCH_MQ, body=orjson.dumps(LOCK))
        assert locked.code == 0

        pair.start("master")

        async def is_back() -> bool:
            return bool((await route_of(pair, TOPIC)).get("perm") == 6)

        await until(is_back, "the master serves again")

        async def follows() -> bool:
            return await send_code(ask, "slave") == 2

        await until(follows, "the slave follows again", 10)

        async def has_offset() -> bool:
            return await ask.committed("master", TOPIC, GROUP) == 5

        await until(has_offset, "the offset reaches the master")


async def test_acting_group_without_enough_copies_refuses_sends(tmp_path: Path) -> None:
    pair = acting_pair(tmp_path, inSyncReplicas="2")
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
        assert await send_code(ask, "master") == 0
        pair.kill("slave")

        async def is_refused() -> bool:
            return await send_code(ask, "master") == 1

        await until(is_refused, "sends are refused at once")


async def timed_messages(ask: Requests, name: str) -> list[bytes]:
    """Return the bodies of a topic of one queue at a broker."""
    return sorted(await ask.read_queue(name, TOPIC, "reader", 0))


async def send_later(ask: Requests, body: bytes, properties: str) -> None:
    ext = {
        "a": "p", "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": properties,
    }  # fmt: skip
    response = await ask.ask("master", RequestCode.SEND_MESSAGE_V2, ext, body)
    assert response.code == 0, response.remark


def deliver_at(seconds: int) -> str:
    return f"TIMER_DELIVER_MS\x01{SystemClock().time_ms() + seconds * 1_000}\x02"


async def groups_ready(pair: Pair, ask: Requests) -> None:
    """Wait until the slave follows and the other group is registered; create topic and group."""
    await until(lambda: is_streaming(ask), "the slave follows")

    async def is_registered() -> bool:
        return bool(await route_of(pair, "broker-b"))

    await until(is_registered, "the other group is registered")
    async with rocketpy.admin.connect(pair.namesrv) as admin:
        await admin.create_topic(TOPIC, queues=1)
        await admin.create_group(GROUP)
    await until(lambda: knows_group(ask, "slave"), "the slave has the tables")


@pytest.mark.alternate
async def test_due_messages_of_lost_master_arrive_through_another_group_once(
    tmp_path: Path,
) -> None:
    pair = acting_pair(tmp_path, enableRemoteEscape="true")
    pair.add_group("broker-b")
    async with pair.running() as ask:
        await groups_ready(pair, ask)

        await send_later(ask, b"level 3", "DELAY\x013\x02")
        await send_later(ask, b"timed soon", deliver_at(12))
        await send_later(ask, b"timed later", deliver_at(45))
        await send_later(ask, b"level 5", "DELAY\x015\x02")
        end = orjson.loads((await ask.ask("master", 907)).body)["masterCommitLogMaxOffset"]

        async def is_copied() -> bool:
            found = orjson.loads((await ask.ask("slave", 907)).body)
            return bool(found["haClientRuntimeInfo"]["maxOffset"] >= end)

        await until(is_copied, "the slave has all messages")
        pair.kill("master")
        escaped = [b"level 3", b"timed soon"]

        async def has_escaped() -> bool:
            return await timed_messages(ask, "broker-b") == escaped

        await until(has_escaped, "due messages are at the other group", 40)

        pair.start("master")

        async def is_back() -> bool:
            return bool((await route_of(pair, TOPIC)).get("perm") == 6)

        await until(is_back, "the master serves again", 40)
        rest = [b"level 5", b"timed later"]

        async def has_rest() -> bool:
            return len(await timed_messages(ask, "master")) >= 2

        await until(has_rest, "the master delivers the rest", 80)
        assert await timed_messages(ask, "master") == rest, "none that had escaped"
        assert await timed_messages(ask, "broker-b") == escaped


PRODUCERS = "checkout"


async def send_half(ask: Requests, body: bytes) -> None:
    """Store a half message at the master."""
    ext = {
        "a": PRODUCERS, "b": TOPIC, "c": "TBW102", "d": "1", "e": "0", "f": "4", "g": "0", "h": "0",
        "i": f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02UNIQ_KEY\x01{body.decode()}\x02",
    }  # fmt: skip
    response = await ask.ask("master", RequestCode.SEND_MESSAGE_V2, ext, body)
    assert response.code == 0, response.remark


async def has_log_of_master(ask: Requests) -> bool:
    end = orjson.loads((await ask.ask("master", 907)).body)["masterCommitLogMaxOffset"]
    found = orjson.loads((await ask.ask("slave", 907)).body)
    return bool(found["haClientRuntimeInfo"]["maxOffset"] >= end)


@pytest.mark.alternate
async def test_transaction_of_lost_master_is_checked_and_committed_at_another_group_once(
    tmp_path: Path,
) -> None:
    pair = acting_pair(
        tmp_path,
        enableRemoteEscape="true",
        transactionCheckInterval="1000",
        transactionTimeOut="500",
    )
    pair.add_group("broker-b")
    outcome = rocketpy.TxState.UNKNOWN
    asked: list[bytes] = []

    async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
        asked.append(message.body)
        return outcome

    async with pair.running() as ask:
        await groups_ready(pair, ask)
        async with (
            # A returned master gives up after 15 checks (15 s) without a connected producer.
            rocketpy.connect(pair.namesrv, route_refresh_interval=1) as client,
            client.producer(group=PRODUCERS, tx_checker=check) as producer,
        ):
            await producer.send(TOPIC, b"known")
            for body in (b"one", b"two"):
                await send_half(ask, body)

            async def is_asked() -> bool:
                return set(asked) == {b"one", b"two"}

            await until(is_asked, "the master asks")
            await until(lambda: has_log_of_master(ask), "the slave has all messages")
            pair.kill("master")
            outcome = rocketpy.TxState.COMMIT

            async def is_committed() -> bool:
                bodies = await timed_messages(ask, "broker-b")
                return [each for each in bodies if each != b"known"] == [b"one", b"two"]

            await until(is_committed, "the other group asks, and commits")

            pair.start("master")

            async def is_back() -> bool:
                return bool((await route_of(pair, TOPIC)).get("perm") == 6)

            await until(is_back, "the master serves again")
            await send_half(ask, b"three")

            async def is_checked() -> bool:
                return b"three" in await timed_messages(ask, "master")

            await until(is_checked, "the master checks what follows")
            assert {*await timed_messages(ask, "master")} <= {b"known", b"three"}
            assert await is_committed(), "none twice"


async def pop(ask: Requests, name: str, invisible_ms: int) -> list[MessageExt]:
    """Pop messages of the topic, retried ones included."""
    ext = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": str(invisible_ms), "pollTime": "0", "initMode": "0", "order": "false",
        "bornTime": str(SystemClock().time_ms()),
    }  # fmt: skip
    response = await ask.ask(name, RequestCode.POP_MESSAGE, ext)
    return PopResponse(response, "broker-a").messages


async def ack(ask: Requests, name: str, message: MessageExt) -> int:
    handle = message.properties["POP_CK"]
    ext = {
        "consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "extraInfo": handle,
        "offset": handle.split(" ")[7],
    }  # fmt: skip
    return (await ask.ask(name, RequestCode.ACK_MESSAGE, ext)).code


@pytest.mark.alternate
async def test_popped_message_of_lost_master_is_redelivered_by_another_group_once(
    tmp_path: Path,
) -> None:
    pair = acting_pair(tmp_path, enableRemoteEscape="true", enablePopBufferMerge="false")
    pair.add_group("broker-b")
    async with pair.running() as ask:
        await groups_ready(pair, ask)
        for number in range(4):
            await send_later(ask, b"%d" % number, "")
        popped = await pop(ask, "master", 12_000)
        assert len(popped) == 4
        assert await ack(ask, "master", popped[0]) == 0
        await until(lambda: has_log_of_master(ask), "the slave has all messages")

        async def has_offset() -> bool:
            return await ask.committed("slave", TOPIC, GROUP) == 4

        await until(has_offset, "the slave has the group's offset")
        pair.kill("master")

        async def is_acked() -> bool:
            return await ack(ask, "slave", popped[1]) == 0

        await until(is_acked, "the slave acts as master", 10)
        assert await pop(ask, "broker-b", 60_000) == []
        found: list[MessageExt] = []

        async def is_redelivered() -> bool:
            found.extend(await pop(ask, "broker-b", 60_000))
            return len(found) >= 2

        await until(is_redelivered, "messages 2 and 3 are at the other group")
        assert sorted(each.body for each in found) == [b"2", b"3"]
        assert [each.reconsume_times for each in found] == [1, 1]

        pair.start("master")

        async def is_back() -> bool:
            return bool((await route_of(pair, TOPIC)).get("perm") == 6)

        await until(is_back, "the master serves again", 40)
        await send_later(ask, b"4", "")
        (last,) = await pop(ask, "master", 1_000)
        assert last.body == b"4", "none again"

        async def is_revived() -> bool:
            found.extend(await pop(ask, "master", 60_000))
            return len(found) >= 3

        await until(is_revived, "the master revives what follows")
        assert [each.body for each in found[2:]] == [b"4"]
        assert await pop(ask, "broker-b", 60_000) == []
