"""Ports for servers that tests start in other processes."""

import contextlib
import random
import socket


def free_port() -> int:
    """Return a port free on all of loopback, below those that the system gives to connections.

    Nobody's connection takes it before the server does, and one that was killed finds it again. The
    neighbours are free, too: Apache's broker also listens two below, and one above for its slaves.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for each in (port - 2, port, port + 1):
                held.enter_context(socket.create_server(("0.0.0.0", each)))
            return port
