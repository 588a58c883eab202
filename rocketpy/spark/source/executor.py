"""Execution of a task: borrows a connection of its Python worker, pulls a range, makes batches.

Spark reuses Python workers, so their connections are kept between tasks. A timer closes them five
minutes after the last task.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from rocketpy.arrow import RowSchema
from rocketpy.arrow.missing_rows import lost_rows
from rocketpy.client.cluster.route_table import MASTER_ID
from rocketpy.proto.namespace import unwrap_namespace, wrap_namespace
from rocketpy.proto.subscription import build_subscription
from rocketpy.spark.connection import Connection, with_retries
from rocketpy.spark.offsets import LastSeen, QueueRange
from rocketpy.spark.prefetch import ahead
from rocketpy.spark.read_options import ConnectionOptions, ReadOptions
from rocketpy.spark.source.fetch import PAUSE_MS, Pulled, PullSettings, RangeFetcher
from rocketpy.spark.source.queue_identity import stored_ms
from rocketpy.spark.source.record_batches import BatchMaker
from rocketpy.spark.source.snapshot import broker_addresses

IDLE_S: Final = 300.0


@dataclass
class QueuePartition(InputPartition):
    """Partition with a range to read.

    Attributes:
        wanted: the range.
        addresses: of the queue's broker by broker id, from the driver.
        seen: the last message of the queue when the range was planned; None if unknown.
    """

    wanted: QueueRange
    addresses: Mapping[int, str]
    seen: LastSeen | None = None


@dataclass
class MarkPartition(InputPartition):
    """Partition with ranges to mark as lost, without a request.

    Attributes:
        lost: the ranges.
    """

    lost: list[QueueRange]


class ConnectionCache:
    """Thread-safe cache of connections by their options, kept between tasks."""

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._idle: dict[tuple[Any, ...], Connection] = {}
        self._timers: dict[tuple[Any, ...], threading.Timer] = {}
        self._pid = os.getpid()

    @contextmanager
    def borrow(self, options: ConnectionOptions) -> Iterator[Connection]:
        """Borrow a connection exclusively for the duration of the block."""
        key = tuple(getattr(options, each.name) for each in fields(ConnectionOptions))
        connection = self._take(key) or Connection(options)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self._give_back(key, connection)

    def _take(self, key: tuple[Any, ...]) -> Connection | None:
        with self._lock:
            if self._pid != os.getpid():  # a forked process must not use the sockets of its parent
                self._idle.clear()
                self._timers.clear()
                self._pid = os.getpid()
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            return self._idle.pop(key, None)

    def _give_back(self, key: tuple[Any, ...], connection: Connection) -> None:
        with self._lock:
            if key in self._idle:
                connection.close()
                return
            self._idle[key] = connection
            timer = threading.Timer(self._idle_s, self._expire, (key, connection))
            timer.daemon = True
            self._timers[key] = timer
            timer.start()

    def _expire(self, key: tuple[Any, ...], connection: Connection) -> None:
        with self._lock:
            if self._idle.get(key) is connection:
                del self._idle[key]
                self._timers.pop(key, None)
                connection.close()


CONNECTIONS: Final = ConnectionCache()
"""Connections of this Python worker."""


def read_partition(
    partition: QueuePartition, options: ReadOptions, schema: RowSchema
) -> Iterator[pa.RecordBatch]:
    """Read a range, one batch ahead of the consumer.

    Raises:
        DataLossError: messages are lost, and the policy is to fail.
        RequestTimeoutError: the broker did not answer within `fetch.timeoutMs`.
        RocketPyError: the broker rejects the pull, or its data cannot be decoded.
    """
    return ahead(_batches(partition, options, schema))


def read_marks(
    partition: MarkPartition, options: ReadOptions, schema: RowSchema
) -> Iterator[pa.RecordBatch]:
    """Yield a row for each lost range."""
    named = [
        each._replace(topic=unwrap_namespace(options.namespace, each.topic))
        for each in partition.lost
    ]
    yield lost_rows(named, schema)


def _batches(
    partition: QueuePartition, options: ReadOptions, schema: RowSchema
) -> Iterator[pa.RecordBatch]:
    with CONNECTIONS.borrow(options) as connection:
        fetcher = _fetcher(connection, partition, options)
        maker = _maker(
            partition, options, schema, lambda: _is_other(connection, partition, options)
        )
        try:
            while made := _made(maker, connection.run(_collect(fetcher, options))):
                yield from made
            yield from maker.finish()
        finally:
            connection.run(fetcher.close())


def _made(maker: BatchMaker, pulled: list[Pulled]) -> Iterator[pa.RecordBatch] | None:
    """Return the batches of pulled data, which is released as soon as it is decoded."""
    return maker.batches(pulled) if pulled else None


async def _collect(fetcher: RangeFetcher, options: ReadOptions) -> list[Pulled]:
    """Return the pulled data for one batch; empty at the end."""
    found: list[Pulled] = []
    rows = size = 0
    while rows < options.batch_rows and size < options.batch_bytes:
        pulled = await fetcher.next()
        if pulled is None:
            break
        found.append(pulled)
        rows += pulled.end - pulled.start
        size += len(pulled.body)
    return found


def _fetcher(
    connection: Connection, partition: QueuePartition, options: ReadOptions
) -> RangeFetcher:
    async def locate(wanted: QueueRange) -> Mapping[int, str]:
        return await _locate(connection, wanted)

    settings = PullSettings(
        group=wrap_namespace(options.namespace, options.group),
        batch=options.fetch_batch_size,
        max_bytes=options.fetch_max_bytes,
        prefetch=options.fetch_prefetch,
        timeout_ms=options.fetch_timeout_ms,
        expression=options.sub_expression,
        expression_type=options.expression_type,
    )
    return RangeFetcher(
        connection.api,
        partition.wanted,
        settings,
        addresses=partition.addresses,
        locate=locate,
        clock=connection.clock,
    )


def _is_other(connection: Connection, partition: QueuePartition, options: ReadOptions) -> bool:
    """Return whether the queue has another message now where the last one was at planning."""
    seen, wanted = partition.seen, partition.wanted
    if seen is None or seen.offset < 0:
        return False

    async def ask() -> int | None:
        addresses = await _locate(connection, wanted) or partition.addresses
        broker_id = min(addresses)
        found_ms = await stored_ms(
            connection.api,
            addresses[broker_id],
            wanted.queue,
            seen.offset,
            group=wrap_namespace(options.namespace, options.group),
            timeout_ms=options.timeout_ms,
        )
        # A slave may not have the message yet: it is no sign of another queue.
        return seen.stored_ms if found_ms is None and broker_id != MASTER_ID else found_ms

    asked = with_retries(ask, retries=options.offset_retries, pause_ms=PAUSE_MS)
    return connection.run(asked) != seen.stored_ms


async def _locate(connection: Connection, wanted: QueueRange) -> Mapping[int, str]:
    """Return the addresses of the queue's broker, by broker id."""
    route = await connection.servers.topic_route(wanted.topic)
    return broker_addresses(route).get(wanted.broker_name, {})


def _maker(
    partition: QueuePartition,
    options: ReadOptions,
    schema: RowSchema,
    is_other: Callable[[], bool],
) -> BatchMaker:
    from rocketpy.arrow import RecordDecoder  # noqa: PLC0415 - planners do without it

    subscription = build_subscription("", options.sub_expression, options.expression_type)
    decoder = RecordDecoder(
        schema,
        check_crc=options.check_crc,
        damaged=options.damaged,
        tags=subscription.tags_set,
    )
    wanted, seen = partition.wanted, partition.seen
    topic = unwrap_namespace(options.namespace, wanted.topic)
    return BatchMaker(
        wanted,
        schema,
        decoder,
        is_filtered=not subscription.takes_all,
        policy=options.data_loss,
        topic=topic if topic != wanted.topic else "",
        planned_ms=0 if seen is None else seen.stored_ms,
        is_other=is_other,
    )
