"""Readiness of a broker: whether clients can find it and store messages.

That a broker answers does not say that it takes messages: its disk may be full, its store
read-only after a failed flush, or no name server may have it in its routes.
"""

from collections.abc import Callable
from typing import Protocol

from rocketpy.broker.cluster.name_server_link import NameServerLink
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.proto.perm import is_writeable
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.readiness import NotReady, ServerState, state_reasons


class Store(Protocol):
    """Part of the message store that readiness depends on."""

    @property
    def read_only_reason(self) -> str | None:
        """Reason for rejecting puts; None if the store accepts them."""
        ...

    @property
    def log_refusal(self) -> str | None:
        """Reason for rejecting parts of a master's log; None if the store accepts them."""
        ...

    @property
    def shortage(self) -> str | None:
        """Resource that the last refused put lacked; None once it is available again."""
        ...


class BrokerReadiness:
    """Reasons why a broker is not ready; callable on any thread.

    Args:
        configs: current settings.
        link: registration at the name servers.
        store: where messages are put.
        clock: wall time.

    Attributes:
        state: phase of the broker, set by it.
        offsets_failure: returns why offsets of groups are not written; None if they are.
    """

    def __init__(
        self,
        configs: LiveBrokerConfig,
        link: NameServerLink,
        store: Store,
        clock: Clock,
    ) -> None:
        self.state: ServerState = ServerState.STARTING
        self._configs = configs
        self._link = link
        self._store = store
        self._clock = clock
        self.offsets_failure: Callable[[], str | None] = lambda: None

    def reasons(self) -> list[NotReady]:
        """Return why the broker is not ready; empty if it is."""
        reasons = state_reasons(self.state)
        if reasons:
            return reasons
        # The store of a slave refuses messages, but not its master's log.
        is_slave = self._configs.store.is_slave
        refusal = self._store.log_refusal if is_slave else self._store.read_only_reason
        refusal = refusal or self._store.shortage
        if refusal is not None:
            reasons.append(NotReady("puts_refused", refusal))
        failure = self.offsets_failure()
        if failure is not None:
            message = f"offsets of groups are not written to disk: {failure}"
            reasons.append(NotReady("offsets_not_written", message))
        config = self._configs.broker
        if not is_writeable(config.broker_permission):
            message = f"brokerPermission is {config.broker_permission}: producers may not send"
            reasons.append(NotReady("no_write_permission", message))
        if self._clock.time_ms() < config.start_accept_send_request_time_stamp:
            message = "startAcceptSendRequestTimeStamp is not reached yet"
            reasons.append(NotReady("sends_not_accepted_yet", message))
        if self._link.addresses and not self._link.is_registered:
            servers = ";".join(self._link.addresses)
            message = f"no name server has accepted the last registration: {servers}"
            reasons.append(NotReady("not_registered", message))
        conflict = self._link.name_conflict
        if self._link.addresses and conflict is not None:
            reasons.append(NotReady("name_conflict", conflict))
        return reasons
