"""Misspelt keys whose values must not be ignored."""

import pytest

from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.runtime.config.config import Sources, load
from tests.unit.runtime.config.test_refused_keys import broker

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


def test_misspelt_key_of_another_server_is_a_warning() -> None:
    loaded = load(Sources(text="flushDiskTyp=SYNC_FLUSH", name="n.conf"), [NamesrvConfig])
    assert [str(each) for each in loaded.warnings] == [
        "n.conf:1: flushDiskTyp: unknown key, ignored"
    ]
