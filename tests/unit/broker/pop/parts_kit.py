"""The parts of pop on a real store whose disk and clock are simulated, and a timer that notes."""

from typing import Any

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.broker.fakes import MemoryFile
from tests.unit.store.store_kit import Kit as StoreKit

GROUP = "g"
RETRY_V1, RETRY_V2 = "%RETRY%g_T", "%RETRY%g+T"


class Timer:
    """Takes check points; `status` is how that ends."""

    def __init__(self) -> None:
        self.status = PutMessageStatus.PUT_OK
        self.points: list[tuple[CheckPoint, int, int]] = []

    def put_at(
        self, message: PutMessage, properties: dict[str, str], deliver_ms: int
    ) -> PutMessageResult:
        if self.status is not PutMessageStatus.PUT_OK:
            return PutMessageResult(self.status)
        assert properties["TIMER_DELIVER_MS"] == str(deliver_ms)
        self.points.append((CheckPoint.decode(message.body), message.queue_id, deliver_ms))
        return PutMessageResult(self.status, 10_000 * len(self.points), 500)

    def delivered_before_ms(self) -> int:
        return 1 << 62


class Recent:
    """Whether young queues are read from their beginning."""

    is_recent = True

    def is_in_memory(self, _topic: str, _queue_id: int, _offset: int) -> bool:
        return self.is_recent


class Parts:
    """Parts of a broker that a pop of topic T by group g uses."""

    def __init__(self, queues: int = 2, **config: Any) -> None:
        files = StoreKit(mapped_file_size_commit_log=1 << 20)
        self.clock = files.clock
        self.store = files.open()
        self.config = BrokerConfig(broker_name="b", broker_cluster_name="c", **config)
        self.topics = TopicTable(self.config, MemoryFile(), self.clock)
        self.topics.put(TopicConfig("T", queues, queues))
        self.offsets = ConsumerOffsets(self.config, MemoryFile(), self.clock)
        self.recent = Recent()
        self.positions = PopPositions(self.offsets, self.store, self.recent)
        self.order = OrderTable(
            MemoryFile(),
            self.clock,
            queue_count=lambda _topic: queues,
            has_group=lambda _group: True,
            interval_ms=1_000,
        )

    def put(self, *bodies: bytes, topic: str = "T", queue_id: int = 0, **fields: Any) -> None:
        for body in bodies:
            message = PutMessage(topic, queue_id, body, **fields)
            assert self.store.put_message(message).status is PutMessageStatus.PUT_OK
