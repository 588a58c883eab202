"""Failed starts of a server: one sentence on standard error, exit code 1 or 2."""

import contextlib
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bad_input.kit import (
    Wire,
    daemon,
    finished,
    last_sentence,
    log_until,
    running,
)
from tests.sampling import sample

LOOPBACK = "127.0.0.1"
SMALL = ("mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000",
         "maxHashSlotNum=1000", "maxIndexNum=5000")  # fmt: skip


def broker_arguments(store: Path, *more: str) -> list[str]:
    settings = [f"storePathRootDir={store}", "listenPort=0", f"bindAddress={LOOPBACK}",
                f"brokerIP1={LOOPBACK}", "brokerName=b", *SMALL, *more]  # fmt: skip
    return ["broker", *(word for text in settings for word in ("-D", text))]


@contextlib.contextmanager
def served(store: Path) -> Iterator[Wire]:
    """Run a broker on a store and connect to it."""
    with daemon(*broker_arguments(store)) as process:
        with Wire(log_until(process, "ready")[-1]["broker"]) as peer:
            yield peer
        process.terminate()
        process.communicate(timeout=100)
        assert process.returncode == 0


def make_store(directory: Path) -> Path:
    """A store with one acknowledged message, closed cleanly."""
    store = directory / "store"
    with served(store) as peer:
        assert peer.send(b"kept", "Kept").code == 0
    return store


def kept_bodies(store: Path) -> list[bytes]:
    with served(store) as peer:
        return peer.bodies("Kept")


def test_locked_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with served(store) as peer:
        assert peer.send(b"kept", "Kept").code == 0
        sentence = last_sentence(finished(*broker_arguments(store)), 1)
        assert str(store) in sentence
        assert "lock" in sentence
        assert peer.send(b"after", "Kept").code == 0
        assert peer.bodies("Kept") == [b"kept", b"after"]


def test_locked_standalone(tmp_path: Path) -> None:
    arguments = ["standalone", "--data", str(tmp_path), "--namesrv-port", "0", "--port", "0"]
    with daemon(*arguments) as process:
        log_until(process, "ready")
        done = finished(*arguments)
        sentence = last_sentence(done, 1)
        assert "lock" in sentence
        assert f"(pid {process.pid})" in sentence
        assert "server started" not in done.stderr, "the name server is not started first"


