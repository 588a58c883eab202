"""The feature of pop consumption: what it adds to a broker, and how its parts are connected."""

import random
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.pop.feature import PopNeeds, build_pop
from rocketpy.broker.pop.suspended_pops import Listener
from rocketpy.broker.request_table import RequestTable
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.business_pool import BusinessPool
from tests.unit.broker.fakes import FakeChannel, FakeStats, MemoryFile, request
from tests.unit.broker.pop.parts_kit import RETRY_V1, Parts, Timer

POP, ACK, PEEK, CHANGE, NOTIFICATION, POLLING_INFO, BATCH_ACK = (
    200050, 200051, 200052, 200053, 200054, 200055, 200151,
)  # fmt: skip


class Kit(Parts):
    def __init__(self, *, has_timer: bool = True, sync_flush: bool = False, **config: Any) -> None:
        super().__init__(**{"enable_pop_buffer_merge": False, **config})
        self.timer = Timer()
        self.groups = SubscriptionGroupTable(self.config, MemoryFile(), self.clock)
        self.order_file = MemoryFile()
        self.listeners: list[Listener] = []
        pool = BusinessPool("pull", 0, 100, 0)
        put = SystemWriter(self.store, lambda *_: None)
        self.feature = build_pop(
            PopNeeds(
                store=self.store,
                put=put,
                aside=PutRetry(put, MessageScheduler((30_000,), self.clock).delay, (30_000,)),
                timer=self.timer,
                has_timer=has_timer,
                topics=self.topics,
                groups=self.groups,
                offsets=self.offsets,
                recent=self.recent,
                order_file=self.order_file,
                stats=FakeStats(),
                config=self.config,
                sync_flush=sync_flush,
                clock=self.clock,
            ),
            listen=self.listeners.append,
            pool=pool,
            rng=random.Random(1),
        )
        self.requests = RequestTable({"pull": pool, "ack": pool})
        self.feature.add_requests(self.requests)
        self.channel = FakeChannel()
        for state in self.feature.states:
            state.load()

    def ask(self, code: int, **fields: Any) -> RemotingCommand | None:
        given = {name: str(value) for name, value in fields.items()}
        response = self.requests.routes[code].processor(self.channel, request(code, given))  # type: ignore[arg-type]
        if isinstance(response, bytes):
            (response,) = CommandReader().feed(response)
        assert response is None or isinstance(response, RemotingCommand)
        return response

    def pop(self, **changes: Any) -> RemotingCommand:
        response = self.pop_or_wait(**changes)
        assert response is not None
        return response

    def pop_or_wait(self, **changes: Any) -> RemotingCommand | None:
        fields = {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            "bornTime": self.clock.time_ms(),
            "initMode": 0,
        }
        return self.ask(POP, **{**fields, **changes})


def test_pop_feature_registers_all_request_codes() -> None:
    kinds = {code: route.kind for code, route in Kit().requests.routes.items()}
    assert kinds == {
        POP: "pull",
        PEEK: "pull",
        NOTIFICATION: "pull",
        POLLING_INFO: "pull",
        ACK: "ack",
        CHANGE: "ack",
        BATCH_ACK: "ack",
    }


def test_pop_feature_services_have_unique_names() -> None:
    feature = Kit().feature
    names = [service.name for service in (*feature.services, *feature.loop_services)]
    assert feature.name == "pop"
    assert len(set(names)) == len(names)
    assert {"PopPositions", "PopOrderInfo"} <= set(names)
    assert [service.name for service in feature.loop_services] == [
        "SuspendedPops",
        "SuspendedNotifications",
    ]


def test_pop_feature_without_suspended_pops_does_not_listen() -> None:
    kit = Kit()
    kit.put(b"0")
    kit.pop()
    assert kit.listeners == []
    assert kit.pop_or_wait(pollTime=10_000) is None
    assert len(kit.listeners) == 1


def test_pop_feature_arriving_message_answers_suspended_pop() -> None:
    kit = Kit()
    assert kit.pop_or_wait(pollTime=10_000) is None
    kit.put(b"0")
    [listener] = kit.listeners
    listener("T", 0, 1, 0)
    kit.channel.loop.turn()
    [frame] = kit.channel.sent
    (response,) = CommandReader().feed(frame)
    assert (response.code, response.opaque) == (0, 42)


def test_pop_feature_spreads_check_points_over_revive_queues() -> None:
    kit = Kit(revive_queue_num=3)
    queues = []
    for number in range(6):
        kit.put(b"%d" % number)
        queues.append(kit.pop().ext_fields["reviveQid"])
    assert sorted(queues) == ["0", "0", "1", "1", "2", "2"]
    assert sorted(queue_id for _, queue_id, _ in kit.timer.points) == [0, 0, 1, 1, 2, 2]


