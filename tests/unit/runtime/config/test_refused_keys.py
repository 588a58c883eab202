"""Values of Apache's keys that change what is stored, where, how often, or for which clients."""

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.failover.config import FailoverConfig
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.controller.config import ControllerConfig
from rocketpy.errors import ConfigError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.config.apache_keys import APACHE_KEYS
from rocketpy.runtime.config.config import ConfigSet, Sources, load, options_of
from rocketpy.runtime.config.refused_keys import GUARDED_KEYS, REFUSABLE_KEYS, REFUSALS
from rocketpy.store.config import MessageStoreConfig

BROKER = [BrokerConfig, MessageStoreConfig, RemotingServerConfig]


def broker(text: str, *accepted: str, **environ: str) -> ConfigSet:
    return load(Sources(text=text, name="b.conf", environ=environ, accepted=accepted), BROKER)


DANGEROUS = [
    "aclEnable=true",
    "aclEnable=yes",
    "authenticationEnabled=TRUE",
    "authorizationEnabled=true",
    "migrateAuthFromV1Enabled=true",
    "tls.enable=true",
    "tls.config.file=/etc/rocketmq/tls.properties",
    "storeType=defaultRocksDB",
    "configManagerVersion=v2",
    "storePathCommitLog=/a,/b",
    "storePathCommitLog=/a,",
    "readOnlyCommitLogStorePaths=/old",
    "storePathEpochFile=/var/e",
    "storePathBrokerIdentity=/var/i",
    "asyncLearner=true",
    "fetchControllerAddrByDnsLookup=true",
    "messageStorePlugIn=org.apache.rocketmq.tieredstore.TieredMessageStore",
    "tieredStorageLevel=NOT_IN_DISK",
    "tieredBackendServiceProvider=org.apache.rocketmq.tieredstore.provider.PosixFileSegment",
    "tieredMetadataServiceProvider=org.example.MetadataStore",
    "tieredStoreFilePath=/mnt/tier",
    "tieredStoreFileReservedTime=720",
    "objectStoreEndpoint=https://s3.example.org",
    "objectStoreBucket=messages",
    "enableDLegerCommitLog=true",
    "duplicationEnable=true",
    "enableLmq=true",
    "enableMultiDispatch=true",
    "enableConsumeQueueExt=true",
    "timerRocksDBEnable=true",
    "transRocksDBEnable=true",
    "indexRocksDBEnable=true",
    "rocksdbCQDoubleWriteEnable=true",
    "combineCQPreferCQType=defaultRocksDB",
    "combineCQLoadingCQTypes=defaultRocksDB",
    "popConsumerKVServiceEnable=true",
    "timerWheelSnapshotFlush=true",
    "enabledAppendPropCRC=true",
    "forceVerifyPropCRC=true",
    "clearRetryTopicWhenDeleteTopic=false",
    "fetchNamesrvAddrByAddressServer=true",
    "fetchNameSrvAddrByDnsLookup=true",
    "configBlackList=fileReservedTime;brokerConfigPath",
]


