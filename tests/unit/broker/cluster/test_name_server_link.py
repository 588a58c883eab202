"""Registration at the name servers."""

import asyncio
import zlib
from functools import partial

import orjson
import pytest
from structlog.testing import capture_logs

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.name_server_link import NameServerLink
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import ConnectError, ConnectionLostError, RocketPyError
from rocketpy.namesrv.registration import Registration, read_topics
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.proto.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.headers.namesrv import NO_ROUTES_REMARK
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.service import run_to_end
from rocketpy.store.config import MessageStoreConfig
from tests.unit.broker.fakes import FakeClock, MemoryFile


class FakeClient:
    def __init__(self) -> None:
        self.calls: list[tuple[str, RemotingCommand]] = []
        self.down: set[str] = set()
        self.failure: RocketPyError = ConnectError("down")
        self.closed = False
        self.bodies: dict[int, bytes] = {}
        self.codes: dict[int, int] = {}
        self.remark: str | None = None
        self.remarks: dict[str, str | None] = {}
        self.bodies_at: dict[tuple[str, int], bytes] = {}

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        if address in self.down:
            raise self.failure
        self.calls.append((address, command))
        code, body = self.codes.get(command.code, 0), self.bodies.get(command.code, b"")
        body = self.bodies_at.get((address, command.code), body)
        remark = self.remarks.get(address, self.remark)
        return make_response(command, code, remark, body=body)

    async def close(self) -> None:
        self.closed = True


class Kit:
    def __init__(self, addresses: str = "n1:1;n2:2", permission: int = 6) -> None:
        clock = FakeClock()
        config = BrokerConfig(
            broker_name="b",
            broker_ip1="127.0.0.1",
            namesrv_addr=addresses,
            broker_permission=permission,
        )
        self.client = FakeClient()
        self.topics = TopicTable(config, MemoryFile(), clock)
        identity = BrokerIdentity(config)
        identity.listens_on(10911)
        self.link = NameServerLink(
            self.client,  # type: ignore[arg-type]
            configs=LiveBrokerConfig(config, MessageStoreConfig(), RemotingServerConfig(), clock),
            identity=identity,
            topics=self.topics,
        )
        self.topics.on_written = self.link.topic_changed

    def sent(self, code: int) -> list[tuple[str, RemotingCommand]]:
        return [one for one in self.client.calls if one[1].code == code]


