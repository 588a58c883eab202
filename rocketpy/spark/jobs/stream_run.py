"""Runs a stream with `foreachBatch`, and ends it between two batches on a stop signal."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from rocketpy.runtime.stop_signals import stop_signals
from rocketpy.spark.jobs.session import plain_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHECKPOINT: Final = "_checkpoint"

Take = Callable[["DataFrame", int], None]


class Stopping(Exception):  # noqa: N818 - no error
    """Raised instead of starting a batch; Spark repeats the batch at the next start."""


class BatchGate:
    """Runs batches until a signal arrives; the current batch is finished.

    Args:
        take: processes a batch.
    """

    def __init__(self, take: Take) -> None:
        self._take = take
        self.is_busy: bool = False
        self.signal: int | None = None

    def close(self, number: int, _: FrameType | None = None) -> None:
        """Reject further batches; used as signal handler."""
        self.signal = number

    def __call__(self, frame: "DataFrame", batch: int) -> None:
        """Process a batch, unless a signal has arrived."""
        self.is_busy = True  # set before the signal is checked: see run_stream
        try:
            if self.signal is not None:
                raise Stopping(f"batch {batch} is left for the next start")
            self._take(frame, batch)
        finally:
            self.is_busy = False


def run_stream(
    stream: "DataFrame", take: Take, root: Path | str, every_s: int | None
) -> int | None:
    """Run a query to its end, or until a signal arrives.

    Args:
        stream: the input.
        take: processes a batch; its effects are durable when it returns.
        root: directory of the checkpoint; a URL if Spark alone writes there.
        every_s: seconds between batches; None: process the current messages, then end.

    Returns:
        The signal that ended the query early, after its current batch; None without one.

    Raises:
        JobError: the query failed.
    """
    gate = BatchGate(take)
    writer = stream.writeStream.foreachBatch(gate)
    writer = writer.option("checkpointLocation", f"{root}/{CHECKPOINT}")
    if every_s is None:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{every_s} seconds")
    with _handled_by(gate), plain_errors():
        query = writer.start()
        try:
            while not query.awaitTermination(1):
                # A batch sets busy before it checks the signal, so one that starts now ends itself.
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
    before = {each: signal.signal(each, gate.close) for each in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_code(stopped_by: int | None, every_s: int | None) -> int:
    """Return 0 for a completed job, 128 plus the signal number for an interrupted one.

    A periodic job (`every_s`) is complete when it is stopped.
    """
    return 0 if stopped_by is None or every_s is not None else 128 + stopped_by
