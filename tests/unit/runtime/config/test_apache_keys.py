import re

from rocketpy.runtime.config.apache_keys import APACHE_KEYS, unsupported_reason


def test_keys_of_every_part_are_known() -> None:
    assert {
        "storePathRootDir",
        "brokerIP1",
        "brokerName",
        "needWaitForService",
        "serverSelectorThreads",
        "connectTimeoutMillis",
        "authenticationEnabled",
        "tls.server.mode",
        "dLegerGroup",
    } <= APACHE_KEYS
    assert all(re.fullmatch(r"[a-zA-Z0-9.]+", key) for key in APACHE_KEYS)


def test_every_key_has_a_reason() -> None:
    assert "RocksDB" in unsupported_reason("transRocksDBEnable")
    assert "DLedger" in unsupported_reason("dLegerGroup")
    assert "Netty" in unsupported_reason("useEpollNativeSelector")
    assert all(unsupported_reason(key) for key in APACHE_KEYS)


def test_reasons_do_not_deny_controllers_and_acting_masters() -> None:
    reasons = {key: unsupported_reason(key) for key in APACHE_KEYS}
    false = ("does not have", "no controller", "only controller", "this broker only")
    assert [key for key, text in reasons.items() if any(each in text for each in false)] == []
    assert reasons["checkSyncStateSetPeriod"] == "the sync-state set is checked ten times a second"
    assert reasons["enableRemoteEscape"] == "it is a key of a broker with enableSlaveActingMaster"
    assert reasons["supportActingMaster"] == "it is a key of a name server"
