"""Replicas under a controller as processes: another master within a moment, nothing lost."""

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rocketpy
from rocketpy.errors import RocketPyError
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import encode_command
from tests.bad_input.kit import Wire, send_header
from tests.integration.broker.failover_group import CONTROLLER, FailoverGroup, Process

TOPIC, GROUP = "orders", "billing"
_LIMIT_S = 90.0
_SENDERS = 4


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


def is_full(group: FailoverGroup, count: int = 3) -> bool:
    info, members = group.info()
    return info.master_broker_id is not None and len(members) == count


class Load:
    """Senders that never stop, and a consumer.

    Attributes:
        acknowledged: bodies of the messages with status SEND_OK.
        consumed: bodies that the consumer has handled.
    """

    def __init__(self, client: rocketpy.Client) -> None:
        self._client = client
        self.acknowledged: list[bytes] = []
        self.consumed: set[bytes] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        async def handle(message: rocketpy.ReceivedMessage) -> None:
            self.consumed.add(bytes(message.body))

        async with (
            self._client.producer(timeout=10) as producer,
            self._client.consumer(TOPIC, group=GROUP, handler=handle, start="earliest"),
        ):
            tasks = [asyncio.create_task(self._send(producer, each)) for each in range(_SENDERS)]
            try:
                yield self
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await until_async(
                    lambda: set(self.acknowledged) <= self.consumed, "everything is consumed"
                )

    async def _send(self, producer: rocketpy.Producer, number: int) -> None:
        count = 0
        while True:
            body = b"%d-%d" % (number, count)
            count += 1
            try:
                result = await producer.send(TOPIC, body)
            except RocketPyError:
                await asyncio.sleep(0.05)  # unknown: the message may be stored
                continue
            if result.status is rocketpy.SendStatus.SEND_OK:
                self.acknowledged.append(body)
            await asyncio.sleep(0.005)

    async def more(self, count: int) -> None:
        """Wait until so many more messages are acknowledged."""
        wanted = len(self.acknowledged) + count
        await until_async(lambda: len(self.acknowledged) >= wanted, "sends continue")


async def until_async(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def check(
    directory: Path,
    faults: Callable[[FailoverGroup, Load], Awaitable[None]],
    controller: tuple[str, Process] | None = None,
    **more: str,
) -> None:
    """Run faults under load, and check that every acknowledged message is on all replicas."""
    group = FailoverGroup(directory, 3, controller=controller, **more)
    with group.running():
        await until(lambda: is_full(group), "all replicas join")
        async with rocketpy.connect(group.namesrv) as client:
            load = Load(client)
            async with load.running():
                await load.more(50)
                await faults(group, load)
                await load.more(50)
            await until(lambda: is_full(group), "all replicas are back")
            stored = {
                bytes(message.body)
                async for message in client.read(TOPIC, start="earliest", until="end")
            }
        assert set(load.acknowledged) <= stored

        def is_equal() -> bool:
            logs = [group.log_end(name) for name in group.replicas.values()]
            return logs.count(logs[0]) == len(logs)

        await until(is_equal, "the logs are equal, byte for byte")


async def lose_master(group: FailoverGroup, load: Load, number: signal.Signals) -> str:
    lost = group.master
    assert lost is not None
    await asyncio.to_thread(group.signal, lost, number)
    await until(lambda: group.master not in {None, lost}, "another master")
    await load.more(20)
    return lost


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
async def test_master_that_ends_is_replaced_and_comes_back_as_a_slave(
    tmp_path: Path, number: signal.Signals
) -> None:
    async def faults(group: FailoverGroup, load: Load) -> None:
        for _ in range(2):
            lost = await lose_master(group, load, number)
            await asyncio.to_thread(group.start, lost)
            await until(lambda: is_full(group), "the lost one is back")
        assert (group.info()[0].master_epoch or 0) >= 3

    await check(tmp_path, faults)


async def test_suspended_master_is_replaced_and_its_log_is_cut(tmp_path: Path) -> None:
    async def faults(group: FailoverGroup, load: Load) -> None:
        lost = await lose_master(group, load, signal.SIGSTOP)
        await asyncio.to_thread(group.signal, lost, signal.SIGCONT)

    await check(tmp_path, faults, controllerHeartBeatTimeoutMills="2000")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "suspended"])
async def test_replicas_without_secret_replace_their_master_by_the_autoswitch_protocol(
    tmp_path: Path, number: signal.Signals
) -> None:
    async def faults(group: FailoverGroup, load: Load) -> None:
        lost = await lose_master(group, load, number)
        if number is signal.SIGSTOP:
            await asyncio.to_thread(group.signal, lost, signal.SIGCONT)
        else:
            await asyncio.to_thread(group.start, lost)
        await until(lambda: is_full(group), "the lost one is back")

    await check(
        tmp_path,
        faults,
        replicationSecretFile="",
        haAllowedPeers="127.0.0.1",
        controllerHeartBeatTimeoutMills="2000",
    )


async def test_sends_continue_without_controller_and_fail_over_once_it_is_back(
    tmp_path: Path,
) -> None:
    async def faults(group: FailoverGroup, load: Load) -> None:
        await asyncio.to_thread(group.signal, CONTROLLER, signal.SIGKILL)
        await load.more(50)
        await asyncio.to_thread(group.start, CONTROLLER)
        await until(lambda: is_full(group), "the controller knows the group")
        lost = await lose_master(group, load, signal.SIGKILL)
        await asyncio.to_thread(group.start, lost)

    await check(tmp_path, faults, controllerHeartBeatTimeoutMills="2000")


