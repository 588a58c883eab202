"""Settings of a broker in a group with a controller; all keys are Apache's.

Source: BrokerConfig (5.4.0)
"""

from dataclasses import dataclass

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.setting_checks import address_fault

_LAST_PRIORITY = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class FailoverConfig:
    """Settings of a replica.

    Attributes:
        enable_controller_mode: a controller names the master of the group.
        controller_addr: addresses of the controllers, with `;` between them.
        all_ack_in_sync_state_set: a message is acknowledged when every replica of the sync-state
            set has it; otherwise when `inSyncReplicas` copies exist.
        ha_max_time_slave_not_catchup: a replica that has not been level with the master for so
            long leaves the sync-state set.
        sync_broker_metadata_period: pause between two questions for the master, where the answers
            to heartbeats do not name it (Apache's controllers).
        controller_heart_beat_timeout_mills: silence after which a controller elects another master.
        broker_heartbeat_interval: pause between two heartbeats.
        broker_election_priority: of replicas with equal logs, the lowest number is elected.
    """

    enable_controller_mode: bool = option(False)
    controller_addr: str = option("")
    all_ack_in_sync_state_set: bool = option(True, only_with="enable_controller_mode")
    ha_max_time_slave_not_catchup: int = option(15_000, unit="ms", minimum=1_000)
    sync_broker_metadata_period: int = option(5_000, unit="ms", minimum=100)
    controller_heart_beat_timeout_mills: int = option(10_000, unit="ms", minimum=1_000)
    broker_heartbeat_interval: int = option(1_000, unit="ms", minimum=10)
    broker_election_priority: int = option(_LAST_PRIORITY, minimum=0, maximum=_LAST_PRIORITY)

    def __post_init__(self) -> None:
        """Check combinations.

        Raises:
            ConfigError: an address is malformed, or the mode is on without one; the key is named.
        """
        if self.enable_controller_mode and not self.controller_addresses:
            reason = "must name the controllers, because enableControllerMode is true"
            raise ConfigError(reason, key="controllerAddr")
        for address in self.controller_addresses:
            if fault := address_fault(address):
                raise ConfigError(fault, key="controllerAddr")

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """Addresses of the controllers."""
        parts = (part.strip() for part in self.controller_addr.split(";"))
        return tuple(dict.fromkeys(part for part in parts if part))
