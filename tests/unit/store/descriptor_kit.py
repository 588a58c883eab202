"""A process without a free descriptor."""

import contextlib
import os
import resource
from collections.abc import Iterator

from rocketpy.store.descriptors import process_reserve


@contextlib.contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Take all descriptors of this process, as idle connections would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
    process_reserve().refill()
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
