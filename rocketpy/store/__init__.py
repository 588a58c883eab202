"""Message store: commit log, consume queues and index on disk; no network, no event loop."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pyarrow as pa

    from rocketpy.errors import CorruptRecordError

__all__ = ["to_arrow"]


def to_arrow(  # noqa: PLR0913 - each is one thing a reader may want
    path: str | os.PathLike[str],
    *,
    topics: str | Sequence[str] = (),
    scan: Literal["queue", "log", "index"] = "queue",
    tags: str = "*",
    sql: str = "",
    keys: str | Sequence[str] = (),
    starts: Mapping[tuple[str, int], int] | None = None,
    ends: Mapping[tuple[str, int], int] | None = None,
    start_ms: int | None = None,
    end_ms: int | None = None,
    columns: Sequence[str] | None = None,
    include: Collection[str] = ("properties",),
    style: Literal["rocketmq", "kafka"] = "rocketmq",
    value_format: Literal["binary", "string"] = "binary",
    broker_name: str | None = None,
    commit_log: str = "",
    check_crc: bool = False,
    damaged: Literal["fail", "skip"] = "fail",
    on_damaged: "Callable[[CorruptRecordError], None] | None" = None,
    on_data_loss: Literal["fail", "skip", "mark"] = "fail",
    index_slots: int | None = None,
    with_deleted: bool = False,
    batch_rows: int = 20_000,
    batch_bytes: int = 4 << 20,
) -> "pa.RecordBatchReader":
    """Read messages of a store directory as Arrow record batches, without a broker.

    The directory may be RocketPy's or Apache's, in use or a copy; it is only read. The range of
    messages is fixed when this function returns, so later messages are not included. Messages that
    are in the log and not yet in the files of their queues are included. Needs
    `pip install 'rocketpy-mq[spark]'`.

    Example:
        >>> reader = to_arrow("~/store", topics="flights", tags="AA || UA")  # doctest: +SKIP
        >>> frame = reader.read_pandas()  # doctest: +SKIP
        >>> frame = polars.from_arrow(reader.read_all())  # doctest: +SKIP

    Args:
        path: the store directory (`storePathRootDir`).
        topics: one or several topics or patterns such as `order*`; empty for all except system
            topics; `*` for all.
        scan: how messages are found: `queue` by consume queue, topic by topic in queue order; `log`
            by commit log, in the order of storage; `index` by key.
        tags: tag expression, `a || b`.
        sql: only messages whose properties meet this SQL92 condition, as brokers apply it (Python
            for each row).
        keys: with `scan="index"`: one or several keys or message ids.
        starts: with `scan="queue"`: first offset of a queue, by (topic, queue id).
        ends: with `scan="queue"`: end offset (exclusive) of a queue, by (topic, queue id).
        start_ms: earliest store time, ms since 1970.
        end_ms: end of the store times (exclusive), ms since 1970.
        columns: selected columns; see `rocketpy.arrow.row_schema` for this and the next three.
        include: additional columns: `properties`, `hosts`, `msgId`.
        style: names of columns: `rocketmq` or `kafka`.
        value_format: `binary` or `string` bodies.
        broker_name: value of the column `brokerName`, which the files do not contain; by default
            the directory's name.
        commit_log: directory of the commit log, if not `<path>/commitlog`.
        check_crc: compare each body with its checksum.
        damaged: `fail` at a damaged record, or `skip` it.
        on_damaged: called with the reason for each skipped record.
        on_data_loss: `fail` if offsets of `starts` and `ends` were deleted, or `skip` them;
            with `scan="queue"` also `mark` them: a row for each range, with its first offset and
            the property `LOST_UNTIL`.
        index_slots: with `scan="index"`: hash slots of an index file (`maxHashSlotNum`); by
            default a quarter of its entries.
        with_deleted: with `scan="log"`: include messages of deleted topics, which stay in the log
            until its files expire.
        batch_rows: most rows of a record batch.
        batch_bytes: most bytes of the records of a batch (a single record may be larger). Memory
            use is about three times this, independent of the size of the store.

    Returns:
        `pyarrow.RecordBatchReader` of `rocketpy.arrow.row_schema`. Reading it may raise
        `CorruptRecordError` and `DataLossError`.

    Raises:
        StoreFormatError: the path is not a store directory, or lacks what the scan needs.
        DataLossError: requested offsets were deleted.
        ValueError: an unknown topic, column or option; an empty tag expression.
        ExpressionError: `sql` is not a valid condition.
    """
    from rocketpy.arrow import row_schema  # noqa: PLC0415 - servers run without numpy
    from rocketpy.store.scan.plan import ScanRequest, batch_reader  # noqa: PLC0415 - the same
    from rocketpy.store.scan.request import QueueName  # noqa: PLC0415 - the same

    root = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 - a str in any case
    wanted = ScanRequest(
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        tags=tags,
        sql=sql,
        keys=(keys,) if isinstance(keys, str) else tuple(keys),
        starts={QueueName(*queue): offset for queue, offset in (starts or {}).items()},
        ends={QueueName(*queue): offset for queue, offset in (ends or {}).items()},
        start_ms=start_ms,
        end_ms=end_ms,
        on_data_loss=on_data_loss,
        index_slots=index_slots,
        with_deleted=with_deleted,
        schema=row_schema(columns=columns, include=include, style=style, value_format=value_format),
        broker_name=os.path.basename(root) if broker_name is None else broker_name,  # noqa: PTH119
        check_crc=check_crc,
        damaged=damaged,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
    )
    return batch_reader(root, commit_log, wanted, scan, on_damaged)
