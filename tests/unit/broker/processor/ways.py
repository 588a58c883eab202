"""Ways in which a broker serves pulls: the ordinary one, and known ones; the third is compiled."""

import contextlib
from collections.abc import Iterator

import pytest

from rocketpy.broker.fast_path.pull_service import FastPullService


class NothingKnown:
    """In place of `JsonPullCache`: the ordinary way is the reference."""

    def __init__(self, _runs: FastPullService, _max_frame_bytes: int) -> None:
        pass

    def __call__(self, _channel: object, _data: bytes) -> tuple[int, bytes]:
        """Serve nothing."""
        return 0, b""

    def answer(self, *_: object) -> None:
        """Nobody waits here."""
        raise AssertionError("nothing waits that was not served")


@contextlib.contextmanager
def ordinary_pulls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let brokers that are started now serve everything in Python, and pulls the ordinary way."""
    with monkeypatch.context() as patched:
        patched.setenv("ROCKETPY_PURE", "1")
        patched.setattr("rocketpy.broker.fast_path.json_pull_cache.JsonPullCache", NothingKnown)
        yield


@contextlib.contextmanager
def known_pulls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let brokers that are started now serve everything in Python, known pulls as such."""
    with monkeypatch.context() as patched:
        patched.setenv("ROCKETPY_PURE", "1")
        yield
