"""Plain sends that came together, stored as one run.

What is sent, and whether it is plain, is asked of `SendOperation`, message by message. The others
steps, from the put on, are taken for all of them at once (`rocketpy.store.append.bulk_append`).
"""

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.admission import TopicSendPolicy
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.store.append.bulk_append import PlacedRun, PutRun

PlainSend: TypeAlias = tuple[TopicSendPolicy, str, int, bytes, bytes, bytes, int, int, int, int]
"""The arguments of `SendOperation.send_plain`, in their order."""

PutsRuns: TypeAlias = Callable[[str, bytes, PutRun], PlacedRun | None]
"""`BulkAppend.put`: topic, the sender's address, the messages."""

_FEWEST = 2


class SentRun(NamedTuple):
    """Where the messages of a run were stored.

    Attributes:
        queue_ids: of each message.
        uniq_keys: of each message.
        placed: their places in the log and in their queues.
        durable_at: the senders are answered once the log is on disk up to here; 0: at once.
        refused: why they are not stored after all.
    """

    queue_ids: Sequence[int]
    uniq_keys: Sequence[str]
    placed: PlacedRun
    durable_at: int
    refused: Refusal | None


class BulkSend:
    """Stores runs of plain sends; safe from any thread.

    Args:
        operation: knows what is plain, and is told what was stored.
        put: stores a run.
        sync_flush: senders are answered when their message is on disk. Who does not wait for that
            is no part of a run then.
    """

    def __init__(self, operation: SendOperation, put: PutsRuns, *, sync_flush: bool) -> None:
        self._operation = operation
        self._put = put
        self._sync_flush = sync_flush

    def send(self, sends: Sequence[PlainSend]) -> SentRun | None:
        """Store as many of the first ones as are plain and go to one topic.

        Args:
            sends: in the order they came, from one sender; at least one.

        Returns:
            None when they are to be sent one by one: nothing was done.
        """
        policy, topic, *_ = sends[0]
        born_host = sends[0][5]
        run = self._alike(policy, sends) or _run_of(self._rows(policy, sends))
        placed = None if run is None else self._put(topic, born_host, run)
        if run is None or placed is None:
            return None
        size_bytes = placed.phy_end - placed.phy_offsets[0]
        refused = self._operation.stored(policy, topic, len(run.bodies), size_bytes)
        durable_at = placed.phy_end if self._sync_flush else 0
        return SentRun(run.queue_ids, run.uniq_keys, placed, durable_at, refused)

    def _alike(self, policy: TopicSendPolicy, sends: Sequence[PlainSend]) -> PutRun | None:
        """Return all of them if they are plain, and their properties have the same names.

        What is asked of each message is asked of the extremes of all.
        """
        policies, _, queue_ids, bodies, properties, _, flags, sys_flags, born_ms, times = zip(
            *sends, strict=True
        )
        operation, count = self._operation, len(sends)
        scanned = operation.scan_columns(properties)
        if scanned is None or policies.count(policy) < count:
            return None
        is_plain, waits, uniq_keys, keys, tags, tags_codes = scanned
        own = operation.own_properties
        stored = [each + own for each in properties]
        all_flags = functools.reduce(operator.or_, sys_flags)
        longest, most = max(bodies, key=len), max(stored, key=len)
        if self._sync_flush and not waits:
            return None
        for queue_id in (min(queue_ids), max(queue_ids)):
            if not operation.is_ordinary(policy, is_plain, queue_id, all_flags, longest, most):
                return None
        return PutRun(
            queue_ids, bodies, stored, flags, [each | policy.sys_flag for each in sys_flags],
            born_ms, times, tags_codes, uniq_keys, keys, tags,
        )  # fmt: skip

    def _rows(
        self, policy: TopicSendPolicy, sends: Sequence[PlainSend]
    ) -> Iterable[tuple[object, ...]]:
        """Yield the fields of a `PutRun` for each message, up to the first that is none for it."""
        operation = self._operation
        scan, is_ordinary, own = operation.scan, operation.is_ordinary, operation.own_properties
        for sent in sends:
            its_policy, _, queue_id, body, properties, _, flag, sys_flag, born_ms, times = sent
            scanned = scan(properties)
            if scanned is None or its_policy is not policy:
                return
            uniq_key, shape, keys = scanned
            stored = properties + own
            if not is_ordinary(policy, shape.is_plain, queue_id, sys_flag, body, stored):
                return
            if self._sync_flush and not shape.waits:
                return
            yield (
                queue_id, body, stored, flag, sys_flag | policy.sys_flag, born_ms, times,
                shape.tags_code, uniq_key, keys, shape.tags,
            )  # fmt: skip


def _run_of(rows: Iterable[tuple[object, ...]]) -> PutRun | None:
    """Turn the fields of messages into columns; None for too few of them."""
    found = [*rows]
    return PutRun(*zip(*found, strict=True)) if len(found) >= _FEWEST else None
