"""Ports for servers that tests start in other processes."""

import contextlib
import os
import random
import socket
from collections import deque

_FIRST, _END = 20_000, 32_000
_rng = random.SystemRandom()
_given: deque[int] = deque(maxlen=500)
"""Not given again while their servers may not have taken them yet, nor their neighbours."""


def free_port() -> int:
    """Return a port free on all of loopback, below those that the system gives to connections.

    Nobody's connection takes it before the server does, and one that was killed finds it again. The
    neighbours are free, too: Apache's broker also listens two below, and one above for its slaves.
    """
    first, end = _share()
    while True:
        port = _rng.randrange(first + 2, end - 1)
        if any(abs(port - each) <= 3 for each in _given):
            continue
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for each in (port - 2, port, port + 1):
                held.enter_context(socket.create_server(("0.0.0.0", each)))
            _given.append(port)
            return port


def _share() -> tuple[int, int]:
    """Return the ports that are this worker's of pytest-xdist."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    width = (_END - _FIRST) // count
    return _FIRST + number * width, _FIRST + (number + 1) * width
