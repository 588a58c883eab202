import re
import subprocess

from tests.interop.mqadmin.world import World, rows, settled, wait_for
from tests.peer.apache import PEER


def test_cluster_list(world: World) -> None:
    (row,) = rows(world.run("clusterList"))
    cluster = world.cluster
    assert row[:5] == [cluster.cluster_name, cluster.broker_name, "0", cluster.broker, "V5_4_0"]
    assert re.match(r"[0-9.]+\([0-9]+,[0-9]+ms\)", row[5])
    assert row[-1] == "true"
    assert 0.0 < float(row[-2]) < 1.0


def test_cluster_list_with_totals(world: World) -> None:
    def totals() -> list[int]:
        (row,) = rows(world.run("clusterList", "-m"))
        return [int(text) for text in row[2:]]

    before = settled(totals)
    world.send(world.topic, 3)
    world.receive(world.group, 3)
    assert before[:2] == [0, 0]
    wait_for(lambda: totals()[2:] == [before[2] + 3, before[3] + 3])


def test_broker_status_counts_what_was_sent(world: World) -> None:
    def status() -> dict[str, str]:
        lines = world.run("brokerStatus", "-b", world.cluster.broker).splitlines()
        return {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in lines if ":" in line)
        }

    def counts() -> tuple[int, int]:
        now = status()
        return int(now["msgPutTotalTodayNow"]), int(now["putMessageTimesTotal"])

    today, total = settled(counts)
    world.send(world.topic, 7)
    world.receive(world.group, 7)
    expected = today + 7
    wait_for(lambda: int(status()["msgPutTotalTodayNow"]) >= expected)
    after = status()
    assert int(after["msgPutTotalTodayNow"]) == expected
    assert int(after["putMessageTimesTotal"]) == total + 7
    assert int(after["commitLogMaxOffset"]) == world.cluster.parts.store.max_phy_offset
    assert after["brokerVersionDesc"] == "V5_4_0"
    assert after["brokerActive"] == "true"
    assert after["sendThreadPoolQueueCapacity"] == "10000"
    assert int(after["bootTimestamp"]) < int(after["earliestMessageTimeStamp"])
    for key in ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps"):
        assert all(float(text) >= 0 for text in after[key].split()), key
    assert "[<=0ms]:" in after["putMessageDistributeTime"]
    assert after["remainTransientStoreBufferNumbs"] == "2147483647"


def test_broker_config(world: World) -> None:
    broker = world.cluster.broker
    shown = world.run("getBrokerConfig", "-b", broker)
    assert re.search(r"^brokerName +=  rocketpy-a$", shown, re.MULTILINE)
    assert re.search(r"^flushDiskType +=  ASYNC_FLUSH$", shown, re.MULTILINE)
    assert re.search(r"^maxMessageSize +=  4194304$", shown, re.MULTILINE)

    out = world.run("updateBrokerConfig", "-b", broker, "-k", "maxMessageSize", "-v", "4000000")
    assert "update broker config success" in out
    assert world.cluster.parts.configs.store.max_message_size == 4_000_000
    world.run("updateBrokerConfig", "-b", broker, "-k", "maxMessageSize", "-v", "4194304")
    assert world.cluster.parts.configs.store.max_message_size == 4_194_304


def test_paths_and_unknown_keys_are_refused(world: World) -> None:
    fixed = "defaultTopicQueueNums"  # of TBW102, which exists since the start
    for key in ("brokerConfigPath", "storePathRootDir", "rocketmqHome", "noSuchKey", fixed):
        out = world.run(
            "updateBrokerConfig", "-b", world.cluster.broker, "-k", key, "-v", "/tmp/elsewhere"
        )
        assert "CODE: 16" in out, key
        assert key in out
    out = world.run(
        "updateBrokerConfig", "-b", world.cluster.broker, "-k", "maxMessageSize", "-v", "0"
    )
    assert "CODE: 29" in out


