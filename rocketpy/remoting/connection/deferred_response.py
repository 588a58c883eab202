"""A response that comes later, from any thread: what a processor returns instead of one.

The request stays in hand on its connection, so that a peer cannot have more of them than the
limits allow, but its body and header fields are not kept.
"""

from collections.abc import Callable

from rocketpy.proto.wire.command import RemotingCommand


class DeferredResponse:
    """The place of one response; made by `Channel.defer`, returned by the processor.

    Whoever makes one sees to it that it is set once, whatever happens: nothing here times out. When
    the channel closes it is released, and what is set afterwards is dropped.

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
        # Taking the one element is atomic, on free-threaded interpreters too: no lock a response.
        self._unset = [True]

    def set(self, response: RemotingCommand | bytes | list[bytes | bytearray | memoryview]) -> None:
        """Give the response; any thread. Those set close together leave in one write.

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
