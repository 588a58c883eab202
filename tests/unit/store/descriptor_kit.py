"""A process without a free descriptor."""

import contextlib
import os
import resource
from collections.abc import Iterator

from rocketpy.store.files.descriptor_reserve import process_reserve


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Take all descriptors of this process, as idle connections would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    process_reserve().refill()
    # The limit is on numbers, not on their count: what this process holds already stays open.
    highest = max(int(fd) for fd in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 2, hard), hard))
    taken = []
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
