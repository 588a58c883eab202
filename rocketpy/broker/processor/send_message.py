"""SEND_MESSAGE in its three forms (10, 310, 320): check, build, store, answer.

Steps 5 and 6 of the life of a message (docs/ARCHITECTURE.md), and the busiest lines of the
broker: what a topic allows is worked out once and remembered, header fields are read
straight from the request, the client's property bytes are kept as they came, and the response
comes from a template.

What a broker adds to each message: CLUSTER, MSG_REGION and TRACE_ON always, UNIQ_KEY when the
client gave none; a POP_CK is taken out.

Source: SendMessageProcessor.java, AbstractSendMessageProcessor.java (5.4.0).
"""

import random
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.processor.property_scan import (
    SPECIAL_PROPERTIES,
    PropertyFacts,
    PropertyScanner,
)
from rocketpy.broker.processor.send_response import SendResponses
from rocketpy.broker.processor.send_rules import (
    Refusal,
    SendFields,
    SendRules,
    TopicSendPolicy,
    read_fields,
    refuse_special,
    status_response,
)
from rocketpy.errors import BadBodyError
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.message import iter_batch
from rocketpy.proto.properties import encode_properties, parse_properties
from rocketpy.proto.sys_flag import TRANSACTION_PREPARED
from rocketpy.proto.tags import tags_code
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Response
from rocketpy.store.results import (
    BatchEntry,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
)

_SEND_V2: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_ONEWAY: Final = 2
_PUT_OK: Final = PutMessageStatus.PUT_OK
_SUCCESS: Final = 0
_FLUSH_DISK_TIMEOUT: Final = int(ResponseCode.FLUSH_DISK_TIMEOUT)


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

    @property
    def is_writable(self) -> bool:
        """Whether puts may succeed."""
        ...


