"""What one send, batch and pull cost inside the broker: frames in, answers out, no socket.

    python -m bench.micro [--profile send|batch|pull] [-D key=value ...]

Prints microseconds of processor time a message. Useful for comparing two versions of the
code on one machine; a claim about speed needs the real run (`python -m bench`).
"""

import argparse
import asyncio
import cProfile
import gc
import os
import pstats
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from rocketpy.proto.command import encode_command, make_request
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.message import BatchItem, encode_batch
from rocketpy.remoting.connection import Connection
from rocketpy.testing.cluster import LocalCluster

PROPERTIES = "UNIQ_KEY\x017F00000100002A139A1F0000%08X\x02WAIT\x01true\x02"
BIG_STORE = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}


class FakeTransport:
    """Takes what is written and counts it."""

    def __init__(self) -> None:
        self.written_bytes = 0

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)

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


def ext_v2(topic: str, queue_id: int, number: int, *, batch: bool = False) -> dict[str, str]:
    """Header fields of a send as the Java client writes them."""
    values = {
        "a": "load-producer",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
    }
    values |= {"g": str(time.time_ns() // 1_000_000), "h": "0", "i": PROPERTIES % number, "j": "0"}
    return values | {"k": "false", "m": "true" if batch else "false", "n": "broker-a"}


def frame(code: int, ext: dict[str, str], body: bytes, opaque: int) -> bytes:
    """One request frame with a JSON header."""
    command = make_request(code, ext, body)
    command.opaque, command.language = opaque, 0
    return encode_command(command)


def reads(frames: list[bytes], per_read: int) -> list[bytes]:
    """Frames as they would arrive, several a socket read."""
    return [b"".join(frames[at : at + per_read]) for at in range(0, len(frames), per_read)]


def send_reads(topic: str, count: int, size: int, per_read: int) -> list[bytes]:
    body = b"x" * size
    return reads([frame(310, ext_v2(topic, n % 4, n), body, n) for n in range(count)], per_read)


def batch_reads(topic: str, count: int, size: int) -> list[bytes]:
    body = b"x" * size
    frames = []
    for at in range(0, count, 32):
        items = [BatchItem(0, body, (PROPERTIES % n).encode()) for n in range(at, at + 32)]
        ext = ext_v2(topic, at // 32 % 4, at, batch=True)
        frames.append(frame(320, ext, encode_batch(items), at))
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
    connection: Connection, chunks: list[bytes], messages: int, profile: bool
) -> tuple[float, float]:
    """Feed the chunks; return microseconds of processor time a message: all, the kernel's."""
    profiler = cProfile.Profile() if profile else None
    gc.collect()
    if profiler:
        profiler.enable()
    began = os.times()
    for chunk in chunks:
        connection.data_received(chunk)
        while connection.is_reading_paused:  # noqa: ASYNC110 - a slice is over: the loop turns
            await asyncio.sleep(0)
    ended = os.times()
    cpu_s = ended.user - began.user + ended.system - began.system
    kernel_us = (ended.system - began.system) / messages * 1e6
    if profiler:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(28)
    return cpu_s / messages * 1e6, kernel_us


async def run(options: argparse.Namespace) -> None:
    properties = BIG_STORE | dict(define.split("=", 1) for define in options.D)
    with tempfile.TemporaryDirectory(prefix="rocketpy-micro-") as scratch:
        async with LocalCluster(Path(scratch), properties=properties) as cluster:
            cluster.create_topic("micro", 4)
            server: Any = cluster.brokers[0]._servers[0]  # noqa: SLF001 - a look inside, on purpose
            selector = server._selectors[0]  # noqa: SLF001
            connection = selector.new_connection("127.0.0.1")
            connection.connection_made(cast("asyncio.BaseTransport", FakeTransport()))
            gc.freeze()
            count = options.count
            await timed(connection, send_reads("micro", count, 100, 16), count, False)
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
                total, kernel = min(runs)
                print(f"{name:8} {total:6.2f} us a message, {kernel:.2f} of them in the kernel")
                await asyncio.sleep(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.micro", description=__doc__.splitlines()[0] if __doc__ else ""
    )
    parser.add_argument("--profile", choices=["send", "send-1", "send-1k", "batch", "pull"])
    parser.add_argument("--count", type=int, default=32_000)
    parser.add_argument("-D", action="append", default=[], help="key=value for the broker")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
