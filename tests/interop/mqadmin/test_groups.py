import asyncio
import json
import re
from pathlib import Path

from rocketpy.spark.jobs import lag
from tests.interop.mqadmin.world import World, rows, wait_for


def test_create_show_delete(world: World) -> None:
    broker = world.cluster.broker
    assert "success" in world.run("updateSubGroup", "-b", broker, "-g", "admNew", "-r", "3")
    shown = world.run("getConsumerConfig", "-g", "admNew")
    assert re.search(r"^retryMaxTimes += +3$", shown, re.MULTILINE)
    assert re.search(r"^consumeBroadcastEnable += +false$", shown, re.MULTILINE)
    assert "success" in world.run("deleteSubGroup", "-b", broker, "-g", "admNew")
    assert world.cluster.parts.groups.get("admNew") is None
    assert "CODE: 29" in world.run("updateSubGroup", "-b", broker, "-g", "../g")


def test_list_of_groups(world: World, tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps([{"groupName": "admL1"}, {"groupName": "admL2"}]))
    out = world.run("updateSubGroupList", "-b", world.cluster.broker, "-f", path)
    assert "success" in out
    assert world.cluster.parts.groups.get("admL1") is not None
    assert world.cluster.parts.groups.get("admL2") is not None


def test_group_request_mode_is_set_to_pop(world: World) -> None:
    """A group that does not exist yet is created."""
    where = ("-b", world.cluster.broker, "-t", world.topic, "-g", "admPops")
    assert "success" in world.run("setConsumeMode", *where, "-m", "POP", "-q", "8")
    mode = world.cluster.parts.modes.get(world.topic, "admPops")
    assert mode is not None
    assert (mode.mode, mode.pop_share_queue_num) == ("POP", 8)
    assert world.cluster.parts.groups.get("admPops") is not None


def test_progress_of_all_groups(world: World) -> None:
    found = {row[0]: row for row in rows(world.run("consumerProgress"))}
    row = found[world.group]
    assert row[1:5] == ["1", "V5_4_0", "PUSH", "CLUSTERING"]


def test_progress_counts_what_was_not_consumed(world: World) -> None:
    world.create_topic("AdmLag", 2)
    world.actor.do("consumer", "admLagG", "AdmLag", "*")
    world.send("AdmLag", 6)
    world.receive("admLagG", 6)

    def totals() -> tuple[int, int, int]:
        out = world.run("consumerProgress", "-g", "admLagG")
        mine = [row for row in rows(out) if row[0] == "AdmLag"]
        diff = re.search(r"Consume Diff Total: (\d+)", out)
        if diff is None or len(mine) != 2:
            return (-1, -1, -1)
        return (sum(int(r[3]) for r in mine), sum(int(r[4]) for r in mine), int(diff[1]))

    wait_for(lambda: totals() == (6, 6, 0))
    world.actor.do("stop", "admLagG")
    world.send("AdmLag", 5)
    assert totals() == (11, 6, 5)
    ours = asyncio.run(lag.sample(world.cluster.namesrv, ["admLagG"], "", 0))
    theirs = rows(world.run("consumerProgress", "-g", "admLagG"))
    assert [
        [r["topic"], r["broker"], r["queue"], r["broker_offset"], r["consumer_offset"], r["lag"]]
        for r in ours
    ] == sorted(
        [r[0], r[1], *(int(each) for each in r[2:6])]
        for r in theirs
        if r[0] in {"AdmLag", "%RETRY%admLagG"}
    )
    out = world.run("brokerConsumeStats", "-b", world.cluster.broker)
    mine = [row for row in rows(out) if row[:2] == ["AdmLag", "admLagG"]]
    assert sum(int(row[6]) for row in mine) == 5
    assert "CODE: 206" in world.run("consumerConnection", "-g", "admLagG")


def test_progress_of_unknown_group(world: World) -> None:
    assert "CODE: 17" in world.run("consumerProgress", "-g", "nope")


