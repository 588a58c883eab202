"""Table of all requests that a broker answers: code, processor and kind.

All processors are registered here before they reach a server, so a guard can be put in front of
every one of them.

Source: BrokerController.registerProcessor (5.4.0).
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor, Response
from rocketpy.remoting.server import RemotingServer

Guard: TypeAlias = Callable[[Channel, RemotingCommand], RemotingCommand | None]
"""Returns the response that refuses a request, or None to accept it."""


class RequestRoute(NamedTuple):
    """Processor of one request code.

    Attributes:
        processor: processes the requests.
        kind: name of its pool, the prefix of Apache's keys: send, pull, litePull, query, ...
    """

    processor: Processor
    kind: str


class RequestTable:
    """Processors and pools by request code.

    Args:
        pools: business pools by kind.
        guard: called with each request first; None costs nothing.
    """

    def __init__(self, pools: Mapping[str, BusinessPool], guard: Guard | None = None) -> None:
        self._pools = pools
        self._guard = guard
        self._routes: dict[int, RequestRoute] = {}

    @property
    def has_guard(self) -> bool:
        """Whether a guard sees each request first."""
        return self._guard is not None

    @property
    def routes(self) -> Mapping[int, RequestRoute]:
        """Routes by request code."""
        return self._routes

    def add(self, kind: str, processors: Mapping[int, Processor]) -> None:
        """Register processors of one kind; each code has one processor.

        Args:
            kind: name of a pool.
            processors: processors by request code.
        """
        assert kind in self._pools, kind
        for code, processor in processors.items():
            assert code not in self._routes, code
            self._routes[int(code)] = RequestRoute(self._guarded(processor), kind)

    def replace(self, codes: Iterable[int], change: Callable[[Processor], Processor]) -> None:
        """Replace the processors of some codes; codes without a processor stay without one.

        Args:
            codes: request codes.
            change: returns the new processor for an old one.
        """
        for code in map(int, codes):
            if code in self._routes:
                route = self._routes[code]
                self._routes[code] = route._replace(processor=change(route.processor))

    def register_on(self, server: RemotingServer, *, without: Container[int] = ()) -> None:
        """Register the processors at a server, before it starts.

        Args:
            server: the server.
            without: request codes that it does not answer.
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
