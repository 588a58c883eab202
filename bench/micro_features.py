"""Measures transactions, delays and filter conditions inside the broker; run by `bench.micro`.

A transaction is a half message (`half`) and its end (`end`); a delayed message is sent (`delay`)
and stored again when it is due (`deliver`); `sql` is a pull through a condition that takes three
messages of ten, with the cost of a matching message.
"""

import json
import struct
import time
from collections.abc import Iterator
from typing import Final

from bench.frames import BODY, PROPERTIES, batch_of, ext_v2, frame, reads
from rocketpy.broker.parts import BrokerParts
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.headers.transaction import EndTransactionRequestHeader
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from rocketpy.proto.wire.codes import RequestCode

GROUP: Final = "load-transactions"
PER_READ: Final = 4
"""Requests in one socket read, as seen with 32 callers."""
_HALF: Final = f"PGROUP\x01{GROUP}\x02TRAN_MSG\x01true\x02"
_ONEWAY: Final = 2
_TAKEN: Final = 32
_LOOKED_AT: Final = _TAKEN * 10 // 3


def half_reads(topic: str, count: int) -> list[bytes]:
    """Return half messages of concurrent callers."""
    frames = []
    for number in range(count):
        ext = ext_v2(topic, number % 4, number)
        ext |= {"f": str(TRANSACTION_PREPARED), "i": PROPERTIES % number + _HALF}
        frames.append(frame(RequestCode.SEND_MESSAGE_V2, ext, BODY, number))
    return reads(frames, PER_READ)


def end_reads(topic: str, answers: bytes) -> list[bytes]:
    """Return one-way commits for the responses to half messages."""
    frames = []
    for number, fields in enumerate(_answered(answers)):
        header = EndTransactionRequestHeader(
            producer_group=GROUP,
            tran_state_table_offset=int(fields["queueOffset"]),
            commit_log_offset=int(fields["msgId"][-16:], 16),
            commit_or_rollback=TRANSACTION_COMMIT,
            msg_id=fields["transactionId"],
            transaction_id=fields["transactionId"],
            topic=topic,
            bname="broker-a",
        )
        ext = header.to_ext()
        frames.append(frame(RequestCode.END_TRANSACTION, ext, b"", number, flag=_ONEWAY))
    return reads(frames, PER_READ)


def _answered(answers: bytes) -> Iterator[dict[str, str]]:
    at = 0
    while at < len(answers):
        size, header_bytes = struct.unpack_from(">iI", answers, at)
        yield json.loads(answers[at + 8 : at + 8 + header_bytes])["extFields"]
        at += 4 + size


def delay_reads(topic: str, count: int) -> list[bytes]:
    """Messages of delay level 1."""
    frames = []
    for number in range(count):
        ext = ext_v2(topic, number % 4, number)
        ext["i"] = PROPERTIES % number + "DELAY\x011\x02run\x01123456789012\x02"
        frames.append(frame(RequestCode.SEND_MESSAGE_V2, ext, BODY, number))
    return reads(frames, 16)


class Delivery:
    """Stand-in for a connection: any input delivers the delayed messages.

    Args:
        parts: of the broker.
        topic: where to.
        count: how many are due.
    """

    is_reading_paused = False

    def __init__(self, parts: BrokerParts, topic: str, count: int) -> None:
        self._delivery = next(each for each in parts.loop_services if each.name == "DelayDelivery")
        self._store = parts.store
        self._topic = topic
        self._end = self._stored + count

    @property
    def _stored(self) -> int:
        return sum(self._store.max_offset(self._topic, queue_id) for queue_id in range(4))

    def data_received(self, _data: bytes) -> None:
        """Let the delivery run until it is done."""
        while self._stored < self._end:
            self._delivery.step(time.monotonic_ns() // 1_000_000)


def sql_fill_reads(topic: str, count: int) -> list[bytes]:
    """Messages of queue 0 with property `a` from 0 to 9 in turn, in batches of 50."""
    frames = []
    for at in range(0, count, 50):
        numbers = range(at, at + 50)
        properties = [
            (PROPERTIES % n) + f"a\x01{n % 10}\x02carrier\x01{'UA' if n % 2 else 'AA'}\x02"
            for n in numbers
        ]
        ext = ext_v2(topic, 0, at, batch=True)
        frames.append(frame(RequestCode.SEND_BATCH_MESSAGE, ext, batch_of(properties), at))
    return frames


def sql_reads(topic: str, count: int) -> list[bytes]:
    """Pulls that find `count` messages through a condition."""
    frames = []
    for number in range(count // _TAKEN):
        header = PullMessageRequestHeader(
            consumer_group="g",
            topic=topic,
            queue_id=0,
            queue_offset=number * _LOOKED_AT,
            max_msg_nums=_TAKEN,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="a BETWEEN 0 AND 2 AND carrier IN ('UA', 'AA')",
            sub_version=0,
            expression_type="SQL92",
        )
        frames.append(frame(RequestCode.PULL_MESSAGE, header.to_ext(), b"", number))
    return frames


def sql_fill_count(count: int) -> int:
    """Return the number of messages among which `sql_reads` finds `count`."""
    return (count // _TAKEN + 2) * _LOOKED_AT // 50 * 50 + 50
