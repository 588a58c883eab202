"""Settings of replication."""

from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import Sources, load
from rocketpy.testing.sim_files import SimFiles


def test_defaults_are_those_of_apache() -> None:
    config = load(Sources(), [ReplicationConfig]).get(ReplicationConfig)

    assert (config.in_sync_replicas, config.slave_timeout) == (1, 3_000)
    assert (config.ha_transfer_batch_size, config.ha_max_gap_not_in_sync) == (32_768, 256 << 20)
    assert not config.allows_slaves


def test_keys_have_the_names_of_apache() -> None:
    sources = Sources(overrides=("maxHaTransferByteInSecond=5000", "haFlowControlEnable=true"))

    config = load(sources, [ReplicationConfig]).get(ReplicationConfig)

    assert config.max_ha_transfer_byte_in_second == 5_000


@pytest.mark.parametrize(
    ("ip", "is_allowed"),
    [
        ("10.0.0.1", True),
        ("10.0.0.2", False),
        ("10.1.200.3", True),
        ("::ffff:10.0.0.1", True),
        ("fe80::1", True),
        ("a name", False),
    ],
)
def test_allowed_peers_are_addresses_and_networks(ip: str, is_allowed: bool) -> None:
    config = ReplicationConfig(ha_allowed_peers="10.0.0.1; 10.1.0.0/16;fe80::/10;")

    assert config.allows_slaves
    assert config.allows_classic(ip) is is_allowed


@pytest.mark.parametrize(
    "wrong",
    [
        {"ha_allowed_peers": "broker-a"},
        {"ha_master_address": "10.0.0.1"},
        {"ha_master_address": "10.0.0.1:0"},
        {"ha_master_address": "10.0.0.1:65536"},
        {"ha_housekeeping_interval": 5_000},
    ],
    ids=str,
)
def test_wrong_value_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ReplicationConfig(**wrong)


def test_secret_is_read_without_blanks_around_it() -> None:
    files = SimFiles()
    files.write_bytes(Path("/secret"), b"0123456789abcdef\n")
    config = ReplicationConfig(replication_secret_file="/secret")

    assert config.read_secret(files) == b"0123456789abcdef"
    assert ReplicationConfig().read_secret(files) == b""


def test_short_or_missing_secret_is_refused() -> None:
    files = SimFiles()
    files.write_bytes(Path("/short"), b"secret")
    for path in ("/short", "/missing"):
        with pytest.raises(ConfigError, match="replicationSecretFile"):
            ReplicationConfig(replication_secret_file=path).read_secret(files)
