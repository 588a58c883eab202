"""Keys of the controller: addresses, and what is refused."""

from pathlib import Path

import pytest

from rocketpy.controller.config import ControllerConfig
from rocketpy.errors import ConfigError
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.config.config import Sources, load


def loaded(text: str) -> ControllerConfig:
    return load(Sources(text=text, name="c.conf"), [ControllerConfig]).get(ControllerConfig)


def test_address_is_the_one_of_the_peer() -> None:
    config = loaded(
        "controllerDLegerGroup=group1\ncontrollerDLegerSelfId=n0\n"
        "controllerDLegerPeers=n0-10.0.0.1:9877;\ncontrollerStorePath=/s\nlistenPort=1\n"
    )
    assert config.peer == ("n0", "10.0.0.1:9877")
    assert config.remoting.listen_port == config.listen_port == 9877
    assert config.store_directory == Path("/s")
    assert config.live_settings_file == Path("/s/live.properties")


def test_address_without_a_peer_is_the_default_port() -> None:
    assert loaded("").listen_port == 9878
    assert loaded("controllerListenPort=0").listen_port == 0
    assert loaded("").store_directory == Path.home() / "controller"


def test_listen_port_may_differ_from_the_peer() -> None:
    config = loaded("controllerDLegerPeers=n0-proxy:80\ncontrollerListenPort=9000")
    assert config.listen_port == 9000
    assert config.peer == ("n0", "proxy:80")


def test_remoting_has_one_loop() -> None:
    server = RemotingServerConfig(server_selector_threads=4)
    assert ControllerConfig(server=server).remoting.server_selector_threads == 1


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("controllerDLegerPeers=n0-a:1;n1-b:1", "controllerDLegerPeers"),
        ("controllerDLegerPeers=a:1", "controllerDLegerPeers"),
        ("controllerDLegerPeers=n0-a:x", "controllerDLegerPeers"),
        ("controllerDLegerPeers=n0-a:1\ncontrollerDLegerSelfId=n1", "controllerDLegerSelfId"),
        ("controllerType=jRaft", "controllerType"),
        ("controllerStorage=etcd", "controllerStorage"),
    ],
)
def test_keys_of_another_kind_of_controller_are_refused(text: str, key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    line = text.count("\n") + 1
    assert str(caught.value).startswith(f"c.conf:{line}: {key}: ")


def test_controllers_with_etcd_name_all_of_them() -> None:
    text = (
        "controllerStorage=etcd\netcdEndpoints=http://e:2379\n"
        "controllerDLegerPeers=n0-a:1;n1-b:2\ncontrollerDLegerSelfId="
    )
    config = loaded(text + "n1")
    assert config.peer == ("n1", "b:2")
    assert config.peers == [("n0", "a:1"), ("n1", "b:2")]
    for identifier in ("n2", ""):
        with pytest.raises(ConfigError, match="controllerDLegerSelfId"):
            loaded(text + identifier)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_address_that_brokers_cannot_use_is_refused(host: str) -> None:
    with pytest.raises(ConfigError, match=r"controllerDLegerPeers: .*by which they reach"):
        loaded(f"controllerDLegerPeers=n0-{host}:9878")


def test_warnings_are_those_of_the_server() -> None:
    assert list(ControllerConfig().config_warnings()) == []
