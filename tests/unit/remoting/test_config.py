import pytest

from rocketpy.errors import ConfigError
from rocketpy.remoting.config import (
    RemotingClientConfig,
    RemotingServerConfig,
    TlsMode,
    TlsServerConfig,
)
from rocketpy.remoting.network.tls_context import server_context


def test_config_defaults_match_documentation() -> None:
    config = RemotingServerConfig()
    assert config.server_selector_threads == 1
    assert config.server_channel_max_idle_time_seconds == 120
    assert config.server_max_connections == 5000
    assert config.server_max_connections_per_ip == 0
    assert config.write_buffer_high_water_mark == 1024 * 1024
    assert config.max_in_flight_per_connection == 4096
    assert config.first_frame_timeout_ms == 15_000
    assert config.tls.mode is TlsMode.PERMISSIVE
    client = RemotingClientConfig()
    assert client.connect_timeout_millis == 3000
    assert client.client_channel_max_idle_time_seconds == 120


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("listenPort", {"listen_port": 70_000}),
        ("serverSelectorThreads", {"server_selector_threads": 0}),
        ("writeBufferHighWaterMark", {"write_buffer_high_water_mark": 5}),
    ],
)
def test_invalid_config_value_error_names_key(key: str, values: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as raised:
        RemotingServerConfig(**values)  # type: ignore[arg-type]
    assert raised.value.key == key


def test_enforcing_tls_without_files_fails() -> None:
    assert server_context(TlsServerConfig()) is None
    assert (
        server_context(TlsServerConfig(mode=TlsMode.DISABLED, key_path="x", cert_path="y")) is None
    )
    with pytest.raises(ConfigError, match="enforcing needs"):
        server_context(TlsServerConfig(mode=TlsMode.ENFORCING))
    with pytest.raises(ConfigError, match="/nowhere/cert"):
        server_context(TlsServerConfig(key_path="/nowhere/key", cert_path="/nowhere/cert"))