class SendMessageProcessor:
    """Turns a send into a stored message and its response.

    Args:
        store: where messages go.
        rules: what may be sent where.
        count: told topic, messages and bytes of what was stored.
        config: the broker's settings; see `configure`.
        sync_flush: answers wait until the message is on disk.
        new_uniq_key: makes an id for a message without one.
        rng: chooses a queue for those who leave it to the broker.
        announced: waits until the name servers know a new topic; its first sender may be told
            only then, because a consumer that starts right after looks for the route.
    """

    def __init__(
        self,
        store: MessagePutter,
        rules: SendRules,
        count: Callable[[str, int, int], None],
        *,
        config: BrokerConfig,
        sync_flush: bool,
        new_uniq_key: Callable[[], str],
        rng: random.Random,
        announced: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        self._announced = announced
        self._put = store.put_message
        self._rules = rules
        self._facts = rules.known
        self._count = count
        self._store_host = b""
        self._sync_flush = sync_flush
        self._new_uniq_key = new_uniq_key
        self._rng = rng
        self._config = config
        self._own: dict[str, str] = {}
        self._own_bytes = b""
        self._responses = SendResponses(b"", region_id="", trace_on=True)
        self._scan = PropertyScanner().scan
        self.configure(config)

    def listens_on(self, store_host: bytes) -> None:
        """Note the broker's address as it stands in records, which message ids begin with."""
        self._store_host = store_host
        self.configure(self._config)

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config
        self._own = {
            "MSG_REGION": config.region_id,
            "TRACE_ON": "true" if config.trace_on else "false",
            "CLUSTER": config.broker_cluster_name,
        }
        self._own_bytes = encode_properties(self._own)
        self._responses = SendResponses(
            self._store_host, region_id=config.region_id, trace_on=config.trace_on
        )
        self._rules.configure(config)

    def process(self, channel: Channel, request: RemotingCommand) -> Response:
        """Store what a request brings; None when nobody waits or the response comes later.

        This is the short way of an ordinary message to a topic that was sent to before;
        whatever differs in any respect takes the long way, `_process_any`.

        Raises:
            HeaderFieldError: a header field is missing or wrong.
        """
        ext = request.ext_fields
        facts = self._facts.get(ext.get("b"))  # type: ignore[arg-type] # None finds nothing
        if facts is None or not facts.is_simple or request.code != _SEND_V2:
            return self._process_any(channel, request)
        try:
            queue_id = int(ext["e"])
            sys_flag = int(ext["f"])
            given = ext["i"].encode()
            scanned = self._scan(given)
            if scanned is None:
                uniq_key, common, keys = _parse(given)
            else:
                (uniq_key, common), keys = scanned, None
            body = request.body
            stored = given + self._own_bytes
            message = PutMessage(
                ext["b"],
                queue_id,
                body,
                stored,
                channel.remote_host_bytes,
                int(ext["h"]),
                sys_flag | facts.sys_flag,
                int(ext["g"]),
                common.tags_code,
                uniq_key,
                keys,
                common.tags,
                int(ext.get("j") or 0),
                0,
                common.waits,
            )
        except (KeyError, ValueError):
            return self._process_any(channel, request)
        if (
            not 0 <= queue_id < facts.queue_limit
            or sys_flag & TRANSACTION_PREPARED
            or len(body) > self._rules.max_body_bytes
            or len(stored) > MAX_PROPERTIES_BYTES
            or not common.is_plain
            or ext.get("m") == "true"
        ):
            return self._process_any(channel, request)
        return self._store_one(channel, request, message, uniq_key, wait=common.waits)

    def _process_any(self, channel: Channel, request: RemotingCommand) -> Response:
        fields = read_fields(request)
        topic = fields.topic
        facts = self._facts.get(topic)
        is_new = facts is None
        if facts is None or not facts.is_open:
            admitted = self._rules.admit(fields)
            if not isinstance(admitted, TopicSendPolicy):
                return self._refuse(request, *admitted)
            facts = admitted
        queue_id = fields.queue_id
        if queue_id >= facts.queue_limit:
            return self._refuse(request, *self._rules.bad_queue(fields, facts, channel))
        if queue_id < 0:
            queue_id = self._rng.randrange(facts.write_queue_nums or 1)
        if fields.is_batch or request.code == _SEND_BATCH:
            response = self._process_batch(channel, request, fields, facts, queue_id)
        else:
            response = self._process_single(channel, request, fields, facts, queue_id)
        if is_new and response is not None and self._announced is not None:
            return _response_after(self._announced, response)
        return response

    def _process_single(
        self,
        channel: Channel,
        request: RemotingCommand,
        fields: SendFields,
        facts: TopicSendPolicy,
        queue_id: int,
    ) -> RemotingCommand | bytes | None:
        properties = parse_properties(fields.properties)
        refused = refuse_special(properties)
        if refused is not None:
            return self._refuse(request, *refused)
        uniq_key = properties.get("UNIQ_KEY") or self._new_uniq_key()
        stored = self._rebuild(properties, uniq_key)
        if len(request.body) > self._rules.max_body_bytes or len(stored) > MAX_PROPERTIES_BYTES:
            return self._refuse(request, *self._rules.too_large())
        if fields.sys_flag & TRANSACTION_PREPARED:
            return self._refuse(request, *self._rules.half_message())
        topic = fields.topic
        if not facts.is_plain:
            redirected = self._rules.redirect(fields, facts, request.version)
            if isinstance(redirected, tuple):
                return self._refuse(request, *redirected)
            if redirected != topic:
                topic, queue_id = redirected, 0
        tags = properties.get("TAGS")
        wait = properties.get("WAIT") != "false"
        message = PutMessage(
            topic,
            queue_id,
            request.body,
            stored,
            channel.remote_host_bytes,
            fields.flag,
            fields.sys_flag | facts.sys_flag,
            fields.born_timestamp_ms,
            tags_code(tags),
            uniq_key,
            properties.get("KEYS"),
            tags,
            fields.reconsume_times,
            0,
            wait,
        )
        return self._store_one(channel, request, message, uniq_key, wait=wait)

    def _store_one(
        self,
        channel: Channel,
        request: RemotingCommand,
        message: PutMessage,
        uniq_key: str,
        *,
        wait: bool,
    ) -> RemotingCommand | bytes | None:
        status, phy_offset, size_bytes, queue_offset, _, _ = self._put(message)
        if status is not _PUT_OK:
            if status is PutMessageStatus.MESSAGE_ILLEGAL:
                read_fields(request)  # when a number does not fit its field, says which one
            return self._refuse(request, *status_response(status, self._rules))
        self._count(message.topic, 1, size_bytes)
        if request.flag & _ONEWAY:
            return None
        frame = self._responses.frame(
            request, _SUCCESS, phy_offset, message.queue_id, queue_offset, uniq_key
        )
        if wait and self._sync_flush:
            self._response_when_durable(channel, request, phy_offset + size_bytes, frame)
            return None
        return frame

    def _process_batch(
        self,
        channel: Channel,
        request: RemotingCommand,
        fields: SendFields,
        facts: TopicSendPolicy,
        queue_id: int,
    ) -> RemotingCommand | bytes | None:
        refused = self._rules.admit_batch(fields, facts, len(request.body))
        if refused is not None:
            return self._refuse(request, *refused)
        own = parse_properties(fields.properties)
        refused = refuse_special(own)
        if refused is not None:
            return self._refuse(request, *refused)
        try:
            entries = self._batch_entries(request.body)
        except BadBodyError as error:
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, f"bad batch: {error}")
        if isinstance(entries, tuple):
            return self._refuse(request, *entries)
        if not entries:
            return self._refuse(request, ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
        wait = own.get("WAIT") != "false"
        result = self._store.put_batch(
            PutBatch(
                fields.topic,
                queue_id,
                entries,
                channel.remote_host_bytes,
                fields.sys_flag | facts.sys_flag,
                fields.born_timestamp_ms,
                fields.reconsume_times,
                wait,
            )
        )
        if result.status is not _PUT_OK:
            return self._refuse(request, *status_response(result.status, self._rules))
        self._count(fields.topic, len(entries), result.size_bytes)
        if request.flag & _ONEWAY:
            return None
        frame = self._responses.general(
            request,
            _SUCCESS,
            self._responses.msg_ids(result.phy_offsets),
            queue_id,
            result.queue_offset,
            own.get("UNIQ_KEY") or entries[0].uniq_key or "",
        )
        if wait and self._sync_flush:
            self._response_when_durable(channel, request, result.phy_end, frame)
            return None
        return frame

    def _batch_entries(self, body: bytes) -> list[BatchEntry] | Refusal:
        """Take a batch apart, or say why one of its messages cannot be stored.

        Raises:
            BadBodyError: it is no batch.
        """
        entries: list[BatchEntry] = []
        for flag, message_body, given in iter_batch(body):
            scanned = self._scan(given)
            if scanned is not None and scanned[1].is_plain:
                uniq_key, facts = scanned
                entries.append(
                    BatchEntry(
                        message_body, given, flag, facts.tags_code, uniq_key, None, facts.tags
                    )
                )
                continue
            properties = parse_properties(given)
            refused = refuse_special(properties)
            if refused is not None:
                return refused
            tags = properties.get("TAGS")
            keys, id_ = properties.get("KEYS"), properties.get("UNIQ_KEY")
            entries.append(BatchEntry(message_body, given, flag, tags_code(tags), id_, keys, tags))
        return entries

    def _response_when_durable(
        self, channel: Channel, request: RemotingCommand, phy_end: int, frame: bytes
    ) -> None:
        def response(is_durable: bool) -> None:
            # Off the loop a channel gathers what one flush releases into one write.
            if is_durable:
                channel.send(frame)
            elif self._store.is_writable:
                remark = "the message is stored but not yet on disk"
                channel.send_command(self._responses.refusal(request, _FLUSH_DISK_TIMEOUT, remark))
            else:
                channel.send_command(
                    self._responses.refusal(request, *self._rules.not_available("a flush failed"))
                )

        self._store.when_durable(phy_end, response)

    def _rebuild(self, properties: dict[str, str], uniq_key: str) -> bytes:
        kept = {
            name: value
            for name, value in properties.items()
            if value and name and name != "POP_CK" and name not in self._own
        }
        kept["UNIQ_KEY"] = uniq_key
        return encode_properties(kept) + self._own_bytes

    def _refuse(self, request: RemotingCommand, code: int, remark: str) -> RemotingCommand | None:
        if request.flag & _ONEWAY:
            return None
        return self._responses.refusal(request, code, remark)


def _parse(given: bytes) -> tuple[str, PropertyFacts, str | None]:
    """Take property bytes apart: UNIQ_KEY, what else matters, KEYS.

    Raises:
        KeyError: no UNIQ_KEY.
        ValueError: not a run of pairs.
    """
    text = given.decode()
    found = dict([pair.split("\x01", 1) for pair in text.split("\x02") if pair])
    tags = found.get("TAGS")
    uniq_key = found["UNIQ_KEY"]
    facts = PropertyFacts(
        text[-1] == "\x02" and uniq_key != "" and SPECIAL_PROPERTIES.isdisjoint(found),
        found.get("WAIT") != "false",
        tags,
        tags_code(tags) if tags else 0,
    )
    return uniq_key, facts, found.get("KEYS")


async def _response_after(
    announced: Callable[[], Awaitable[None]], response: RemotingCommand | bytes
) -> RemotingCommand | bytes:
    await announced()
    return response
