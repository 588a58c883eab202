"""Planner of the batches of a stream, from the state of brokers and the options."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from rocketpy.admin.groups import create_group
from rocketpy.errors import (
    ConfigError,
    DataLossError,
    RocketPyError,
    SubscriptionGroupNotExistError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace, wrap_namespace
from rocketpy.runtime.clock import Clock
from rocketpy.spark.connection import Connection, with_retries
from rocketpy.spark.offsets import QueueRange, StreamOffset
from rocketpy.spark.planning import Offsets, shared_limit
from rocketpy.spark.read_options import StreamOptions
from rocketpy.spark.source.backlog import (
    Loss,
    Waiting,
    cut_queues,
    lost_with_their_queue,
    what_waits,
    without_queue,
)
from rocketpy.spark.source.message_sizes import sizes_at, within_bytes
from rocketpy.spark.source.offset_resolution import (
    ending_offsets,
    has_end,
    offsets_at,
    out_of_range,
    starting_offsets,
)
from rocketpy.spark.source.queue_identity import other_queues, seen_after
from rocketpy.spark.source.record_batches import lost_words
from rocketpy.spark.source.snapshot import (
    Snapshot,
    check_at_slaves,
    check_complete,
    check_filter,
    living_brokers,
    subscribed_topics,
    take_snapshot,
)
from rocketpy.spark.spark_api import HAS_LIMITS

logger: logging.Logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_PAUSE_MS: Final = 500
"""Pause before a failed operation of the planner is tried again."""


class StreamPlanner:
    """Planner of a query, in one process for its lifetime.

    Args:
        options: of the query.
        clock: default: the system clock.

    Attributes:
        highs: last known ends of all queues.
        brokers: last known addresses by broker id, by broker name.
    """

    def __init__(self, options: StreamOptions, *, clock: Clock | None = None) -> None:
        self.highs: dict[MessageQueue, int] = {}
        self.brokers: dict[str, Mapping[int, str]] = {}
        self._options = options
        self._connection = Connection(options, clock=clock)
        self._clock = self._connection.clock
        self._initial: StreamOffset | None = None
        # Before PySpark 4.2 AvailableNow is a single batch, which must not be empty.
        self._is_first_empty = HAS_LIMITS or options.starting_offsets != "earliest"
        self._target: Offsets | None = None
        self._is_frozen = False
        self._turn = 0
        self._last_batch_ms: int | None = None
        self._has_group = False
        self._reported: set[QueueRange] = set()

    def close(self) -> None:
        """Close connections."""
        self._connection.close()

    # ---- called for Spark

    def initial(self) -> StreamOffset:
        """Return the start of a new stream, the same at each call in this process.

        Raises:
            RocketPyError: a topic or queue does not exist, offsets are out of range, or no name
                server answers.
        """
        if self._initial is None:
            self._initial = self._run(self._find_start)
        return self._initial

    def freeze(self) -> None:
        """Limit the query to the current messages.

        Raises:
            RocketPyError: brokers or name servers do not answer.
        """
        self._is_frozen = True
        self._target = self._run(self._find_end)

    def next(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset | None:
        """Return the end of the batch that begins at `start`; None without a batch.

        Raises:
            DataLossError: messages are lost, and the policy is to fail.
            ConfigError: `start` has other topics.
            RocketPyError: name servers did not answer for `fetch.timeoutMs`.
        """
        self.check_topics(start)
        if self._initial is not None and start == self._initial and self._is_first_empty:
            # New positions must be durable before queues are read from them.
            return start._replace(is_first=True)
        if self._target is None and has_end(self._options):
            self._target = self._run(self._find_end)
        end = self._connection.run(
            self._patiently(lambda: self._next(start, is_limited=is_limited))
        )
        return None if end.offsets == start.offsets else end

    def publish(self, offsets: Offsets) -> None:
        """Store the progress of `progressGroup`; failures are logged, the next commit retries."""
        if not self._options.progress_group:
            return
        try:
            self._connection.run(self._publish(offsets))
        except RocketPyError as error:
            logger.warning(
                "storing progress failed: group=%s error=%r", self._options.progress_group, error
            )

    def check_topics(self, position: StreamOffset) -> None:
        """Raise for a checkpoint of other topics.

        Raises:
            ConfigError: the checkpoint has topics that this query does not read.
        """
        options = self._options
        known = {queue.topic for queue in position.offsets}
        if options.subscribe_pattern:
            wanted = re.compile(options.subscribe_pattern)
            read = {t for t in known if wanted.fullmatch(unwrap_namespace(options.namespace, t))}
            words = f"topics like {options.subscribe_pattern}"
        else:
            read = known & subscribed_topics(options)
            words = ", ".join(sorted(subscribed_topics(options)))
        others = sorted(known - read)
        if others and (options.data_loss == "fail" or not read):
            raise ConfigError(
                f"it is the checkpoint of a query that reads {', '.join(others)}; this one reads "
                f"{words}. Use another checkpoint for this query, or read those topics as well",
                key="checkpointLocation",
            )

    # ---- planning

    def _run(self, operation: Callable[[], Awaitable[T]]) -> T:
        options = self._options
        return self._connection.run(
            with_retries(
                operation, retries=options.offset_retries, pause_ms=options.offset_retry_pause_ms
            )
        )

    async def _patiently(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Retry during a restart of name servers; a failure of the planner would end the stream."""
        begin_ms = self._clock.monotonic_ms()
        while True:
            try:
                return await operation()
            except RocketPyError as error:
                waited_ms = self._clock.monotonic_ms() - begin_ms
                if not error.retriable or waited_ms > self._options.fetch_timeout_ms:
                    raise
                logger.warning("planning of the next batch failed, retrying: error=%r", error)
                await asyncio.sleep(RETRY_PAUSE_MS / 1000)

    async def _snapshot(self, *, is_patient: bool = False) -> Snapshot:
        servers = self._connection.servers
        snapshot = await take_snapshot(servers, self._options, is_patient=is_patient)
        self.highs |= {queue: ends.high for queue, ends in snapshot.ends.items()}
        self.brokers |= snapshot.brokers
        return snapshot

    async def _find_start(self) -> StreamOffset:
        options = self._options
        snapshot = await self._snapshot()
        check_complete(snapshot, options)
        await check_filter(self._connection, snapshot, options)
        found = await starting_offsets(self._connection, snapshot, options, "latest")
        outside = out_of_range(snapshot, found, found)
        check_at_slaves(snapshot, [each for each, _ in outside])
        if outside and options.data_loss == "fail":
            raise DataLossError(lost_words(outside))
        there = {
            queue: min(max(offset, snapshot.ends[queue].low), snapshot.ends[queue].high)
            for queue, offset in found.items()
        }
        return StreamOffset(there, seen=seen_after({}, snapshot, ()))

    async def _find_end(self) -> dict[MessageQueue, int]:
        snapshot = await self._snapshot()
        return await ending_offsets(self._connection, snapshot, self._options)

    async def _next(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        # With a fixed end all brokers are needed to reach it.
        snapshot = await self._snapshot(is_patient=not self._is_frozen)
        for name, why in snapshot.unreachable.items():
            logger.warning("broker unreachable, its queues wait: broker=%s error=%s", name, why)
        resumed = await self._resumed(start, snapshot)
        waiting = what_waits(start.offsets, snapshot, self._target, resumed, start.seen)
        lost = waiting.lost + await self._lost_queues(start.offsets, snapshot)
        if lost and self._options.data_loss == "fail":
            raise DataLossError(lost_words(lost))
        if waiting.lagging:
            logger.warning(
                "slave lacks offsets of the stream, queues wait for it or its master: queues=%s",
                waiting.lagging,
            )
        self.report_lost(lost)
        seen = seen_after(start.seen, snapshot, resumed)
        if is_limited and self._waits_for_more(waiting):
            return StreamOffset(waiting.position, seen=seen)
        ends = await self._limited(waiting, snapshot) if is_limited else waiting.ends
        if ends:
            self._turn += 1
            self._last_batch_ms = self._clock.monotonic_ms()
        return StreamOffset({**waiting.position, **ends}, seen=seen)

    def report_lost(self, lost: Iterable[Loss]) -> None:
        """Log lost ranges; those of the call before are planned again, and not logged again."""
        for gone, reason in lost:
            if gone not in self._reported:
                logger.warning("messages lost: range=%s reason=%s", gone, reason)
        self._reported = {gone for gone, _ in lost}

    async def _resumed(self, start: StreamOffset, snapshot: Snapshot) -> dict[MessageQueue, int]:
        """Return where queues resume that are cut or others than before.

        That is the first message stored after the last one seen. A cut queue of which none was
        seen resumes at its end.
        """
        options = self._options
        others = await other_queues(
            self._connection,
            snapshot,
            start.offsets,
            start.seen,
            group=wrap_namespace(options.namespace, options.group),
            timeout_ms=options.timeout_ms,
        )
        cut = {queue for queue in cut_queues(start.offsets, snapshot) if queue in start.seen}
        times = {queue: start.seen[queue].stored_ms + 1 for queue in others | cut}
        found = await offsets_at(self._connection, snapshot, times)
        for queue in others - cut:
            # Times that do not fit (a broker with a slow clock): every message counts as new.
            if found[queue] > max(start.seen[queue].offset, start.offsets[queue] - 1):
                found[queue] = snapshot.ends[queue].low
        return found

    async def _lost_queues(self, position: Offsets, snapshot: Snapshot) -> list[Loss]:
        if not position.keys() - snapshot.ends.keys():
            return []
        brokers = await living_brokers(self._connection.servers)
        gone = without_queue(position, snapshot, brokers.keys() - snapshot.unreachable.keys())
        highs = {queue: self.highs[queue] for queue in gone if queue in self.highs}
        for queue in gone:
            if queue.topic in snapshot.topics:
                address = brokers[queue.broker_name]
                highs[queue] = await self._connection.api.max_offset(address, queue)
        return lost_with_their_queue(position, gone, snapshot.topics, highs)

    def _waits_for_more(self, waiting: Waiting) -> bool:
        """Return whether to skip the trigger: too few messages, and the delay has not passed."""
        wanted = self._options.min_offsets
        if wanted is None or self._is_frozen or self._last_batch_ms is None:
            return False
        passed_ms = self._clock.monotonic_ms() - self._last_batch_ms
        is_little = sum(waiting.sizes.values()) < wanted
        return is_little and passed_ms < self._options.max_trigger_delay_ms

    async def _limited(self, waiting: Waiting, snapshot: Snapshot) -> dict[MessageQueue, int]:
        begins, ends = waiting.begins, waiting.ends
        if self._options.max_offsets is not None:
            shares = shared_limit(self._options.max_offsets, waiting.sizes, self._turn)
            # Lost messages do not count: a queue may always advance to its first message.
            ends = {queue: begins[queue] + shares.get(queue, 0) for queue in begins}
        if self._options.max_bytes is not None:
            addresses = {name: each[min(each)] for name, each in snapshot.brokers.items() if each}
            sizes = sizes_at(self._connection.servers, addresses)
            ends = await within_bytes(self._options.max_bytes, begins, ends, sizes, self._turn)
        return ends

    async def _publish(self, offsets: Offsets) -> None:
        options = self._options
        group = wrap_namespace(options.namespace, options.progress_group)
        api, brokers = self._connection.api, self.brokers
        for queue, offset in offsets.items():
            addresses = brokers.get(queue.broker_name)
            if not addresses:
                continue
            address = addresses[min(addresses)]
            try:
                await api.update_offset(address, group, queue, offset, oneway=False)
            except SubscriptionGroupNotExistError:
                if self._has_group:
                    raise
                self._has_group = True
                await create_group(self._connection.servers, group)
                await api.update_offset(address, group, queue, offset, oneway=False)
