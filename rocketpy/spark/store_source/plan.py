"""Plan of a read of store directories: tasks, each with a piece of one directory."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rocketpy.arrow import RowSchema
from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import EARLIEST, LATEST, QueueRange
from rocketpy.spark.planning import split_present
from rocketpy.spark.store_source.options import StoreOptions
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.plan import Piece, QueuePiece, plan
from rocketpy.store.scan.request import QueueName, ScanRequest


class Task(NamedTuple):
    """Work of one task; sent to the executor.

    Attributes:
        root: the store directory.
        wanted: the request for this directory.
        piece: the part of it that the task reads.
    """

    root: str
    wanted: ScanRequest
    piece: Piece


def tasks(options: StoreOptions, schema: RowSchema) -> list[Task]:
    """Plan a read: a task for each queue or log file, or more where queues are split.

    Raises:
        ConfigError: a topic or an offset does not exist in the directories.
        StoreFormatError: a directory is not a store.
        DataLossError: messages requested by offset are lost.
    """
    found = list(_tasks(options, schema))
    ranges = {
        QueueRange(task.piece.topic, task.root, task.piece.queue_id, *task.piece[2:4]): task
        for task in found
        if isinstance(task.piece, QueuePiece)
    }
    others = [task for task in found if not isinstance(task.piece, QueuePiece)]
    by_queue = {each.queue: task for each, task in ranges.items()}
    firsts = {
        each.queue: task.piece.first
        for each, task in ranges.items()
        if isinstance(task.piece, QueuePiece)
    }
    parts = split_present(
        list(ranges), firsts, options.min_partitions, options.max_records_per_partition
    )
    split = []
    for part in parts:
        task = by_queue[part.queue]
        assert isinstance(task.piece, QueuePiece)
        split.append(task._replace(piece=task.piece.part(part.start, part.end)))
    return split + others


def _tasks(options: StoreOptions, schema: RowSchema) -> Iterator[Task]:
    names = options.broker_names()
    _check_brokers(options, names)
    for root, name in zip(options.roots(), names, strict=True):
        wanted = wanted_of(options, schema, name)
        try:
            pieces = plan(StoreDirectory(root, options.commit_log), wanted, options.scan)
        except ValueError as error:
            raise ConfigError(str(error), key="topics") from None
        yield from (Task(root, wanted, piece) for piece in pieces)


def wanted_of(options: StoreOptions, schema: RowSchema, broker_name: str) -> ScanRequest:
    """Return the request for the directory with this broker name."""
    return ScanRequest(
        topics=options.topics,
        tags=options.tags,
        sql=options.sql,
        starts=_of_broker(options.starting_offsets, broker_name, without=EARLIEST),
        ends=_of_broker(options.ending_offsets, broker_name, without=LATEST),
        start_ms=options.starting_timestamp,
        end_ms=options.ending_timestamp,
        keys=options.keys,
        index_slots=options.index_slots,
        on_data_loss=options.data_loss,
        with_deleted=options.with_deleted,
        schema=schema,
        broker_name=broker_name,
        check_crc=options.check_crc,
        damaged=options.damaged,
        batch_rows=options.batch_rows,
        batch_bytes=options.batch_bytes,
    )


def _of_broker(
    offsets: Mapping[MessageQueue, int] | None, broker_name: str, without: int
) -> dict[QueueName, int]:
    return {
        QueueName(queue.topic, queue.queue_id): offset
        for queue, offset in (offsets or {}).items()
        if queue.broker_name == broker_name and offset != without
    }


def _check_brokers(options: StoreOptions, names: list[str]) -> None:
    """Raise for offsets of brokers without a directory, which would be ignored silently."""
    given = {"startingOffsets": options.starting_offsets, "endingOffsets": options.ending_offsets}
    for key, offsets in given.items():
        for queue in offsets or {}:
            if queue.broker_name not in names:
                reason = f"names broker {queue.broker_name!r}; directories are {', '.join(names)}"
                raise ConfigError(reason + " (see brokerName)", key=key)
