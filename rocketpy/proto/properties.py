"""Message properties: their names, and the text they are stored as.

The text is ``name 0x01 value 0x02`` for each, UTF-8. Readers must not rely on
an order, and must accept a missing last 0x02 (clients before 5.0).

Source: MessageConst and MessageDecoder of 5.4.0.
"""

from collections.abc import Mapping
from typing import Final

NAME_SEPARATOR: Final = "\x01"
PAIR_SEPARATOR: Final = "\x02"

PROPERTY_KEYS: Final = "KEYS"
PROPERTY_TAGS: Final = "TAGS"
PROPERTY_WAIT_STORE_MSG_OK: Final = "WAIT"
PROPERTY_DELAY_TIME_LEVEL: Final = "DELAY"
PROPERTY_RETRY_TOPIC: Final = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID: Final = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED: Final = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP: Final = "PGROUP"
PROPERTY_MIN_OFFSET: Final = "MIN_OFFSET"
PROPERTY_MAX_OFFSET: Final = "MAX_OFFSET"
PROPERTY_BUYER_ID: Final = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
PROPERTY_ORIGIN_GROUP: Final = "ORIGIN_GROUP"
PROPERTY_TRANSFER_FLAG: Final = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG: Final = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG: Final = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME: Final = "RECONSUME_TIME"
PROPERTY_MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
PROPERTY_MSG_REGION: Final = "MSG_REGION"
PROPERTY_TRACE_SWITCH: Final = "TRACE_ON"
PROPERTY_TRACE_CONTEXT: Final = "TRACE_CONTEXT"
PROPERTY_UNIQ_KEY: Final = "UNIQ_KEY"
PROPERTY_EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
PROPERTY_INSTANCE_ID: Final = "INSTANCE_ID"
PROPERTY_DUP_INFO: Final = "DUP_INFO"
PROPERTY_CONSUME_START_TIME: Final = "CONSUME_START_TIME"
PROPERTY_TRANSACTION_ID: Final = "__transactionId__"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
PROPERTY_CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANS_OFFSET: Final = "TRANS_OFFSET"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_MESSAGE_REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
PROPERTY_MESSAGE_TTL: Final = "TTL"
PROPERTY_REPLY_MESSAGE_ARRIVE_TIME: Final = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER: Final = "CLUSTER"
PROPERTY_MESSAGE_TYPE: Final = "MSG_TYPE"
PROPERTY_POP_CK: Final = "POP_CK"
PROPERTY_POP_CK_OFFSET: Final = "POP_CK_OFFSET"
PROPERTY_FIRST_POP_TIME: Final = "1ST_POP_TIME"
PROPERTY_FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
PROPERTY_REDIRECT: Final = "REDIRECT"
PROPERTY_INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_INNER_NUM: Final = "INNER_NUM"
PROPERTY_INNER_BASE: Final = "INNER_BASE"
PROPERTY_TRACE_TRANSIENT_PREFIX: Final = "__RMQ.TRANSIENT."
PROPERTY_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_BORN_HOST: Final = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
PROPERTY_CRC32: Final = "__CRC32#"
PROPERTY_TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
PROPERTY_TIMER_OUT_MS: Final = "TIMER_OUT_MS"
PROPERTY_TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_ROLL_LABEL: Final = "TIMER_ROLL_LABEL"
PROPERTY_TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
PROPERTY_TIMER_ENGINE_TYPE: Final = "E_T"
PROPERTY_PRIORITY: Final = "_SYS_MSG_PRIORITY_"

KEY_SEPARATOR: Final = " "
"""Between the keys in ``KEYS``."""


def parse_properties(stored: bytes | memoryview | str) -> dict[str, str]:
    """Read the stored text into a dictionary.

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
    """Return the properties as the text a send header carries."""
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Return the properties as the bytes a record stores.

    Names and values must not hold 0x01 or 0x02; ``rocketpy.client`` checks users' ones.
    """
    return properties_text(properties).encode()


def find_property(stored: bytes | memoryview, name: bytes) -> bytes | None:
    """Return one property's value out of the stored bytes, without decoding the others.

    Args:
        stored: the properties of a record.
        name: such as ``b"TAGS"``.

    Returns:
        The value's bytes, or None when absent or empty.
    """
    data = bytes(stored)
    wanted = name + b"\x01"
    if data.startswith(wanted):
        start = len(wanted)
    else:
        at = data.find(b"\x02" + wanted)
        if at < 0:
            return None
        start = at + 1 + len(wanted)
    end = data.find(b"\x02", start)
    value = data[start:] if end < 0 else data[start:end]
    return value or None
