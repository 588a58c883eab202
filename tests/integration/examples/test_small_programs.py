"""The small programs in examples/, started as their users start them."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
from rocketpy.runtime.logs import through_logging
from rocketpy.sync import connect
from rocketpy.testing.cluster import ClusterThread
from tests.ports import free_port

EXAMPLES = Path(__file__).parents[3] / "examples"
WAIT_S = 60.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterThread]:
    levels = {"messageDelayLevel": "1s 1s 1s 1s 1s"}
    with through_logging(), ClusterThread(tmp_path / "cluster", properties=levels) as running:
        running.create_topic("jobs")
        yield running


def start(cluster: ClusterThread, program: str, *arguments: str) -> "subprocess.Popen[str]":
    words = [str(EXAMPLES / program), "--name-server", cluster.namesrv, *arguments]
    return subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)


def lines(process: "subprocess.Popen[str]", count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(count)]


def stop(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, out


def test_payment_that_comes_twice_is_booked_once(cluster: ClusterThread, tmp_path: Path) -> None:
    database = tmp_path / "books.db"
    with connect(cluster.namesrv, group="bank") as client:
        producer = client.producer()
        for account, amount in (("alice", b"10"), ("bob", b"5"), ("alice", b"7"), ("eve", b"x")):
            producer.send("payments", amount, keys=[account], order_key="one queue")
    with start(cluster, "exactly_once.py", "--database", str(database)) as first:
        booked = lines(first, 3)
        first.kill()
    assert sorted(booked) == ["booked alice 10", "booked alice 7", "booked bob 5"]

    # Another group begins where the first began: every message comes once more.
    program = tmp_path / "again.py"
    text = (EXAMPLES / "exactly_once.py").read_text()
    program.write_text(text.replace('group="books"', 'group="books2"'))
    with start(cluster, str(program), "--database", str(database)) as second:
        known = lines(second, 3)
        stop(second)
    assert sorted(known) == ["known alice 10", "known alice 7", "known bob 5"]
    books = sqlite3.connect(database)
    assert dict(books.execute("SELECT account, amount FROM balance")) == {"alice": 17, "bob": 5}
    books.close()


def test_jobs_are_done_later_again_and_buried(cluster: ClusterThread) -> None:
    with start(cluster, "job_queue.py", "work") as worker:
        assert lines(worker, 1) == ["working"]
        submitted = subprocess.run(
            [
                sys.executable, str(EXAMPLES / "job_queue.py"), "--name-server", cluster.namesrv,
                "submit", "mail", "--to", "ann@example.org", "--delay", "1",
            ],
            capture_output=True, text=True, timeout=WAIT_S, check=True,
        )  # fmt: skip
        assert submitted.stdout.strip()
        assert lines(worker, 1) == ["mail to ann@example.org"]
        with connect(cluster.namesrv, group="shop") as client:
            producer = client.producer(serializer=rocketpy.json)
            producer.send("jobs", {"a": 2, "b": 3}, tag="add")
            assert lines(worker, 1) == ["2 + 3 = 5"]
            producer.send("jobs", {"to": "nobody"}, tag="mail")
            tries = [f"mail failed, try {n}: 'nobody' is no address" for n in range(1, 5)]
            assert lines(worker, 4) == tries
            producer.send("jobs", {}, tag="unknown")
        deadline = time.monotonic() + WAIT_S
        while cluster.message_count("%DLQ%workers") < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert cluster.message_count("%DLQ%workers") == 2
        stop(worker)


def test_worker_bills_paid_orders(cluster: ClusterThread) -> None:
    cluster.create_topic("orders")
    cluster.create_topic("bills")
    words = [sys.executable, str(EXAMPLES / "worker.py"), cluster.namesrv]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as worker:
        with connect(cluster.namesrv, group="shop") as client:
            producer = client.producer(serializer=rocketpy.json)
            producer.send("orders", {"id": "o1", "amount": 9}, tag="made")
            producer.send("orders", {"id": "o2", "amount": 9}, tag="paid")
            with client.consumer(
                "bills", group="post", start="earliest", serializer=rocketpy.json
            ) as consumer:
                message = consumer.getone(timeout=WAIT_S)
        assert message is not None
        assert (message.decode(), message.keys) == ({"order": "o2", "amount": 9}, ["o2"])
        stop(worker)


def test_http_service_answers_when_a_message_is_stored(cluster: ClusterThread) -> None:
    cluster.create_topic("orders")
    with start(cluster, "http_service.py", "--port", "0") as service:
        [address] = lines(service, 1)

        def ask(path: str, body: bytes | None = None) -> tuple[int, dict[str, object]]:
            try:
                with urllib.request.urlopen(f"{address}{path}", body, timeout=WAIT_S) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as refusal:
                with refusal:
                    return refusal.code, json.load(refusal)

        assert ask("/health") == (200, {"ok": True, "failures": {}})
        status, answer = ask("/orders", b'{"item": "book"}')
        assert (status, list(answer)) == (202, ["id"])
        assert cluster.message_count("orders") == 1
        assert ask("/orders", b"{")[0] == 400
        assert ask("/nowhere")[0] == 404
        status, answer = ask("/orders", json.dumps("x" * 60_000).encode())
        assert status == 202
        stop(service)


def ask(address: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    """Return the status and the JSON of the answer to a request."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}{path}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def first_health(service: "subprocess.Popen[str]", address: str) -> tuple[int, dict[str, object]]:
    """Wait until a service listens, and return its health."""
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            return ask(address, "/health")
        except urllib.error.URLError:
            assert service.poll() is None
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_fastapi_service_answers_when_a_message_is_stored(cluster: ClusterThread) -> None:
    cluster.create_topic("orders")
    port = free_port()
    address = f"http://127.0.0.1:{port}"

    with start(cluster, "fastapi_service.py", "--port", str(port)) as service:
        assert first_health(service, address) == (200, {"ok": True, "failures": {}})
        status, answer = ask(address, "/orders", {"item": "book", "count": 2})
        assert (status, list(answer)) == (202, ["id"])
        assert ask(address, "/orders", {"count": 2})[0] == 422
        assert ask(address, "/nowhere")[0] == 404
        assert cluster.message_count("orders") == 1
        with (
            connect(cluster.namesrv) as client,
            client.consumer("orders", group="readers", start="earliest") as consumer,
        ):
            message = consumer.getone(timeout=WAIT_S)
        assert message is not None
        assert (message.id, json.loads(message.body)) == (
            answer["id"],
            {"item": "book", "count": 2},
        )
        service.send_signal(signal.SIGTERM)
        # uvicorn ends in good order, then by the signal.
        assert service.wait(WAIT_S) in {0, -signal.SIGTERM}


def test_fastapi_worker_handles_what_it_accepts(cluster: ClusterThread) -> None:
    for topic in ("orders", "parcels"):
        cluster.create_topic(topic)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with start(cluster, "fastapi_worker.py", "--port", str(port)) as service:
        assert first_health(service, address) == (200, {"ok": True, "failures": {}})
        for count in (2, 3):
            assert ask(address, "/orders", {"item": "book", "count": count})[0] == 202
        assert ask(address, "/orders", {"item": "book", "count": 0})[0] == 422
        end_s = time.monotonic() + WAIT_S
        while ask(address, "/shipped")[1] != {"book": 5}:
            assert time.monotonic() < end_s
            time.sleep(0.05)
        with (
            connect(cluster.namesrv, group="shop") as client,
            client.consumer(
                "parcels", group="readers", start="earliest", serializer=rocketpy.json
            ) as consumer,
        ):
            messages = [consumer.getone(timeout=WAIT_S) for _ in range(2)]
        counts = sorted(each.decode()["count"] for each in messages if each is not None)
        assert counts == [2, 3]
        service.send_signal(signal.SIGTERM)
        assert service.wait(WAIT_S) in {0, -signal.SIGTERM}
