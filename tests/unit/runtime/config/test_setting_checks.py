"""Misspelt keys whose values must not be ignored."""

import pytest

from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config.config import Sources, load
from tests.unit.runtime.config.test_refused_keys import BROKER, broker

MISSPELT = [
    ("brokerRol=SLAVE", "brokerRole"),
    ("BrokerRole=SYNC_MASTER", "brokerRole"),
    ("brokerIdd=1", "brokerId"),
    ("storePathRootDirr=/data", "storePathRootDir"),
    ("store_path_root_dir=/data", "storePathRootDir"),
    ("storePathCommitlog=/data", "storePathCommitLog"),
    ("flushDiskTyp=SYNC_FLUSH", "flushDiskType"),
    ("flushDiskTpye=SYNC_FLUSH", "flushDiskType"),
    ("fileReserveTime=720", "fileReservedTime"),
    ("brokerPermision=4", "brokerPermission"),
    ("bindAdress=127.0.0.1", "bindAddress"),
    ("tls.server.mod=enforcing", "tls.server.mode"),
    ("tls.server.need.client.auht=require", "tls.server.need.client.auth"),
    ("aclEnabled=true", "aclEnable"),
    ("authenticationEnable=true", "authenticationEnabled"),
    ("enableDLegerCommitlog=true", "enableDLegerCommitLog"),
    ("messageStorePlugin=org.example.Store", "messageStorePlugIn"),
    ("tieredStorageLevl=FORCE", "tieredStorageLevel"),
    ("storePathRoot=/data", "storePathRootDir"),
    ("storePath=/data", "storePathRootDir"),
    ("storePathRootDirectory=/data", "storePathRootDir"),
    ("rootDir=/data", "storePathRootDir"),
    ("commitLog=/data", "storePathCommitLog"),
    ("namesrvAddress=mq1:9876", "namesrvAddr"),
    ("nameServerAddresses=mq1:9876", "namesrvAddr"),
    ("name_server=mq1:9876", "namesrvAddr"),
    ("namesrv=mq1:9876", "namesrvAddr"),
    ("authentication=true", "authenticationEnabled"),
    ("needClientAuth=require", "tls.server.need.client.auth"),
    ("bindAddr=127.0.0.1", "bindAddress"),
    ("fileReserved=720", "fileReservedTime"),
]


@pytest.mark.parametrize(("line", "meant"), MISSPELT)
def test_misspelt_key_that_guards_data_or_access_is_refused(line: str, meant: str) -> None:
    key = line.partition("=")[0]
    with pytest.raises(ConfigError) as caught:
        broker(f"# one\n{line}\n")
    text = str(caught.value)
    assert text.startswith(f"b.conf:2: {key}: unknown key; did you mean {meant}? ")
    assert f"--accept-ignored {key}" in text


@pytest.mark.parametrize(("line", "meant"), MISSPELT)
def test_misspelt_key_that_is_accepted_is_a_warning(line: str, meant: str) -> None:
    key = line.partition("=")[0]
    [warning] = broker(line, key).warnings
    assert str(warning).startswith(f"b.conf:1: {key}: is ignored, as accepted by --accept-ignored")
    assert meant in str(warning)


def test_misspelt_key_with_a_harmless_value_is_a_warning() -> None:
    [warning] = broker("aclEnabled=false").warnings
    assert str(warning) == "b.conf:1: aclEnabled: unknown key, ignored; did you mean aclEnable?"


@pytest.mark.parametrize("name", ["ROCKETPY_ACL_ENABLED", "ROCKETPY_ACLENABLED"])
def test_misspelt_key_in_the_environment_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"environment {name}: .*did you mean aclEnable"):
        broker("", **{name: "true"})
    key = "aclEnabled" if name.endswith("_ENABLED") else "aclenabled"
    [warning] = broker("", key, **{name: "true"}).warnings
    assert "is ignored, as accepted" in str(warning)


@pytest.mark.parametrize(
    "key",
    [
        # Keys of older versions, which many published files have, and of other parts.
        "storePathConsumeQueue",
        "storePathIndex",
        "storeCheckpoint",
        "abortFile",
        "checkTransactionMessageEnable",
        "sendMessageThreadPool",
        "broker",
        "store",
        "haTlsEnable",
        "brokerNameSuffix",
    ],
)
def test_key_with_other_words_is_not_taken_for_a_guarded_one(key: str) -> None:
    [warning] = broker(f"{key}=1").warnings
    assert str(warning) == f"b.conf:1: {key}: unknown key, ignored"


def test_variables_of_a_container_service_are_not_settings() -> None:
    names = ["NAMESRV_PORT", "NAMESRV_SERVICE_HOST", "NAMESRV_PORT_9876_TCP_ADDR", "BROKER_PORT"]
    found = broker("", **{f"ROCKETPY_{name}": "tcp://10.0.0.1:9876" for name in names})
    assert found.warnings == ()


@pytest.mark.parametrize("name", ["ROCKETPY_STORE_PATH_ROOT", "ROCKETPY_NAMESRV_ADDRESS"])
def test_abbreviated_or_extended_key_in_the_environment_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"environment {name}: .*did you mean"):
        broker("", **{name: "x"})


def test_extended_key_on_the_command_line_gets_a_proposal() -> None:
    with pytest.raises(ConfigError, match=r"no such key; did you mean namesrvAddr\?"):
        load(Sources(overrides=["namesrvAddress=mq1:9876"]), BROKER)


def test_misspelt_key_of_another_server_is_a_warning() -> None:
    loaded = load(Sources(text="flushDiskTyp=SYNC_FLUSH", name="n.conf"), [NamesrvConfig])
    assert [str(each) for each in loaded.warnings] == [
        "n.conf:1: flushDiskTyp: unknown key, ignored"
    ]
