"""Check points, acks and order info written by Apache 5.4.0."""

from pathlib import Path

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.revive.revive import RetryTopics, ReviveQueue, Reviver
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.pop import REVIVE_GROUP, revive_topic
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.store.files.json_file import JsonFile
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.message_store import MessageStore
from rocketpy.testing.sim_clock import SimClock
from tests.golden.store.test_apache_stores import open_store, unpack

READ_MS = 1_795_251_481_000
TOPIC = revive_topic("VecCluster")
RETRY = "%RETRY%vec_pop_group_VecPop"
CONFIG = BrokerConfig(broker_cluster_name="VecCluster", broker_name="vec-a")


ORDER_INFO = """{
	"orderedConsumptionLevel":"QUEUE",
	"table":{
		"VecPopOrder@vec_poporder_group":{
			0:{
				"cm":1,
				"i":600000,
				"l":1795251248315,
				"o":[0,1,2,3],
				"popTime":1795251248305
			}
		}
	}
}"""  # its tabs are Apache's


class PunctualTimer:
    def delivered_before_ms(self) -> int:
        return READ_MS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    unpack("store-small", tmp_path)
    return tmp_path


def document(root: Path, name: str) -> JsonFile:
    return JsonFile(root / "config" / name, RealFiles())


def messages(store: MessageStore, first: int) -> list[MessageExt]:
    found = store.get_message(RETRY, 0, first, 3, 1 << 20)
    return [decode_message(record, inflate=False) for record in found.buffers]


def test_revive_of_apache_check_points_matches_apache(root: Path) -> None:
    store = open_store(root)
    clock = SimClock(time_ms=READ_MS)
    topics = TopicTable(CONFIG, document(root, "topics.json"), clock)
    groups = SubscriptionGroupTable(CONFIG, document(root, "subscriptionGroup.json"), clock)
    topics.put(TopicConfig("VecPop", 1, 1))
    topics.put(TopicConfig(RETRY, 1, 1))
    assert groups.get_or_create("vec_pop_group") is not None
    offsets = ConsumerOffsets(CONFIG, document(root, "consumerOffset.json"), clock)
    put = SystemWriter(store, lambda _topic, _count, _size: None)
    reviver = Reviver(
        store,
        put,
        PutRetry(put, MessageScheduler((30_000,), clock).delay, (30_000,)),
        None,  # type: ignore[arg-type]  # no retry topic has to be made
        retry_topics=RetryTopics(topics, offsets, is_v2=False),
        topics=topics,
        groups=groups,
        clock=clock,
    )
    revive = ReviveQueue(
        SystemQueue(store, TOPIC, 0),
        store,
        reviver,
        offsets=offsets,
        timer=PunctualTimer(),  # type: ignore[arg-type]
        clock=clock,
    )
    while revive.step():
        pass
    before, ours = messages(store, 0), messages(store, 3)
    assert (
        [one.body for one in ours] == [one.body for one in before] == [b"pop-5", b"pop-6", b"pop-7"]
    )
    assert [one.properties for one in ours] == [one.properties for one in before]
    assert [one.reconsume_times for one in ours] == [1, 1, 1]
    assert store.flush_log()
    revive.step()
    assert offsets.query(REVIVE_GROUP, TOPIC, 0) == 0, "the check point's own, as Apache notes it"
    store.close()


def test_order_info_of_apache_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "consumerOrderInfo.json"
    path.write_text(ORDER_INFO)
    file = JsonFile(path, RealFiles())
    table = OrderTable(
        file,
        SimClock(time_ms=READ_MS),
        queue_count=lambda _topic: 8,
        has_group=lambda _group: True,
        interval_ms=5_000,
    )
    table.load()
    queue = GroupQueue("VecPopOrder", "vec_poporder_group", 0)
    assert table.is_blocked(queue), "three of four messages are not acked"
    table.persist()
    assert path.read_text() == ORDER_INFO
