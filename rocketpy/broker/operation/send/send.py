"""Sends: admission, put transforms, put, and the outcome for the sender.

This is the busiest code of the broker. The policy of a topic is therefore computed once and cached,
and the client's property bytes are stored as received.

The broker adds properties to each message: CLUSTER, MSG_REGION and TRACE_ON always, UNIQ_KEY when
the client sent none. It removes POP_CK.

Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java (5.4.0).
"""

import itertools
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.admission import SendAdmission, TopicSendPolicy
from rocketpy.broker.operation.send.put_transforms import PutTransform, refuse_in_batch
from rocketpy.broker.operation.send.rewrites import RewriteCache
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.property_templates import PropertyScanner, summary_of
from rocketpy.errors import BadBodyError
from rocketpy.proto.recall_handle import RecallHandle
from rocketpy.proto.record.message import split_batch
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
from rocketpy.store.interfaces import BatchWriter
from rocketpy.store.results import (
    BatchColumns,
    BatchEntry,
    PutBatch,
    PutMessage,
    PutMessageStatus,
)


class BothDone:
    """Calls back when two conditions are both done, with the first refusal of the two.

    Args:
        done: called once, with a refusal or None, by the thread that reports the second condition.
    """

    def __init__(self, done: Callable[[Refusal | None], None]) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._missing = 2
        self._refused: Refusal | None = None

    def arrived(self, refused: Refusal | None) -> None:
        """Report one of the conditions; on any thread."""
        with self._lock:
            self._missing -= 1
            self._refused = self._refused or refused
            is_last = self._missing == 0
        # Outside the lock: the callback may send a response, which takes other locks.
        if is_last:
            self._done(self._refused)


_PUT_OK: Final = PutMessageStatus.PUT_OK
_UNCONFIRMED: Final = (
    "outcome unknown: the message is stored on the master, but not yet confirmed by enough slaves"
)
_new: Final = tuple.__new__


