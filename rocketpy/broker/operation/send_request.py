"""Parameters and outcome of a send."""

from typing import NamedTuple


class SendRequest(NamedTuple):
    """A message, or a batch of messages, to store.

    Attributes:
        topic: target topic.
        queue_id: queue within the topic; below 0 means any queue.
        body: as it is to be stored (compressed or not); of a batch: its messages, encoded.
        properties: encoded, as sent by the client (see `rocketpy.proto.record.properties`).
        born_host: the sender's address, ip (4 or 16 bytes) and i32 port.
        producer: the sender's address for display, `ip:port`.
        flag: flag of the application.
        sys_flag: system flags.
        born_timestamp_ms: when the sender created it.
        reconsume_times: number of attempts so far, for a retry topic.
        max_reconsume_times: attempts after which it is a dead letter; None: the group's setting.
        template: topic to inherit from when `topic` must be created.
        template_queue_nums: upper limit for the queues when `topic` must be created.
        is_unit: unit bit of a topic that must be created.
        is_batch: whether `body` contains several messages.
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
    """Outcome of a send: where the message or batch was stored.

    Attributes:
        phy_offset: position of the first record in the log.
        queue_id: the queue.
        queue_offset: offset of the first message in the queue.
        uniq_key: UNIQ_KEY of the message, or of the batch.
        durable_at: the response may be sent once the log is flushed up to here; 0: at once.
        new_topic: the response may be sent once this topic is on disk and the name servers know
            it; empty when there is nothing to wait for.
        phy_offsets: positions of the records of a batch; empty for a single message.
        recall_handle: handle that recalls a timed message; empty for other messages.
    """

    phy_offset: int
    queue_id: int
    queue_offset: int
    uniq_key: str
    durable_at: int = 0
    new_topic: str = ""
    phy_offsets: tuple[int, ...] = ()
    recall_handle: str = ""
