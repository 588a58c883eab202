"""Sending: admission, put transforms, put, outcome.

These are the busiest lines of the broker: what a topic allows is worked out once and remembered,
and the client's property bytes are kept as they came.

What a broker adds to each message: CLUSTER, MSG_REGION and TRACE_ON always, UNIQ_KEY when the
client gave none; a POP_CK is taken out.

Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java (5.4.0).

Two things that a sender waits for, in whichever order they happen.
"""

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.admission import SendAdmission, TopicSendPolicy
from rocketpy.broker.operation.send.property_scanner import (
    PropertyScanner,
    batch_messages,
    shape_of,
)
from rocketpy.broker.operation.send.put_transforms import PutTransform, refuse_in_batch
from rocketpy.broker.operation.send.rewrites import RewriteCache
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.errors import BadBodyError
from rocketpy.proto.recall_handle import RecallHandle
from rocketpy.proto.record.properties import (
    PROPERTY_CLUSTER,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_POP_CK,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRACE_SWITCH,
    PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    encode_properties,
    parse_properties,
)
from rocketpy.proto.record.sys_flag import TRANSACTION_PREPARED
from rocketpy.proto.topic_names import RETRY_PREFIX, TIMER_TOPIC
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import (
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)


class BothDone:
    """Calls back when two things have happened, with the first refusal among them.

    Args:
        done: called once, with a refusal or None, by who reports the second.
    """

    def __init__(self, done: Callable[[Refusal | None], None]) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._missing = 2
        self._refused: Refusal | None = None

    def arrived(self, refused: Refusal | None) -> None:
        """Report one of them; any thread."""
        with self._lock:
            self._missing -= 1
            self._refused = self._refused or refused
            is_last = self._missing == 0
        if is_last:
            self._done(self._refused)


_PUT_OK: Final = PutMessageStatus.PUT_OK
_new: Final = tuple.__new__


class MessagePutter(Protocol):
    """What a send needs of the store."""

    def put_message(self, message: PutMessage) -> PutMessageResult:
        """Store one message."""
        ...

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        """Store several messages side by side."""
        ...

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True) or failed (False)."""
        ...

    def delete_topics(self, topics: Sequence[str]) -> object:
        """Drop the queues of topics."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether puts may succeed."""
        ...


