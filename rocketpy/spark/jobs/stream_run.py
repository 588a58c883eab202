"""Running a stream with `foreachBatch`: SIGTERM and SIGINT end it between two batches."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from rocketpy.spark.jobs.session import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHECKPOINT: Final = "_checkpoint"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Take = Callable[["DataFrame", int], None]


class Stopping(Exception):  # noqa: N818 - no error
    """Raised in a batch that is not to begin; Spark does it at the next start."""


class BatchGate:
    """Lets batches through until a signal comes; the batch in hand is finished.

    Args:
        take: does a batch.
    """

    def __init__(self, take: Take) -> None:
        self._take = take
        self.is_busy: bool = False
        self.signal: int | None = None

    def close(self, number: int, _: FrameType | None = None) -> None:
        """Let no more batches through; a handler of signals."""
        self.signal = number

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        """Do a batch, unless a signal has come."""
        self.is_busy = True  # before the look at the signal: see run_stream
        try:
            if self.signal is not None:
                raise Stopping(f"batch {batch} is done at the next start")
            self._take(frame, batch)
        finally:
            self.is_busy = False


def run_stream(stream: "DataFrame", take: Take, root: Path, every_s: int | None) -> int | None:
    """Run a query to its end, or until a signal comes.

    Args:
        stream: what is read.
        take: does a batch; when it has returned, the batch need not be done again.
        root: the checkpoint is in it.
        every_s: seconds between batches; None: what there is now, then end.

    Returns:
        The signal that ended it early; the batch it came in is finished. None without one.

    Raises:
        JobError: the query failed.
    """
    gate = BatchGate(take)
    writer = stream.writeStream.foreachBatch(gate)
    writer = writer.option("checkpointLocation", str(root / CHECKPOINT))
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    with _handled_by(gate), plain_errors():
        query = writer.start()
        try:
            while not query.awaitTermination(1):
                # Busy is set before a batch looks at the signal: one that begins now ends itself.
                if gate.signal is not None and not gate.is_busy:
                    query.stop()
        except Exception:
            if gate.signal is None or not _is_stopped(query.exception()):
                raise
    return gate.signal


def _is_stopped(error: Exception | None) -> bool:
    return error is not None and Stopping.__name__ in str(error)


@contextmanager
def _handled_by(gate: BatchGate) -> Iterator[None]:
    before = {each: signal.signal(each, gate.close) for each in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(stopped_by: int | None, every_s: int | None) -> int:
    """Return 0 for a job that did what it was to do, 128 and the signal for one cut short.

    A job that goes on until it is stopped (`every_s`) has done what it was to do.
    """
    return 0 if stopped_by is None or every_s is not None else 128 + stopped_by
