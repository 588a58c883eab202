"""Batches: many messages in one request, split so that a broker accepts each part.

`rocketpy.client.producer.batch_accumulator` gathers single sends into such batches.

Source: MessageBatch, MessageDecoder.encodeMessages (5.4.0); Apache leaves the splitting to users.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from typing import Any, Final

from rocketpy.client.sending.outgoing_message import SEND_BATCH, Outgoing, id_properties
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import NotSentError, PartlySentError, RocketPyError
from rocketpy.proto.record.batch_body import batch_body
from rocketpy.proto.record.record import MIN_RECORD_BYTES, V4_HOST_BYTES, V6_HOST_BYTES

# A broker counts the stored records, which are larger than the batch's entries: the fixed part
# with IPv6 addresses, and the properties it adds (region, trace switch, cluster).
_RECORD_OVERHEAD_BYTES = MIN_RECORD_BYTES + 2 * (V6_HOST_BYTES - V4_HOST_BYTES) + 160

# Makes the result of a message without a call of Python code.
_result: Final[Callable[[tuple[Any, ...]], SendResult]] = partial(tuple.__new__, SendResult)


def listed(bodies: Iterable[Any]) -> list[Any]:
    """Return the bodies of a batch as a list.

    Raises:
        TypeError: it is a single body, of which each letter, byte or key would become a message.
    """
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping):
        kind = type(bodies).__name__
        raise TypeError(f"send_batch takes a list of bodies, not one {kind}: give [body]")
    return list(bodies)


def partly_sent(
    results: Sequence[SendResult], failed: int, total: int, error: RocketPyError
) -> PartlySentError:
    """Return what is raised when a request fails after others were stored.

    Args:
        results: of the messages that are stored.
        failed: how many the failed request had.
        total: how many the whole batch has.
        error: why it failed.
    """
    left = total - len(results) - failed
    not_tried = NotSentError("not sent: an earlier part of the batch failed")
    outcomes = [*results, *([error] * failed), *([not_tried] * left)]
    return PartlySentError(outcomes, stored=len(results), error=error)


class BatchPart:
    """The messages of one request."""

    def __init__(self, messages: Sequence[Outgoing]) -> None:
        self.messages = messages

    def outgoing(self, msg_id: str) -> Outgoing:
        """Return the request's parts; `msg_id` becomes the id of the batch."""
        body = batch_body(
            [message.body for message in self.messages],
            [message.properties.encode() for message in self.messages],
            [message.flag for message in self.messages],
        )
        return Outgoing(body, id_properties(msg_id), 0, 0, msg_id, SEND_BATCH)

    def results(self, stored: SendResult) -> list[SendResult]:
        """Return one result per message, made from the request's result."""
        offset_ids = stored.offset_msg_id.split(",")
        missing = len(self.messages) - len(offset_ids)
        rows = zip(
            repeat(stored.status),
            [message.msg_id for message in self.messages],
            offset_ids + [""] * missing,
            repeat(stored.queue),
            count(stored.offset),
            repeat(stored.transaction_id),
            repeat(stored.region_id),
            repeat(None),
            strict=False,
        )
        return list(map(_result, rows))


def stored_bytes(message: Outgoing, topic: str) -> int:
    """Return the most that a message's record can take."""
    text = message.properties
    properties_bytes = len(text) if text.isascii() else len(text.encode())
    return len(message.body) + properties_bytes + len(topic) + _RECORD_OVERHEAD_BYTES


def split_batches(
    messages: Iterable[Outgoing], topic: str, limit_bytes: int
) -> Iterator[BatchPart]:
    """Yield parts whose stored records take at most `limit_bytes`.

    A message that exceeds the limit alone becomes a part; its broker rejects it.
    """
    part: list[Outgoing] = []
    part_bytes = 0
    for message in messages:
        size_bytes = stored_bytes(message, topic)
        if part and part_bytes + size_bytes > limit_bytes:
            yield BatchPart(part)
            part, part_bytes = [], 0
        part.append(message)
        part_bytes += size_bytes
    if part:
        yield BatchPart(part)
