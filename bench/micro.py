"""Measures the cost of a message inside the broker: frames in, responses out, no socket.

    python -m bench.micro [--profile send|batch|pull|half|end|...] [-D key=value ...]

Prints microseconds of processor time a message. Useful for comparing two versions of the
code on one machine; a claim about speed needs the real run (`python -m bench`).
"""

import argparse
import asyncio
import cProfile
import gc
import pstats
import resource
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, cast

from bench.frames import PROPERTIES, batch_of, ext_v2, frame, reads
from bench.micro_features import (
    Delivery,
    delay_reads,
    end_reads,
    half_reads,
    sql_fill_count,
    sql_fill_reads,
    sql_reads,
)
from rocketpy.broker.broker import Broker
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.testing.cluster import LocalCluster

BIG_STORE = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}


class FakeTransport:
    """Transport that records written bytes on demand."""

    def __init__(self) -> None:
        self.kept: list[bytes] | None = None

    def write(self, data: bytes) -> None:
        if self.kept is not None:
            self.kept.append(bytes(data))

    def writelines(self, buffers: Iterable[bytes]) -> None:
        self.write(b"".join(buffers))

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return ("127.0.0.1", 5) if name == "peername" else None

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_args, **_kwargs: None


PLAIN = ("send", "send-1", "send-1k", "batch", "pull")
FEATURES = ("half", "end", "delay", "deliver", "sql")


class Receiver(Protocol):
    """Connection without a socket."""

    @property
    def is_reading_paused(self) -> bool: ...

    def data_received(self, data: bytes) -> None: ...


def send_reads(topic: str, count: int, size: int, per_read: int) -> list[bytes]:
    body = b"x" * size
    return reads([frame(310, ext_v2(topic, n % 4, n), body, n) for n in range(count)], per_read)


def batch_reads(topic: str, count: int, size: int) -> list[bytes]:
    body = b"x" * size
    frames = []
    for at in range(0, count, 32):
        ext = ext_v2(topic, at // 32 % 4, at, batch=True)
        items = batch_of([PROPERTIES % n for n in range(at, at + 32)], body)
        frames.append(frame(320, ext, items, at))
    return frames


def pull_reads(topic: str, count: int) -> list[bytes]:
    frames = []
    for at in range(0, count, 32):
        header = PullMessageRequestHeader(
            consumer_group="g",
            topic=topic,
            queue_id=0,
            queue_offset=at // 4,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        frames.append(frame(11, header.to_ext(), b"", at))
    return frames


async def timed(
    connection: Receiver, chunks: list[bytes], messages: int, profile: bool
) -> tuple[float, float]:
    """Feed the chunks; return microseconds of processor time a message: all, the kernel's."""
    profiler = cProfile.Profile() if profile else None
    gc.collect()
    if profiler:
        profiler.enable()
    began = resource.getrusage(resource.RUSAGE_SELF)
    for chunk in chunks:
        connection.data_received(chunk)
        while connection.is_reading_paused:  # noqa: ASYNC110 - a slice is over: the loop turns
            await asyncio.sleep(0)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    kernel_s = ended.ru_stime - began.ru_stime
    cpu_s = ended.ru_utime - began.ru_utime + kernel_s
    kernel_us = kernel_s / messages * 1e6
    if profiler:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(28)
    return cpu_s / messages * 1e6, kernel_us


async def run(options: argparse.Namespace) -> None:
    properties = BIG_STORE | dict(define.split("=", 1) for define in options.D)
    with tempfile.TemporaryDirectory(prefix="rocketpy-micro-") as scratch:
        async with LocalCluster(Path(scratch), properties=properties) as cluster:
            for topic in ("micro", "micro-later", "micro-sql"):
                cluster.create_topic(topic, 4)
            broker = cluster.brokers[0]
            server: Any = broker._servers[0]  # noqa: SLF001 - a look inside, on purpose
            selector = server._selectors[0]  # noqa: SLF001
            transport = FakeTransport()
            connection = selector.new_connection("127.0.0.1")
            connection.connection_made(cast("asyncio.BaseTransport", transport))
            gc.freeze()
            for topic in ("micro", "micro-later"):  # the first answer waits for the name server
                await timed(connection, send_reads(topic, options.count, 100, 16), 1, False)
            if options.profile not in FEATURES:
                await run_plain(connection, options)
            if options.profile not in PLAIN:
                await run_features(broker, connection, transport, options)


async def run_plain(connection: Receiver, options: argparse.Namespace) -> None:
    """Measure ordinary messages."""
    count = options.count
    for name, chunks in (
        ("send", send_reads("micro", count, 100, 16)),
        ("send-1", send_reads("micro", count, 100, 1)),
        ("send-1k", send_reads("micro", count, 1024, 16)),
        ("batch", batch_reads("micro", count, 100)),
        ("pull", pull_reads("micro", count)),
    ):
        runs = [await timed(connection, chunks, count, options.profile == name)]
        if options.profile is None:
            runs += [await timed(connection, chunks, count, False) for _ in range(2)]
        report(name, runs)
        await asyncio.sleep(0)


async def run_features(
    broker: Broker, connection: Receiver, transport: FakeTransport, options: argparse.Namespace
) -> None:
    """Measure transactions, delays and filter conditions."""
    count, topic = options.count, "micro-later"
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in FEATURES}

    async def measure(name: str, receiver: Receiver, chunks: list[bytes]) -> None:
        found[name].append(await timed(receiver, chunks, count, options.profile == name))
        await asyncio.sleep(0)  # what waits for a turn of the loop is written

    fill = sql_fill_reads("micro-sql", sql_fill_count(count))
    await timed(connection, fill, count, False)
    for _ in range(3 if options.profile is None else 1):
        kept: list[bytes] = []
        transport.kept = kept
        await measure("half", connection, half_reads(topic, count))
        transport.kept = None
        await measure("end", connection, end_reads(topic, b"".join(kept)))
        delivery = Delivery(broker.parts, topic, count)
        await measure("delay", connection, delay_reads(topic, count))
        time.sleep(1.1)  # noqa: ASYNC251 - the loop, which delivers, too, must not turn
        await measure("deliver", delivery, [b""])
        await measure("sql", connection, sql_reads("micro-sql", count))
    for name in FEATURES:
        report(name, found[name])


def report(name: str, runs: list[tuple[float, float]]) -> None:
    total, kernel = min(runs)
    print(f"{name:8} {total:6.2f} us a message, {kernel:.2f} of them in the kernel")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.micro", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--profile", choices=[*PLAIN, *FEATURES])
    parser.add_argument("--count", type=int, default=32_000)
    parser.add_argument("-D", action="append", default=[], help="key=value for the broker")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