class SendOperation:
    """Stores what is sent; safe from any thread.

    Args:
        store: where messages go.
        admission: what may be sent where.
        transforms: what may change or refuse a message that is not plain, in order.
        count: told topic, messages and bytes of what was stored.
        stored_elsewhere: topics that messages are stored in instead of their own, with who is told
            of their own one then.
        config: the broker's settings; see `configure`.
        sync_flush: a sender that waits is answered when the message is on disk.
        when_announced: calls back once the name servers know new topics; senders to a topic that
            was not sent to before are answered then, because a consumer that starts right after
            looks for the route, and not before the topic is on disk.
        clock: time.
        rng: chooses a queue for those who leave it to the broker.

    Attributes:
        known: what is sent where, by topic.
        rewrites: what the transforms make of messages; forgotten when their settings change.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a send needs
        self,
        store: MessagePutter,
        admission: SendAdmission,
        transforms: Sequence[PutTransform],
        count: Callable[[str, int, int], None],
        *,
        stored_elsewhere: Mapping[str, Callable[[str], None]] = MappingProxyType({}),
        config: BrokerConfig,
        sync_flush: bool,
        when_announced: Callable[[Callable[[], None]], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.known: dict[str, TopicSendPolicy] = admission.known
        self._store = store
        self._put = store.put_message
        self._admission = admission
        self._transforms = tuple(transforms)
        self.rewrites: RewriteCache = RewriteCache(transforms, self._completed)
        self._count = count
        self._stored_elsewhere = stored_elsewhere
        self._sync_flush = sync_flush
        self._when_announced = when_announced
        self._new_uniq_key = _uniq_keys(clock, rng)
        self._rng = rng
        self._scanner = PropertyScanner()
        self._own: dict[str, str] = {}
        self._own_bytes = b""
        self._broker_name = config.broker_name
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._own = {
            PROPERTY_MSG_REGION: config.region_id,
            PROPERTY_TRACE_SWITCH: "true" if config.trace_on else "false",
            PROPERTY_CLUSTER: config.broker_cluster_name,
        }
        self._own_bytes = encode_properties(self._own)
        self._broker_name = config.broker_name
        self.rewrites.clear()

    @property
    def own_properties(self) -> bytes:
        """What is added to each message, encoded."""
        return self._own_bytes

    @property
    def max_body_bytes(self) -> int:
        """Limit of a body."""
        return self._admission.max_body_bytes

    @property
    def count(self) -> Callable[[str, int, int], None]:
        """Told topic, messages and bytes of what was stored."""
        return self._count

    def send_plain(self, policy: TopicSendPolicy, request: SendRequest) -> Sent | Refusal | None:
        """Store an ordinary message, a half or a delayed one, of a topic that was sent to before.

        The short way; whatever differs in any respect takes the long one, `send`.

        Args:
            policy: of the topic, from `known`; `TopicSendPolicy.is_simple`.
            request: no batch; the way a topic is created and the limit of retries say nothing.

        Returns:
            None when this is no such message: nothing was done.
        """
        topic, queue_id, body, properties, born_host, _, flag, sys_flag, born_ms, times, *_ = (
            request
        )
        scanned = self._scanner.scan(properties)
        if (
            scanned is None
            or not 0 <= queue_id < policy.queue_limit
            or len(body) > self._admission.max_body_bytes
        ):
            return None
        uniq_key, shape, keys = scanned
        if not shape.is_plain:
            rewritten = None if times else self.rewrites.message(request, policy.sys_flag)
            if rewritten is None:
                return None
            return self._store_any(policy, rewritten, topic, queue_id, uniq_key)
        stored = properties + self._own_bytes
        if sys_flag & TRANSACTION_PREPARED or len(stored) > MAX_PROPERTIES_BYTES:
            return None
        message = PutMessage(
            topic, queue_id, body, stored, born_host, flag, sys_flag | policy.sys_flag, born_ms,
            shape.tags_code, uniq_key, keys, shape.tags, times, 0, shape.waits,
        )  # fmt: skip
        return self._store_one(policy, message, queue_id, uniq_key)

    def send(self, request: SendRequest) -> Sent | Refusal:
        """Store a message or a batch of any kind."""
        topic = request.topic
        policy = self.known.get(topic)
        is_new = policy is None
        if policy is None or not policy.is_open:
            admitted = self._admission.admit(request)
            if isinstance(admitted, Refusal):
                return admitted
            policy = admitted
        queue_id = request.queue_id
        if queue_id >= policy.queue_limit:
            return self._admission.bad_queue(request, policy)
        if queue_id < 0:
            queue_id = self._rng.randrange(policy.write_queue_nums or 1)
        if request.is_batch:
            sent = self._send_batch(request, policy, queue_id)
        else:
            sent = self._send_single(request, policy, queue_id)
        if is_new and isinstance(sent, Sent) and not sent.new_topic:
            return sent._replace(new_topic=topic)
        return sent

    def when_settled(self, sent: Sent, done: Callable[[Refusal | None], None]) -> None:
        """Call back once the sender may be told: None, or why it is no success after all.

        Args:
            sent: what `send` returned, with `durable_at` or `new_topic`.
            done: called once, on any thread, perhaps at once.
        """
        if not sent.new_topic:
            self._store.when_durable(sent.durable_at, lambda ok: done(self._not_durable(ok)))
            return
        arrived = BothDone(done).arrived if sent.durable_at else done

        def topic_settled(failure: Exception | None) -> None:
            if failure is None:
                self._when_announced(lambda: arrived(None))
            else:
                arrived(self._admission.not_created(failure))

        self._admission.when_settled(sent.new_topic, topic_settled)
        if sent.durable_at:
            self._store.when_durable(sent.durable_at, lambda ok: arrived(self._not_durable(ok)))

    def _not_durable(self, is_durable: bool) -> Refusal | None:
        if is_durable:
            return None
        if self._store.is_writable:
            remark = "the message is stored but not yet on disk"
            return Refusal(ResponseCode.FLUSH_DISK_TIMEOUT, remark)
        return self._admission.not_available("a flush failed")

    def _send_single(
        self, request: SendRequest, policy: TopicSendPolicy, queue_id: int
    ) -> Sent | Refusal:
        properties = parse_properties(request.properties)
        shape = shape_of(properties)
        uniq_key = properties.get(PROPERTY_UNIQ_KEY) or self._new_uniq_key()
        full = self._completed(properties, uniq_key)
        stored = encode_properties(full)
        if len(request.body) > self._admission.max_body_bytes or len(stored) > MAX_PROPERTIES_BYTES:
            return self._admission.too_large()
        message = PutMessage(
            request.topic,
            queue_id,
            request.body,
            stored,
            request.born_host,
            request.flag,
            request.sys_flag | policy.sys_flag,
            request.born_timestamp_ms,
            shape.tags_code,
            uniq_key,
            properties.get(PROPERTY_KEYS),
            shape.tags,
            request.reconsume_times,
            wait_store_ok=shape.waits,
        )
        is_plain = policy.is_plain and shape.is_plain
        if not is_plain or request.sys_flag & TRANSACTION_PREPARED:
            for transform in self._transforms:
                refused = transform(message, full, request)
                if refused is not None:
                    return refused
        return self._store_any(policy, message, request.topic, queue_id, uniq_key)

    def _store_any(
        self, policy: TopicSendPolicy, message: PutMessage, topic: str, queue_id: int, uniq_key: str
    ) -> Sent | Refusal:
        """Put a message that was sent to `topic`, and is perhaps stored elsewhere."""
        sent = self._store_one(policy, message, queue_id, uniq_key)
        if message.topic != topic and isinstance(sent, Sent):
            if not self._admission.is_written(message.topic):  # dead letters, for the first time
                sent = sent._replace(new_topic=message.topic)
            told = self._stored_elsewhere.get(message.topic)
            if told is not None:
                told(topic)
            if message.topic == TIMER_TOPIC:
                return sent._replace(recall_handle=self._recall_handle(message, topic))
        return sent

    def _store_one(
        self, policy: TopicSendPolicy, message: PutMessage, queue_id: int, uniq_key: str
    ) -> Sent | Refusal:
        """Put a message that is ready to be stored; its sender is told `queue_id`."""
        topic = message.topic
        status, phy_offset, size_bytes, queue_offset, _, _ = self._put(message)
        if status is not _PUT_OK:
            return self._admission.not_stored(status)
        gone = self._stored(policy, topic, 1, size_bytes)
        if gone is not None:
            return gone
        durable_at = phy_offset + size_bytes if self._sync_flush and message.wait_store_ok else 0
        # As `Sent(...)`, without its Python frame.
        return _new(Sent, (phy_offset, queue_id, queue_offset, uniq_key, durable_at, "", (), ""))

    def _recall_handle(self, message: PutMessage, topic: str) -> str:
        """Return with what a timed message can be called back; empty for a retry."""
        if topic.startswith(RETRY_PREFIX):
            return ""
        properties = parse_properties(message.properties)
        moment = int(properties[PROPERTY_TIMER_OUT_MS]) + 1  # of its slot, which begins before it
        name = self._broker_name
        return RecallHandle(topic, name, str(moment), message.uniq_key or "").encode()

    def _stored(
        self, policy: TopicSendPolicy, topic: str, count: int, size_bytes: int
    ) -> Refusal | None:
        """Count what was stored; drop it again when its topic was deleted meanwhile."""
        if self.known.get(topic) is not policy:
            gone = self._undo_if_gone(policy, topic)
            if gone is not None:
                return gone
        self._count(topic, count, size_bytes)
        return None

    def _undo_if_gone(self, policy: TopicSendPolicy, topic: str) -> Refusal | None:
        """Drop the queue that a message made which was put while its topic was deleted."""
        if self._admission.exists(topic):
            return None
        # Perhaps nobody deleted it, and its queues were there before: of a table that was lost.
        if not policy.is_written or policy.config.topic_name != topic:
            return self._admission.not_created()
        self._store.delete_topics([topic])
        remark = f"topic[{topic}] was deleted while the message was stored"
        return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)

    def _send_batch(
        self, request: SendRequest, policy: TopicSendPolicy, queue_id: int
    ) -> Sent | Refusal:
        topic = request.topic
        refused = self._admission.admit_batch(topic, request.sys_flag, len(request.body))
        if refused is not None:
            return refused
        own = parse_properties(request.properties)
        refused = refuse_in_batch(own)
        if refused is not None:
            return refused
        try:
            messages = batch_messages(self._scanner, request.body)
        except BadBodyError as error:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, f"bad batch: {error}")
        if isinstance(messages, Refusal):
            return messages
        if not messages:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        waits = own.get(PROPERTY_WAIT_STORE_MSG_OK) != "false"
        result = self._store.put_batch(
            PutBatch(
                topic,
                queue_id,
                messages,
                request.born_host,
                request.sys_flag | policy.sys_flag,
                request.born_timestamp_ms,
                request.reconsume_times,
                waits,
            )
        )
        if result.status is not _PUT_OK:
            return self._admission.not_stored(result.status)
        gone = self._stored(policy, topic, len(messages), result.size_bytes)
        if gone is not None:
            return gone
        return Sent(
            result.phy_offset,
            queue_id,
            result.queue_offset,
            own.get(PROPERTY_UNIQ_KEY) or messages.uniq_keys[0] or "",
            result.phy_end if self._sync_flush and waits else 0,
            phy_offsets=result.phy_offsets,
        )

    def _completed(self, properties: dict[str, str], uniq_key: str) -> dict[str, str]:
        """Return the sender's properties with this broker's, as they are stored."""
        kept = {
            name: value
            for name, value in properties.items()
            if name != PROPERTY_POP_CK and name not in self._own
        }
        kept[PROPERTY_UNIQ_KEY] = uniq_key
        return kept | self._own


def _uniq_keys(clock: Clock, rng: random.Random) -> Callable[[], str]:
    counter = itertools.count()
    seed = rng.getrandbits(64)

    def new_uniq_key() -> str:
        now_ms = clock.time_ms()
        return f"{seed:016X}{now_ms & 0xFFFFFFFF:08X}{next(counter) & 0xFFFFFFFF:08X}"

    return new_uniq_key
