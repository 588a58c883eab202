"""Several name servers, one in use: the next one is tried when it fails."""

import logging
import os
import random
from collections.abc import Sequence

from rocketpy.client.cluster.remoting import Remoting
from rocketpy.errors import (
    ClientError,
    ConfigError,
    ConnectError,
    NameServerAddressError,
    NoNameServerError,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.server_peer import split_address

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_PORT = 9876
_MIN_SHARE_MS = 500
_EVERY_ONE_ANSWERS = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    RequestCode.GET_TOPICS_BY_CLUSTER,
}
_NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def parse_addresses(text: str | Sequence[str]) -> tuple[str, ...]:
    """Split `"a:9876;b"` (also with commas, or a sequence) into addresses with ports.

    Raises:
        ConfigError: one of them is no address.
    """
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else text
    addresses = []
    for part in parts:
        address = part.strip().removeprefix("http://").removeprefix("rocketmq://").rstrip("/")
        if not address:
            continue
        if ":" not in address.rpartition("]")[2]:
            address = f"{address}:{DEFAULT_PORT}"
        try:
            split_address(address)
        except ConnectError as error:
            raise ConfigError(str(error), key="name_servers") from None
        addresses.append(address)
    return tuple(addresses)


def find_addresses(given: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the addresses given, or those of `NAMESRV_ADDR` in the environment if None is."""
    return parse_addresses(os.environ.get("NAMESRV_ADDR", "") if given is None else given)


class NameServers:
    """Asks one name server at a time.

    Args:
        addresses: `host:port` of each.
        remoting: how requests travel.
        rng: chooses the first, so that a fleet of clients spreads.
        timeout_ms: limit for an answer; each server has its share of it.

    Attributes:
        failure: why the last question was answered by none, empty when it was.
    """

    def __init__(
        self, addresses: Sequence[str], remoting: Remoting, rng: random.Random, timeout_ms: int
    ) -> None:
        self.addresses: tuple[str, ...] = tuple(addresses)
        self._remoting = remoting
        share_ms = timeout_ms // max(1, len(self.addresses))
        self._timeout_ms = max(share_ms, min(_MIN_SHARE_MS, timeout_ms))
        self._index = rng.randrange(len(self.addresses)) if self.addresses else 0
        self.failure: str = ""

    @property
    def current(self) -> str | None:
        """The one in use."""
        return self.addresses[self._index] if self.addresses else None

    async def invoke(self, code: int, ext_fields: dict[str, str]) -> RemotingCommand:
        """Ask the current name server, then the others in turn; any response counts.

        Raises:
            NoNameServerError: none answered; says what each one did.
            NameServerAddressError: none is given, or none of them is a name server.
        """
        if not self.addresses:
            msg = "no name server given: pass it to connect(), or set NAMESRV_ADDR"
            raise NameServerAddressError(msg)
        failures = []
        kind: type[NoNameServerError] = NameServerAddressError
        count = len(self.addresses)
        tried: set[int] = set()
        while len(tried) < count:
            index = self._index
            while index in tried:
                index = (index + 1) % count
            tried.add(index)
            address = self.addresses[index]
            try:
                response = await self._remoting.invoke(
                    address, make_request(code, dict(ext_fields)), self._timeout_ms
                )
            except ClientError as error:
                failures.append(str(error) if address in str(error) else f"{address}: {error}")
                kind = NoNameServerError
                logger.info(
                    "name server request failed: address=%(address)s error=%(error)r",
                    {"address": address, "error": error},
                )
            else:
                if code not in _EVERY_ONE_ANSWERS or response.code != _NOT_SUPPORTED:
                    self.failure = ""
                    return response
                failures.append(f"{address} is no name server; is it a broker's address?")
                logger.info(  # the error says so, too
                    "address is not a name server, perhaps a broker: address=%(address)s",
                    {"address": address},
                )
            # Requests at the same time share the index: only the first failure of a server moves
            # it, and each request tries every server once.
            if self._index == index:
                self._index = (index + 1) % count
        self.failure = "no name server answers: " + "; ".join(failures)
        raise kind(self.failure)
