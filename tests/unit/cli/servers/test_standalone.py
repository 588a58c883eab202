from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.cli.main import command
from rocketpy.cli.servers.standalone import Standalone, split_overrides
from rocketpy.errors import ConfigError, StartError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.runtime.config.config import ConfigSet
from rocketpy.store.config import MessageStoreConfig


def test_each_server_gets_the_keys_it_knows() -> None:
    namesrv, broker = split_overrides(
        [
            "needWaitForService=true",
            "flushDiskType=SYNC_FLUSH",
            "serverSelectorThreads=2",
            "listenPort=5",
            "typingEror=1",
        ]
    )
    assert namesrv == ["needWaitForService=true", "serverSelectorThreads=2"]
    assert broker == [
        "flushDiskType=SYNC_FLUSH",
        "serverSelectorThreads=2",
        "listenPort=5",
        "typingEror=1",
    ]


def printed(*arguments: str, env: dict[str, str] | None = None) -> tuple[str, str]:
    result = CliRunner().invoke(command, ["standalone", *arguments, "--print-config"], env=env)
    assert result.exit_code == 0, result.output
    namesrv, _, broker = result.output.partition("# broker\n")
    return namesrv, broker


def test_data_directory_holds_everything(tmp_path: Path) -> None:
    namesrv, broker = printed("--data", str(tmp_path), "--host", "127.0.0.2", "--port", "7")
    assert f"dataDir={tmp_path}/namesrv\n" in namesrv
    assert "listenPort=9876\n" in namesrv
    assert f"storePathRootDir={tmp_path}/store\n" in broker
    assert "listenPort=7\n" in broker
    assert "brokerIP1=127.0.0.2\n" in broker
    assert "bindAddress=127.0.0.2\n" in broker
    assert "brokerName=broker-a\n" in broker
    assert "recallMessageEnable=true\n" in broker


def test_another_name_server_of_the_environment_is_not_meant(tmp_path: Path) -> None:
    env = {"NAMESRV_ADDR": "elsewhere:9876"}
    assert "namesrvAddr=\n" in printed("--data", str(tmp_path), env=env)[1]


@pytest.mark.parametrize("how", ["option", "environment"])
def test_broker_with_other_name_servers_only_is_a_warning(tmp_path: Path, how: str) -> None:
    arguments = ["standalone", "--data", str(tmp_path), "--check-config"]
    option = ["-D", "namesrvAddr=mq1:9876;mq2:9870"] if how == "option" else []
    env = {"ROCKETPY_NAMESRV_ADDR": "mq1:9870;mq2:9870"} if how == "environment" else {}
    result = CliRunner().invoke(command, [*arguments, "--namesrv-port", "9875", *option], env=env)
    assert "0 errors, 1 warnings" in result.output
    assert "namesrvAddr: the broker registers at mq1:98" in result.output
    both = ["-D", "namesrvAddr=mq1:9876;127.0.0.1:9875"]
    result = CliRunner().invoke(command, [*arguments, "--namesrv-port", "9875", *both])
    assert "0 errors, 0 warnings" in result.output


def test_standalone_on_all_interfaces_leaves_the_advertised_address_to_the_broker(
    tmp_path: Path,
) -> None:
    _, broker = printed("--data", str(tmp_path), "--host", "0.0.0.0")
    assert "bindAddress=0.0.0.0\n" in broker
    assert "brokerIP1=\n" in broker


def test_unknown_key_is_refused_with_the_nearest(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        command, ["standalone", "--data", str(tmp_path), "-D", "flushDiskTyp=x"]
    )
    assert result.exit_code != 0
    assert "did you mean flushDiskType?" in str(result.exception)


def test_name_server_for_tls_only_is_refused_before_anything_starts(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        command, ["standalone", "--data", str(tmp_path / "d"), "-D", "tls.server.mode=enforcing"]
    )
    assert isinstance(result.exception, ConfigError)
    assert "tls.server.mode: brokers register in plain text" in str(result.exception)
    assert "use permissive" in str(result.exception)
    assert not (tmp_path / "d").exists()


async def test_port_in_use_names_the_option_that_changes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def taken(_: object) -> None:
        raise StartError("port 9876 is taken: stop its process or change listenPort")

    monkeypatch.setattr(NameServer, "start", taken)
    namesrv = ConfigSet.of(NamesrvConfig(data_dir=str(tmp_path)))
    store = MessageStoreConfig(store_path_root_dir=str(tmp_path / "store"))
    server = Standalone(namesrv, ConfigSet.of(store))
    with pytest.raises(StartError, match="or change --namesrv-port"):
        await server.start()
