"""`rocketpy group dlq`: lists letters, shows one, and sends them back once."""

import json
import time
from collections.abc import Callable

import rocketpy
from rocketpy.sync import ReceivedMessage, connect
from rocketpy.testing.cluster import ClusterThread
from tests.integration.cli.conftest import Cli


def die(cluster: ClusterThread, topic: str, *bodies: bytes) -> list[str]:
    """Send messages, and have the group `g` give them up; returns their ids."""
    with connect(cluster.namesrv) as client:
        producer = client.producer()
        ids = [
            producer.send(
                topic, body, tag="paid", keys=["k1", "k2"], headers={"shop": "west"}
            ).msg_id
            for body in bodies
        ]
        with client.pop_consumer(topic, group="g", start="earliest") as consumer:
            for _ in bodies:
                message: ReceivedMessage = next(iter(consumer))
                message.nack(-1)
    assert cluster.message_count("%DLQ%g") >= len(bodies)
    return ids


def test_letters_are_listed_shown_and_requeued_once(
    cli: Cli, rocketpy_cluster: ClusterThread, stdin: Callable[[bytes], None]
) -> None:
    cli("topic", "create", "orders", "--queues", "1")
    first, second = die(rocketpy_cluster, "orders", b"one", b"\xff\x00")
    rows = cli.json("group", "dlq", "g")
    assert [row["id"] for row in rows] == [first, second]
    assert {row["topic"] for row in rows} == {"orders"}
    assert rows[0]["time"].endswith("Z")
    assert first in cli("group", "dlq", "g")
    [shown] = cli.json("group", "dlq", "g", "--show", first)
    assert (shown["body"], shown["properties"]["shop"]) == ("one", "west")
    assert "base64:/wA=" in cli("group", "dlq", "g", "--show", second)

    requeue = ("group", "dlq", "g", "--requeue")
    [row] = cli.json(*requeue, first, "--dry-run")
    assert row["result"] == "would be requeued"
    stdin(b"n\n")
    cli(*requeue, "--all", code=1)
    assert "Send 2 dead letters of group g back to orders?" in cli.err
    assert rocketpy_cluster.message_count("orders") == 2, "nothing was sent"

    [row] = cli.json(*requeue, first, "--yes")
    assert (row["id"], row["result"], row["topic"]) == (first, "requeued", "orders")
    done = cli.json(*requeue, "--all", "--yes", "--rate", "1000")
    assert [row["result"] for row in done] == ["requeued before", "requeued"]
    done = cli.json(*requeue, "--all", "--yes")
    assert [row["result"] for row in done] == ["requeued before"] * 2
    assert rocketpy_cluster.message_count("orders") == 4

    copy, binary = cli.json("topic", "peek", "orders")[2:]
    assert (copy["body"], copy["tag"], copy["keys"]) == ("one", "paid", ["k1", "k2"])
    assert (copy["msg_id"], copy["reconsume_times"]) == (first, 0)
    own = {name: value for name, value in copy["properties"].items() if name.islower()}
    assert own == {"shop": "west"}
    assert copy["properties"]["REQUEUED_FROM"] == "g/broker-a/0/0"
    assert not {"RETRY_TOPIC", "DLQ_ORIGIN_TOPIC"} & copy["properties"].keys()
    assert (binary["body"], binary["body_encoding"]) == ("/wA=", "base64")


def test_letter_says_why_and_the_requeued_message_does_not(
    cli: Cli, rocketpy_cluster: ClusterThread
) -> None:
    cli("topic", "create", "orders", "--queues", "1")

    def refuse(message: ReceivedMessage) -> None:
        raise rocketpy.ToDLQ("no such shop")

    with connect(rocketpy_cluster.namesrv) as client:
        client.producer().send("orders", b"one", order_key="o1")
        with client.consumer("orders", group="g", start="earliest", handler=refuse):
            deadline = time.monotonic() + 60
            while not rocketpy_cluster.message_count("%DLQ%g") and time.monotonic() < deadline:
                time.sleep(0.05)
    [row] = cli.json("group", "dlq", "g")
    assert (row["exception"], row["reason"]) == ("ToDLQ", "no such shop")
    assert row["failed"].endswith("Z")
    assert row["member"]
    cli("group", "dlq", "g", "--requeue", "--all", "--yes")
    copy = cli.json("topic", "peek", "orders")[1]["properties"]
    assert copy["__SHARDINGKEY"] == "o1"
    assert [name for name in copy if name.startswith("DLQ_")] == []


def test_letter_of_a_requeued_message_is_requeued_again(
    cli: Cli, rocketpy_cluster: ClusterThread
) -> None:
    cli("topic", "create", "orders", "--queues", "1")
    die(rocketpy_cluster, "orders", b"one")
    requeue = ("group", "dlq", "g", "--requeue", "--all", "--yes")
    assert [row["result"] for row in cli.json(*requeue)] == ["requeued"]
    with connect(rocketpy_cluster.namesrv) as client:
        with client.pop_consumer("orders", group="g", start="earliest") as consumer:
            next(iter(consumer)).nack(-1)
    assert [row["result"] for row in cli.json(*requeue)] == ["requeued before", "requeued"]
    assert rocketpy_cluster.message_count("orders") == 3


def test_wrong_use_and_missing_letters(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    cli("group", "create", "g")
    assert cli.json("group", "dlq", "g") == []
    assert cli("group", "dlq", "g", "--requeue", "--all", "--yes", "-o", "json") == "[]\n"
    assert cli("group", "dlq", "g", "--show", "AB", "-o", "json", code=1) == "[]\n"
    assert "no dead letter with the id AB" in cli.err
    cli("group", "dlq", "g", "--requeue", "AB", "--yes", code=1)
    cli("group", "dlq", "absent", code=1)
    assert "group absent does not exist" in cli.err
    for wrong in (
        ["--requeue"], ["--all"], ["AB"], ["--dry-run"], ["--rate", "5"],
        ["--requeue", "--all", "AB"], ["--requeue", "--all", "--rate", "0"],
    ):  # fmt: skip
        cli("group", "dlq", "g", *wrong, code=2)


def test_letter_of_a_deleted_topic_is_reported(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    cli("topic", "create", "orders", "--queues", "1")
    die(rocketpy_cluster, "orders", b"one")
    cli("topic", "delete", "orders", "--yes")
    [row] = json.loads(
        cli("group", "dlq", "g", "--requeue", "--all", "--yes", "-o", "json", code=1)
    )
    assert (row["result"], row["error"]) == ("failed", "[17] topic orders does not exist")
    assert "1 letters were not requeued" in cli.err
