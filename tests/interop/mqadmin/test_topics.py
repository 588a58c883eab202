import json
import re
from pathlib import Path

from tests.interop.mqadmin.world import World, rows


def test_topic_list(world: World) -> None:
    listed = world.run("topicList").split()
    expected = {
        world.topic,
        f"%RETRY%{world.group}",
        "TBW102",
        "BenchmarkTest",
        "SCHEDULE_TOPIC_XXXX",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        world.cluster.cluster_name,
        world.cluster.broker_name,
        f"{world.cluster.cluster_name}_REPLY_TOPIC",
    }
    assert expected <= set(listed)


def test_topic_list_with_groups(world: World) -> None:
    found = rows(world.run("topicList", "-c"))
    assert [world.cluster.cluster_name, world.topic, world.group] in found


def test_route(world: World) -> None:
    out = world.run("topicRoute", "-t", world.topic)
    assert f'0:"{world.cluster.broker}"' in out
    assert '"readQueueNums":4' in out
    assert f'"brokerName":"{world.cluster.broker_name}"' in out
    assert "CODE: 17" in world.run("topicRoute", "-t", "Nope")


def test_cluster_of_topic(world: World) -> None:
    assert world.run("topicClusterList", "-t", world.topic).strip() == world.cluster.cluster_name


def test_status(world: World) -> None:
    world.create_topic("AdmStatus", 3)
    world.send("AdmStatus", 7)
    found = rows(world.run("topicStatus", "-t", "AdmStatus"))
    queues = [row for row in found if row[0] == world.cluster.broker_name]
    assert [row[1] for row in queues] == ["0", "1", "2"]
    assert all(row[2] == "0" for row in queues)
    assert sum(int(row[3]) for row in queues) == 7
    assert all(row[4].startswith("20") for row in queues)
    assert "CODE: 17" in world.run("topicStatus", "-t", "Nope")


def test_update_on_cluster_with_attributes(world: World) -> None:
    out = world.run(
        "updateTopic", "-c", world.cluster.cluster_name, "-t", "AdmFifo", "-r", "2", "-w", "2",
        "-a", "+message.type=FIFO",
    )  # fmt: skip
    assert f"create topic to {world.cluster.broker} success" in out
    topic = world.cluster.parts.topics.get("AdmFifo")
    assert topic is not None
    assert (topic.read_queue_nums, dict(topic.attributes)) == (2, {"message.type": "FIFO"})


def test_bad_names_are_refused(world: World) -> None:
    for name in ("../x", "a/b", "TBW102"):
        assert "CODE: 29" in world.run("updateTopic", "-b", world.cluster.broker, "-t", name)


def test_permission(world: World) -> None:
    world.create_topic("AdmPerm")
    broker = world.cluster.broker
    assert "success" in world.run("updateTopicPerm", "-b", broker, "-t", "AdmPerm", "-p", "4")
    topic = world.cluster.parts.topics.get("AdmPerm")
    assert topic is not None
    assert topic.perm == 4
    assert '"perm":4' in world.run("topicRoute", "-t", "AdmPerm")


def test_list_of_topics(world: World, tmp_path: Path) -> None:
    wanted = [
        {"topicName": f"AdmList{number}", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
        for number in range(2)
    ]
    path = tmp_path / "topics.json"
    path.write_text(json.dumps(wanted))
    out = world.run("updateTopicList", "-b", world.cluster.broker, "-f", path)
    assert "success" in out
    assert {"AdmList0", "AdmList1"} <= set(world.run("topicList").split())


def test_delete(world: World) -> None:
    world.create_topic("AdmGone")
    world.send("AdmGone", 3)
    cluster = world.cluster.cluster_name
    out = world.run("deleteTopic", "-c", cluster, "-t", "AdmGone")
    assert f"delete topic [AdmGone] from cluster [{cluster}] success" in out
    assert "delete topic [AdmGone] from NameServer success" in out
    assert "AdmGone" not in world.run("topicList").split()
    assert world.cluster.parts.topics.get("AdmGone") is None
    assert world.cluster.parts.store.max_offset("AdmGone", 0) <= 0


def test_queue_entries(world: World) -> None:
    out = world.run(
        "queryCq", "-t", world.topic, "-q", "0", "-i", "0", "-c", "3", "-b", world.cluster.broker
    )
    assert "min: 0" in out
    entries = re.findall(r"physicOffset=(\d+), physicSize=(\d+), tagsCode=(-?\d+)", out)
    store = world.cluster.parts.store
    assert [tuple(map(int, entry)) for entry in entries] == [
        store.queue_entry(world.topic, 0, index) for index in range(3)
    ]


def test_allocation(world: World) -> None:
    out = world.run("allocateMQ", "-t", world.topic, "-i", "1.1.1.1")
    assert out.count('"queueId"') == 4
