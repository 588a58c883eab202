"""Sends the records of a message trace, beside everything else and never in its way.

Records wait in a bounded buffer: ten of them, or five seconds, make a message to the trace topic.
When the buffer is full, or the brokers do not keep up, records are dropped and counted; a send or
a handler never waits for its trace, and never fails because of it.

Source: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl (5.4.0).
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import ProducerConfig
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry, ToDLQ, decision_of
from rocketpy.client.options.durations import to_ms
from rocketpy.client.sending.in_flight_window import InFlightWindow
from rocketpy.client.sending.outgoing_message import Outgoing, build_outgoing
from rocketpy.client.sending.pending_send import PendingSend
from rocketpy.client.sending.result import SendResult, SendStatus
from rocketpy.client.sending.transport import SendTransport
from rocketpy.errors import RocketPyError
from rocketpy.proto.headers.transaction import EndTransactionRequestHeader
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_TRACE_SWITCH,
    parse_properties,
)
from rocketpy.proto.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from rocketpy.proto.trace import (
    CONSUME_FAILED,
    CONSUME_RAISED,
    CONSUMED,
    DELAYED_MESSAGE,
    HALF_MESSAGE,
    NORMAL_MESSAGE,
    ConsumeBeginTrace,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    TransactionTrace,
    encode_trace,
    trace_keys,
)

logger: logging.Logger = logging.getLogger(__name__)

Invoke = Callable[[list[ReceivedMessage]], Coroutine[Any, Any, Any]]

MAX_WAITING: Final = 2_048
BATCH: Final = 10
FLUSH_AFTER_S: Final = 5.0
CLOSE_TIMEOUT_S: Final = 5.0

_MAX_BODY_BYTES: Final = 128_000
_MAX_KEYS_CHARS: Final = 8_000
_MAX_IN_FLIGHT: Final = 64
_DELAYED: Final = (PROPERTY_DELAY_TIME_LEVEL, PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS)
_STATES: Final = {TRANSACTION_COMMIT: "COMMIT_MESSAGE", TRANSACTION_ROLLBACK: "ROLLBACK_MESSAGE"}
_numbers = itertools.count(1)


class Tracer:
    """The trace of one producer or consumer.

    Args:
        instance: the client's connections.
        group: of the producer or consumer.
        role: `PRODUCE` or `CONSUME`.
        topic: where the records go.

    Attributes:
        dropped: records that were lost, because there was no room or a send failed.
    """

    def __init__(self, instance: Instance, group: str, role: str, topic: str) -> None:
        self.dropped: int = 0
        self._instance = instance
        self._namespace = instance.config.namespace
        self._group = unwrap_namespace(self._namespace, group)
        self._topic = topic
        self._config = ProducerConfig(timeout=5.0, max_message_bytes=4 * _MAX_BODY_BYTES)
        own_group = f"_INNER_TRACE_PRODUCER-{group}-{role}-{next(_numbers)}"
        self._transport = SendTransport(instance, own_group, self._config)
        self._window = InFlightWindow(_MAX_IN_FLIGHT, _MAX_IN_FLIGHT * _MAX_BODY_BYTES)
        self._waiting: deque[TraceRecord] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # ---- what happened

    def watch_send(self, topic: str, message: Outgoing, future: asyncio.Future[SendResult]) -> None:
        """Record a send when it has succeeded."""
        if topic == self._topic:
            return
        begin_ms, time_ms = self._instance.clock.monotonic_ms(), self._instance.clock.time_ms()

        def done(future: asyncio.Future[SendResult]) -> None:
            if not future.cancelled() and future.exception() is None:
                cost_ms = self._instance.clock.monotonic_ms() - begin_ms
                self._sent(topic, message, future.result(), time_ms, cost_ms)

        future.add_done_callback(done)

    def _sent(
        self, topic: str, message: Outgoing, result: SendResult, time_ms: int, cost_ms: int
    ) -> None:
        properties = parse_properties(message.properties)
        message_type = NORMAL_MESSAGE
        if message.sys_flag & TRANSACTION_MASK == TRANSACTION_PREPARED:
            message_type = HALF_MESSAGE
        elif any(name in properties for name in _DELAYED):
            message_type = DELAYED_MESSAGE
        self.add(
            SendTrace(
                time_ms=time_ms,
                region=result.region_id,
                group=self._group,
                topic=unwrap_namespace(self._namespace, topic),
                msg_id=result.msg_id,
                tag=properties.get(PROPERTY_TAGS, ""),
                keys=properties.get(PROPERTY_KEYS, ""),
                broker=self._instance.routes.master_address(result.queue.broker_name) or "",
                body_bytes=len(message.body),
                cost_ms=cost_ms,
                message_type=message_type,
                offset_msg_id=result.offset_msg_id,
                success=result.status is SendStatus.SEND_OK,
            )
        )

    def transaction_ended(self, end: EndTransactionRequestHeader, broker: str) -> None:
        """Record the end of a transaction."""
        self.add(
            TransactionTrace(
                time_ms=self._instance.clock.time_ms(),
                region="DefaultRegion",
                group=self._group,
                topic=unwrap_namespace(self._namespace, end.topic or ""),
                msg_id=end.msg_id,
                broker=broker,
                transaction_id=end.transaction_id or "",
                state=_STATES.get(end.commit_or_rollback, "UNKNOW"),
                from_check=end.from_transaction_check,
            )
        )

    def traced(self, invoke: Invoke) -> Invoke:
        """Return what calls a handler as `invoke` does, and records it."""

        async def call(messages: list[ReceivedMessage]) -> object:
            end = self.begin_consuming(messages)
            try:
                result = await invoke(messages)
            except BaseException as error:
                is_order = isinstance(decision_of(error), Retry | ToDLQ)
                end(CONSUME_FAILED if is_order else CONSUME_RAISED)
                raise
            end(CONSUMED)
            return result

        return call

    def begin_consuming(self, messages: list[ReceivedMessage]) -> Callable[[int], None]:
        """Record that messages were handed out; the result records how that ended."""
        clock = self._instance.clock
        begin_ms = clock.monotonic_ms()
        request_id = self._instance.next_msg_id()
        traced = [one for one in messages if one.properties.get(PROPERTY_TRACE_SWITCH) != "false"]
        for message in traced:
            self.add(
                ConsumeBeginTrace(
                    time_ms=clock.time_ms(),
                    region=message.properties.get(PROPERTY_MSG_REGION, ""),
                    group=self._group,
                    request_id=request_id,
                    msg_id=message.id,
                    retries=message.retries,
                    keys=" ".join(message.keys),
                )
            )

        def end(outcome: int) -> None:
            cost_ms = (clock.monotonic_ms() - begin_ms) // max(1, len(messages))
            for message in traced:
                self.add(
                    ConsumeEndTrace(
                        request_id=request_id,
                        msg_id=message.id,
                        cost_ms=cost_ms,
                        success=outcome == CONSUMED,
                        keys=" ".join(message.keys),
                        outcome=outcome,
                        time_ms=clock.time_ms(),
                        group=self._group,
                    )
                )

        return end

    # ---- sending it

    def add(self, record: TraceRecord) -> None:
        """Take a record, or drop it when there is no room; never waits, never raises."""
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(record)
        if len(self._waiting) >= BATCH and self._window.has_space:
            self._flush()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_AFTER_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self._window.has_space:
            self._send_some()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._flush)

    def _send_some(self) -> None:
        """Send one message of the records that came first."""
        parts: list[str] = []
        keys: dict[str, None] = {}
        size = keys_chars = 0
        while self._waiting and len(parts) < BATCH:
            text, own_keys = encode_trace(self._waiting[0]), trace_keys(self._waiting[0])
            own_chars = sum(map(len, own_keys)) + len(own_keys)
            too_large = size + len(text) > _MAX_BODY_BYTES or keys_chars > _MAX_KEYS_CHARS
            if parts and (too_large or keys_chars + own_chars > _MAX_KEYS_CHARS):
                break
            self._waiting.popleft()
            parts.append(text)
            keys.update(dict.fromkeys(own_keys))
            size += len(text)
            keys_chars += own_chars
        try:
            message = build_outgoing(
                "".join(parts).encode(), {"keys": list(keys)}, self._config, self._new_id()
            )
            self._start_send(message, len(parts))
        except RocketPyError as error:
            self._lost(len(parts), error)

    def _new_id(self) -> str:
        return self._instance.next_msg_id()

    def _start_send(self, message: Outgoing, records: int) -> None:
        operation = PendingSend(
            self._window,
            self._transport,
            self._topic,
            message,
            timeout_ms=to_ms(self._config.timeout),
            attempts=1 + self._config.retries,
            choose=None,
        )

        def done(future: asyncio.Future[SendResult]) -> None:
            if future.cancelled():
                self._lost(records, None)
            elif (error := future.exception()) is not None:
                self._lost(records, error)

        operation.future.add_done_callback(done)
        operation.start()

    def _lost(self, records: int, error: BaseException | None) -> None:
        if not self.dropped:
            logger.warning(
                "trace incomplete: group=%(group)s error=%(error)r",
                {"group": self._group, "error": error},
            )
        self.dropped += records

    async def close(self) -> None:
        """Send what waits, for five seconds at most."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                while self._waiting:
                    await self._window.wait_for_space()
                    self._flush()
                await self._window.close()
        except TimeoutError:
            self._lost(len(self._waiting), TimeoutError("it was not sent in time"))
            self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
