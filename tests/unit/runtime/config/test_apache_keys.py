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
