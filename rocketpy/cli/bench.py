"""``rocketpy bench``: how much a cluster takes and gives, with progress bars."""

import asyncio
import time
from array import array
from functools import partial

import click

import rocketpy
from rocketpy.client.send_result import SendResult
from rocketpy.terminal.common import CONTEXT, namesrv_option, output_option, run
from rocketpy.terminal.render import show
from rocketpy.testing.progress import ProgressBars

_REPORT_EVERY = 256
_MIB = 1 << 20


@click.group(
    "bench",
    context_settings=CONTEXT,
    epilog="Example: rocketpy bench send --count 100000 --size 100",
)
def command() -> None:
    """Measure sending and receiving."""


def percentile(ordered: "array[int] | list[int]", share: float) -> int:
    """Return the value that ``share`` of the ordered values do not exceed, 0 when there are none.

    Example:
        >>> percentile([1, 2, 3, 4], 0.5)
        2
    """
    if not ordered:
        return 0
    return ordered[max(0, min(len(ordered) - 1, -int(-share * len(ordered) // 1) - 1))]


class Measured:
    """Counts and times of one run; times in microseconds."""

    def __init__(self, bars: ProgressBars, name: str) -> None:
        self.times_us: array[int] = array("q")
        self.failed = 0
        self.failure: BaseException | None = None
        self.body_bytes = 0
        self._bars = bars
        self._name = name
        self._began_s = time.perf_counter()

    def add(self, time_us: int, body_bytes: int) -> None:
        """Count a message."""
        self.times_us.append(time_us)
        self.body_bytes += body_bytes
        if len(self.times_us) % _REPORT_EVERY == 0:
            self._bars.update(**{self._name: len(self.times_us)})

    def begin(self) -> None:
        """Start the watch."""
        self._began_s = time.perf_counter()

    def row(self) -> dict[str, object]:
        """Stop the watch and return what was measured."""
        seconds = max(1e-9, time.perf_counter() - self._began_s)
        self._bars.update(**{self._name: len(self.times_us)})
        self._bars.close()
        ordered = sorted(self.times_us)
        return {
            "messages": len(ordered),
            "failed": self.failed,
            "seconds": round(seconds, 3),
            "messages_per_s": round(len(ordered) / seconds, 1),
            "mib_per_s": round(self.body_bytes / seconds / _MIB, 3),
            "p50_ms": percentile(ordered, 0.5) / 1000,
            "p99_ms": percentile(ordered, 0.99) / 1000,
            "p999_ms": percentile(ordered, 0.999) / 1000,
        }


def _finish(row: dict[str, object], output: str, failure: BaseException | None) -> int:
    show([row], output)
    if failure is not None:
        raise click.ClickException(f"{row['failed']} messages failed, the first with: {failure}")
    return 0


@command.command("send", epilog="Example: rocketpy bench send --count 100000 --in-flight 256")
@click.option("--topic", default="rocketpy-bench", show_default=True)
@click.option("--count", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--size", type=click.IntRange(1), default=100, show_default=True, help="Body, bytes.")
@click.option(
    "--in-flight", type=click.IntRange(1), default=256, show_default=True, help="Unanswered sends."
)
@namesrv_option
@output_option
def send(*, topic: str, count: int, size: int, in_flight: int, namesrv: str, output: str) -> int:
    """Send messages as fast as their responses come; times are from send to response."""
    measured = Measured(ProgressBars({"sent": count}), "sent")
    row = run(_send(measured, namesrv, topic, count, size, in_flight))
    return _finish(row, output, measured.failure)


async def _send(
    measured: Measured, namesrv: str, topic: str, count: int, size: int, in_flight: int
) -> dict[str, object]:
    def done(began_ns: int, future: asyncio.Future[SendResult]) -> None:
        error = future.exception()
        if error is None:
            measured.add((time.perf_counter_ns() - began_ns) // 1000, size)
            return
        measured.failed += 1
        measured.failure = measured.failure or error

    async with rocketpy.connect(namesrv, group="ROCKETPY_BENCH") as client:
        producer = client.producer(
            max_in_flight=in_flight,
            max_in_flight_bytes=max(64 * _MIB, in_flight * size),
            compress_over_bytes=0,
        )
        body = bytes(at % 95 + 32 for at in range(size))
        await producer.send(topic, body)  # connects, and creates the topic if that is allowed
        measured.begin()
        for _ in range(count):
            await producer.ready()
            if measured.failed >= in_flight:
                break
            began_ns = time.perf_counter_ns()
            producer.send_nowait(topic, body).add_done_callback(partial(done, began_ns))
        await producer.flush()
        return measured.row()


@command.command("consume", epilog="Example: rocketpy bench consume --count 100000")
@click.option("--topic", default="rocketpy-bench", show_default=True)
@click.option("--group", default="ROCKETPY_BENCH", show_default=True)
@click.option("--count", type=click.IntRange(1), default=100_000, show_default=True)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
    show_default=True,
    help="End after so many quiet seconds.",
)
@namesrv_option
@output_option
def consume(
    *, topic: str, group: str, count: int, timeout: float, namesrv: str, output: str
) -> int:
    """Receive messages from the group's offset on; times are from stored to received."""
    measured = Measured(ProgressBars({"received": count}), "received")
    row = run(_consume(measured, namesrv, topic, group, count, timeout))
    return _finish(row, output, measured.failure)


async def _consume(
    measured: Measured, namesrv: str, topic: str, group: str, count: int, timeout_s: float
) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    async with rocketpy.connect(namesrv) as client:
        consumer = client.consumer(topic, group=group, start="earliest")
        async with consumer:
            try:
                async with asyncio.timeout(timeout_s) as limit:
                    async for message in consumer:
                        if not measured.times_us:
                            measured.begin()
                        now_ms = time.time_ns() // 1_000_000
                        waited_ms = now_ms - message.ext.store_timestamp_ms
                        measured.add(max(0, waited_ms) * 1000, len(message.body))
                        await message.ack()
                        if len(measured.times_us) >= count:
                            break
                        limit.reschedule(loop.time() + timeout_s)
            except TimeoutError:
                missing = count - len(measured.times_us)
                measured.failed = missing
                measured.failure = TimeoutError(f"nothing came for {timeout_s:g} s")
            return measured.row()
