"""The parts of a broker and their connections."""

import random
from functools import partial
from pathlib import Path
from typing import Any

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.parts import BrokerParts
from rocketpy.broker.processor.send_message import SendMessageProcessor
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.bodies.group import SetMessageRequestModeRequestBody
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.runtime.service import WokenService, connect
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.fakes import FakeChannel, request


def build(files: SimFiles | None = None, *, threads: bool = True, **config: Any) -> BrokerParts:
    clock, rng = SimClock(), random.Random(1)
    store = {
        name: config.pop(name)
        for name in ("flush_disk_type", "timer_wheel_enable", "broker_role")
        if name in config
    }
    configs = LiveBrokerConfig(
        BrokerConfig(broker_name="b", **config),
        MessageStoreConfig(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=1 << 16,
            mapped_file_size_consume_queue=2_000,
            max_hash_slot_num=20,
            max_index_num=50,
            **store,
        ),
        RemotingServerConfig(),
        clock,
    )
    client = RemotingClient(RemotingClientConfig(), clock=clock, rng=rng)
    return BrokerParts(
        configs, client=client, clock=clock, rng=rng, files=files or SimFiles(), threads=threads
    )


def opened(*, threads: bool = True, **config: Any) -> BrokerParts:
    parts = build(threads=threads, **config)
    parts.store.open()
    parts.topics.put(TopicConfig("T", 1, 1))
    return parts


def put(parts: BrokerParts, body: bytes, topic: str = "T") -> None:
    result = parts.store.put_message(PutMessage(topic, 0, body))
    assert result.status is PutMessageStatus.PUT_OK


def test_parts_touch_nothing_before_start() -> None:
    files = SimFiles()
    parts = build(files)
    assert files.operation_count == 0
    assert parts.address == "", "it does not listen yet"
    assert isinstance(parts.sends, SendMessageProcessor)


def test_parts_features_are_in_order_of_their_transforms() -> None:
    names = [feature.name for feature in build().features]
    assert len(set(names)) == len(names)
    assert names[0] == "consumer filters"
    assert names[-1] == "pop"
    transforming = [feature.name for feature in build().features if feature.put_transforms]
    first, second = (name for name in transforming if name in {"transactions", "delay"})
    assert (first, second) == ("transactions", "delay"), "a half message is not delayed"


def test_parts_run_each_feature_service_once() -> None:
    parts = build()
    of_features = [
        service
        for feature in parts.features
        for service in (*feature.services, *feature.loop_services)
    ]
    running = [*parts.loop_services, *parts.background_services]
    assert all(service in running for service in of_features)
    assert parts.offsets in running
    assert parts.suspended_pulls in running
    names = [service.name for service in (*running, *parts.store.services)]
    assert len(set(names)) == len(names)


def test_parts_without_threads_run_all_pools_inline() -> None:
    sizes: dict[str, Any] = {
        "query_message_thread_pool_nums": 3,
        "send_message_thread_pool_nums": 2,
    }
    assert all(pool.runs_inline for pool in build(threads=False, **sizes).pools.values())
    assert not all(pool.runs_inline for pool in build(**sizes).pools.values())