def topics_of(command: RemotingCommand) -> dict[str, dict[str, int]]:
    table = orjson.loads(command.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert isinstance(table, dict)
    return table


async def test_link_registers_everywhere_announces_and_unregisters() -> None:
    kit = Kit()
    await kit.link.start()
    assert sorted(address for address, _ in kit.sent(103)) == ["n1:1", "n2:2"]
    command = kit.sent(103)[0][1]
    assert command.ext_fields == {
        "bodyCrc32": str(zlib.crc32(command.body) & 0x7FFFFFFF),
        "brokerAddr": "127.0.0.1:10911",
        "brokerId": "0",
        "brokerName": "b",
        "clusterName": "DefaultCluster",
        "compressed": "false",
        "enableActingMaster": "false",
        "haServerAddr": "127.0.0.1:10912",
    }
    assert topics_of(command).keys() == kit.topics.all().keys()
    kit.topics.put(TopicConfig("A"))
    kit.topics.put(TopicConfig("B"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert [set(topics_of(one)) for _, one in kit.sent(103)[2:]] == [{"A", "B"}] * 2
    await kit.link.stop()
    assert [address for address, _ in kit.sent(104)] == ["n1:1", "n2:2"]
    assert kit.client.closed


async def test_link_silent_name_server_logs_tls_hint() -> None:
    kit = Kit()
    kit.client.down = {"n1:1"}
    kit.client.failure = ConnectionLostError("closed before request 103 was answered")
    with capture_logs() as events:
        await kit.link.start()
        kit.client.down = {"n2:2"}
        await kit.link.register_all()
    hints = {one["name_server"]: one.get("hint", "") for one in events if "error" in one}
    assert "tls.server.mode=enforcing" in hints["n1:1"]
    assert hints["n2:2"] == "", "it has answered before"
    await kit.link.stop()


async def test_link_unreachable_name_server_does_not_delay_others() -> None:
    kit = Kit()
    kit.client.down = {"n1:1"}
    await kit.link.start()
    assert [address for address, _ in kit.sent(103)] == ["n2:2"]
    kit.client.down = set()
    await kit.link.register_all()
    assert [address for address, _ in kit.sent(103)] == ["n2:2", "n1:1", "n2:2"]
    await kit.link.stop()


async def test_link_read_only_broker_removes_write_permission() -> None:
    kit = Kit(permission=4)
    kit.topics.put(TopicConfig("A", 4, 4, 6))
    await kit.link.register_all()
    assert topics_of(kit.sent(103)[0][1])["A"]["perm"] == 4


async def test_link_without_name_servers_sends_nothing() -> None:
    kit = Kit("")
    await kit.link.start()
    kit.topics.put(TopicConfig("A"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await kit.link.stop()
    assert kit.client.calls == []


async def test_link_fetch_route_uses_first_name_server_that_answers() -> None:
    kit = Kit()
    assert not (await kit.link.fetch_route("T")).was_reached  # not started
    kit.client.down = {"n1:1"}
    await kit.link.start()
    kit.client.bodies[105] = b'{"queueDatas":[{"brokerName":"o","readQueueNums":3,"perm":6}]}'
    response = await kit.link.fetch_route("T")
    assert response.route is not None
    assert response.route.queue_datas[0].read_queue_nums == 3
    address, command = kit.sent(105)[0]
    assert address == "n2:2"
    assert command.ext_fields == {"acceptStandardJsonOnly": "true", "topic": "T"}
    kit.client.codes[105] = 17
    assert await kit.link.fetch_route("T") == (True, None)
    kit.client.codes[105] = 0
    kit.client.bodies[105] = b"["
    assert not (await kit.link.fetch_route("T")).was_reached
    kit.client.down = {"n1:1", "n2:2"}
    assert not (await kit.link.fetch_route("T")).was_reached
    await kit.link.stop()


class SlowClient(FakeClient):
    """Answers a registration of a single topic when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        if command.code == 103 and len(topics_of(command)) == 1:
            await self.may_answer.wait()
        return await super().invoke(address, command, timeout_ms)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_when_announced_is_called_after_announcement() -> None:
    kit = Kit()
    kit.link._client = client = SlowClient()  # type: ignore[assignment]
    await kit.link.start()
    told: list[str] = []
    kit.link.when_announced(lambda: told.append("nothing to announce"))
    await turns()
    assert told == ["nothing to announce"]
    kit.topics.put(TopicConfig("T", 1, 1))
    kit.link.when_announced(lambda: told.append("announced"))
    await turns()
    assert len(told) == 1
    client.may_answer.set()
    await turns()
    assert told[1:] == ["announced"]
    assert len([one for one in client.calls if set(topics_of(one[1])) == {"T"}]) == 2
    await kit.link.stop()


class TurnstileClient(FakeClient):
    """Answers registrations of a few topics one by one, as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = asyncio.Semaphore(0)

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        if command.code == 103 and len(topics_of(command)) < 5:
            await self.passes.acquire()
        return await super().invoke(address, command, timeout_ms)


async def test_when_announced_does_not_wait_for_later_changes() -> None:
    kit = Kit("n1:1")
    kit.link._client = client = TurnstileClient()  # type: ignore[assignment]
    await kit.link.start()
    told: list[str] = []
    for name in ("a", "b", "c"):
        kit.topics.put(TopicConfig(name, 1, 1))
        kit.link.when_announced(partial(told.append, name))
        await turns()
    assert told == []
    client.passes.release()
    await turns()
    assert told == ["a"]
    # Those behind it were told together.
    client.passes.release()
    await turns()
    assert told == ["a", "b", "c"]
    await kit.link.stop()


async def test_when_announced_during_last_round_is_called_after_it() -> None:
    kit = Kit("n1:1")
    kit.link._client = client = TurnstileClient()  # type: ignore[assignment]
    await kit.link.start()
    told: list[str] = []
    kit.topics.put(TopicConfig("a", 1, 1))
    await turns()
    kit.link.when_announced(lambda: told.append("late"))
    await turns()
    assert told == []
    client.passes.release()
    await turns()
    assert told == ["late"]
    await kit.link.stop()


async def test_when_announced_is_called_on_stop() -> None:
    kit = Kit()
    kit.link._client = SlowClient()  # type: ignore[assignment]
    told: list[str] = []
    kit.link.when_announced(lambda: told.append("before the start"))
    await kit.link.start()
    kit.topics.put(TopicConfig("T", 1, 1))
    kit.link.when_announced(lambda: told.append("waiting"))
    await turns()
    assert told == ["before the start"]
    await kit.link.stop()
    await turns()
    assert told[1:] == ["waiting"]
    kit.link.when_announced(lambda: told.append("after the end"))
    assert told[2:] == ["after the end"]


async def test_link_large_table_is_encoded_in_steps_and_new_topic_follows() -> None:
    kit = Kit("n1:1")
    with kit.topics.one_write():
        for number in range(2_000):
            kit.topics.put(TopicConfig(f"many-{number}", 4, 4))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    registering = asyncio.create_task(kit.link.register_all())
    await asyncio.sleep(0)
    kit.topics.put(TopicConfig("young", 4, 4))
    announced = asyncio.create_task(kit.link._register(lambda: [TopicConfig("young", 4, 4)]))
    await asyncio.gather(registering, announced)
    task.cancel()
    assert turns - before >= 7, "others had their turn in between"
    first, second = (topics_of(command) for _, command in kit.sent(103))
    assert len(first) >= 2_000
    assert list(second) == ["young"]


async def test_link_announces_current_state_of_topic() -> None:
    kit = Kit("n1:1")
    await kit.link.start()
    # Changes on two threads: what is heard first was written last.
    with kit.topics.one_write():
        kit.topics.when_written(lambda: kit.topics.put(TopicConfig("changed", 8, 8)))
        kit.topics.put(TopicConfig("changed", 4, 4))
    await turns()
    (told,) = [topics_of(command) for _, command in kit.sent(103)[1:]]
    assert told["changed"]["readQueueNums"] == 8
    await kit.link.stop()


def queues_at(calls: list[tuple[str, RemotingCommand]], address: str, topic: str) -> int:
    """Return the number of queues of a topic at a name server that applied its registrations."""
    table = RouteTable()
    for to, command in calls:
        if to == address:
            told = run_to_end(read_topics(command.body, command.version))
            broker = Registration(
                cluster="c",
                broker_name="b",
                broker_id=0,
                address="b:1",
                ha_address="",
                data_version=told.data_version,
                topics=told.topics,
            )
            table.register(broker, "connection", 0)
    route = table.route(topic)
    return 0 if route is None else route.queue_datas[0].read_queue_nums


async def test_link_missed_change_is_sent_with_next_change() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("changed", 4, 4))
    await kit.link.start()
    kit.client.down = {"n1:1"}
    kit.topics.put(TopicConfig("changed", 8, 8))
    await turns()
    kit.client.down = set()
    kit.topics.put(TopicConfig("other", 4, 4))
    await turns()
    assert [queues_at(kit.sent(103), each, "changed") for each in ("n1:1", "n2:2")] == [8, 8]
    count = len(kit.sent(103))
    kit.topics.put(TopicConfig("next", 4, 4))
    await turns()
    assert len(kit.sent(103)) == count + 2, "the whole table once only"
    await kit.link.stop()


async def test_link_missed_change_and_table_are_sent_again() -> None:
    kit = Kit("n1:1")
    kit.topics.put(TopicConfig("changed", 4, 4))
    await kit.link.start()
    kit.client.down = {"n1:1"}
    kit.topics.put(TopicConfig("changed", 8, 8))
    await turns()
    await kit.link.register_all()
    kit.client.down = set()
    kit.topics.put(TopicConfig("other", 4, 4))
    await turns()
    assert queues_at(kit.sent(103), "n1:1", "changed") == 8
    await kit.link.stop()


async def test_link_complete_table_replaces_missed_change() -> None:
    kit = Kit("n1:1")
    kit.topics.put(TopicConfig("changed", 4, 4))
    await kit.link.start()
    kit.client.down = {"n1:1"}
    kit.topics.put(TopicConfig("changed", 8, 8))
    await turns()
    kit.client.down = set()
    await kit.link.register_all()
    count = len(kit.sent(103))
    kit.topics.put(TopicConfig("other", 4, 4))
    await turns()
    assert len(kit.sent(103)) == count + 1
    assert queues_at(kit.sent(103), "n1:1", "changed") == 8
    await kit.link.stop()


async def test_link_conflict_is_logged_when_it_begins_and_ends() -> None:
    kit = Kit("n1:1")
    with capture_logs() as events:
        await kit.link.start()
        kit.client.remark = "brokerName b with brokerId 0 is also registered by 10.0.0.9:1"
        await kit.link.register_all()
        await kit.link.register_all()
        kit.client.remark = None
        await kit.link.register_all()
    found = [each for each in events if each["event"].startswith("broker name conflict")]
    assert [each["log_level"] for each in found] == ["warning", "info"]
    assert "10.0.0.9:1" in found[0]["remark"]
    await kit.link.stop()


async def test_link_has_a_name_conflict_while_a_name_server_gives_it_no_routes() -> None:
    kit = Kit()
    await kit.link.register_all()
    assert kit.link.name_conflict is None
    kit.client.remark = f"b is also registered by 10.0.0.9:1: {NO_ROUTES_REMARK}"
    kit.client.down = {"n1:1"}
    await kit.link.register_all()
    assert kit.link.name_conflict == kit.client.remark
    kit.client.remarks, kit.client.down = {"n1:1": None}, set()
    await kit.link.register_all()
    assert kit.link.name_conflict == kit.client.remark, "clients of the other one use that broker"
    kit.client.remark = "b: this broker keeps its routes"
    await kit.link.register_all()
    assert kit.link.name_conflict is None


def held_by(address: str) -> bytes:
    members = {0: address} if address else {}
    group = BrokerMemberGroup(cluster="DefaultCluster", broker_name="b", broker_addrs=members)
    return GetBrokerMemberGroupResponseBody(broker_member_group=group).encode()


async def test_link_waiting_broker_is_not_first_at_a_restarted_name_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit("n1:1")
    now_s = 100.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
    kit.client.remark = f"b is also registered by 10.0.0.9:1: {NO_ROUTES_REMARK}"
    await kit.link.register_all()
    kit.client.bodies[901] = held_by("10.0.0.9:1")
    await kit.link.register_all()
    assert len(kit.sent(103)) == 2, "the name server keeps its newest registration"
    kit.client.bodies[901] = held_by("")  # it has restarted
    await kit.link.register_all()
    now_s += 29.9
    await kit.link.register_all()
    assert len(kit.sent(103)) == 2
    assert kit.link.name_conflict == kit.client.remark
    now_s += 0.1
    kit.client.remark = None
    await kit.link.register_all()
    assert len(kit.sent(103)) == 3, "the other broker has not registered for a period"
    assert kit.link.name_conflict is None
    await kit.link.stop()


async def test_link_broker_that_waits_at_one_name_server_is_not_first_at_another() -> None:
    kit = Kit("n1:1;n2:2")
    kit.client.remark = f"b is also registered by 10.0.0.9:1: {NO_ROUTES_REMARK}"
    kit.client.down = {"n2:2"}
    await kit.link.register_all()
    kit.client.down = set()
    kit.client.bodies_at["n1:1", 901] = held_by("10.0.0.9:1")
    kit.client.bodies_at["n2:2", 901] = held_by("")
    await kit.link.register_all()
    assert [address for address, _ in kit.sent(103)] == ["n1:1", "n1:1"]
    kit.client.bodies_at["n2:2", 901] = held_by("10.0.0.9:1")
    await kit.link.register_all()
    assert [address for address, _ in kit.sent(103)][2:] == ["n1:1", "n2:2"]
    await kit.link.stop()


async def test_link_waiting_broker_registers_at_once_when_it_gets_the_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit("n1:1")
    slept: list[float] = []
    sleep = asyncio.sleep
    kit.client.remark = f"b is also registered by 10.0.0.9:1: {NO_ROUTES_REMARK}"
    kit.client.bodies[901] = held_by("10.0.0.9:1")

    async def count(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 8:  # the name server has given it the routes
            kit.client.bodies[901], kit.client.remark = held_by("127.0.0.1:10911"), None
        await sleep(0)

    monkeypatch.setattr("rocketpy.broker.cluster.name_server_link.asyncio.sleep", count)
    await kit.link.start()
    while kit.link.name_conflict is not None and len(slept) < 20:
        await sleep(0)
    assert len(slept) <= 9
    assert all(each <= 2 for each in slept)
    await kit.link.stop()


async def test_link_is_registered_while_one_name_server_accepts() -> None:
    kit = Kit()
    assert not kit.link.is_registered
    await kit.link.register_all()
    assert kit.link.is_registered
    kit.client.down = {"n1:1"}
    await kit.link.register_all()
    assert kit.link.is_registered
    kit.client.codes = {103: 1}
    await kit.link.register_all()
    assert not kit.link.is_registered
    kit.client.down, kit.client.codes = set(), {}
    await kit.link.register_all()
    assert kit.link.is_registered
