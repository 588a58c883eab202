"""Rules that `--check-config` and a start check: ports, addresses and host names."""

from pathlib import Path

import pytest

from rocketpy.errors import ConfigError
from tests.unit.cli.servers.test_check_config import invoke

RULES = [
    ("listenPort=7000\nhealthListenPort=7000", "healthListenPort: port 7000 is also that of"),
    (
        "listenPort=7002\nfastListenEnable=true\nhealthListenPort=7000",
        "healthListenPort: port 7000 is also that of fastListenEnable (listenPort - 2)",
    ),
    ("listenPort=2\nfastListenEnable=true", "fastListenEnable: the broker then also listens on"),
    (
        "haAllowedPeers=127.0.0.1\nhaListenPort=7000\nlistenPort=7000",
        "haListenPort: port 7000 is also that of listenPort",
    ),
    (
        "haAllowedPeers=127.0.0.1\nhaListenPort=7000\nhealthListenPort=7000",
        "healthListenPort: port 7000 is also that of haListenPort",
    ),
    ("brokerIP1=999.1.1.1", "brokerIP1: the host name '999.1.1.1' cannot be resolved"),
    ("brokerIP2=no host", "brokerIP2: the host name 'no host' cannot be resolved"),
    ("bindAddress=nonsense.invalid", "bindAddress: cannot listen on 'nonsense.invalid': "),
    ("bindAddress=203.0.113.7", "bindAddress: cannot listen on '203.0.113.7': "),
    (f"bindAddress={'a' * 300}", "bindAddress: cannot listen on 'aaaa"),
    ("storePathRootDir=/dev/null", "storePathRootDir: cannot be a directory: /dev/null is none"),
    ("storePathCommitLog=/dev/null/log", "storePathCommitLog: cannot be a directory: /dev/null"),
    (
        "healthListenPort=0\nhealthBindAddress=203.0.113.7",
        "healthBindAddress: cannot listen on '203.0.113.7': ",
    ),
]


@pytest.mark.parametrize(("text", "complaint"), RULES)
@pytest.mark.parametrize("server", ["broker", "standalone"])
def test_check_finds_what_a_start_would_refuse(
    server: str, text: str, complaint: str, tmp_path: Path
) -> None:
    checked = invoke(server, tmp_path, "--check-config", text=text)
    assert checked.return_value == 2
    assert f"error: {complaint}" in checked.output
    started = invoke(server, tmp_path, text=text)
    assert isinstance(started.exception, ConfigError)
    assert str(started.exception).startswith(complaint)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("root", "log"),
    [
        ("store", "store"),
        ("store", "./other/../store/"),
        ("store", "{here}/store"),
        ("{here}/store", "store"),
        ("store", "link"),
        ("store/first", "store"),
        ("store", "store/consumequeue"),
        ("store", "store/config/log"),
    ],
)
def test_commit_log_among_other_files_of_the_store_is_refused(
    root: str, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("store")
    text = f"storePathRootDir={root}\nstorePathCommitLog={log}".format(here=tmp_path)
    checked = invoke("broker", tmp_path, "--check-config", text=text)
    assert checked.return_value == 2
    assert "error: storePathCommitLog: " in checked.output
    assert f"in storePathRootDir, {tmp_path / root.removeprefix('{here}/')}, " in checked.output
    started = invoke("broker", tmp_path, text=text)
    assert isinstance(started.exception, ConfigError)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("log", ["", "store/commitlog", "store/log", "log", "storelog", "index"])
def test_commit_log_in_a_separate_directory_is_accepted(
    log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"storePathRootDir=store\nstorePathCommitLog={log}"
    assert invoke("broker", tmp_path, "--check-config", text=text).return_value == 0


def test_check_leaves_out_the_replication_port_that_is_not_opened(tmp_path: Path) -> None:
    text = "haListenPort=7000\nlistenPort=7000"
    assert invoke("broker", tmp_path, "--check-config", text=text).return_value == 0


def test_check_compares_the_ports_of_a_name_server(tmp_path: Path) -> None:
    text = "listenPort=7000\nhealthListenPort=7000\nbindAddress=127.0.0.1"
    done = invoke("namesrv", tmp_path, "--check-config", text=text)
    assert done.return_value == 2
    assert "error: healthListenPort: port 7000 is also that of listenPort" in done.output
    other = text.replace("=127.0.0.1", "=127.0.0.2")
    assert invoke("namesrv", tmp_path, "--check-config", text=other).return_value == 0
    free = "listenPort=0\nhealthListenPort=0"
    assert invoke("namesrv", tmp_path, "--check-config", text=free).return_value == 0


def test_check_compares_the_ports_of_both_standalone_servers(tmp_path: Path) -> None:
    ports = ("--port", "7000", "--namesrv-port", "7000")
    done = invoke("standalone", tmp_path, *ports, "--check-config")
    assert done.return_value == 2
    assert "error: listenPort: port 7000 is also that of --namesrv-port" in done.output


def test_check_of_a_port_out_of_range_is_one_sentence(tmp_path: Path) -> None:
    done = invoke("broker", tmp_path, "--check-config", text="listenPort=99999")
    assert done.return_value == 2
    assert done.output.count("error: ") == 1
    assert done.output.endswith("1 errors, 0 warnings\n")
    assert "server.conf:1: listenPort: '99999' is not allowed here" in done.output


def test_check_counts_an_error_of_both_standalone_servers_once(tmp_path: Path) -> None:
    done = invoke("standalone", tmp_path, "--check-config", text="bindAddress=nonsense.invalid")
    assert done.output.count("error: ") == 1
    assert done.output.endswith("1 errors, 0 warnings\n")
