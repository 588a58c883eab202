"""Topic tables, their version, lists and statistics.

Source: TopicConfig, TopicConfigSerializeWrapper, DataVersion, TopicList,
TopicStatsTable of 5.4.0.
"""

from dataclasses import field

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.json_body import Body, body


@body
class DataVersion(Body):
    """Version of a table; equal versions mean equal tables.

    Attributes:
        timestamp: of the last change, ms.
        counter: number of changes.
        state_version: epoch of the broker set; 0 without a controller.
    """

    timestamp: int = 0
    counter: int = 0
    state_version: int = 0


@body
class TopicConfig(Body):
    """Configuration of a topic at a broker; the defaults are Java's.

    Attributes:
        perm: permission bits, see `rocketpy.proto.perm`.
        topic_filter_type: `SINGLE_TAG` or `MULTI_TAG`.
        attributes: for example `{"message.type": "NORMAL"}`.
    """

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def is_batch_cq(self) -> bool:
        """Whether it has batch consume queues (queue.type BatchCQ)."""
        return self.attributes.get("queue.type") == "BatchCQ"


@body
class TopicConfigSerializeWrapper(Body):
    """Response to 21, and the inner part of a registration.

    Mappings are those of static topics; brokers before 5.0 do not write them.
    """

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion | None = None
    topic_queue_mapping_detail_map: dict[str, object] | None = None
    topic_queue_mapping_info_map: dict[str, object] | None = None


@body
class CreateTopicListRequestBody(Body):
    """Request 18: topics to create or change."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@body
class TopicList(Body):
    """List of topics (206, 224, 304, 305, 311 to 313, 343).

    Attributes:
        broker_addr: of any broker; 304 and 343 only.
    """

    topic_list: set[str] = field(default_factory=set)
    broker_addr: str | None = None


@body
class KVTable(Body):
    """Table of texts (28, 103, 219)."""

    table: dict[str, str] = field(default_factory=dict)


@body
class TopicOffset(Body):
    """Range of offsets of a queue.

    Attributes:
        last_update_timestamp: when its last message was stored, ms; 0 when empty.
    """

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


@body
class TopicStatsTable(Body):
    """Response to 202."""

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0
