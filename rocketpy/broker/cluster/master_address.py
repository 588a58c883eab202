"""Addresses of a slave's master: as the name servers give them, or as configured.

The response to a registration names the master's ordinary address and its HA address. The last
known addresses stay while the master is away, because it usually returns with them.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import structlog

_log = structlog.get_logger(__name__)

_HA_PORT_DISTANCE: Final = 1


class MasterAddresses(NamedTuple):
    """Addresses of a master, `host:port`.

    Attributes:
        address: for ordinary requests; empty: unknown.
        ha_address: of the HA port; empty: unknown.
    """

    address: str = ""
    ha_address: str = ""


def _with_next_port(address: str) -> MasterAddresses:
    host, _, port = address.rpartition(":")
    return MasterAddresses(address, f"{host}:{int(port) + _HA_PORT_DISTANCE}")


class MasterAddress:
    """Known addresses of the master; lives on the broker's loop.

    Args:
        ha_master_address: the configured HA address, which has precedence over that of the name
            servers; without name servers the ordinary port is the one before it, as by default.
        master_address: ordinary address of the only master that is followed, as a controller
            names it. Its HA port is the next one until a name server gives another.

    Attributes:
        known: the addresses; both are empty until they are known.
        on_change: called after `known` changed.
    """

    def __init__(self, ha_master_address: str = "", *, master_address: str = "") -> None:
        self._configured = ha_master_address
        self._only = master_address
        self.known: MasterAddresses = MasterAddresses()
        self.on_change: list[Callable[[], None]] = []
        if master_address:
            self.known = _with_next_port(master_address)
        elif ha_master_address:
            host, _, port = ha_master_address.rpartition(":")
            ordinary = f"{host}:{int(port) - _HA_PORT_DISTANCE}"
            self.known = MasterAddresses(ordinary, ha_master_address)

    @property
    def is_known(self) -> bool:
        """Whether the master can be asked."""
        return bool(self.known.address)

    def elected(self, master_address: str) -> None:
        """Follow another master, which a controller names."""
        self._only = master_address
        self.known = _with_next_port(master_address)
        for call in self.on_change:
            call()

    def registered(self, address: str | None, ha_address: str | None) -> None:
        """Apply the addresses of a name server's response; without any there is no master now.

        Args:
            address: ordinary address of the master.
            ha_address: its HA address.
        """
        # A name server may still name the previous master.
        if not address or (self._only and address != self._only):
            return
        found = MasterAddresses(address, self._configured or ha_address or "")
        if found == self.known:
            return
        self.known = found
        _log.info("master address known", master=found.address, ha_address=found.ha_address)
        for call in self.on_change:
            call()
