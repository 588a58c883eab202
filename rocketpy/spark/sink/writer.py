"""Writers for batches and streams, which Spark calls, and reports of tasks to the driver."""

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from rocketpy.errors import ConfigError
from rocketpy.spark.options import parse_options
from rocketpy.spark.sink.columns import Columns, find_columns
from rocketpy.spark.sink.oneway import OnewaySender
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.sink.rate_limit import paced, rate_of
from rocketpy.spark.sink.row_batches import as_batches
from rocketpy.spark.sink.rows import RowReader
from rocketpy.spark.sink.sender import Sender, Stored
from rocketpy.spark.sink.worker import SinkClient, client_for
from rocketpy.spark.spark_api import BatchWriter, StreamWriter

logger: logging.Logger = logging.getLogger(__name__)

_QUERY_ID: Final = "sql.streaming.queryId"
_BATCH_ID: Final = "streaming.sql.batchId"
_SHOWN_QUEUES: Final = 32
_FAILED: Final = (
    "batch failed, messages of ended tasks and perhaps of others stay in the topic (if a stream "
    "repeats the batch, rocketpy.spark.dedup finds the repeated ones): "
    "batch=%s ended_tasks=%d tasks=%d sent=%s"
)

_checked: set[tuple[tuple[str, ...], str]] = set()
"""Topics, with name servers and namespace, that this driver process has found to exist."""


@dataclass(frozen=True)
class TaskReport(WriterCommitMessage):
    """Report of one task about its rows.

    Attributes:
        partition: number of the task.
        rows: rows of the task.
        dead_rows: rows sent to the dead letter topic.
        stored: locations of the messages.
    """

    partition: int
    rows: int
    dead_rows: int
    stored: tuple[Stored, ...]


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchSink":
    """Return the writer of a batch.

    Args:
        options: of the write, as texts.
        schema: of the rows.
        overwrite: whether the user asked for mode `overwrite`.

    Raises:
        ConfigError: an option, a column or the mode is invalid.
        NoRouteError: the topic does not exist, and no broker creates it.
        NoNameServerError: no name server answers.
    """
    if overwrite:
        reason = "a topic cannot be overwritten, only appended to: use mode append"
        raise ConfigError(reason, key="mode")
    return BatchSink(*_checked_write(options, schema))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamSink":
    """Return the writer of a stream.

    Args:
        options: of the write, as texts.
        schema: of the rows.
        overwrite: whether its output mode is `complete`: then every trigger appends the complete
            result again, as for a Kafka topic.

    Raises:
        ConfigError: an option or a column is invalid.
        NoRouteError: the topic does not exist, and no broker creates it.
        NoNameServerError: no name server answers.
    """
    del overwrite  # the topic is not overwritten: the last message of a key has the last result
    return StreamSink(*_checked_write(options, schema))


def _checked_write(
    options: Mapping[str, str], schema: StructType
) -> tuple[SinkOptions, Columns, StructType]:
    parsed = parse_options(options, SinkOptions)
    columns = find_columns(schema, parsed)
    topics = [topic for topic in (parsed.topic, parsed.dead_topic) if topic]
    cluster = (*parsed.nameservers, parsed.namespace)
    unknown = [topic for topic in topics if (cluster, topic) not in _checked]
    if unknown:
        client = SinkClient(parsed)
        try:
            for topic in unknown:
                client.run(client.check_topic(topic))
                _checked.add((cluster, topic))
        finally:
            client.close()
    return parsed, columns, schema


