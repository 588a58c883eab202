"""Configuration over the network: an allow-list of typed keys; nothing names a path or a class."""

from pathlib import Path

import pytest

from tests.bad_input.kit import EventLog, World

REFUSED = {
    "broker": (
        "storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "brokerConfigPath",
        "rocketmqHome", "configBlackList", "namesrvAddr", "brokerIP1", "brokerIP2", "listenPort",
        "bindAddress", "brokerName", "brokerClusterName", "brokerId", "haMasterAddress",
        "flushDiskType", "mappedFileSizeCommitLog", "messageStorePlugIn", "serverSelectorThreads",
        "tls.server.keyPath", "tls.server.trustCertPath", "filterServerNums",
        "authenticationProvider", "metricsExporterType", "no.such.key",
    ),
    "namesrv": (
        "kvConfigPath", "configStorePath", "rocketmqHome", "configBlackList", "dataDir",
        "listenPort", "bindAddress", "productEnvName", "tls.server.keyPath", "no.such.key",
    ),
}  # fmt: skip
UPDATE = {"broker": 25, "namesrv": 318}
READ = {"broker": 26, "namesrv": 319}

WRONG_VALUES: dict[str, dict[str, tuple[str, ...]]] = {
    "broker": {
        "maxMessageSize": ("x", "-1", "99999999999", ""),
        "brokerPermission": ("9", "rw"),
        "autoCreateTopicEnable": ("yes", "1", "../../x"),
        "fileReservedTime": ("-1", "72h"),
        "diskMaxUsedSpaceRatio": ("101", "50%"),
    },
    "namesrv": {
        "enableTopicList": ("yes", ""),
        "waitSecondsForService": ("-1", "1e9"),
        "maxTopics": ("0", "10000000000"),
    },
}

SERVERS = ("broker", "namesrv")


@pytest.mark.parametrize(
    ("server", "key"), [(server, key) for server in SERVERS for key in REFUSED[server]]
)
def test_key_that_may_not_change(
    world: World, log: EventLog, tmp_path: Path, server: str, key: str
) -> None:
    with world.staying_well(), world.peer(server) as peer:
        before = peer.call(READ[server]).body
        response = peer.call(UPDATE[server], {}, f"{key}={tmp_path}/outside\n".encode())
        assert response.code == 16
        assert key in (response.remark or "")
        assert peer.call(READ[server]).body == before
        assert log.named("update rejected", peer.name, key)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("server", SERVERS)
def test_good_key_beside_a_refused_one_changes_nothing(world: World, server: str) -> None:
    good = {"broker": "maxMessageSize=100000", "namesrv": "maxTopics=77"}[server]
    with world.staying_well(), world.peer(server) as peer:
        before = peer.call(READ[server]).body
        for text in (f"{good}\nlistenPort=1\n", f"listenPort=1\n{good}\n"):
            assert peer.call(UPDATE[server], {}, text.encode()).code == 16
        assert peer.call(READ[server]).body == before


@pytest.mark.parametrize(
    ("server", "key", "text"),
    [
        (server, key, text)
        for server in SERVERS
        for key, texts in WRONG_VALUES[server].items()
        for text in texts
    ],
)
def test_value_that_does_not_fit(world: World, server: str, key: str, text: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        before = peer.call(READ[server]).body
        response = peer.call(UPDATE[server], {}, f"{key}={text}\n".encode())
        assert response.code == 29
        assert key in (response.remark or "")
        assert peer.call(READ[server]).body == before


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    "body",
    [b"\xff\xfe", b"maxMessageSize=\\uZZZZ", b"maxTopics=" + b"9" * 2_000_000, b"\0=\0"],
    ids=["not_utf8", "bad_escape", "long", "nul"],
)
def test_body_that_is_no_properties_text(world: World, server: str, body: bytes) -> None:
    with world.staying_well(), world.peer(server) as peer:
        before = peer.call(READ[server]).body
        response = peer.call(UPDATE[server], {}, body)
        assert response.code in {1, 16, 29}
        assert len(response.remark or "") < 2_000
        assert peer.call(READ[server]).body == before


@pytest.mark.parametrize("server", SERVERS)
def test_live_key_is_taken(world: World, server: str) -> None:
    key, value = {"broker": ("fileReservedTime", "71"), "namesrv": ("maxTopics", "99999")}[server]
    with world.staying_well(), world.peer(server) as peer:
        assert peer.call(UPDATE[server], {}, f"{key}={value}\n".encode()).code == 0
        assert f"{key}={value}" in peer.call(READ[server]).body.decode().splitlines()