async def test_planned_change_repeats_no_transaction_and_no_delayed_message(tmp_path: Path) -> None:
    group = FailoverGroup(tmp_path, 3, transactionCheckInterval="1000", transactionTimeOut="1000")
    got: list[bytes] = []

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        got.append(bytes(message.body))

    async def check_back(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
        return rocketpy.TxState.COMMIT

    with group.running():
        await until(lambda: is_full(group), "all replicas join")
        async with (
            rocketpy.connect(group.namesrv) as client,
            client.producer(group="tx", tx_checker=check_back, timeout=10) as producer,
            client.consumer(TOPIC, group=GROUP, handler=handle, start="earliest"),
        ):
            lost = group.master
            assert lost is not None
            await producer.send(TOPIC, b"delayed", delay_level=1)
            async with producer.transaction(TOPIC, b"committed"):
                pass
            await until_async(lambda: len(got) == 2, "both are consumed")
            await until(lambda: _delay_offset(group.address(lost)) == 1, "the offset is durable")
            await asyncio.to_thread(group.signal, lost, signal.SIGTERM)
            await until(lambda: group.master not in {None, lost}, "another master")
            # The new master has checked and delivered what was before these.
            await producer.send(TOPIC, b"delayed later", delay_level=1)
            async with producer.transaction(TOPIC, b"checked later") as transaction:
                transaction.unknown()
            await until_async(lambda: {b"delayed later", b"checked later"} <= {*got}, "all")
    assert sorted(got) == [b"checked later", b"committed", b"delayed", b"delayed later"]


def _delay_offset(address: str) -> int:
    """Return the offset that a master names for the first delay level."""
    with Wire(address) as peer:
        body = peer.call(RequestCode.GET_ALL_DELAY_OFFSET).body
    found = fastjson.loads(body)["offsetTable"].get("1", 0)
    assert isinstance(found, int)
    return found


async def test_new_master_expects_members_that_have_not_connected_yet(tmp_path: Path) -> None:
    """Otherwise the first members to find it would take the queues of the others."""
    group = FailoverGroup(tmp_path, 3)
    with group.running(), contextlib.ExitStack() as stack:
        await until(lambda: is_full(group), "all replicas join")
        lost = group.master
        assert lost is not None
        for address in set(group.replicas) - {group.address(lost)}:
            for client_id in ("early", "late"):
                peer = stack.enter_context(Wire(address))
                assert peer.call(RequestCode.HEART_BEAT, {}, _heartbeat(client_id)).code == 0
        await asyncio.to_thread(group.signal, lost, signal.SIGKILL)
        await until(lambda: _takes_sends(group), "another master serves")
        with Wire(group.info()[0].master_address or "") as peer:
            assert peer.call(RequestCode.HEART_BEAT, {}, _heartbeat("early")).code == 0
            fields = {"consumerGroup": GROUP}
            response = peer.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        assert json.loads(response.body) == {"consumerIdList": ["early", "late"]}


def _heartbeat(client_id: str) -> bytes:
    consumer = {
        "groupName": GROUP,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [{"topic": TOPIC, "subString": "*", "subVersion": 1}],
    }
    return json.dumps({"clientID": client_id, "consumerDataSet": [consumer]}).encode()


@pytest.mark.long
@pytest.mark.parametrize("needs_all", [True, False], ids=["all-acks", "lease"])
async def test_thawed_master_acknowledges_nothing_after_another_was_elected(
    tmp_path: Path, needs_all: bool
) -> None:
    group = FailoverGroup(
        tmp_path,
        3,
        allAckInSyncStateSet=str(needs_all).lower(),
        minInSyncReplicas="1",
        controllerHeartBeatTimeoutMills="2000",
    )
    with group.running():
        await until(lambda: is_full(group), "all replicas join")
        codes = await asyncio.to_thread(_codes_of_thawed_master, group)
    assert 0 not in codes


def _codes_of_thawed_master(group: FailoverGroup) -> list[int]:
    """Return the codes of sends that lay in the socket of a suspended master."""
    name = group.master
    assert name is not None
    with Wire(group.address(name)) as peer:
        peer.socket.settimeout(_LIMIT_S)
        first = peer.send(b"first")
        assert first.code == 0, first.remark
        group.signal(name, signal.SIGSTOP)
        for number in range(20):
            request = peer.request(RequestCode.SEND_MESSAGE_V2, send_header(), b"%d" % number)
            peer.write(encode_command(request))
        deadline = time.monotonic() + _LIMIT_S
        while group.master in {name, None}:
            assert time.monotonic() < deadline, "another master"
            time.sleep(0.05)
        # Until the elected replica leaves the old master, it may still confirm what it has.
        while not _takes_sends(group):
            assert time.monotonic() < deadline, "the other master serves"
            time.sleep(0.05)
        group.signal(name, signal.SIGCONT)
        codes: list[int] = []
        # The master closes its connections when it becomes a slave.
        with contextlib.suppress(EOFError, OSError):
            while len(codes) < 20:
                codes.append(peer.receive().code)
    return codes


def _takes_sends(group: FailoverGroup) -> bool:
    with (
        contextlib.suppress(EOFError, OSError),
        Wire(group.info()[0].master_address or "") as peer,
    ):
        return peer.send(b"other").code == 0
    return False
