import re
import threading
from typing import Any

from rocketpy.sync import connect
from tests.interop.mqadmin.world import World, rows


def check(out: str, world: World, number: int = 0) -> None:
    sent = world.sent[number]
    assert re.search(rf"^Topic: +{world.topic}$", out, re.MULTILINE), out
    assert f"Tags:                [tag-{number}]" in out
    assert f"Keys:                [key-{number}]" in out
    assert re.search(rf"^Queue ID: +{sent['queueId']}$", out, re.MULTILINE)
    assert re.search(rf"^Queue Offset: +{sent['queueOffset']}$", out, re.MULTILINE)
    assert f"Store Host:          {world.cluster.broker}" in out
    assert f"UNIQ_KEY={sent['msgId']}" in out
    assert f"CLUSTER={world.cluster.cluster_name}" in out
    assert f"consumerGroup={world.group}, trackType=CONSUMED" in out


def test_by_offset_id(world: World) -> None:
    offset_id = world.sent[0]["offsetMsgId"]
    out = world.run("queryMsgById", "-i", offset_id, "-t", world.topic)
    check(out, world)
    assert f"OffsetID:            {offset_id}" in out


def test_by_unique_key(world: World) -> None:
    check(
        world.run("queryMsgByUniqueKey", "-t", world.topic, "-i", world.sent[5]["msgId"]), world, 5
    )


def test_by_offset(world: World) -> None:
    sent = world.sent[2]
    out = world.run(
        "queryMsgByOffset", "-t", world.topic, "-b", world.cluster.broker_name,
        "-i", sent["queueId"], "-o", sent["queueOffset"],
    )  # fmt: skip
    check(out, world, 2)


def test_by_key(world: World) -> None:
    world.create_topic("AdmKeys", 1)
    sent = world.send("AdmKeys", 3, key="only")
    found = rows(world.run("queryMsgByKey", "-t", "AdmKeys", "-k", "only-1"))
    assert [row[:3] for row in found] == [[sent[1]["msgId"], "0", "1"]]


def test_consume_one_directly(world: World) -> None:
    out = world.run(
        "queryMsgById", "-i", world.sent[0]["offsetMsgId"], "-t", world.topic,
        "-g", world.group, "-d", world.client_id,
    )  # fmt: skip
    assert "consumeResult=CR_SUCCESS" in out, out
    assert [one["body"] for one in world.receive(world.group, 1)] == ["body-0"]


def test_print_all_and_by_queue(world: World) -> None:
    world.create_topic("AdmPrint", 2)
    sent = world.send("AdmPrint", 4)
    everything = world.run("printMsg", "-t", "AdmPrint")
    assert sorted(re.findall(r"BODY: (\S+)", everything)) == [f"body-{n}" for n in range(4)]
    first = [one for one in sent if one["queueId"] == 0]
    name = world.cluster.broker_name
    queue = world.run("printMsgByQueue", "-t", "AdmPrint", "-a", name, "-i", "0", "-p", "true")
    assert re.findall(r"MSGID: (\S+)", queue) == [one["msgId"] for one in first]
    some = world.run(
        "consumeMessage", "-t", "AdmPrint", "-b", name, "-i", "0", "-o", "0", "-c", "1"
    )
    assert "Consume ok" in some
    assert re.findall(r"MSGID: (\S+)", some) == [first[0]["msgId"]]


def test_send(world: World) -> None:
    world.create_topic("AdmSend", 1)
    (row,) = rows(world.run("sendMessage", "-t", "AdmSend", "-p", "hello", "-k", "admKey"))
    assert row[:3] == [world.cluster.broker_name, "0", "SEND_OK"]
    found = rows(world.run("queryMsgByKey", "-t", "AdmSend", "-k", "admKey"))
    assert [one[0] for one in found] == [row[3]]


def test_unknown_id_says_so(world: World) -> None:
    port = int(world.cluster.broker.rpartition(":")[2])
    out = world.run("queryMsgById", "-i", f"7F000001{port:08X}00000000FFFFFFFF", "-t", world.topic)
    assert "CODE: 208" in out


def test_trace_of_our_client(world: World) -> None:
    world.create_topic("AdmTrace", 1)
    with connect(world.cluster.namesrv, group="AdmTraced") as client:
        with client.producer(trace=True) as producer:
            sent = producer.send("AdmTrace", b"traced", tag="tag-t", keys="key-t")
        seen = threading.Event()
        options: Any = {"group": "AdmTracedReaders", "start": "earliest", "trace": True}
        with client.consumer("AdmTrace", handler=lambda _: seen.set(), **options):
            assert seen.wait(30)
    out = world.run("queryMsgTraceById", "-i", sent.msg_id)
    assert re.search(r"^Pub +AdmTraced .* success", out, re.MULTILINE), out
    assert re.search(r"^Sub +AdmTracedReaders .* success", out, re.MULTILINE), out
