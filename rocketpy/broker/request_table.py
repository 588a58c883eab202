"""Every request a broker answers: its code, its processor and the kind of work it is.

All processors pass through here on their way to a server. So this is where something can stand
in front of every one of them: a guard sees each request before its processor does.

Source: BrokerController.registerProcessor (5.4.0).
"""

from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, TypeAlias

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor, Response
from rocketpy.remoting.server import RemotingServer

Guard: TypeAlias = Callable[[Channel, RemotingCommand], RemotingCommand | None]
"""Returns the response that refuses a request, or None to let it pass."""


class RequestRoute(NamedTuple):
    """What answers one request code.

    Attributes:
        processor: answers it.
        kind: name of its pool, as Apache's keys begin: send, pull, litePull, query, ...
    """

    processor: Processor
    kind: str


class RequestTable:
    """Request codes with their processors and pools.

    Args:
        pools: business pools by kind.
        guard: sees every request first; None costs nothing.
    """

    def __init__(self, pools: Mapping[str, BusinessPool], guard: Guard | None = None) -> None:
        self._pools = pools
        self._guard = guard
        self._routes: dict[int, RequestRoute] = {}

    @property
    def has_guard(self) -> bool:
        """Whether something sees every request first."""
        return self._guard is not None

    @property
    def routes(self) -> Mapping[int, RequestRoute]:
        """Request code to route."""
        return self._routes

    def add(self, kind: str, processors: Mapping[int, Processor]) -> None:
        """Let processors answer requests of one kind; each code has one processor.

        Args:
            kind: name of a pool.
            processors: request code to processor.
        """
        assert kind in self._pools, kind
        for code, processor in processors.items():
            assert code not in self._routes, code
            self._routes[int(code)] = RequestRoute(self._guarded(processor), kind)

    def register_on(self, server: RemotingServer, *, without: Container[int] = ()) -> None:
        """Let a server answer these requests; before it starts.

        Args:
            server: the server.
            without: request codes it does not answer.
        """
        for code, route in self._routes.items():
            if code not in without:
                server.register(code, route.processor, self._pools[route.kind])

    def _guarded(self, processor: Processor) -> Processor:
        guard = self._guard
        if guard is None:
            return processor

        def process(channel: Channel, request: RemotingCommand) -> Response:
            refused = guard(channel, request)
            return processor(channel, request) if refused is None else refused

        return process
