"""The clusters and fixtures that the package gives to other people's tests."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

import rocketpy
import rocketpy.sync
from rocketpy.errors import ClosedError, RocketPyError
from rocketpy.testing.cluster import ClusterThread, LocalCluster

QUIET = ("-p", "no:cacheprovider")
USERS_SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
USERS_TEST = """
import rocketpy.sync


def test_orders(rocketpy_cluster):
    with rocketpy.sync.connect(rocketpy_cluster.namesrv) as client:
        client.producer().send("orders", b"x")
        assert rocketpy_cluster.message_count("orders") == 1


def test_fresh_one_each(rocketpy_cluster, rocketpy_broker):
    assert rocketpy_cluster.message_count("orders") == 0
    assert rocketpy_broker.address in rocketpy_cluster.broker_addresses


async def test_async(rocketpy_cluster):
    import rocketpy

    async with rocketpy.connect(rocketpy_cluster.namesrv) as client:
        result = await client.producer().send("orders", b"x")
        assert result.status.name == "SEND_OK"


async def test_client(rocketpy_client, rocketpy_cluster):
    await rocketpy_client.producer().send("orders", b"x")
    async with rocketpy_client.consumer("orders", start="earliest") as consumer:
        message = await consumer.getone(timeout=20)
        assert message.body == b"x"
    assert rocketpy_cluster.message_count("orders") == 1


def test_session_cluster_is_empty_first(rocketpy_cluster_session):
    assert rocketpy_cluster_session.message_count("shared") == 0
    with rocketpy.sync.connect(rocketpy_cluster_session.namesrv) as client:
        client.producer().send("shared", b"x")


def test_session_cluster_is_shared(rocketpy_cluster_session):
    assert rocketpy_cluster_session.message_count("shared") == 1
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["auto", "strict"])
def test_fixtures_work_in_a_users_tests(tmp_path: Path, mode: str) -> None:
    marked = USERS_TEST.replace("async def test", "@pytest.mark.asyncio\nasync def test")
    (tmp_path / "test_users.py").write_text(
        USERS_TEST if mode == "auto" else f"import pytest\n{marked}"
    )
    (tmp_path / "pytest.ini").write_text(USERS_SETTINGS.replace("auto", mode))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *QUIET, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def test_fixture_is_quiet_and_its_log_is_attached_to_a_test_that_fails(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(
        "import logging\n"
        "def test_passes(rocketpy_cluster, capfd):\n"
        "    rocketpy_cluster.create_topic('t')\n"
        "    assert capfd.readouterr() == ('', '')\n"
        "def test_fails(rocketpy_cluster):\n"
        "    raise KeyError\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *QUIET, "--log-level=info", "-s", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=tmp_path,
    )
    passed, _, failed = done.stdout.partition("test_fails")
    assert "1 failed, 1 passed" in failed, done.stdout + done.stderr
    assert "broker started" not in passed + done.stderr
    assert "event='broker started'" in failed


def test_plugin_is_an_entry_point() -> None:
    from importlib.metadata import entry_points  # noqa: PLC0415

    [found] = [each for each in entry_points(group="pytest11") if each.name == "rocketpy"]
    assert found.value == "rocketpy.testing.plugin"
    assert found.load().rocketpy_cluster is not None


async def test_cluster_on_the_running_loop(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, brokers=2)
    with pytest.raises(ClosedError, match="not started"):
        _ = cluster.namesrv
    async with cluster:
        cluster.create_topic("t", queues=2)
        assert cluster.message_count("t") == 0
        async with rocketpy.connect(cluster.namesrv) as client:
            producer = client.producer()
            results = [await producer.send("t", b"x") for _ in range(8)]
        assert {each.queue.broker_name for each in results} == {"broker-a", "broker-b"}
        assert cluster.message_count("t") == 8
        assert len(cluster.broker_addresses) == 2


async def test_clusters_log_to_logging(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO")
    async with LocalCluster(tmp_path / "one"):
        async with LocalCluster(tmp_path / "two"):
            pass
    assert capsys.readouterr() == ("", "")
    assert any("broker started" in each.getMessage() for each in caplog.records)
    assert not structlog.is_configured()


def test_cluster_in_a_thread_survives_a_restart_of_its_broker(tmp_path: Path) -> None:
    with ClusterThread(tmp_path, properties={"autoCreateTopicEnable": "false"}) as cluster:
        cluster.create_topic("t")
        [address] = cluster.broker_addresses
        with rocketpy.sync.connect(cluster.namesrv) as client:
            client.producer().send("t", b"x")
            with pytest.raises(RocketPyError):
                client.producer().send("unknown", b"x")
        cluster.restart_broker()
        assert cluster.broker_addresses == [address]
        assert cluster.message_count("t") == 1
    cluster.stop()  # a second time does nothing


def test_cluster_that_cannot_start_raises_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RocketPyError, match="flushDiskType"):
        ClusterThread(tmp_path, properties={"flushDiskType": "SOMETIMES"}).start()


def start_child(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "rocketpy.testing", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_other_languages_get_a_line_of_json_and_end_it_by_closing_standard_input() -> None:
    with start_child("--brokers", "2", "-D", "autoCreateTopicEnable=true") as child:
        assert child.stdout is not None
        addresses = json.loads(child.stdout.readline())
        assert len(addresses["brokers"]) == 2
        with rocketpy.sync.connect(addresses["namesrv"]) as client:
            assert client.producer().send("t", b"x").status.name == "SEND_OK"
        out, err = child.communicate(timeout=100)
    assert (child.returncode, out, err) == (0, "", "")


def test_signal_ends_it_too() -> None:
    with start_child() as child:
        assert child.stdout is not None
        json.loads(child.stdout.readline())
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=100)
    assert (child.returncode, out, err) == (0, "", "")


def test_wrong_arguments_are_a_usage_error() -> None:
    with start_child("-D", "nonsense") as child:
        out, err = child.communicate(timeout=100)
    assert child.returncode == 2
    assert out == ""
    assert "-D takes key=value" in err
