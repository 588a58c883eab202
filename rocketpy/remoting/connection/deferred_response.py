"""Response that a processor sets later, from any thread, and returns instead of a response.

The request stays in progress on its connection, so that a peer cannot have more of them than the
limits allow, but its body and header fields are not kept.
"""

from collections.abc import Callable

from rocketpy.proto.wire.command import RemotingCommand


class DeferredResponse:
    """Response that is set later; made by `Channel.defer`, returned by the processor.

    It must be set exactly once, after failures too: there is no time-out. A response that is set
    after the channel was closed is dropped.

    Attributes:
        request: the request without its body and header fields.
        count: how many requests it answers.
    """

    __slots__ = ("_complete", "_unset", "count", "request")

    def __init__(
        self,
        request: RemotingCommand,
        complete: Callable[["DeferredResponse", object], None],
        count: int = 1,
    ) -> None:
        self.count: int = count
        # A copy without body and fields: a deferred send would keep its message in memory twice.
        self.request: RemotingCommand = RemotingCommand(
            request.code,
            request.language,
            request.version,
            request.opaque,
            request.flag,
            None,
            {},
            b"",
            request.serialize_type,
        )
        self._complete = complete
        # Taking the one element is atomic, on free-threaded interpreters too: no lock per response.
        self._unset = [True]

    def set(self, response: RemotingCommand | bytes | list[bytes | bytearray | memoryview]) -> None:
        """Set the response; any thread. Responses set close together leave in one write.

        Args:
            response: a command, or the whole frame as bytes or as a list of buffers.

        Raises:
            RuntimeError: it was set before.
        """
        try:
            self._unset.pop()
        except IndexError:
            raise RuntimeError(
                f"the response to request {self.request.code} was set twice"
            ) from None
        self._complete(self, response)
