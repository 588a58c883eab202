"""A disk that hangs under an append: flow control at once, nothing lost, numbers that show it."""

import contextlib
from pathlib import Path

import pytest

from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.command import encode_command
from tests.bad_input.kit import Wire, send_header
from tests.bad_input.test_memory import Daemon, broker, until

HANGING_ALLOCATION = """
import os, time
really_allocate = os.posix_fallocate
def posix_fallocate(fd, offset, length):
    while os.path.exists({flag!r}):
        time.sleep(0.02)
    really_allocate(fd, offset, length)
os.posix_fallocate = posix_fallocate
"""


def numbers(served: Daemon) -> dict[str, str]:
    with served.peer() as peer:
        return KVTable.decode(peer.call(28).body).table


def refusal(peer: Wire) -> str:
    response = peer.send(b"waits in the queue")
    assert response.code == 2
    assert (response.remark or "").startswith("[TOO_MANY_REQUESTS]")
    return response.remark or ""


def test_sends_are_refused_while_append_hangs_and_resume_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hanging append is stored in the end; later sends are refused in time."""
    flag = tmp_path / "hangs"
    (tmp_path / "sitecustomize.py").write_text(HANGING_ALLOCATION.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    settings = ("sendMessageThreadPoolNums=1", "osPageCacheBusyTimeOutMills=100",
                "sendThreadPoolQueueCapacity=5")  # fmt: skip
    with broker(tmp_path / "s", *settings) as served, contextlib.ExitStack() as stack:
        first, *others = [stack.enter_context(served.peer()) for _ in range(4)]
        assert first.send(b"before").code == 0
        flag.touch()
        body = bytes(4_000_000)
        for _ in range(12):  # more than is allocated ahead
            first.write(encode_command(first.request(310, send_header(), body)))
        until(lambda: int(numbers(served)["pageCacheLockTimeMills"]) > 0, "an append hangs")
        # While the queue is still full of what the first one sent, that is another refusal.
        until(lambda: "[TIMEOUT_CLEAN_QUEUE]" in refusal(others[0]), "waiting too long is refused")
        for _ in range(8):
            others[1].write(encode_command(others[1].request(310, send_header(), b"x")))
        codes = [others[1].receive() for _ in range(8)]
        assert {answer.code for answer in codes} == {2}
        assert any("[OVERLOAD]" in (answer.remark or "") for answer in codes)
        seen = numbers(served)
        assert int(seen["pageCacheLockTimeMills"]) > 100
        assert seen["sendThreadPoolQueueCapacity"] == "5"
        assert int(seen["sendThreadPoolQueueSize"]) <= 5
        assert int(seen["sendThreadPoolQueueHeadWaitTimeMills"]) < 10_000
        assert others[2].pull(0).code == 0, "pulls are served"
        flag.unlink()
        answers = [first.receive() for _ in range(12)]
        assert {answer.code for answer in answers} <= {0, 2}
        until(lambda: others[0].send(b"after").code == 0, "sends succeed again")
        stored = 2 + sum(answer.code == 0 for answer in answers)
        assert len(others[0].bodies("Bad")) == stored
