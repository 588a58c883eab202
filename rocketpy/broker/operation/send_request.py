"""What a sender wants stored, and what became of it."""

from typing import NamedTuple


class SendRequest(NamedTuple):
    """A message, or a batch of messages, to store.

    Attributes:
        topic: where to.
        queue_id: queue within the topic; below 0 is any queue.
        body: as it is to be stored (compressed or not); of a batch: its messages, encoded.
        properties: encoded, as the sender made them (see `rocketpy.proto.record.properties`).
        born_host: the sender's address, ip (4 or 16 bytes) and i32 port.
        producer: the sender's address for people, ``ip:port``.
        flag: the application's own flag.
        sys_flag: system flags.
        born_timestamp_ms: when the sender made it.
        reconsume_times: how often it was tried, for a retry topic.
        max_reconsume_times: from how many tries on it is a dead letter; None: as the group says.
        template: topic to inherit from when `topic` must be created.
        template_queue_nums: queues at most when `topic` must be created.
        is_unit: the unit bit of a topic that must be created.
        is_batch: `body` holds several messages.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_host: bytes
    producer: str
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    template: str = ""
    template_queue_nums: int = 0
    is_unit: bool = False
    is_batch: bool = False


class Sent(NamedTuple):
    """Where a message, or a batch, was stored.

    Attributes:
        phy_offset: of the first record.
        queue_id: the queue.
        queue_offset: of the first message.
        uniq_key: UNIQ_KEY of the message, or of the batch.
        durable_at: the sender is answered once the log is on disk up to here; 0: at once.
        new_topic: the sender is answered once this topic's table is on disk, and the name servers
            know the topic; empty when there is nothing to wait for.
        phy_offsets: of each record of a batch; empty for a single message.
        recall_handle: with which a timed message can be called back; empty for others.
    """

    phy_offset: int
    queue_id: int
    queue_offset: int
    uniq_key: str
    durable_at: int = 0
    new_topic: str = ""
    phy_offsets: tuple[int, ...] = ()
    recall_handle: str = ""
