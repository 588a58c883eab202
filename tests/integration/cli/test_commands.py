"""Every command for daily use, against a real name server and a real broker in this process."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.sync import connect
from rocketpy.testing.cluster import ClusterThread
from tests.integration.cli.conftest import Cli

BROKER = "broker-a"


def test_send_consume_and_lag(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    created = cli.json("topic", "create", "orders", "--queues", "4")
    assert [(row["topic"], row["broker"], row["result"]) for row in created] == [
        ("orders", BROKER, "created")
    ]
    [sent] = cli.json(
        "send", "orders", "hello", "--tag", "paid", "--key", "o1", "--header", "shop=west"
    )
    assert (sent["status"], sent["topic"], sent["broker"]) == ("SEND_OK", "orders", BROKER)
    assert rocketpy_cluster.message_count("orders") == 1

    line = cli("consume", "orders", "--group", "readers", "--from", "earliest", "--max", "1")
    assert line.strip() == f"{BROKER}:{sent['queue']}+0  paid  [o1]  hello"
    groups = {row["group"]: row for row in cli.json("group", "list")}
    assert groups["readers"]["lag"] == 0

    cli("send", "orders", "again", "--count", "3", "--order-key", "k")
    rows = cli.json("group", "lag", "readers", "--topic", "orders")
    assert sum(row["lag"] for row in rows) == 3
    assert [row["queue"] for row in rows] == [0, 1, 2, 3]
    table = cli("group", "lag", "readers", "--topic", "orders")
    assert "3 messages behind" in table
    assert table.splitlines()[0].split()[:4] == ["TOPIC", "BROKER", "QUEUE", "BROKER_OFFSET"]


def test_consume_as_json_is_one_object_a_line(cli: Cli) -> None:
    cli("topic", "create", "t", "--queues", "1")
    cli("send", "t", "a\x1b[31m", "--count", "2", "--tag", "x")
    out = cli(
        "consume", "t", "--group", "g", "--from", "earliest", "--max", "2", "--filter", "x",
        "-o", "json",
    )  # fmt: skip
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["offset"] for row in rows] == [0, 1]
    assert rows[0]["body"] == "a\x1b[31m"
    assert rows[0]["tag"] == "x"
    assert rows[0]["properties"]["TAGS"] == "x"


def test_consume_timeout_without_messages_exits_with_1(cli: Cli) -> None:
    cli("topic", "create", "empty")
    assert not cli("consume", "empty", "--group", "g", "--timeout", "0.2")
    cli("consume", "empty", "--group", "g", "--timeout", "0.2", "--max", "1", code=1)
    assert "0 of 1 messages arrived; then none for 0.2 s" in cli.err
    for more in ([], ["--max", "1"]):
        cli("consume", "nowhere", "--group", "g", "--timeout", "0.2", *more, code=1)
        assert "topic nowhere does not exist" in cli.err


def test_send_from_standard_input(cli: Cli, stdin: Callable[[bytes], None]) -> None:
    cli("topic", "create", "t", "--queues", "1")
    stdin(b"one\ntwo\r\n\nthree\n")
    assert len(cli.json("send", "t", "--lines", "--queue", "0")) == 3
    stdin(b"\xff\x00whole")
    cli("send", "t", "-", "--queue", f"{BROKER}:0")
    for absent in ("7", f"{BROKER}:1", "broker-x:0"):
        cli("send", "t", "x", "--queue", absent, code=1)
        assert f"has no queue {absent}; its queues are {BROKER}:0 to {BROKER}:0" in cli.err
    rows = cli.json("topic", "peek", "t")
    assert [row["body"] for row in rows[:3]] == ["one", "two", "three"]
    assert (rows[3]["body"], rows[3]["body_encoding"]) == ("/wB3aG9sZQ==", "base64")
    newest = cli.json("topic", "peek", "t", "--newest", "--max", "1", "--queue", f"{BROKER}:0")
    assert [row["offset"] for row in newest] == [3]
    assert "sent 100 messages to t" in cli("send", "t", "x", "--count", "100")


def test_top_once(cli: Cli) -> None:
    cli("topic", "create", "t", "--queues", "2")
    cli("send", "t", "x", "--count", "3")
    cli("consume", "t", "--group", "g", "--from", "earliest", "--max", "1")
    shown = cli.json("top", "--once")
    assert (shown["error"], set(shown)) == ("", {"time", "error", "brokers", "topics", "groups"})
    assert shown["topics"][0] | {"in_per_s": 0} == {
        "topic": "t", "in_per_s": 0, "messages": 3, "queues": 2,
    }  # fmt: skip
    [group] = [row for row in shown["groups"] if row["group"] == "g"]
    assert group["lag"] == 2
    page = cli("top", "--once")
    assert page.startswith(cli.namesrv)
    assert [line for line in page.splitlines() if line.startswith("BROKER ")]
    assert [line for line in page.splitlines() if line.split()[:1] == ["t"]]
    cli("top", "--once", "-n", "127.0.0.1:1", code=1)
    cli("top", "-n", "127.0.0.1:1", code=1)


def test_topics(cli: Cli) -> None:
    cli("topic", "create", "a", "--queues", "2", "--attribute", "message.type=FIFO", "--order")
    listed = {row["topic"]: row for row in cli.json("topic", "list")}
    assert listed["a"] == {
        "topic": "a", "queues": 2, "perm": "RW-", "order": True, "brokers": [BROKER],
    }  # fmt: skip
    assert "TBW102" not in listed
    assert "TBW102" in {row["topic"] for row in cli.json("topic", "list", "--all")}

    [row] = cli.json("topic", "update", "a", "--perm", "r", "--queues", "3")
    assert (row["read_queues"], row["write_queues"], row["perm"]) == (3, 3, "R--")
    [row] = cli.json("topic", "route", "a")
    assert (row["broker"], row["write_queues"], row["perm"]) == (BROKER, 3, "R--")
    rows = cli.json("topic", "status", "a")
    assert [(row["queue"], row["messages"], row["last_stored"]) for row in rows] == [
        (0, 0, ""), (1, 0, ""), (2, 0, ""),
    ]  # fmt: skip
    assert cli.json("topic", "peek", "a") == []

    assert cli.json("topic", "delete", "a", "--yes")[0]["result"] == "deleted"
    cli("topic", "route", "a", code=1)
    assert cli.err == "rocketpy: topic a does not exist\n"
    assert cli.err.count("\n") == 1
    cli("topic", "delete", "a", "--yes", code=1)
    assert "topic a does not exist" in cli.err
    cli("topic", "update", "a", code=2)
    cli("topic", "create", "no blanks", code=2)


def test_topic_create_changes_an_existing_topic_with_update_only(cli: Cli) -> None:
    cli("topic", "create", "t", "--queues", "4")
    assert cli.json("topic", "create", "t", "--queues", "4")[0]["result"] == "exists"
    cli("topic", "create", "t", "--queues", "2", code=1)
    assert f"topic t exists on {BROKER} with queues 4, read queues 4: nothing was" in cli.err
    cli("topic", "create", "t", "--queues", "4", "--perm", "r", code=1)
    assert "with perm RW-" in cli.err
    assert cli.json("topic", "route", "t")[0]["write_queues"] == 4
    cli("topic", "create", "t", "--queues", "4", "--attribute", "message.type=FIFO", code=1)
    assert "with message.type unset: nothing was" in cli.err
    [row] = cli.json("topic", "create", "t", "--queues", "2", "--update")
    assert row["result"] == "changed"
    assert cli.json("topic", "route", "t")[0]["write_queues"] == 2


def test_topic_with_fewer_queues_keeps_its_messages_readable(
    cli: Cli, stdin: Callable[[bytes], None]
) -> None:
    cli("topic", "create", "t", "--queues", "4")
    for queue in range(4):
        cli("send", "t", f"body{queue}", "--queue", str(queue))
    [row] = cli.json("topic", "update", "t", "--queues", "2")
    assert (row["write_queues"], row["read_queues"]) == (2, 4)
    assert "topic t is still read from 4 queues" in cli.err
    follow = ("consume", "t", "--no-group", "--end", "--from", "earliest")
    assert len(cli(*follow).splitlines()) == 4
    fewer: list[tuple[str, ...]] = [
        ("topic", "update", "t", "--read-queues", "2"),
        ("topic", "create", "t", "--queues", "2", "--update"),
    ]
    for words in fewer:
        stdin(b"n\n")
        cli(*words, code=1)
        assert "Read 2 queues only, so that 2 messages of topic t in queues from 2 on" in cli.err
        assert cli.json("topic", "route", "t")[0]["read_queues"] == 4
    [row] = cli.json(*fewer[0], "--yes")
    assert (row["read_queues"], cli.err) == (2, "")
    assert len(cli(*follow).splitlines()) == 2
    cli("topic", "update", "t", "--read-queues", "4")
    assert len(cli(*follow).splitlines()) == 4, "they are there, and read again"


def test_topic_with_fewer_read_queues_is_read_and_its_other_messages_are_counted(cli: Cli) -> None:
    [row] = cli.json("topic", "create", "half", "--queues", "8", "--read-queues", "2")
    assert row["result"] == "created"
    assert "warning: topic half is written to 8 queues and read from 2" in cli.err
    for queue in range(8):
        cli("send", "half", f"body{queue}", "--queue", str(queue))
    follow = ("consume", "half", "--no-group", "--end", "--from", "earliest", "--body-only")
    hidden = "warning: 6 messages of topic half are in queues that no consumer reads"
    assert sorted(cli(*follow).splitlines()) == ["body0", "body1"]
    assert hidden in cli.err
    cli("consume", "half", "--group", "g", "--from", "earliest", "--max", "2")
    cli("group", "lag", "g")
    assert hidden in cli.err
    cli("topic", "create", "empty", "--queues", "8")
    cli("topic", "update", "empty", "--read-queues", "2")
    assert "warning: topic empty is written to 8 queues and read from 2" in cli.err
    cli("topic", "update", "half", "--read-queues", "8")
    assert cli.err == ""
    assert len(cli(*follow).splitlines()) == 8
    assert cli.err == ""


def test_send_lines_have_keys_and_tags_and_skipped_lines_are_counted(
    cli: Cli, stdin: Callable[[bytes], None]
) -> None:
    cli("topic", "create", "t", "--queues", "1")
    stdin(b"paid|o1:first\n\nopen|o2:a:b\nno key|x\n|o3:\n")
    out = cli("send", "t", "--lines", "-T", "|", "-K", ":", "-o", "json", code=1)
    assert len(json.loads(out)) == 2
    assert "skipped 1 lines: empty" in cli.err
    assert "skipped 2 lines: without a separator, or without a body after it" in cli.err
    found = [(row["tag"], row["keys"], row["body"]) for row in cli.json("topic", "peek", "t")]
    assert found == [("paid", ["o1"], "first"), ("open", ["o2"], "a:b")]
    stdin(b"o4\tby tab\n")
    assert len(json.loads(cli("send", "t", "--lines", "-K", r"\t", "-o", "json"))) == 1
    last = cli.json("topic", "peek", "t")[-1]
    assert (last["keys"], last["body"]) == (["o4"], "by tab")
    stdin(b"x\n")
    assert cli("send", "gone?", "--lines", code=2) == ""
    stdin(b"\n")
    assert cli("send", "t", "--lines") == "no messages\n"
    cli("send", "t", "x", "-K", ":", code=2)
    cli("send", "t", "x", "--lines", code=2)
    cli("send", "t", "--lines", "--count", "2", code=2)


def test_consume_without_group_stops_at_the_end(cli: Cli) -> None:
    cli("topic", "create", "t", "--queues", "2")
    for number in range(4):
        cli("send", "t", f"body{number}", "--queue", str(number % 2), "--key", f"k{number}")
    form = r"{queue}\t{offset} {keys} {body}"
    follow = ("consume", "t", "--no-group", "--end")
    for _ in range(2):
        lines = cli(*follow, "--from", "earliest", "--format", form).splitlines()
        assert sorted(lines) == [
            "0\t0 k0 body0", "0\t1 k2 body2", "1\t0 k1 body1", "1\t1 k3 body3",
        ]  # fmt: skip
    assert cli(*follow, "--from", "latest") == ""
    bodies = cli(*follow, "--body-only").splitlines()
    assert sorted(bodies) == ["body0", "body1", "body2", "body3"]  # all of the topic
    assert len(cli(*follow, "--from", "1h").splitlines()) == 4
    for wrong in (("--end",), ("--no-group", "--group", "g"), ("--format", "{bode}")):
        cli("consume", "t", *wrong, code=2)
    assert "unknown field {bode}; known are topic," in cli.err


def test_condition_that_the_broker_refuses_is_one_sentence(cli: Cli) -> None:
    cli("topic", "create", "t")
    cli("consume", "t", "--sql", "a >", code=2)
    assert cli.err.startswith("rocketpy: at character ")
    assert cli.err.count("\n") == 1
    cli("broker-config", "set", "--all", "enablePropertyFilter=false")
    cli("consume", "t", "--sql", "a > 1", code=1)
    assert cli.err.count("\n") == 1
    assert cli.err.startswith("rocketpy: [")


def test_default_group_differs_by_user(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "zoë@home")
    cli("topic", "create", "t", "--queues", "1")
    cli("send", "t", "x")
    assert cli("consume", "t", "--from", "earliest", "--max", "1", "--body-only") == "x\n"
    assert "CLI_zo__home" in {row["group"] for row in cli.json("group", "list")}


def test_deleting_asks_first(cli: Cli, stdin: Callable[[bytes], None]) -> None:
    cli("topic", "create", "kept")
    stdin(b"n\n")
    cli("topic", "delete", "kept", code=1)
    assert "kept" in {row["topic"] for row in cli.json("topic", "list")}


def test_groups(cli: Cli, stdin: Callable[[bytes], None]) -> None:
    cli("topic", "create", "t", "--queues", "2")
    for queue in ("0", "0", "1"):
        cli("send", "t", "x", "--queue", queue)
    [row] = cli.json("group", "create", "g", "--retries", "3", "--no-broadcast")
    assert (row["retries"], row["broadcast"], row["consume"]) == (3, False, True)
    [row] = cli.json("group", "update", "g", "--retries", "4")
    assert (row["retries"], row["broadcast"]) == (4, False)
    assert cli.json("group", "members", "g") == []
    cli("group", "reset", "g", "t", "--to", "latest", "--dry-run")
    assert all(row["consumer_offset"] <= 0 for row in cli.json("group", "lag", "g"))

    moves = cli.json("group", "reset", "g", "t", "--to", "latest", "--yes")
    assert [(row["queue"], row["to_offset"]) for row in moves] == [(0, 2), (1, 1)]
    dry = cli.json("group", "reset", "g", "t", "--to", "1h", "--dry-run")
    assert [(row["from_offset"], row["to_offset"]) for row in dry] == [(2, 0), (1, 0)]
    one = ("--to-offset", "1", "--queue", f"{BROKER}:0")
    stdin(b"n\n")
    cli("group", "reset", "g", "t", *one, code=1)
    assert "Move group g to an offset in broker-a:0 of topic t?" in cli.err
    dry = cli.json("group", "reset", "g", "t", "--to", "1h", "--dry-run")
    assert [row["from_offset"] for row in dry] == [2, 1], "nothing was moved"
    [move] = cli.json("group", "reset", "g", "t", *one, "--yes")
    assert (move["from_offset"], move["to_offset"]) == (2, 1)
    lag = cli.json("group", "lag", "g", "--topic", "t")
    assert [(row["consumer_offset"], row["lag"]) for row in lag] == [(1, 1), (1, 0)]

    cli("group", "create", "h")
    stdin(b"n\n")
    cli("group", "clone", "g", "h", "t", code=1)
    assert "Move group h to where g is in topic t?" in cli.err
    cli("group", "clone", "nobody", "g", "t", "--yes", code=1)
    assert "group nobody does not exist" in cli.err
    cli("group", "clone", "h", "g", "t", "--yes", code=1)
    assert "group h has no offsets in topic t" in cli.err
    lag = cli.json("group", "lag", "g", "--topic", "t")
    assert [row["consumer_offset"] for row in lag] == [1, 1], "nothing was moved"
    for wrong in (["--dry-run"], ["--yes"]):
        far = ("--to-offset", "99999", "--queue", f"{BROKER}:0", *wrong)
        cli("group", "reset", "g", "t", *far, code=1)
        assert "Target offset 99999 not in consume queue range [0-2]" in cli.err
    cli("group", "clone", "g", "h", "t", "--yes")
    lag = cli.json("group", "lag", "h", "--topic", "t")
    assert [row["consumer_offset"] for row in lag] == [1, 1]
    assert cli.json("group", "delete", "h", "--yes")[0]["result"] == "deleted"
    cli("group", "delete", "h", "--yes", code=1)
    assert "group h does not exist" in cli.err
    cli("group", "reset", "none", "t", "--to", "latest", "--yes", code=1)
    cli("group", "reset", "g", "t", code=2)
    cli("group", "reset", "g", "t", "--to", "7", "--yes", code=2)
    assert "use --to-offset with --queue for an offset" in cli.err
    cli("group", "update", "g", code=2)


def test_group_create_changes_an_existing_group_with_update_only(cli: Cli) -> None:
    [row] = cli.json("group", "create", "g", "--retries", "3")
    assert row["result"] == "created"
    [row] = cli.json("group", "create", "g", "--retries", "3")
    assert row["result"] == "exists"
    cli("group", "update", "g", "--no-consume")
    cli("group", "create", "g", code=1)
    assert f"group g exists on {BROKER} with retries 3, consume false: nothing was" in cli.err
    [row] = cli.json("group", "update", "g", "--orderly")
    assert (row["retries"], row["consume"]) == (3, False), "it stayed as it was"
    [row] = cli.json("group", "create", "g", "--update")
    assert (row["retries"], row["consume"], row["result"]) == (16, True, "changed")
    [row] = cli.json("group", "create", "g")
    assert row["result"] == "exists"


def test_cluster(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    [broker] = rocketpy_cluster.broker_addresses
    [row] = cli.json("cluster", "list")
    assert (row["broker"], row["id"], row["address"], row["error"]) == (BROKER, 0, broker, "")
    assert row["version"] == "V5_4_0"
    [row] = cli.json("cluster", "ping", "-n", rocketpy_cluster.namesrv)
    assert (row["role"], row["address"]) == ("namesrv", rocketpy_cluster.namesrv)
    [row] = cli.json("cluster", "ping", "-b", broker)
    assert (row["role"], row["address"]) == ("broker", broker)
    cli("cluster", "ping", "-b", "127.0.0.1:1", code=1)
    assert cli.err == "rocketpy: cannot connect to 127.0.0.1:1: [Errno 111] Connection refused\n"
    cli("cluster", "list", "-n", "127.0.0.1:1", code=1)

    [row] = cli.json("cluster", "brokers", "--key", "brokerVersionDesc")
    assert (row["broker"], row["value"]) == (BROKER, "V5_4_0")
    cli("cluster", "brokers", "-b", "nobody", code=1)
    cli("send", "busy", "x")
    [row] = cli.json("cluster", "stats", "busy")
    assert (row["topic"], row["lag"]) == ("busy", 0)
    assert cli.json("cluster", "writable", BROKER, "off")[0]["writable"] is False
    assert cli.json("topic", "route", "busy")[0]["perm"] == "R--"
    assert cli.json("cluster", "writable", BROKER, "on")[0]["writable"] is True
    cli("cluster", "writable", "nobody", "on", code=1)


def test_configuration(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    [row] = cli.json("broker-config", "get", "brokerName")
    assert row == {"broker": BROKER, "key": "brokerName", "value": BROKER}
    cli("broker-config", "set", "-b", BROKER, "fileReservedTime=48")
    [broker] = rocketpy_cluster.broker_addresses
    [row] = cli.json("broker-config", "get", "-b", broker, "fileReservedTime")
    assert row["value"] == "48"
    cli("broker-config", "get", "noSuchKey", code=1)
    cli("broker-config", "set", "fileReservedTime=48", code=2)
    cli("broker-config", "set", "--all", "storePathRootDir=/somewhere", code=1)
    assert f"{BROKER} cannot change storePathRootDir while it runs" in cli.err
    cli("broker-config", "set", "--all", "fileReservedTme=48", code=1)
    assert f"{BROKER} has no key fileReservedTme; did you mean fileReservedTime?" in cli.err
    cli("broker-config", "set", "--all", "nonsense", code=2)
    [row] = cli.json("namesrv-config", "get", "bindAddress")
    assert row["value"] == "127.0.0.1"


def test_messages(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    cli("topic", "create", "t", "--queues", "1")
    [sent] = cli.json("send", "t", "body\x07", "--key", "k1", "--key", "k2", "--tag", "x")
    cli("send", "t", "other", "--key", "k3")
    by_key = cli.json("message", "find", "t", "--key", "k2")
    assert [row["keys"] for row in by_key] == [["k1", "k2"]]
    [by_place] = cli.json("message", "find", "t", "--queue", f"{BROKER}:0", "--offset", "0")
    [by_unique] = cli.json("message", "find", "t", "--unique", sent["msg_id"])
    [by_id] = cli.json("message", "get", sent["offset_msg_id"])
    assert by_key[0] == by_place == by_unique == by_id
    assert cli.json("message", "get", sent["msg_id"], "--topic", "t") == [by_id]
    text = cli("message", "get", sent["offset_msg_id"])
    assert "property         KEYS=k1 k2" in text
    assert text.endswith("\n\nbody\\x07\n")

    for question in (["--key", "none"], ["--queue", f"{BROKER}:0", "--offset", "9"]):
        assert cli("message", "find", "t", *question, "-o", "json", code=1) == "[]\n"
        assert " has no message " in cli.err
    assert cli("message", "find", "t", "--key", "k1", "--until", "1h", code=1) == ""
    cli("message", "find", "t", code=2)
    cli("message", "get", sent["msg_id"], code=1)  # a producer's id names no broker
    assert "not a broker of this cluster" in cli.err
    cli("message", "get", "nonsense", code=2)


def test_brokers_that_are_known_by_a_host_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quiet_servers: None
) -> None:
    with ClusterThread(tmp_path, properties={"brokerIP1": "localhost"}) as cluster:
        cli = Cli(cluster.namesrv, capsys)
        on = ("-n", cluster.namesrv)
        [row] = cli.json("cluster", "list", *on)
        assert row["address"] == f"localhost:{cluster.brokers[0].port}"
        [sent] = cli.json("send", "t", "x", *on)
        assert sent["offset_msg_id"].startswith("7F000001")
        [found] = cli.json("message", "get", sent["offset_msg_id"], *on)
        assert found["body"] == "x"


def test_broker_with_a_host_name_that_cannot_be_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "rocketpy", "broker", "--log-level", "error"),
            *("-D", "brokerIP1=no..host", "-D", "listenPort=0", "-D", "bindAddress=127.0.0.1"),
            *("-D", f"storePathRootDir={tmp_path}"),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("rocketpy: brokerIP1: the host name 'no..host' cannot be resolv")
    assert done.stderr.count("\n") == 1


def test_trace_of_a_message(cli: Cli, rocketpy_cluster: ClusterThread) -> None:
    cli("message", "trace", "anything", "--topic", "nowhere", code=1)
    assert "topic nowhere does not exist: no client recorded a trace" in cli.err
    cli("message", "trace", "anything", code=1)
    with connect(rocketpy_cluster.namesrv, group="senders") as client:
        with client.producer(trace=True) as producer:
            sent = producer.send("traced", b"x", keys="k1")
    [row] = cli.json("message", "trace", "k1")
    cli("message", "trace", "k2", code=1)
    assert "no trace of k2" in cli.err
    assert (row["kind"], row["group"], row["msg_id"]) == ("Pub", "senders", sent.msg_id)
    assert row["time"].endswith("Z")
    assert sent.msg_id in cli("message", "trace", sent.msg_id)
    cli("message", "trace", "nobody", code=1)