def test_commit_log_files_of_another_length(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    arguments = broker_arguments(store, "mappedFileSizeCommitLog=2097152")
    sentence = last_sentence(finished(*arguments), 1)
    assert str(store / "commitlog") in sentence
    assert "1048576" in sentence
    assert "2097152" in sentence
    assert kept_bodies(store) == [b"kept"], "nothing was changed"


def test_consume_queue_files_of_another_length(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    arguments = broker_arguments(store, "mappedFileSizeConsumeQueue=40000")
    sentence = last_sentence(finished(*arguments), 1)
    assert str(store / "consumequeue") in sentence
    assert kept_bodies(store) == [b"kept"]


@pytest.mark.parametrize("name", sample(["notes.txt", "00000000000000000007x", "backup"], 3))
def test_foreign_file_among_the_commit_log(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    (store / "commitlog" / name).write_bytes(b"not ours" * 1_000)
    sentence = last_sentence(finished(*broker_arguments(store)), 1)
    assert name in sentence
    assert (store / "commitlog" / name).read_bytes() == b"not ours" * 1_000
    (store / "commitlog" / name).unlink()
    assert kept_bodies(store) == [b"kept"]


def test_directory_of_something_else(tmp_path: Path) -> None:
    """A directory full of other files is left alone, and the broker works beside them."""
    store = tmp_path / "store"
    store.mkdir()
    (store / "holiday.jpg").write_bytes(b"\xff\xd8")
    assert make_store(tmp_path) == store
    assert (store / "holiday.jpg").read_bytes() == b"\xff\xd8"


@pytest.mark.parametrize(
    "place", sample(["store", "store/commitlog", "store/consumequeue", "store/config"], 4)
)
def test_file_where_a_directory_should_be(tmp_path: Path, place: str) -> None:
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("in the way")
    done = finished(*broker_arguments(tmp_path / "store"))
    assert done.returncode in {1, 2}
    assert str(path) in last_sentence(done, done.returncode)
    assert path.read_text() == "in the way"


@pytest.mark.parametrize(
    "place", sample(["commitlog/00000000000000000000", "lock", "config/topics.json"], 3)
)
def test_directory_where_a_file_should_be(tmp_path: Path, place: str) -> None:
    store = make_store(tmp_path)
    path = store / place
    saved = path.read_bytes()
    path.unlink()
    path.mkdir()
    done = finished(*broker_arguments(store, "listenPort=0"))
    assert str(path) in last_sentence(done, 1)
    path.rmdir()
    path.write_bytes(saved)
    assert kept_bodies(store) == [b"kept"]


def test_damaged_tables_are_read_from_their_backup(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    topics = store / "config" / "topics.json"
    topics.with_name("topics.json.bak").write_bytes(topics.read_bytes())
    topics.write_bytes(b'{"topicConfigTable":{"Kep')
    with daemon(*broker_arguments(store)) as process:
        seen = log_until(process, "ready")
        assert any(
            "its .bak is used" in event["event"] and str(topics) in str(event) for event in seen
        )
        with Wire(seen[-1]["broker"]) as peer:
            assert peer.bodies("Kept") == [b"kept"]


def test_damaged_kv_file(tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json").write_text("{")
    arguments = ["namesrv", "-p", "0", "-D", f"dataDir={tmp_path}"]
    sentence = last_sentence(finished(*arguments), 1)
    assert str(tmp_path / "kvConfig.json") in sentence
    assert (tmp_path / "kvConfig.json").read_text() == "{"


@pytest.mark.parametrize("server", sample(["broker", "namesrv", "standalone"], 3))
def test_taken_port(tmp_path: Path, server: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = {
            "broker": [*broker_arguments(tmp_path / "s"), "-D", f"listenPort={port}"],
            "namesrv": ["namesrv", "-p", port, "-D", f"bindAddress={LOOPBACK}"],
            "standalone": ["standalone", "--data", str(tmp_path), "--namesrv-port", "0",
                           "--port", port],
        }[server]  # fmt: skip
        sentence = last_sentence(finished(*arguments), 1)
        assert port in sentence
    assert not (tmp_path / "s" / "abort").exists(), "the store was closed cleanly"


@pytest.mark.parametrize("server", sample(["broker", "namesrv"], 2))
def test_address_that_is_not_ours(tmp_path: Path, server: str) -> None:
    arguments = {
        "broker": broker_arguments(tmp_path / "s", "bindAddress=192.0.2.1"),
        "namesrv": ["namesrv", "-p", "0", "-D", "bindAddress=192.0.2.1"],
    }[server]
    assert "192.0.2.1" in last_sentence(finished(*arguments), 2)


WRONG = {
    "broker": {
        "listenPort": "many",
        "brokerPermission": "9",
        "flushDiskType": "SOMETIMES",
        "mappedFileSizeCommitLog": "-1",
        "autoCreateTopicEnable": "yes",
        "fileReservedTime": "72h",
        "messageDelayLevel": "1x 5s",
        "tls.server.mode": "maybe",
        "defaultTopicQueueNums": "0",
        "sendMessageThreadPoolNums": "-1",
        "serverSelectorThreads": "0",
    },
    "namesrv": {"listenPort": "99999999", "maxTopics": "0", "enableTopicList": "on"},
}


@pytest.mark.parametrize(
    ("server", "key"), sample(((server, key) for server, keys in WRONG.items() for key in keys), 4)
)
def test_wrong_value_in_a_file(tmp_path: Path, server: str, key: str) -> None:
    path = tmp_path / "it.conf"
    path.write_text(f"# a comment\n\n{key}={WRONG[server][key]}\n")
    sentence = last_sentence(finished(server, "-c", str(path)), 2)
    assert f"{path}:3: {key}: " in sentence


@pytest.mark.parametrize("server", sample(["broker", "namesrv"], 2))
def test_wrong_value_on_the_command_line_or_in_the_environment(server: str) -> None:
    assert "-D: listenPort: 'x'" in last_sentence(finished(server, "-D", "listenPort=x"), 2)
    done = finished(server, ROCKETPY_LISTEN_PORT="x")
    assert "environment ROCKETPY_LISTEN_PORT: listenPort: 'x'" in last_sentence(done, 2)


@pytest.mark.parametrize("server", sample(["broker", "namesrv", "standalone"], 3))
def test_unknown_key_on_the_command_line(tmp_path: Path, server: str) -> None:
    more = ["--data", str(tmp_path)] if server == "standalone" else []
    sentence = last_sentence(finished(server, *more, "-D", "listenPrt=1"), 2)
    assert "listenPrt" in sentence
    assert "did you mean listenPort?" in sentence


@pytest.mark.parametrize("text", sample(["listenPort", "=1", ""], 3))
def test_option_that_is_not_key_and_value(text: str) -> None:
    assert "key=value" in last_sentence(finished("broker", "-D", text), 2)


def test_unknown_key_in_a_file_is_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text("listenPort=0\nlistenPrt=1\nproductEnvName=x\n")
    arguments = ["namesrv", "-c", str(path), "-D", f"dataDir={tmp_path}"]
    with daemon(*arguments) as process:
        warned = [e["problem"] for e in log_until(process, "ready") if e.get("problem")]
    assert any(f"{path}:2: listenPrt: unknown key" in text for text in warned)
    assert any(f"{path}:3: productEnvName: " in text for text in warned)


@pytest.mark.parametrize("server", sample(["broker", "namesrv"], 2))
def test_configuration_file_that_cannot_be_read(tmp_path: Path, server: str) -> None:
    missing = tmp_path / "missing.conf"
    assert str(missing) in last_sentence(finished(server, "-c", str(missing)), 2)
    assert str(tmp_path) in last_sentence(finished(server, "-c", str(tmp_path)), 2)
    binary = tmp_path / "binary.conf"  # read as Latin-1, as Java does: the lines are no settings
    binary.write_bytes(b"\xff\xfelistenPort=\x00\nlistenPort=\xff\n")
    assert str(binary) in last_sentence(finished(server, "-c", str(binary)), 2)


@pytest.mark.parametrize("server", sample(["broker", "namesrv"], 2))
def test_tls_files_that_are_not_there(tmp_path: Path, server: str) -> None:
    settings = [f"tls.server.keyPath={tmp_path}/key.pem", f"tls.server.certPath={tmp_path}/c.pem"]
    arguments = broker_arguments(tmp_path / "s") if server == "broker" else ["namesrv", "-p", "0"]
    done = finished(*arguments, *(word for text in settings for word in ("-D", text)))
    assert done.returncode in {1, 2}
    assert ".pem" in last_sentence(done, done.returncode)


def test_broker_starts_without_reachable_name_server(tmp_path: Path) -> None:
    """The broker starts, keeps trying, and warns once, not once a try."""
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
    addresses = f"{LOOPBACK}:{port};no.such.host.invalid:9876"
    with daemon(*broker_arguments(tmp_path / "s", f"namesrvAddr={addresses}")) as process:
        seen = log_until(process, "ready")
        with Wire(seen[-1]["broker"]) as peer:
            for number in range(5):  # each new topic is another try
                assert peer.send(b"x", f"Topic{number}").code == 0
        arguments = ["namesrv", "-p", str(port), "-D", f"bindAddress={LOOPBACK}",
                     "-D", f"dataDir={tmp_path}"]  # fmt: skip
        with daemon(*arguments) as namesrv:
            log_until(namesrv, "ready")
            with Wire(seen[-1]["broker"]) as peer:
                assert peer.send(b"x", "Topic6").code == 0
            log_until(namesrv, "broker registered")
            seen += log_until(process, "name server reachable again")
    warned = [event for event in seen if event["event"] == "name server unreachable"]
    assert sorted(event["name_server"] for event in warned) == sorted(addresses.split(";"))
    assert all(event["error"] for event in warned)
    assert "Traceback" not in json.dumps(seen)


def test_broken_directory_of_one_server_does_not_touch_another(tmp_path: Path) -> None:
    with running(tmp_path / "data") as world, world.staying_well():
        store = tmp_path / "other"
        # Files that are being replaced disappear while they are copied.
        temporary = shutil.ignore_patterns("*.tmp")
        shutil.copytree(tmp_path / "data" / "broker-a", store, ignore=temporary)
        arguments = broker_arguments(store, "mappedFileSizeCommitLog=2097152")
        last_sentence(finished(*arguments), 1)
        shutil.rmtree(store)


@pytest.mark.parametrize(
    ("first", "second"),
    sample(
        [
            ("brokerId=0", "brokerRole=SLAVE"),
            ("brokerRole=SYNC_MASTER", "brokerId=1"),
            ("brokerRole=SYNC_MASTER", "inSyncReplicas=2"),
            ("brokerId=1", "brokerRole=SLAVE"),
        ],
        3,
    ),
)
def test_settings_of_a_role_that_contradict_each_other_are_refused(
    tmp_path: Path, first: str, second: str
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(f"{first}\n{second}\n")
    arguments = broker_arguments(tmp_path / "store")
    sentence = last_sentence(finished(*arguments, "-c", str(path)), 2)
    keys = [each.partition("=")[0] for each in (first, second)]
    assert any(f": {key}: " in sentence for key in keys)
    assert not (tmp_path / "store").exists()
