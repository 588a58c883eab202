"""Runtime information of the broker."""

import pytest

from rocketpy import __version__
from rocketpy.broker.admin.runtime_info import RuntimeInfoAdmin, _size
from rocketpy.proto.wire.fastjson import loads
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.runtime.readiness import NotReady
from tests.unit.broker.admin.kit import Kit, ask

# What listings of a cluster (clusterList, exporters) read and cannot do without.
NEEDED = {
    "brokerVersionDesc",
    "brokerActive",
    "sendThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueSize",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "earliestMessageTimeStamp",
    "msgPutTotalTodayNow",
    "msgPutTotalTodayMorning",
    "msgPutTotalYesterdayMorning",
    "msgGetTotalTodayNow",
    "msgGetTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
    "commitLogDirCapacity",
    "dispatchBehindBytes",
    "remainHowManyDataToFlush",
    "EndTransactionQueueSize",
    "ackThreadPoolQueueCapacity",
    "bootTimestamp",
}


def table(kit: Kit) -> dict[str, str]:
    found: dict[str, str] = loads(ask(kit.admin(RuntimeInfoAdmin).get).body)["table"]
    return found


def test_runtime_info_has_all_required_keys_as_text(kit: Kit) -> None:
    found = table(kit)
    assert found.keys() >= NEEDED
    assert all(isinstance(value, str) for value in found.values())
    assert list(found) == sorted(found)


def test_runtime_info_totals_and_store_figures_are_correct(kit: Kit) -> None:
    kit.stats.inc_topic_put("T", 5, 500)
    kit.stats.inc_get("G", "T", 3, 300)
    found = table(kit)
    assert (found["msgPutTotalTodayNow"], found["msgGetTotalTodayNow"]) == ("5", "3")
    assert found["fromTheStore"] == "yes"
    assert found["remainHowManyDataToFlush"] == "1000 B"
    assert found["commitLogDirCapacity"] == "Total : 4.0 GiB, Free : 1.0 GiB."
    assert found["bootTimestamp"] == str(kit.clock.wall_ms - 3_661_000)
    assert found["brokerVersion"] == "493"


def test_runtime_info_includes_pools(kit: Kit) -> None:
    kit.parts["pools"]["send"] = BusinessPool("send", 1, 10_000, 200)
    found = table(kit)
    assert found["sendThreadPoolQueueCapacity"] == "10000"
    assert found["sendThreadPoolQueueSize"] == "0"


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 60, "3072.0 PiB"),
    ],
)
def test_runtime_info_formats_sizes(count_bytes: int, text: str) -> None:
    assert _size(count_bytes) == text


def test_runtime_info_names_rocketpy_s_version_and_why_it_is_not_ready(kit: Kit) -> None:
    found = table(kit)
    assert (found["rocketpyReady"], found["rocketpyNotReady"]) == ("true", "")
    assert found["rocketpyVersion"] == __version__
    assert found["brokerVersionDesc"] == "V5_4_0"
    reasons = [NotReady("puts_refused", "the disk is nearly full"), NotReady("stopping", "bye")]
    kit.parts["readiness"].reasons = lambda: reasons
    found = table(kit)
    assert found["rocketpyReady"] == "false"
    assert found["rocketpyNotReady"] == "puts_refused: the disk is nearly full; stopping: bye"
