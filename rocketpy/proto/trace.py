"""Records of a message trace, as official clients write them into the trace topic.

A record consists of its kind and its fields, separated by 0x01, with 0x02 at the end; a trace
message holds several. The fields of each class are in wire order.

Source: TraceDataEncoder, TraceType, TraceConstants (5.4.0).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar, Final

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"

NORMAL_MESSAGE: Final = 0
HALF_MESSAGE: Final = 1
DELAYED_MESSAGE: Final = 3

CONSUMED: Final = 0
CONSUME_TIMED_OUT: Final = 1
CONSUME_RAISED: Final = 2
CONSUME_FAILED: Final = 4

_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"
_NULL: Final = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTrace:
    """Trace of a send.

    Attributes:
        time_ms: wall time of the send's start.
        region: of the broker.
        group: of the producer.
        topic: of the message.
        msg_id: the producer's id.
        tag: of the message; empty without one.
        keys: of the message, separated by blanks; empty without any.
        broker: address of the broker.
        body_bytes: as sent.
        cost_ms: of the send.
        message_type: 0 normal, 1 half, 3 delayed.
        offset_msg_id: the broker's id.
        success: stored with the configured durability.
    """

    kind: ClassVar[str] = "Pub"

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tag: str = ""
    keys: str = ""
    broker: str
    body_bytes: int
    cost_ms: int
    message_type: int = NORMAL_MESSAGE
    offset_msg_id: str = ""
    success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeBeginTrace:
    """Trace of the start of a delivery.

    Attributes:
        time_ms: wall time.
        region: of the message.
        group: of the consumer.
        request_id: shared with the trace of its end.
        msg_id: of the message.
        retries: deliveries before this one.
        keys: of the message.
    """

    kind: ClassVar[str] = "SubBefore"

    time_ms: int
    region: str
    group: str
    request_id: str
    msg_id: str
    retries: int = 0
    keys: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeEndTrace:
    """Trace of the end of a delivery.

    Attributes:
        request_id: of its start.
        msg_id: of the message.
        cost_ms: of the handler, for each message.
        success: whether it was consumed.
        keys: of the message.
        outcome: 0 consumed, 1 timed out, 2 an exception, 4 redelivery.
        time_ms: wall time; absent from old clients.
        group: of the consumer; absent from old clients.
    """

    kind: ClassVar[str] = "SubAfter"

    request_id: str
    msg_id: str
    cost_ms: int
    success: bool = True
    keys: str = ""
    outcome: int = CONSUMED
    time_ms: int = 0
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTrace:
    """Trace of the end of a transaction.

    Attributes:
        time_ms: wall time.
        region: of the broker.
        group: of the producer.
        topic: of the message.
        msg_id: the producer's id.
        tag: of the message.
        keys: of the message.
        broker: address of the broker.
        message_type: 1 half.
        transaction_id: of the transaction.
        state: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW.
        from_check: after a check-back of the broker.
    """

    kind: ClassVar[str] = "EndTransaction"

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    tag: str = ""
    keys: str = ""
    broker: str
    message_type: int = HALF_MESSAGE
    transaction_id: str
    state: str
    from_check: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTrace:
    """Trace of the recall of a delayed message.

    Attributes:
        time_ms: wall time.
        region: of the broker.
        group: of the producer.
        topic: of the message.
        msg_id: the producer's id.
        success: whether it was recalled.
    """

    kind: ClassVar[str] = "Recall"

    time_ms: int
    region: str
    group: str
    topic: str
    msg_id: str
    success: bool = True


TraceRecord = SendTrace | ConsumeBeginTrace | ConsumeEndTrace | TransactionTrace | RecallTrace

_KINDS: Final[dict[str, type[TraceRecord]]] = {
    each.kind: each
    for each in (SendTrace, ConsumeBeginTrace, ConsumeEndTrace, TransactionTrace, RecallTrace)
}
_NULL_WHEN_EMPTY: Final = frozenset({"tag", "keys"})
_READERS: Final[dict[str, Callable[[str], object]]] = {
    "int": int,
    "str": str,
    "bool": lambda text: text == "true",
}


def encode_trace(record: TraceRecord) -> str:
    """Encode a record as text."""
    parts = [record.kind]
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, bool):
            parts.append("true" if value else "false")
        elif not value and each.name in _NULL_WHEN_EMPTY:
            parts.append(_NULL)
        else:
            parts.append(str(value))
    return _FIELD_END.join(parts) + _RECORD_END


def decode_traces(text: str) -> list[TraceRecord]:
    """Decode the records of a trace message; invalid and unknown ones are skipped."""
    found = (_decode(part.split(_FIELD_END)) for part in text.split(_RECORD_END))
    return [record for record in found if record is not None]


def _decode(parts: list[str]) -> TraceRecord | None:
    kind = _KINDS.get(parts[0])
    if kind is None:
        return None
    values: dict[str, object] = {}
    names = fields(kind)
    texts = parts[1:]
    if kind is SendTrace and len(texts) == len(names) - 1:
        texts.insert(-1, "")  # clients of 4.4 and before have no offset_msg_id
    for each, text in zip(names, texts, strict=False):
        is_null = text == _NULL and each.name in _NULL_WHEN_EMPTY
        try:
            values[each.name] = "" if is_null else _READERS[_type_of(each.type)](text)
        except ValueError:
            return None
    try:
        return kind(**values)  # type: ignore[arg-type]
    except TypeError:  # a field is missing
        return None


def _type_of(declared: object) -> str:
    return declared if isinstance(declared, str) else getattr(declared, "__name__", "str")


def trace_keys(record: TraceRecord) -> list[str]:
    """Return the keys of a trace message: the ids and keys of its messages."""
    keys = "" if isinstance(record, RecallTrace) else record.keys
    return [record.msg_id, *keys.split()]
