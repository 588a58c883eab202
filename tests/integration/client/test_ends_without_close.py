"""Programs that end without closing their client: their last sends are stored, or reported."""

import subprocess
import sys
from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread

BLOCKING = """
import sys, rocketpy.sync
client = rocketpy.sync.connect(sys.argv[1], group="g")
client.start()
producer = client.producer(linger=float(sys.argv[2]))
for number in range(500):
    producer.send_nowait("t", b"%d" % number)
"""
ASYNC = """
import asyncio, sys, rocketpy
async def main():
    client = await rocketpy.connect(sys.argv[1], group="g")
    producer = client.producer()
    for number in range(500):
        producer.send_nowait("t", b"%d" % number)
    return client
asyncio.run(main())
"""


def end_of(program: str, name_server: str, linger: float = 0) -> str:
    arguments = [sys.executable, "-c", program, name_server, str(linger)]
    ended = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    return ended.stderr


@pytest.mark.parametrize("linger", [0, 0.2])
def test_blocking_sends_are_stored_at_the_end_of_the_program(tmp_path: Path, linger: float) -> None:
    with ClusterThread(tmp_path) as cluster:
        name_server = cluster.namesrv.replace("127.0.0.1", "localhost")  # is looked up in a thread
        assert end_of(BLOCKING, name_server, linger) == ""
        assert cluster.message_count("t") == 500


def test_blocking_sends_without_a_broker_are_reported_once() -> None:
    assert end_of(BLOCKING, "127.0.0.1:1").count("unfinished=0 failed=500") == 1


def test_async_sends_whose_loop_has_ended_are_reported_once(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster:
        assert end_of(ASYNC, cluster.namesrv).count("unfinished=500 failed=0") == 1