@pytest.mark.parametrize("line", DANGEROUS)
def test_dangerous_value_is_refused_with_place_key_and_advice(line: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        broker(f"# one\n{line}\n")
    text = str(caught.value)
    assert text.startswith(f"b.conf:2: {key}: {value!r} is not supported: ")
    assert f"--accept-ignored {key}" in text
    assert "this part of RocketPy" not in text


@pytest.mark.parametrize("line", DANGEROUS)
def test_accepted_value_is_a_warning(line: str) -> None:
    key, _, value = line.partition("=")
    [warning] = broker(line, key).warnings
    assert str(warning).startswith(f"b.conf:1: {key}: {value} is ignored, as accepted by ")


@pytest.mark.parametrize(
    "line",
    [
        "aclEnable=false",
        "authenticationEnabled=",
        "storeType=default",
        "storePathCommitLog=/data/commitlog",
        "messageStorePlugIn=",
        "tieredStorageLevel=DISABLE",
        "tieredStoreFilePath=",
        "clearRetryTopicWhenDeleteTopic=true",
        "combineCQLoadingCQTypes=default;defaultRocksDB",
        "configBlackList=configBlackList;brokerConfigPath",
    ],
)
def test_harmless_value_is_silent(line: str) -> None:
    assert broker(line).warnings == ()


def test_all_refused_values_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        broker("aclEnable=true\nlistenPort=x\nzzzzzz=1\nauthenticationEnabled=true\n")
    assert "(2 more; --check-config prints all)" in str(caught.value)
    assert [text.split(": ")[1] for text in caught.value.all_errors] == [
        "aclEnable",
        "listenPort",
        "authenticationEnabled",
    ]
    assert caught.value.warnings == ("b.conf:3: zzzzzz: unknown key, ignored",)


def test_refused_value_in_the_environment_or_on_the_command_line_counts() -> None:
    with pytest.raises(ConfigError, match="environment ROCKETPY_ACL_ENABLE: aclEnable"):
        broker("", ROCKETPY_ACL_ENABLE="true")
    with pytest.raises(ConfigError, match="-D: storeType"):
        load(Sources(overrides=["storeType=defaultRocksDB"]), BROKER)


def test_refused_value_that_another_source_replaces_is_accepted() -> None:
    text = "aclEnable=true\nstoreType=defaultRocksDB\nstoreType=default"
    found = load(Sources(text=text, name="b.conf", overrides=["aclEnable=false"]), BROKER)
    assert [each.key for each in found.warnings] == ["storeType"]  # given twice
    with pytest.raises(ConfigError, match="-D: aclEnable"):
        load(Sources(text="aclEnable=false", overrides=["aclEnable=true"]), BROKER)


def test_name_server_refuses_copies_and_access_control() -> None:
    for line in ("enableDLegerCommitLog=true", "authenticationEnabled=true"):
        with pytest.raises(ConfigError, match="is not supported"):
            load(Sources(text=line, name="n.conf"), [NamesrvConfig])


def test_accept_ignored_names_a_refused_key_only() -> None:
    with pytest.raises(ConfigError, match=r"--accept-ignored: brokerName: is not a key that is"):
        broker("", "brokerName")
    with pytest.raises(ConfigError, match=r"did you mean aclEnable\?"):
        broker("", "aclEnabel")
    with pytest.raises(ConfigError, match="brokerNam: is not a key that is refused"):
        broker("brokerNam=x", "brokerNam")
    assert broker("", "aclEnable").warnings == ()


def test_every_refused_key_is_apaches_and_says_what_to_do() -> None:
    assert set(REFUSALS) <= APACHE_KEYS
    for refusal in REFUSALS.values():
        assert refusal.reason
        assert refusal.advice


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
        ("brokername", "brokerName"),
        ("broker_name", "brokerName"),
        ("transactionCheckMin", ""),
        ("checkTransactionMessageEnable", ""),
        ("slowConsumerThreshold", ""),
        ("maxTransferCountOnMessageOnDisk", ""),
        ("pollMessageThreadPoolNums", ""),
        ("disableBrokerFastFailure", ""),
        ("autoCreateTopicDisable", ""),
        ("messageDelayLevl", "messageDelayLevel"),
    ],
)
def test_suggestion_is_a_misspelt_key_with_an_effect_or_none(typed: str, meant: str) -> None:
    [warning] = broker(f"{typed}=1").warnings
    hint = f"; did you mean {meant}?" if meant else ""
    assert str(warning) == f"b.conf:1: {typed}: unknown key, ignored{hint}"


def test_client_certificates_that_plain_text_evades_are_a_warning() -> None:
    text = "tls.server.need.client.auth=require"
    [warning] = broker(text).warnings
    assert str(warning).startswith("b.conf:1: tls.server.need.client.auth: protects nothing while")
    assert broker(f"{text}\ntls.server.mode=enforcing").warnings == ()
    loaded = load(Sources(text=text, name="n.conf"), [NamesrvConfig])
    assert [each.key for each in loaded.warnings] == ["tls.server.need.client.auth"]


def test_every_guarded_key_exists() -> None:
    known = {
        each.key
        for owner in [*BROKER, FailoverConfig, ReplicationConfig, NamesrvConfig, ControllerConfig]
        for each in options_of(owner)
    }
    assert known >= GUARDED_KEYS - REFUSABLE_KEYS


def test_tuning_of_tiered_storage_has_no_effect() -> None:
    [warning] = broker("tieredStoreGroupCommitSize=1").warnings
    assert str(warning).endswith("has no effect: tiered storage is not supported")
