"""`--check-config`, `--print-config` and `--accept-ignored` of all servers."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocketpy.cli.main import command
from rocketpy.cli.servers.broker import broker_classes
from rocketpy.controller.config import ControllerConfig
from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config.config import options_of

_NAME_OF_PATH = re.compile("path|dir|file$", re.IGNORECASE)
_TLS_FILES = ("keyPath", "certPath", "trustCertPath")
SERVERS = ["broker", "controller", "namesrv", "standalone"]


def invoke(server: str, tmp_path: Path, *arguments: str, text: str = "") -> Result:
    more: list[str] = []
    if server == "standalone":
        more = ["--data", str(tmp_path / "data")]
        more += [word for line in text.splitlines() for word in ("-D", line)]
    else:
        path = tmp_path / "server.conf"
        path.write_text(text)
        more = ["-c", str(path)]
    return CliRunner().invoke(command, [server, *more, *arguments], standalone_mode=False)


@pytest.mark.parametrize("server", SERVERS)
def test_check_of_a_good_configuration_returns_0(server: str, tmp_path: Path) -> None:
    done = invoke(server, tmp_path, "--check-config")
    assert (done.return_value, done.output) == (0, "0 errors, 0 warnings\n")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("server", SERVERS)
def test_check_prints_warnings_and_returns_1_or_2_when_strict(server: str, tmp_path: Path) -> None:
    text = "useEpollNativeSelector=true\nserverWorkerThreads=9"
    done = invoke(server, tmp_path, "--check-config", text=text)
    assert done.return_value == 1
    assert done.output.count("warning: ") == 2
    assert "useEpollNativeSelector: has no effect: it tunes Netty" in done.output
    strict = invoke(server, tmp_path, "--check-config", "--strict-config", text=text)
    assert strict.return_value == 2


@pytest.mark.parametrize("server", SERVERS)
def test_check_prints_every_error_and_returns_2(server: str, tmp_path: Path) -> None:
    text = "aclEnable=true\nserverSelectorThreads=x\nserverWorkerThreads=9"
    done = invoke(server, tmp_path, "--check-config", text=text)
    assert done.return_value == 2
    assert "error: " in done.output
    assert "aclEnable: 'true' is not supported" in done.output
    assert "serverSelectorThreads: 'x' is not allowed here" in done.output
    assert "warning: " in done.output


@pytest.mark.parametrize("server", ["broker", "controller", "namesrv"])
def test_check_covers_rules_between_keys(server: str, tmp_path: Path) -> None:
    done = invoke(server, tmp_path, "--check-config", text="tls.server.mode=enforcing")
    assert done.return_value == 2
    assert "error: tls.server.mode: enforcing needs tls.server.keyPath" in done.output


@pytest.mark.parametrize("server", SERVERS)
def test_print_config_shows_warnings_and_fails_when_strict(server: str, tmp_path: Path) -> None:
    text = "useEpollNativeSelector=true"
    done = invoke(server, tmp_path, "--print-config", text=text)
    assert done.return_value == 0
    assert "warning: " in done.output
    strict = invoke(server, tmp_path, "--print-config", "--strict-config", text=text)
    assert isinstance(strict.exception, ConfigError)
    assert "useEpollNativeSelector" in str(strict.exception)


@pytest.mark.parametrize("server", SERVERS)
def test_accept_ignored_turns_an_error_into_a_warning(server: str, tmp_path: Path) -> None:
    text = "aclEnable=true"
    done = invoke(server, tmp_path, "--print-config", text=text)
    assert isinstance(done.exception, ConfigError)
    options = ("--accept-ignored", "aclEnable", "--check-config")
    done = invoke(server, tmp_path, *options, text=text)
    assert done.return_value == 1
    assert "warning: " in done.output
    assert "aclEnable: true is ignored, as accepted" in done.output


_PATHS = {
    "broker": {
        "storePathRootDir",
        "storePathCommitLog",
        "replicationSecretFile",
        *(f"tls.{side}.{name}" for side in ("client", "server") for name in _TLS_FILES),
    },
    "controller": {"controllerStorePath", *(f"tls.server.{name}" for name in _TLS_FILES)},
    "namesrv": {"dataDir", "kvConfigPath", *(f"tls.server.{name}" for name in _TLS_FILES)},
}


@pytest.mark.parametrize("server", list(_PATHS))
def test_check_refuses_paths_that_nothing_expands(server: str, tmp_path: Path) -> None:
    text = "\n".join(f"{key}=~/{key}" for key in sorted(_PATHS[server]))
    done = invoke(server, tmp_path, "--check-config", text=text)
    assert done.return_value == 2
    refused = re.findall(r"server\.conf:\d+: (\S+): \S+ begins with ~, ", done.output)
    assert refused == sorted(_PATHS[server])


@pytest.mark.parametrize("config_class", [*broker_classes(), ControllerConfig, NamesrvConfig])
def test_key_that_is_named_as_a_path_is_declared_as_one(config_class: type) -> None:
    named = {each.key for each in options_of(config_class) if _NAME_OF_PATH.search(each.key)}
    assert named == {each.key for each in options_of(config_class) if each.is_path}


def test_standalone_refuses_a_directory_that_the_shell_left_unexpanded(tmp_path: Path) -> None:
    words = ["standalone", "--data=~/data", "--check-config"]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2
    assert "Invalid value for '--data': '~/data' begins with ~, " in done.output


@pytest.mark.parametrize("program", ["namesrv", "broker", "controller", "standalone"])
@pytest.mark.parametrize("path", ["~/mq.log", "${HOME}/mq.log", "/a;/b"])
def test_log_file_that_no_shell_has_expanded_is_refused(program: str, path: str) -> None:
    done = CliRunner().invoke(command, [program, f"--log-file={path}", "--check-config"])
    assert done.exit_code == 2
    assert f"Invalid value for '--log-file': {path!r} " in done.output


_COPIES = "inSyncReplicas=2\nhaAllowedPeers=10.0.0.0/8\n"


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SLAVE\nbrokerId=1"])
def test_check_warns_of_copies_that_the_role_does_not_wait_for(role: str, tmp_path: Path) -> None:
    text = f"{_COPIES}brokerRole={role}"
    done = invoke("broker", tmp_path, "--check-config", text=text)
    assert done.return_value == 1
    name = role.partition("\n")[0]
    expected = f"warning: inSyncReplicas: 2 has no effect while brokerRole is {name}: only a"
    assert done.output.startswith(expected)
    assert "has no effect" in invoke("broker", tmp_path, "--print-config", text=text).output
    for more in (["--check-config"], ["--print-config"], []):
        strict = invoke("broker", tmp_path, "--strict-config", *more, text=text)
        assert strict.return_value == 2 or "inSyncReplicas" in str(strict.exception)


def test_check_is_silent_about_copies_that_are_waited_for(tmp_path: Path) -> None:
    done = invoke("broker", tmp_path, "--check-config", text=f"{_COPIES}brokerRole=SYNC_MASTER")
    assert done.return_value == 0
    (tmp_path / "secret").write_text("s" * 32)
    text = (
        "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n"
        f"replicationSecretFile={tmp_path / 'secret'}\ninSyncReplicas=2"
    )
    done = invoke("broker", tmp_path, "--check-config", text=text)
    assert (done.return_value, done.output) == (0, "0 errors, 0 warnings\n")