class SendOperation:
    """Stores messages of clients; safe from any thread.

    Args:
        store: the message store.
        admission: checks of sends.
        transforms: change or refuse messages that need the general path, in this order.
        count: called with topic, number of messages and bytes of stored messages.
        stored_elsewhere: topics that transforms redirect messages to, each with a function that is
            called with the original topic.
        config: the broker's settings; see `configure`.
        answers_wait: whether a sender that waits is answered when the message is on disk, on enough
            slaves, or both.
        when_announced: calls back once the name servers know new topics. The first sender to a
            topic is answered then, because a consumer that starts right after asks for the route;
            and not before the topic is on disk.
        clock: time.
        rng: chooses a queue when the sender leaves it to the broker.

    Attributes:
        known: policies of topics, by name.
        rewrites: cached results of the transforms; cleared when their settings change.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a send needs
        self,
        store: BatchWriter,
        admission: SendAdmission,
        transforms: Sequence[PutTransform],
        count: Callable[[str, int, int], None],
        *,
        stored_elsewhere: Mapping[str, Callable[[str], None]] = MappingProxyType({}),
        config: BrokerConfig,
        answers_wait: bool,
        when_announced: Callable[[Callable[[], None]], None],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.known: dict[str, TopicSendPolicy] = admission.known
        self._store = store
        # Bound once: these attributes are used for each message.
        self._put = store.put_message
        self._admission = admission
        self._transforms = tuple(transforms)
        self.rewrites: RewriteCache = RewriteCache(transforms, self._completed)
        self._count = count
        self._stored_elsewhere = stored_elsewhere
        self._answers_wait = answers_wait
        self._when_announced = when_announced
        self._new_uniq_key = _uniq_keys(clock, rng)
        self._rng = rng
        self._scanner = PropertyScanner()
        self._own: dict[str, str] = {}
        self._own_bytes = b""
        self._broker_name = config.broker_name
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._own = {
            PROPERTY_MSG_REGION: config.region_id,
            PROPERTY_TRACE_SWITCH: "true" if config.trace_on else "false",
            PROPERTY_CLUSTER: config.broker_cluster_name,
        }
        # Encoded once a configuration, since each message gets the same bytes.
        self._own_bytes = encode_properties(self._own)
        self._broker_name = config.broker_name
        # Cached results contain the properties of the old settings.
        self.rewrites.clear()

    @property
    def own_properties(self) -> bytes:
        """Properties that are added to each message, encoded."""
        return self._own_bytes

    @property
    def max_body_bytes(self) -> int:
        """Maximal size of a body."""
        return self._admission.max_body_bytes

    @property
    def count(self) -> Callable[[str, int, int], None]:
        """Called with topic, number of messages and bytes of stored messages."""
        return self._count

    def send_plain(self, policy: TopicSendPolicy, request: SendRequest) -> Sent | Refusal | None:
        """Store a fast-path eligible message, a half or a delayed one, of a topic in `known`.

        Args:
            policy: policy of the topic, from `known`; `TopicSendPolicy.is_simple`.
            request: not a batch; the fields for auto-creation and the limit of retries are unused.

        Returns:
            The outcome, or None when the message needs the general path, `send`; nothing was done.
        """
        # Unpacked by position: one bytecode instead of an attribute look-up for each field.
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
        # The scanner has a template of these properties, so nothing is parsed from here on.
        uniq_key, summary, keys = scanned
        if not summary.is_plain:
            # A retried message may become a dead letter, which depends on more than is cached.
            rewritten = None if times else self.rewrites.message(request, policy.sys_flag)
            if rewritten is None:
                return None
            return self._store_any(policy, rewritten, topic, queue_id, uniq_key)
        # The broker's properties come last; readers use the last value of a repeated name.
        stored = properties + self._own_bytes
        if sys_flag & TRANSACTION_PREPARED or len(stored) > MAX_PROPERTIES_BYTES:
            return None
        message = PutMessage(
            topic, queue_id, body, stored, born_host, flag, sys_flag | policy.sys_flag, born_ms,
            summary.tags_code, uniq_key, keys, summary.tags, times, 0, summary.waits,
        )  # fmt: skip
        return self._store_one(policy, message, queue_id, uniq_key)

    def send(self, request: SendRequest) -> Sent | Refusal:
        """Store a message or a batch, on the general path."""
        topic = request.topic
        policy = self.known.get(topic)
        is_new = policy is None
        if policy is None or not policy.is_open:
            admitted = self._admission.admit(request)
            if isinstance(admitted, Refusal):
                return admitted
            policy = admitted
        queue_id = request.queue_id
        # The limit is the larger of read and write queues: a topic may be shrinking.
        if queue_id >= policy.queue_limit:
            return self._admission.bad_queue(request, policy)
        # A negative id leaves the choice to the broker, as in Apache.
        if queue_id < 0:
            queue_id = self._rng.randrange(policy.write_queue_nums or 1)
        if request.is_batch:
            sent = self._send_batch(request, policy, queue_id)
        else:
            sent = self._send_single(request, policy, queue_id)
        # The first send to a topic: its sender waits until the topic is on disk and announced.
        if is_new and isinstance(sent, Sent) and not sent.new_topic:
            return sent._replace(new_topic=topic)
        return sent

    def when_settled(self, sent: Sent, done: Callable[[Refusal | None], None]) -> None:
        """Call back once the sender may be answered: with None, or with a refusal after all.

        Args:
            sent: result of `send`, with `durable_at` or `new_topic`.
            done: called once, on any thread, perhaps at once.
        """
        if not sent.new_topic:
            self._store.when_durable(
                sent.durable_at, lambda ok: done(self._not_durable(sent.durable_at, ok))
            )
            return
        # Topic and message become durable independently; the slower one answers.
        arrived = BothDone(done).arrived if sent.durable_at else done

        def topic_settled(failure: Exception | None) -> None:
            if failure is None:
                self._when_announced(lambda: arrived(None))
            else:
                arrived(self._admission.not_created(failure))

        self._admission.when_settled(sent.new_topic, topic_settled)
        if sent.durable_at:
            self._store.when_durable(
                sent.durable_at, lambda ok: arrived(self._not_durable(sent.durable_at, ok))
            )

    def _not_durable(self, phy_end: int, is_durable: bool) -> Refusal | None:
        if is_durable:
            return None
        # A writable store is slow, not broken: the message will probably be on disk later.
        if self._store.is_writable:
            # As with Apache, replicas win over the disk: without them nothing is known.
            if not self._store.is_confirmed(phy_end):
                return Refusal(ResponseCode.FLUSH_SLAVE_TIMEOUT, _UNCONFIRMED)
            remark = "the message is stored but not yet on disk"
            return Refusal(ResponseCode.FLUSH_DISK_TIMEOUT, remark)
        return self._admission.not_available("a flush failed")

    def _send_single(
        self, request: SendRequest, policy: TopicSendPolicy, queue_id: int
    ) -> Sent | Refusal:
        properties = parse_properties(request.properties)
        summary = summary_of(properties)
        uniq_key = properties.get(PROPERTY_UNIQ_KEY) or self._new_uniq_key()
        full = self._completed(properties, uniq_key)
        stored = encode_properties(full)
        # Checked with the broker's properties: all of them must fit the record.
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
            summary.tags_code,
            uniq_key,
            properties.get(PROPERTY_KEYS),
            summary.tags,
            request.reconsume_times,
            wait_store_ok=summary.waits,
        )
        # A plain summary has nothing for the transforms, so they are skipped.
        is_plain = policy.is_plain and summary.is_plain
        if not is_plain or request.sys_flag & TRANSACTION_PREPARED:
            for transform in self._transforms:
                refused = transform(message, full, request)
                if refused is not None:
                    return refused
        return self._store_any(policy, message, request.topic, queue_id, uniq_key)

    def _store_any(
        self, policy: TopicSendPolicy, message: PutMessage, topic: str, queue_id: int, uniq_key: str
    ) -> Sent | Refusal:
        """Put a message that was sent to `topic` and may be redirected to another topic."""
        sent = self._store_one(policy, message, queue_id, uniq_key)
        if message.topic != topic and isinstance(sent, Sent):
            # The first dead letter of a group: its new topic must be on disk before the answer.
            if not self._admission.is_written(message.topic):
                sent = sent._replace(new_topic=message.topic)
            listener = self._stored_elsewhere.get(message.topic)
            if listener is not None:
                listener(topic)
            if message.topic == TIMER_TOPIC:
                return sent._replace(recall_handle=self._recall_handle(message, topic))
        return sent

    def _store_one(
        self, policy: TopicSendPolicy, message: PutMessage, queue_id: int, uniq_key: str
    ) -> Sent | Refusal:
        """Put a message that is ready to be stored; the sender gets `queue_id` in the response."""
        topic = message.topic
        status, phy_offset, size_bytes, queue_offset, _, _ = self._put(message)
        if status is not _PUT_OK:
            return self._admission.not_stored(status)
        # Checked after the put: a deletion before it is found here, one after it finds the queue.
        gone = self._stored(policy, topic, 1, size_bytes)
        if gone is not None:
            return gone
        durable_at = phy_offset + size_bytes if self._answers_wait and message.wait_store_ok else 0
        # Like `Sent(...)`, but without the frame of its Python constructor.
        return _new(Sent, (phy_offset, queue_id, queue_offset, uniq_key, durable_at, "", (), ""))

    def _recall_handle(self, message: PutMessage, topic: str) -> str:
        """Return the handle that recalls a timed message; empty for a retry."""
        if topic.startswith(RETRY_PREFIX):
            return ""
        properties = parse_properties(message.properties)
        # A time within the slot: `slot_ms` returns a start before the delivery time.
        moment = int(properties[PROPERTY_TIMER_OUT_MS]) + 1
        name = self._broker_name
        return RecallHandle(topic, name, str(moment), message.uniq_key or "").encode()

    def _stored(
        self, policy: TopicSendPolicy, topic: str, count: int, size_bytes: int
    ) -> Refusal | None:
        """Count a stored message; delete it again if its topic was deleted meanwhile."""
        # The policy is replaced with each change of the topic, so identity is enough to compare.
        if self.known.get(topic) is not policy:
            gone = self._undo_if_gone(policy, topic)
            if gone is not None:
                return gone
        self._count(topic, count, size_bytes)
        return None

    def _undo_if_gone(self, policy: TopicSendPolicy, topic: str) -> Refusal | None:
        """Delete the queue created by a put that raced with the deletion of its topic."""
        if self._admission.exists(topic):
            return None
        # If the table was lost and not the topic deleted, its queues may hold older messages, which
        # must not be deleted with the new one.
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
        # The whole batch is checked before the put: it is stored completely or not at all.
        try:
            messages = _batch_messages(self._scanner, request.body)
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
            result.phy_end if self._answers_wait and waits else 0,
            phy_offsets=result.phy_offsets,
        )

    def _completed(self, properties: dict[str, str], uniq_key: str) -> dict[str, str]:
        """Return the properties to store: the sender's, completed with the broker's."""
        kept = {
            # POP_CK is removed because a handle from another pop would be mistaken for a valid one.
            name: value
            for name, value in properties.items()
            if name != PROPERTY_POP_CK and name not in self._own
        }
        kept[PROPERTY_UNIQ_KEY] = uniq_key
        return kept | self._own


def _batch_messages(scanner: PropertyScanner, body: bytes) -> BatchColumns | Refusal:
    """Split a batch into messages, or return why one of them cannot be stored.

    Args:
        scanner: reads properties.
        body: of the request.

    Raises:
        BadBodyError: it is no batch.
    """
    entries: list[BatchEntry] = []
    for flag, message_body, given in zip(*split_batch(body), strict=True):
        # Messages of one batch mostly have the same property names, which the scanner knows.
        scanned = scanner.scan(given)
        if scanned is not None and scanned[1].is_plain:
            uniq_key, summary, keys = scanned
        else:
            properties = parse_properties(given)
            refused = refuse_in_batch(properties)
            if refused is not None:
                return refused
            uniq_key = properties.get(PROPERTY_UNIQ_KEY)  # type: ignore[assignment] # optional
            summary, keys = summary_of(properties), properties.get(PROPERTY_KEYS)
        entry = message_body, given, flag, summary.tags_code, uniq_key, keys, summary.tags
        entries.append(BatchEntry._make(entry))
    return BatchColumns.of(entries)


def _uniq_keys(clock: Clock, rng: random.Random) -> Callable[[], str]:
    # Seed, time and counter: unique across broker restarts without a file.
    counter = itertools.count()
    seed = rng.getrandbits(64)

    def new_uniq_key() -> str:
        now_ms = clock.time_ms()
        return f"{seed:016X}{now_ms & 0xFFFFFFFF:08X}{next(counter) & 0xFFFFFFFF:08X}"

    return new_uniq_key