def test_name_server_config(world: World) -> None:
    shown = world.run("getNamesrvConfig")
    port = world.cluster.namesrv.rpartition(":")[2]
    assert world.cluster.namesrv in shown
    assert re.search(r"^orderMessageEnable +=  false$", shown, re.MULTILINE)
    assert port
    out = world.run("updateNamesrvConfig", "-k", "kvConfigPath", "-v", "/tmp/elsewhere")
    assert "CODE: 16" in out


def test_name_server_config_changes(world: World) -> None:
    for value in ("true", "false"):
        out = world.run("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", value)
        assert "success" in out
        shown = world.run("getNamesrvConfig")
        assert re.search(rf"^orderMessageEnable +=  {value}$", shown, re.MULTILINE)


def test_kv_config(world: World) -> None:
    assert "success" in world.run("updateKvConfig", "-s", "NS", "-k", "one", "-v", "two")
    assert "success" in world.run("deleteKvConfig", "-s", "NS", "-k", "one")


def test_write_permission(world: World) -> None:
    name = world.cluster.broker_name
    wiped = world.run("wipeWritePerm", "-b", name)
    assert f"wipe write perm of broker[{name}]" in wiped
    assert "OK" in wiped
    route = world.run("topicRoute", "-t", world.topic)
    assert '"perm":4' in route
    added = world.run("addWritePerm", "-b", name)
    assert f"add write perm of broker[{name}]" in added
    assert '"perm":6' in world.run("topicRoute", "-t", world.topic)


def test_ha_status_of_a_lonely_master(world: World) -> None:
    out = world.run("haStatus", "-b", world.cluster.broker)
    end = world.cluster.parts.store.max_phy_offset
    assert f"#MasterCommitLogMaxOffset\t{end}" in out
    assert "#SlaveNum\t0" in out


def test_reset_of_the_master_flush_offset(world: World) -> None:
    out = world.run("resetMasterFlushOffset", "-b", world.cluster.broker, "-o", "0")
    assert "reset master flush offset to 0 success" in out


def test_house_keeping(world: World) -> None:
    for command in ("cleanExpiredCQ", "deleteExpiredCommitLog", "cleanUnusedTopic"):
        assert "success" in world.run(command, "-b", world.cluster.broker), command
    assert "runtimeTable" in world.run("getColdDataFlowCtrInfo", "-b", world.cluster.broker)


def test_cluster_send_and_round_trip(world: World) -> None:
    name = world.cluster.broker_name
    sent = world.run("sendMsgStatus", "-b", name, "-s", "10", "-c", "2")
    assert sent.count("sendStatus=SEND_OK") == 2
    checked = world.run("checkMsgSendRT", "-t", world.topic, "-a", "3", "-s", "10")
    assert checked.count("true") == 3
    world.receive(world.group, 3)


def test_cluster_round_trip_times(world: World) -> None:
    # clusterRT never ends: one round of it is read from a process of its own.
    command = [
        str(PEER),
        "admin",
        world.cluster.namesrv,
        "clusterRT",
        "-a",
        "2",
        "-s",
        "20",
        "-i",
        "1",
    ]
    cluster = [world.cluster.cluster_name, world.cluster.broker_name]

    def one_round() -> list[str]:
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as child:
            assert child.stdout is not None
            try:
                found = (line.split() for line in child.stdout)
                return next((row for row in found if row[:2] == cluster), [])
            finally:
                child.kill()

    # It gives up when its first request takes longer than five seconds.
    row: list[str] = []

    def has_row() -> bool:
        row[:] = one_round()
        return bool(row)

    wait_for(has_row)
    assert "2" in row[2:]


def test_stats_all(world: World) -> None:
    def row() -> list[str]:
        found = rows(world.run("statsAll", "-t", world.topic))
        return next(one for one in found if one[:2] == [world.topic, world.group])

    total = sum(
        world.cluster.parts.store.max_offset(world.topic, queue_id) for queue_id in range(4)
    )
    wait_for(lambda: row()[2] == "0" and float(row()[3]) >= 0)
    # The day's window is sampled at the start and then hourly; what came since shows as 24 hours.
    assert int(row()[5]) <= total
