"""A plain client for measurements: one blocking socket, requests without an SDK around them."""

import contextlib
import socket
from collections.abc import Iterable, Iterator

from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request
from rocketpy.proto.wire.frame import CommandReader

__all__ = ["RawClient", "connection", "quota"]


class RawClient:
    """Blocking connection for single requests.

    Args:
        address: `host:port`.
        timeout_s: of every answer.
    """

    def __init__(self, address: str, timeout_s: float = 60.0) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = CommandReader()
        self._answers: list[RemotingCommand] = []

    def ask(self, code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        """Send a request and return the response, with any code."""
        self._socket.sendall(encode_command(make_request(code, fields, body)))
        return self.answer()

    def ask_all(self, frames: Iterable[bytes], in_flight: int) -> Iterator[RemotingCommand]:
        """Send frames with a limit of unanswered ones, and yield responses as they arrive."""
        unanswered = 0
        for frame in frames:
            self._socket.sendall(frame)
            unanswered += 1
            if unanswered >= in_flight:
                yield self.answer()
                unanswered -= 1
        for _ in range(unanswered):
            yield self.answer()

    def answer(self) -> RemotingCommand:
        """Wait for the next answer.

        Raises:
            ConnectionError: the server has closed the connection.
        """
        while not self._answers:
            data = self._socket.recv(1 << 18)
            if not data:
                raise ConnectionError("the server has closed the connection")
            self._answers = self._reader.feed(data)[::-1]
        return self._answers.pop()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@contextlib.contextmanager
def connection(address: str) -> Iterator[RawClient]:
    """Open a connection for a `with` block."""
    client = RawClient(address)
    try:
        yield client
    finally:
        client.close()


def quota(ordered: list[float], share: float) -> float:
    """Return a quantile of ordered values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
