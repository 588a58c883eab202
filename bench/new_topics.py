"""New topics on a broker that has many: how long their senders wait, and everybody else.

    python -m bench.new_topics [--topics 10 1000 10000] [--new 50] [--disk-ms 0] [--together 1]

A broker runs as a separate process. One connection sends to new topics, one behind the other or
several at a time, and another one sends to a topic that is there, every other millisecond: what
holds up the loop holds up that one. `--disk-ms` adds a pause to each fsync of a table's file.
"""

import argparse
import asyncio
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.json_file import JsonFile
from rocketpy.store.files.real_files import RealFiles

_PAUSE_S = 0.002
_TIMEOUT_MS = 60_000


class _SlowFiles(RealFiles):
    """Takes its time to bring a table's file to disk."""

    disk_s = 0.0

    def write_bytes(self, path: Path, data: bytes) -> None:
        super().write_bytes(path, data)
        if ".json" in path.name:
            time.sleep(self.disk_s)


def _config(topics: int) -> BrokerConfig:
    return BrokerConfig(
        broker_name="bench",
        broker_ip1="127.0.0.1",
        listen_port=0,
        max_topics_for_auto_create=topics + 100_000,
    )


async def _serve(directory: Path, topics: int, disk_ms: int) -> None:
    files = _SlowFiles()
    table = TopicTable(
        _config(topics), JsonFile(directory / "config" / "topics.json", files), SystemClock()
    )
    table.load()
    with table.one_write():
        for number in range(topics):
            table.put(TopicConfig(f"Topic-{number:06}-of-the-bench", 4, 4))
    files.disk_s = disk_ms / 1_000
    store = MessageStoreConfig(
        store_path_root_dir=str(directory),
        mapped_file_size_commit_log=64 << 20,
        mapped_file_size_consume_queue=20_000,
    )
    broker = Broker(_config(topics), store_config=store, files=files)
    await broker.start()
    print(broker.port, flush=True)
    await asyncio.Event().wait()


@contextlib.contextmanager
def _broker(topics: int, disk_ms: int) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "bench.new_topics", "--serve", directory]
        command += ["--topics", str(topics), "--disk-ms", str(disk_ms)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
            assert process.stdout is not None
            try:
                yield next(int(line) for line in process.stdout if line.strip().isdigit())
            finally:
                process.kill()


def _send(topic: str) -> RemotingCommand:
    fields = {
        "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
        "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return make_request(RequestCode.SEND_MESSAGE_V2, fields, b"x" * 100)


async def _measure(port: int, new: int, together: int) -> tuple[list[float], list[float]]:
    """Return what each new topic's sender waited, and each of the others meanwhile, in ms."""

    def client() -> RemotingClient:
        return RemotingClient(
            RemotingClientConfig(),
            clock=SystemClock(),
            rng=random.Random(1),
        )

    makes, others = client(), client()
    address = f"127.0.0.1:{port}"

    async def timed(by: RemotingClient, topic: str, into: list[float]) -> None:
        begin = time.perf_counter()
        response = await by.invoke(address, _send(topic), _TIMEOUT_MS)
        into.append((time.perf_counter() - begin) * 1_000)
        assert response.code == 0, response.remark

    async def keep_sending(into: list[float]) -> None:
        while True:
            await timed(others, "Topic-000000-of-the-bench", into)
            await asyncio.sleep(_PAUSE_S)

    await timed(makes, "First", [])
    created: list[float] = []
    waited: list[float] = []
    other = asyncio.create_task(keep_sending(waited))
    await asyncio.sleep(0.2)
    waited.clear()
    for first in range(0, new, together):
        names = [f"New-{number}" for number in range(first, first + together)]
        await asyncio.gather(*(timed(makes, name, created) for name in names))
        await asyncio.sleep(_PAUSE_S)
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    await makes.close()
    await others.close()
    return created, waited


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, nargs="+", default=[10, 1_000, 10_000])
    parser.add_argument("--new", type=int, default=50)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--disk-ms", type=int, default=0)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        asyncio.run(_serve(given.serve, given.topics[0], given.disk_ms))
        return
    print("topics | creation ms: median, most, all | others wait ms: median, 99 %, most")
    for topics in given.topics:
        with _broker(topics, given.disk_ms) as port:
            begin = time.perf_counter()
            created, waited = asyncio.run(_measure(port, given.new, given.together))
            total_ms = (time.perf_counter() - begin) * 1_000
        waited.sort()
        print(
            f"{topics:6} | {statistics.median(created):7.1f} {max(created):7.1f} {total_ms:8.0f}"
            f" | {statistics.median(waited):7.2f} {waited[len(waited) * 99 // 100]:7.2f}"
            f" {waited[-1]:7.2f}"
        )


if __name__ == "__main__":
    main()
