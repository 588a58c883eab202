"""Message properties: names, and the stored text.

The text is `name 0x01 value 0x02` for each, UTF-8. Readers must not rely on
an order, and must accept a missing last 0x02 (clients before 5.0).

Source: MessageConst and MessageDecoder of 5.4.0.
"""

from collections.abc import Mapping
from typing import Final

from rocketpy.proto.validators import MAX_PROPERTIES_BYTES

NAME_SEPARATOR: Final = "\x01"
PAIR_SEPARATOR: Final = "\x02"

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_TTL: Final = "TTL"
PROPERTY_MSG_TYPE: Final = "MSG_TYPE"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_POP_CK: Final = "POP_CK"
PROPERTY_FIRST_POP_TIME: Final = "1ST_POP_TIME"
PROPERTY_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_DLQ_EXCEPTION: Final = "DLQ_EXCEPTION"
"""Class name of the exception that made a dead letter; this and the next three are RocketPy's."""
PROPERTY_DLQ_REASON: Final = "DLQ_REASON"
PROPERTY_DLQ_TIME: Final = "DLQ_TIME"
"""Time at which a message became a dead letter, ms since 1970."""
PROPERTY_DLQ_MEMBER: Final = "DLQ_MEMBER"
"""Id of the client whose handler failed."""
DEAD_LETTER_CAUSE: Final = (
    PROPERTY_DLQ_EXCEPTION, PROPERTY_DLQ_REASON, PROPERTY_DLQ_TIME, PROPERTY_DLQ_MEMBER,
)  # fmt: skip
"""Properties of a dead letter that say why, when and where it failed."""
MAX_DEAD_LETTER_TEXT: Final = 1_000
"""Characters of a reason that are kept."""
PROPERTY_TAKES_ERRORS: Final = "ROCKETPY_TAKES_ERRORS"
"""Ours: the requester takes a reply with `PROPERTY_REMOTE_ERROR` as an error."""
PROPERTY_REMOTE_ERROR: Final = "ROCKETPY_ERROR"
"""Ours: class of the exception that a responder's handler raised; the body is its text."""

REPLY_MESSAGE_TYPE: Final = "reply"
"""MSG_TYPE of a reply to a request."""

SYSTEM_PROPERTIES: Final = frozenset(
    {
        PROPERTY_KEYS,
        PROPERTY_TAGS,
        PROPERTY_UNIQ_KEY,
        PROPERTY_WAIT_STORE_MSG_OK,
        PROPERTY_DELAY_TIME_LEVEL,
        PROPERTY_TIMER_DELAY_SEC,
        PROPERTY_TIMER_DELAY_MS,
        PROPERTY_TIMER_DELIVER_MS,
        PROPERTY_TIMER_OUT_MS,
        PROPERTY_TIMER_ENQUEUE_MS,
        PROPERTY_TIMER_DEQUEUE_MS,
        PROPERTY_TIMER_ROLL_TIMES,
        PROPERTY_TIMER_DEL_UNIQKEY,
        PROPERTY_BORN_TIMESTAMP,
        PROPERTY_RETRY_TOPIC,
        PROPERTY_ORIGIN_MESSAGE_ID,
        PROPERTY_DLQ_ORIGIN_TOPIC,
        PROPERTY_DLQ_ORIGIN_MESSAGE_ID,
        PROPERTY_REAL_TOPIC,
        PROPERTY_REAL_QUEUE_ID,
        PROPERTY_TRANSACTION_PREPARED,
        PROPERTY_TRANSACTION_ID,
        PROPERTY_TRANSACTION_CHECK_TIMES,
        PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
        PROPERTY_CHECK_IMMUNITY_TIME,
        PROPERTY_PRODUCER_GROUP,
        PROPERTY_CORRELATION_ID,
        PROPERTY_REPLY_TO_CLIENT,
        PROPERTY_TTL,
        PROPERTY_MSG_TYPE,
        PROPERTY_PUSH_REPLY_TIME,
        PROPERTY_SHARDING_KEY,
        PROPERTY_POP_CK,
        PROPERTY_FIRST_POP_TIME,
        PROPERTY_ORIGIN_GROUP,
        PROPERTY_MSG_REGION,
        PROPERTY_TRACE_SWITCH,
        PROPERTY_CLUSTER,
        PROPERTY_INSTANCE_ID,
        *DEAD_LETTER_CAUSE,
        PROPERTY_TAKES_ERRORS,
        PROPERTY_REMOTE_ERROR,
        # Names without another use yet.
        "CONSUME_START_TIME",
        "INNER_BASE",
        "INNER_NUM",
        "MAX_OFFSET",
        "MAX_RECONSUME_TIMES",
        "MIN_OFFSET",
        "RECONSUME_TIME",
    }
)
"""Properties that brokers and clients set; user properties must have other names."""


def with_dead_letter_cause(
    properties: Mapping[str, str],
    exception: str | None,
    reason: str | None,
    time_ms: int | None,
    member: str | None,
) -> dict[str, str]:
    """Return the properties of a dead letter with its cause.

    Control characters of the texts become blanks. Properties that had no room beside the cause keep
    only the causes of `properties`: the letter itself matters more.

    Args:
        properties: properties of the message.
        exception: class name of the exception; None or empty without one.
        reason: its text; at most `MAX_DEAD_LETTER_TEXT` characters are kept.
        time_ms: when it failed, ms since 1970.
        member: id of the client.
    """
    texts = (exception, reason, None if time_ms is None else str(time_ms), member)
    cause = {
        name: shown
        for name, text in zip(DEAD_LETTER_CAUSE, texts, strict=True)
        if text and (shown := property_line(text))
    }
    if not cause:
        return dict(properties)
    # A letter that failed before, and was put back, must not keep parts of the former cause.
    others = {name: value for name, value in properties.items() if name not in DEAD_LETTER_CAUSE}
    full = {**others, **cause}
    return full if len(encode_properties(full)) <= MAX_PROPERTIES_BYTES else dict(properties)


def property_line(text: str) -> str:
    """Return a text as one bounded line of characters that a property may have."""
    shown = text[: 2 * MAX_DEAD_LETTER_TEXT]
    return " ".join("".join(c if c.isprintable() else " " for c in shown).split())[
        :MAX_DEAD_LETTER_TEXT
    ]


KEY_SEPARATOR: Final = " "
"""Separator of the keys in `KEYS`."""


def parse_properties(stored: bytes | memoryview | str) -> dict[str, str]:
    """Parse the stored text into a dictionary.

    Pairs without a name or a value are dropped, as Java drops them; bytes that
    are not UTF-8 become U+FFFD. Never raises.
    """
    text = stored if isinstance(stored, str) else str(stored, "utf-8", "replace")
    properties: dict[str, str] = {}
    for pair in text.split(PAIR_SEPARATOR):
        name, _, value = pair.partition(NAME_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def properties_text(properties: Mapping[str, str]) -> str:
    """Return the properties as text for a send header."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the properties as stored bytes.

    Names and values must not contain 0x01 or 0x02; `rocketpy.client` checks those of users.
    """
    return properties_text(properties).encode()
