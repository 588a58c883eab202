"""The boss: accepts sockets and hands over those that are admitted.

Source: the boss event loop group of NettyRemotingServer (5.4.0).
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

from rocketpy.remoting.network.admission import Admission
from rocketpy.runtime.os_resources import DescriptorGauge

_log = logging.getLogger(__name__)

# A flood of connections must not keep the loop from serving those it has.
_ACCEPTS_PER_WAKE_UP = 64
_NO_RESOURCES_PAUSE_S = 1.0
_NO_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Boss:
    """Accepts connections on the main loop."""

    def __init__(
        self,
        listener: socket.socket,
        admission: Admission,
        hand_over: Callable[[socket.socket, str, bool], None],
        descriptors: DescriptorGauge,
    ) -> None:
        """Take a listening socket.

        Args:
            listener: non-blocking, already listening; closed by `stop`.
            admission: counts and limits.
            hand_over: gets each admitted socket, its IP address and whether descriptors are
                short; must `release` it later.
            descriptors: checks whether they are.
        """
        self._listener = listener
        self._admission = admission
        self._hand_over = hand_over
        self._descriptors = descriptors
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Accept on this loop from now on."""
        self._loop = loop
        loop.add_reader(self._listener, self._accept)

    def stop(self) -> None:
        """Stop accepting and release the port."""
        if self._loop is not None:
            self._loop.remove_reader(self._listener)
            self._loop = None
        self._listener.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_WAKE_UP):
            try:
                sock, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_RESOURCES:
                    raise
                self._pause(error)
                return
            ip = address[0]
            if self._admission.admit(ip):
                # Accepted sockets do not inherit the flag on Linux.
                sock.setblocking(False)
                self._hand_over(sock, ip, self._descriptors.take())
            else:
                sock.close()

    def _pause(self, error: OSError) -> None:
        """Pause accepting without descriptors or memory; the connection stays in the backlog."""
        assert self._loop is not None
        _log.error("accept failed, pausing: error=%s", error)
        # The listener stays readable: without the pause the loop would spin.
        self._loop.remove_reader(self._listener)
        self._loop.call_later(_NO_RESOURCES_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._loop is not None:
            self._loop.add_reader(self._listener, self._accept)
