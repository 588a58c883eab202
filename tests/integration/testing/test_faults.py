"""Brokers of a cluster in this process that are frozen, slow, or refuse, over real sockets."""

import socket
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import rocketpy
import rocketpy.sync
from rocketpy.errors import ConnectError, RequestTimeoutError
from rocketpy.testing.cluster import ClusterThread


@pytest.fixture
def two(tmp_path: Path) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path, brokers=2) as cluster:
        cluster.create_topic("t", queues=1)
        yield cluster


def queue_of(broker: str) -> rocketpy.MessageQueue:
    return rocketpy.MessageQueue("t", broker, 0)


def test_frozen_broker_is_silent_and_resumes(two: ClusterThread) -> None:
    with rocketpy.sync.connect(two.namesrv) as client:
        producer = client.producer()
        producer.send("t", b"before", queue=queue_of("broker-a"))
        two.freeze_broker()
        held = producer.send_nowait("t", b"held", queue=queue_of("broker-a"), timeout=30)
        with pytest.raises(RequestTimeoutError):
            producer.send("t", b"silence", queue=queue_of("broker-a"), timeout=0.2)
        assert producer.send("t", b"x", queue=queue_of("broker-b")).status.name == "SEND_OK"
        with rocketpy.sync.connect(two.namesrv, group="new") as other:  # connects, hears nothing
            late = other.producer()
            with pytest.raises(RequestTimeoutError):
                late.send("t", b"silence", queue=queue_of("broker-a"), timeout=0.2)
        assert not held.done()
        two.freeze_broker(frozen=False)
        assert held.result(30).queue.broker_name == "broker-a"
        producer.send("t", b"after", queue=queue_of("broker-a"))


def test_refusing_broker_is_skipped_and_used_again(two: ClusterThread) -> None:
    with rocketpy.sync.connect(two.namesrv) as client:
        producer = client.producer()
        producer.send("t", b"before", queue=queue_of("broker-a"))
        two.refuse_broker()
        address = two.broker_addresses[0].rpartition(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address[0], int(address[2])), timeout=5)
        sent = [producer.send("t", b"x") for _ in range(4)]
        assert {each.queue.broker_name for each in sent} == {"broker-b"}
        with pytest.raises(ConnectError):
            producer.send_nowait("t", b"x", queue=queue_of("broker-a")).result(30)
        two.refuse_broker(refused=False)
        producer.send("t", b"after", queue=queue_of("broker-a"), timeout=30)


def test_slow_broker_gets_data_of_clients_later(two: ClusterThread) -> None:
    with rocketpy.sync.connect(two.namesrv) as client:
        producer = client.producer()
        producer.send("t", b"before", queue=queue_of("broker-a"))
        two.slow_broker(timedelta(milliseconds=400))
        began = time.monotonic()
        futures = [
            producer.send_nowait("t", b"%d" % number, queue=queue_of("broker-a"), timeout=30)
            for number in range(3)
        ]
        offsets = [each.result(30).offset for each in futures]
        assert time.monotonic() - began >= 0.4
        assert offsets == sorted(offsets)
        # Far longer than the time that a client gives responses after a stall of its machine.
        two.slow_broker(timedelta(seconds=2))
        with pytest.raises(RequestTimeoutError):
            producer.send("t", b"too late", queue=queue_of("broker-a"), timeout=0.1)
        two.slow_broker(0)
        producer.send("t", b"after", queue=queue_of("broker-a"))


def test_faults_end_with_a_restart_and_do_not_keep_a_cluster_from_stopping(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, rocketpy.sync.connect(cluster.namesrv) as client:
        producer = client.producer()
        producer.send("t", b"x")
        cluster.freeze_broker()
        cluster.slow_broker(60)
        cluster.restart_broker()
        producer.send("t", b"x", timeout=30)
        cluster.refuse_broker()
        cluster.restart_broker()
        producer.send("t", b"x", timeout=30)
        cluster.freeze_broker()
        began = time.monotonic()
        cluster.stop()
        assert time.monotonic() - began < 20