def test_connections(world: World) -> None:
    out = world.run("consumerConnection", "-g", world.group)
    assert world.client_id in out
    assert "V5_4_0" in out
    assert "ConsumeType: CONSUME_PASSIVELY" in out
    assert "MessageModel: CLUSTERING" in out
    assert "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET" in out
    assert [world.topic, "*"] in rows(out)
    producer = world.run("producerConnection", "-g", world.producer, "-t", world.topic)
    assert "JAVA" in producer
    assert "V5_4_0" in producer
    missing = world.run("producerConnection", "-g", "nope", "-t", world.topic)
    assert "the producer group[nope] not exist" in missing
    everyone = world.run("producer", "-b", world.cluster.broker)
    assert f"producer group ({world.producer})" in everyone


def test_running_info_of_a_member(world: World) -> None:
    out = world.run("consumerStatus", "-g", world.group)
    assert world.client_id in out
    assert "Same subscription in the same group of consumer" in out
    assert "Rebalance OK" in out


def test_reset_by_time_delivers_again(world: World) -> None:
    world.create_topic("AdmReset", 2)
    world.actor.do("consumer", "admResetG", "AdmReset", "*")
    sent = world.send("AdmReset", 4)
    world.receive("admResetG", 4)
    out = world.run("resetOffsetByTime", "-g", "admResetG", "-t", "AdmReset", "-s", "0")
    targets = [row for row in rows(out) if row[0] == world.cluster.broker_name]
    assert sorted(row[1:] for row in targets) == [["0", "0"], ["1", "0"]]
    again = world.receive("admResetG", 4)
    assert {one["msgId"] for one in again} == {one["msgId"] for one in sent}
    skipped = world.run("skipAccumulatedMessage", "-g", "admResetG", "-t", "AdmReset")
    assert sum(int(row[2]) for row in rows(skipped) if len(row) == 3) == 4
    world.actor.do("stop", "admResetG")


def test_reset_by_members(world: World) -> None:
    broker = world.cluster.broker
    key = ("updateBrokerConfig", "-b", broker, "-k", "useServerSideResetOffset", "-v")
    world.create_topic("AdmPush", 2)
    world.actor.do("consumer", "admPushG", "AdmPush", "*")
    sent = world.send("AdmPush", 4)
    world.receive("admPushG", 4)

    def committed() -> int:
        offsets = world.cluster.parts.offsets
        return sum(offsets.query("admPushG", "AdmPush", queue_id) for queue_id in range(2))

    wait_for(lambda: committed() == 4)
    assert "success" in world.run(*key, "false")
    try:
        out = world.run("resetOffsetByTime", "-g", "admPushG", "-t", "AdmPush", "-s", "0")
        assert world.cluster.broker_name in out
        again = world.receive("admPushG", 4)
    finally:
        world.run(*key, "true")
    assert {one["msgId"] for one in again} == {one["msgId"] for one in sent}
    world.actor.do("stop", "admPushG")


def test_clone_copies_offsets(world: World) -> None:
    world.create_topic("AdmClone", 1)
    world.actor.do("consumer", "admCloneG", "AdmClone", "*")
    world.send("AdmClone", 3)
    world.receive("admCloneG", 3)
    offsets = world.cluster.parts.offsets
    wait_for(lambda: offsets.query("admCloneG", "AdmClone", 0) == 3)
    world.actor.do("stop", "admCloneG")
    assert "success" in world.run("updateSubGroup", "-b", world.cluster.broker, "-g", "admClone2")
    out = world.run("cloneGroupOffset", "-s", "admCloneG", "-d", "admClone2", "-t", "AdmClone")
    assert "clone group offset success" in out
    assert offsets.query("admClone2", "AdmClone", 0) == 3


def test_clone_needs_the_target(world: World) -> None:
    out = world.run("cloneGroupOffset", "-s", world.group, "-d", "nope", "-t", world.topic)
    assert "CODE: 26" in out


def test_delete_with_offsets(world: World) -> None:
    world.create_topic("AdmDel", 1)
    world.actor.do("consumer", "admDelG", "AdmDel", "*")
    world.send("AdmDel", 2)
    world.receive("admDelG", 2)
    world.actor.do("stop", "admDelG")
    broker = world.cluster.broker
    out = world.run("deleteSubGroup", "-b", broker, "-g", "admDelG", "-r", "true")
    assert "success" in out
    assert world.cluster.parts.groups.get("admDelG") is None
    assert world.cluster.parts.offsets.topics_of_group("admDelG") == set()