class BatchSink(BatchWriter):
    """Writer of a batch.

    Args:
        options: of the write.
        columns: positions of the columns.
        schema: of the rows.
    """

    def __init__(self, options: SinkOptions, columns: Columns, schema: StructType) -> None:
        self._options = options
        self._columns = columns
        self._schema = schema
        self._query = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Send one task's rows; runs in a worker.

        Raises:
            RocketPyError: a row could not be sent; the notes name it, and the rows that were sent.
        """
        batches = as_batches(iterator, self._schema)
        return _write(batches, self._options, self._columns, f"{self._query}/0")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the sent rows; they are in the topic already."""
        logger.info("batch sent: query=%s sent=%s", self._query, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the rows that stay in the topic although the write failed."""
        logger.warning(_FAILED, self._query, *_leftover(messages))


class StreamSink(StreamWriter):
    """Writer of the batches of a stream.

    Args:
        options: of the write.
        columns: positions of the columns.
        schema: of the rows.
    """

    def __init__(self, options: SinkOptions, columns: Columns, schema: StructType) -> None:
        self._options = options
        self._columns = columns
        self._schema = schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Send one task's rows; runs in a worker.

        Raises:
            RocketPyError: a row could not be sent; the notes name it, and the rows that were sent.
        """
        context = TaskContext.get()
        assert context is not None, "not in a task"
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        batches = as_batches(iterator, self._schema)
        return _write(batches, self._options, self._columns, f"{query}/{batch}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Log the sent rows; they are in the topic already."""
        logger.info("batch sent: batch=%d sent=%s", batchId, summary(messages))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log the rows that stay in the topic although the write failed."""
        logger.warning(_FAILED, batchId, *_leftover(messages))


def _write(
    batches: Iterator[pa.RecordBatch], options: SinkOptions, columns: Columns, batch_id: str
) -> TaskReport:
    context = TaskContext.get()
    assert context is not None, "not in a task"
    partition = context.partitionId()
    if options.rates:
        rate = rate_of(options.rates, partition)
        batches = paced(batches, rate) if rate else batches
    client = client_for(options)
    reader = RowReader(columns, options, f"{batch_id}/{partition}", client.row_ids.next)
    kind = OnewaySender if options.send_mode == "oneway" else Sender
    sender = kind(client, options, reader)
    try:
        _send_all(batches, reader, sender, client)
    except Exception as error:
        client.run(sender.settle())
        sent = _shown(sender.stored)
        error.add_note(f"partition {partition}: before that, {sent} (`_spark_id` {batch_id}/...)")
        raise
    return TaskReport(partition, reader.rows, sender.dead_rows, tuple(sender.stored))


def _send_all(
    batches: Iterator[pa.RecordBatch], reader: RowReader, sender: Sender, client: SinkClient
) -> None:
    """Send rows while the next ones are read and converted."""
    sending: Future[None] | None = None
    for batch in batches:
        for rows in reader.read(batch):
            if sending is not None:
                sending.result()
            sending = client.submit(sender.send(rows))
    if sending is not None:
        sending.result()
    client.run(sender.finish())


def summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    """Describe the sent rows of tasks, by queue.

    Args:
        messages: their reports; None for tasks that failed.
    """
    queues: dict[tuple[str, str, int], Stored] = {}
    for report in messages:
        for stored in report.stored if isinstance(report, TaskReport) else ():
            key = stored.topic, stored.broker_name, stored.queue_id
            queues.setdefault(key, Stored(*key)).merge(stored)
    dead = sum(report.dead_rows for report in messages if isinstance(report, TaskReport))
    more = f"; {dead} of them could not be messages" if dead else ""
    return _shown([queues[key] for key in sorted(queues)]) + more


def _leftover(messages: Sequence[WriterCommitMessage | None]) -> tuple[int, int, str]:
    """Return the number of ended tasks and of all, and the rows that the ended ones stored."""
    ended_count = sum(message is not None for message in messages)
    return ended_count, len(messages), summary(messages)


def _shown(queues: Sequence[Stored]) -> str:
    rows = sum(each.rows for each in queues)
    parts = [str(each) for each in queues[:_SHOWN_QUEUES]]
    if len(queues) > _SHOWN_QUEUES:
        parts.append(f"and {len(queues) - _SHOWN_QUEUES} more queues")
    return f"{rows} rows stored" + (f": {', '.join(parts)}" if parts else "")