def test_pop_feature_ordered_acks_and_pops_share_state() -> None:
    kit = Kit(queues=1)
    kit.put(b"0", b"1")
    first = kit.pop(order="true", maxMsgNums=1)
    assert kit.pop(order="true").code == 210, "blocked"
    handle = f"0 {first.ext_fields['popTime']} 60000 999 0 b 0 0"
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0, "offset": 0}
    acked = kit.ask(ACK, **fields, extraInfo=handle)
    assert acked is not None
    assert acked.code == 0
    assert kit.pop(order="true").code == 0, "free again"


def test_pop_feature_restart_keeps_ordered_state() -> None:
    kit = Kit(queues=1)
    kit.put(b"0")
    kit.groups.get_or_create("g")
    kit.pop(order="true")
    for state in kit.feature.states:
        state.persist()
    assert set(kit.order_file.value["table"]) == {"T@g"}


def test_pop_feature_deleted_group_or_queue_drops_ordered_state() -> None:
    kit = Kit(queues=1)
    kit.put(b"0")
    kit.pop(order="true")
    kit.topics.delete("T")
    for state in kit.feature.states:
        state.persist()
    assert kit.order_file.value["table"] == {}


def test_pop_feature_configure_reaches_pops_and_notifications() -> None:
    kit = Kit()
    assert kit.feature.configure is not None
    kit.feature.configure(BrokerConfig(broker_name="b", broker_permission=2))
    assert kit.pop().code == 16
    fields = {"consumerGroup": "g", "topic": "T", "queueId": -1, "pollTime": 0, "bornTime": 1}
    notified = kit.ask(NOTIFICATION, **fields)
    assert notified is not None
    assert notified.code == 16


@pytest.mark.parametrize(
    ("limits", "room"),
    [({"pop_polling_size": 2}, 2), ({"max_pop_polling_size": 3}, 3)],
    ids=["of a group", "of all"],
)
def test_pop_feature_limits_suspended_pops(limits: dict[str, Any], room: int) -> None:
    kit = Kit(**limits)
    codes = [kit.pop_or_wait(pollTime=10_000) for _ in range(room)]
    assert codes == [None] * room
    one_more = kit.pop_or_wait(pollTime=10_000)
    if one_more is None:
        assert "max_pop_polling_size" in limits, "the oldest is answered early instead"
        kit.channel.loop.turn()
        assert len(kit.channel.sent) >= 1
    else:
        assert one_more.code == 209


def test_pop_feature_without_timer_refuses_pops() -> None:
    kit = Kit(has_timer=False)
    kit.put(b"0")
    response = kit.pop()
    assert response.code == 1
    assert "timerWheelEnable" in (response.remark or "")


@pytest.mark.parametrize(
    ("kind", "expression", "code"),
    [
        ("TAG", "a || b", 210),
        ("", "a", 210),
        ("SQL92", "a > 5", 210),
        ("SQL92", "a >", 23),
        ("CLASS", "x", 23),
    ],
)
def test_pop_feature_compiles_tag_and_sql92_expressions(
    kind: str, expression: str, code: int
) -> None:
    assert Kit().pop(expType=kind, exp=expression).code == code


def test_pop_feature_unacked_message_is_redelivered() -> None:
    kit = Kit(queues=1)
    kit.put(b"0")
    kit.pop(invisibleTime=1_000)
    point, queue_id, _ = kit.timer.points[0]
    kit.clock.advance(10_000)
    kit.put(
        point.encode(),
        topic="rmq_sys_REVIVE_LOG_c",
        queue_id=queue_id,
        properties=b"TAGS\x01ck\x02TIMER_DELIVER_MS\x01%d\x02" % kit.clock.time_ms(),
        tags="ck",
    )
    [revive] = [one for one in kit.feature.services if "evive" in one.name]
    for _ in range(5):
        revive.step(kit.clock.monotonic_ms())
        kit.clock.advance(5_000)
    assert kit.store.max_offset(RETRY_V1, 0) == 1


@pytest.mark.parametrize("sync_flush", [True, False])
def test_pop_feature_sync_flush_answers_after_check_point_is_durable(
    sync_flush: bool,
) -> None:
    kit = Kit(sync_flush=sync_flush)
    kit.put(b"0")
    response = kit.pop_or_wait()
    # The timer of this test vouches for nothing that is beyond the end of the log.
    assert (response is None) is sync_flush
