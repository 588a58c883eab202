"""Settings of a name server.

Source: NamesrvConfig (5.4.0); RocketPy's additional keys are marked with (ours).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.live_config import LIVE_FILE_NAME
from rocketpy.runtime.config.operation import OperationConfig

DEFAULT_PORT: Final = 9876


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesrvConfig:
    """Settings of a name server.

    Attributes:
        data_dir: holds kvConfig.json; created with the first value put (ours; default
            `~/namesrv`, as Apache's).
        kv_config_path: that file, where it must be elsewhere.
        order_message_enable: routes carry the KV value of namespace ORDER_TOPIC_CONFIG.
        return_order_topic_config_to_broker: the response to a registration carries that namespace.
        scan_not_active_broker_interval: ms between two scans for inactive brokers.
        support_acting_master: the slave with the lowest id replaces a lost master.
        notify_min_broker_id_changed: notify the brokers of a set when its lowest id changes.
        enable_all_topic_list: serve request 206.
        enable_topic_list: serve requests 224 and 311 to 313.
        need_wait_for_service: reject route requests until brokers had time to register.
        wait_seconds_for_service: duration of that wait after the start.
        delete_topic_with_broker_registration: a full registration also removes what it lacks.
        default_thread_pool_nums: threads for everything but routes; 0 runs inline.
        default_thread_pool_queue_capacity: requests that may wait for them.
        client_request_thread_pool_nums: threads for routes; 0 runs inline.
        client_request_thread_pool_queue_capacity: requests that may wait for them.
        enable_controller_in_namesrv: `rocketpy namesrv` also runs a controller, with its keys from
            the same configuration; it listens on another port.
        max_topics: limit of topics; a registration drops topics beyond it (ours).
        max_brokers: limit of broker addresses; further ones are rejected (ours).
        max_kv_entries: limit of KV values (ours).
        server: settings of the remoting server.
        operation: keys of logs and health.
    """

    data_dir: str = option("", path=True)
    kv_config_path: str = option("", path=True)
    order_message_enable: bool = option(False, live=True)
    return_order_topic_config_to_broker: bool = option(True, live=True)
    scan_not_active_broker_interval: int = option(5_000, minimum=100, maximum=60_000, unit="ms")
    support_acting_master: bool = option(False, live=True)
    notify_min_broker_id_changed: bool = option(False, live=True)
    enable_all_topic_list: bool = option(True, live=True)
    enable_topic_list: bool = option(True, live=True)
    need_wait_for_service: bool = option(False, live=True)
    wait_seconds_for_service: int = option(45, live=True, minimum=0, maximum=3_600, unit="s")
    delete_topic_with_broker_registration: bool = option(False, live=True)
    default_thread_pool_nums: int = option(0, minimum=0, maximum=64)
    default_thread_pool_queue_capacity: int = option(
        10_000, minimum=1, maximum=1_000_000, only_with="default_thread_pool_nums"
    )
    client_request_thread_pool_nums: int = option(0, minimum=0, maximum=64)
    client_request_thread_pool_queue_capacity: int = option(
        50_000, minimum=1, maximum=1_000_000, only_with="client_request_thread_pool_nums"
    )
    enable_controller_in_namesrv: bool = False
    max_topics: int = option(100_000, live=True, minimum=1, maximum=10_000_000)
    max_brokers: int = option(1_024, live=True, minimum=1, maximum=100_000)
    max_kv_entries: int = option(10_000, live=True, minimum=0, maximum=1_000_000)
    server: RemotingServerConfig = field(
        default_factory=lambda: RemotingServerConfig(listen_port=DEFAULT_PORT)
    )
    operation: OperationConfig = field(default_factory=OperationConfig)

    def config_warnings(self) -> Iterator[tuple[str, str]]:
        """Yield keys, and why their values do less than they seem to."""
        return self.server.config_warnings()

    @property
    def kv_config_file(self) -> Path:
        """File of the KV values."""
        if self.kv_config_path:
            return Path(self.kv_config_path)
        directory = Path(self.data_dir) if self.data_dir else Path.home() / "namesrv"
        return directory / "kvConfig.json"

    @property
    def live_settings_file(self) -> Path:
        """File of settings that were changed at run time, beside the KV values."""
        return self.kv_config_file.with_name(LIVE_FILE_NAME)