def test_parts_arriving_message_notifies_pulls_and_pops() -> None:
    parts = opened()
    told: list[tuple[str, int, int, int]] = []
    pulls = parts.store.on_arrival
    assert pulls is not None

    def noted(topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        told.append((topic, queue_id, next_offset, tags_code))
        pulls(topic, queue_id, next_offset, tags_code)

    parts.store.on_arrival = noted
    put(parts, b"0")
    put(parts, b"1")
    assert told == [("T", 0, 1, 0), ("T", 0, 2, 0)]


def test_parts_changed_settings_reach_store_topics_and_features() -> None:
    parts = opened()
    before = parts.configs.data_version
    parts.configs.update({"fileReservedTime": "1", "brokerPermission": "4", "traceOn": "false"})
    assert parts.config.broker_permission == 4
    assert parts.configs.store.file_reserved_time == 1
    assert not parts.config.trace_on
    assert parts.configs.data_version != before


def test_parts_changed_settings_reach_topics() -> None:
    parts = opened(auto_create_topic_enable=False)
    assert parts.topics.get("TBW102") is None
    parts.configs.update({"autoCreateTopicEnable": "true"})
    assert parts.topics.get("TBW102") is not None


def test_parts_pulls_are_notified_beside_pops() -> None:
    parts = opened(threads=False)
    told: list[int] = []
    parts.store.on_arrival = lambda _topic, _queue_id, next_offset, _code: told.append(next_offset)
    pop = next(feature for feature in parts.features if feature.name == "pop")
    requests = RequestTable(parts.pools)
    pop.add_requests(requests)
    channel = FakeChannel()
    fields = {
        "consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "1", "initMode": "0",
        "invisibleTime": "60000", "pollTime": "10000", "bornTime": str(parts.clock.time_ms()),
    }  # fmt: skip
    waiting: Any = requests.routes[200050].processor(channel, request(200050, fields))  # type: ignore[arg-type]
    assert waiting is None
    put(parts, b"0")
    assert told == [1]
    assert channel.loop.turn() > 0, "the pop goes on"


def test_parts_deleted_topic_removes_its_mode() -> None:
    parts = opened()
    for topic in ("T", "U"):
        mode = SetMessageRequestModeRequestBody(topic=topic, consumer_group="g", mode="POP")
        assert parts.modes.put(mode)
    assert parts.modes.get("T", "g") is not None
    parts.topics.delete("T")
    assert parts.modes.get("T", "g") is None
    assert parts.modes.get("U", "g") is not None


def test_parts_tables_are_in_config_directory() -> None:
    files = SimFiles()
    parts = build(files)
    parts.store.open()
    parts.topics.put(TopicConfig("T", 1, 1))
    parts.offsets.commit("g", "T", 0, 1)
    parts.offsets.persist()
    for feature in parts.features:
        for state in feature.states:
            state.load()
            state.persist()
    names = set(files.list_files(Path("/store/config")))
    assert {"topics.json", "consumerOffset.json"} <= names
    assert {"consumerFilter.json", "consumerOrderInfo.json"} <= names


def test_parts_timer_exists_only_if_enabled() -> None:
    with_timer = {service.name for service in build().background_services}
    without = {service.name for service in build(timer_wheel_enable=False).background_services}
    assert without < with_timer


def test_parts_client_bounds_are_configured() -> None:
    parts = build(max_held_pulls=7, max_held_pulls_per_queue=3)
    assert parts.delays_ms[0] == 1_000
    assert parts.start_ms == parts.clock.time_ms()
    assert len(parts.delays_ms) == 18


def test_parts_arriving_message_wakes_idle_feature_service() -> None:
    parts = opened()
    woken: list[str] = []
    for state in (each for one in parts.features for each in one.states):
        state.load()
    for service in (*parts.loop_services, *parts.background_services):
        connect(service, partial(woken.append, service.name))
        if isinstance(service, WokenService):
            service.step(0)
            service.step(10_000)
    put(parts, b"x")
    assert woken == []
    put(parts, b"x", TIMER_TOPIC)
    put(parts, b"x", SCHEDULE_TOPIC)
    assert woken == ["Timer", "DelayDelivery"]


def test_parts_failing_listener_leaves_no_service_asleep() -> None:
    parts = opened()
    delivery = next(one for one in parts.loop_services if one.name == "DelayDelivery")
    woken: list[str] = []
    connect(delivery, lambda: woken.append("DelayDelivery"))
    delivery.step(0)
    delivery.step(10_000)
    parts.suspended_pulls.count = 1
    parts.suspended_pulls.wake = None  # type: ignore[method-assign, assignment]
    put(parts, b"x", SCHEDULE_TOPIC)
    assert woken == ["DelayDelivery"]


def test_parts_count_after_topic_deletion_restores_no_counter() -> None:
    parts = opened()
    parts.topics.put(TopicConfig("U", 1, 1))
    for topic in ("T", "U"):
        parts.message_counter.add(topic, 1, 100)
    parts.topics.delete("T")
    parts.stats.remove_topic("T")
    for topic in ("T", "U", SCHEDULE_TOPIC):
        parts.message_counter.add(topic, 1, 100)
    parts.message_counter.hand_on()
    assert sorted(parts.stats._topic_put.keys()) == sorted(["U", SCHEDULE_TOPIC])
    assert parts.stats.day_totals().put_now == 4
