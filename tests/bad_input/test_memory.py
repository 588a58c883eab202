"""Peers that make a broker hold memory; measured from outside its process."""

import contextlib
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketpy.proto.wire.command import encode_command
from tests.bad_input.kit import Wire, daemon, log_until, pull_header, send_header

MIB = 1 << 20
ESTABLISHED = 1
LOOPBACK = "127.0.0.1"


class Daemon:
    """A broker with default limits, except for those given."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.address = address

    def memory(self) -> int:
        """Return the private bytes of the process; mapped files belong to the page cache."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
        return int(line.split()[1]) << 10

    def peer(self) -> Wire:
        peer = Wire(self.address)
        assert peer.call(7_777).code == 3
        return peer


@contextlib.contextmanager
def broker(store: Path, *more: str, descriptors: tuple[int, int] | None = None) -> Iterator[Daemon]:
    settings = [f"storePathRootDir={store}", "listenPort=0", f"bindAddress={LOOPBACK}",
                f"brokerIP1={LOOPBACK}", "mappedFileSizeCommitLog=67108864",
                "mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=1000", "maxIndexNum=5000",
                *more]  # fmt: skip
    arguments = ["broker", *(word for text in settings for word in ("-D", text))]
    with daemon(*arguments) as process:
        if descriptors is not None:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, descriptors)
        yield Daemon(process, log_until(process, "ready")[-1]["broker"])


def until(condition: Callable[[], bool], what: str, timeout_s: float = 100.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def is_established(peer: Wire) -> bool:
    return peer.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED


def write_what_it_takes(peer: Wire, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        peer.write(data)


def test_frames_that_never_end_stay_within_the_budget(tmp_path: Path) -> None:
    """Over 512 MiB in all, the greediest connections are aborted; honest ones are not affected."""
    unfinished = struct.pack(">i", 16 * MIB - 4) + bytes(16 * MIB - 1_000)
    with broker(tmp_path / "s") as served, contextlib.ExitStack() as stack:
        honest = stack.enter_context(served.peer())
        assert honest.send(b"before").code == 0
        before = served.memory()
        peers = [stack.enter_context(served.peer()) for _ in range(60)]
        highest = 0
        for peer in peers:
            write_what_it_takes(peer, unfinished)
            highest = max(highest, served.memory())
        assert honest.send(b"after").code == 0
        assert highest - before < 640 * MIB
        until(lambda: sum(map(is_established, peers)) <= 32, "512 MiB are 32 frames of 16 MiB")
        assert sum(map(is_established, peers)) > 16, "no more than needed are cut off"


def test_frame_without_progress_is_reset(tmp_path: Path) -> None:
    unfinished = struct.pack(">i", 16 * MIB - 4) + bytes(16 * MIB - 1_000)
    settings = ("frameTimeoutMs=5000",)
    with broker(tmp_path / "s", *settings) as served, contextlib.ExitStack() as stack:
        honest = stack.enter_context(served.peer())
        before = served.memory()
        peers = [stack.enter_context(served.peer()) for _ in range(10)]
        for peer in peers:
            peer.write(unfinished)
        until(lambda: served.memory() - before > 120 * MIB, "they are held")

        def are_gone() -> bool:
            for peer in peers:
                write_what_it_takes(peer, b"x")  # a byte now and then is no progress
            return not any(map(is_established, peers))

        until(are_gone, "a frame must make progress")
        until(lambda: served.memory() - before < 40 * MIB, "their memory is back")
        assert honest.send(b"after").code == 0


@pytest.mark.alternate
@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [20, 200])
def test_peers_that_never_read_are_reset_and_release_memory(tmp_path: Path, count: int) -> None:
    """The connection is reset on both sides, queued output in the kernel included."""
    settings = ("writeStallTimeoutMs=1000", "maxTransferBytesOnMessageInMemory=8388608")
    with broker(tmp_path / "s", *settings) as served, contextlib.ExitStack() as stack:
        honest = stack.enter_context(served.peer())
        for _ in range(2):
            assert honest.send(bytes(4 * MIB - 100)).code == 0
        before = highest = served.memory()
        peers = []
        for _ in range(count):
            peer = Wire(served.address)
            peers.append(stack.enter_context(peer))
            peer.write(b"".join(encode_command(peer.request(11, pull_header())) for _ in range(4)))
            highest = max(highest, served.memory())

        def are_gone() -> bool:
            nonlocal highest
            highest = max(highest, served.memory())
            return not any(map(is_established, peers))

        until(are_gone, "cut off and gone")
        until(lambda: served.memory() - before < 60 * MIB, "their memory is back")
        assert highest - before < 640 * MIB
        assert honest.send(b"after").code == 0


@pytest.mark.alternate
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl tool")
def test_tls_peers_that_never_read_are_counted_and_reset(tmp_path: Path) -> None:
    """Peers ask for 32 MiB each with a budget of 64 MiB; honest peers over TLS are still served."""
    key, cert = str(tmp_path / "key.pem"), str(tmp_path / "cert.pem")
    subprocess.run(
        f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        f" -subj /CN=localhost -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    settings = (f"tls.server.keyPath={key}", f"tls.server.certPath={cert}",
                "writeStallTimeoutMs=1000", "maxTransferBytesOnMessageInMemory=8388608",
                "serverMemoryLimitBytes=67108864")  # fmt: skip
    with broker(tmp_path / "s", *settings) as served, contextlib.ExitStack() as stack:
        honest = stack.enter_context(Wire(served.address, context))
        for _ in range(2):
            assert honest.send(bytes(4 * MIB - 100)).code == 0
        assert len(honest.bodies("Bad")) == 2
        peers = [stack.enter_context(Wire(served.address, context)) for _ in range(40)]
        before = highest = served.memory()
        for peer in peers:
            requests = [peer.request(11, pull_header()) for _ in range(4)]
            write_what_it_takes(peer, b"".join(map(encode_command, requests)))
            highest = max(highest, served.memory())

        def are_gone() -> bool:
            nonlocal highest
            highest = max(highest, served.memory())
            return not any(map(is_established, peers))

        until(are_gone, "cut off and gone")
        until(lambda: served.memory() - before < 30 * MIB, "their memory is back")
        assert highest - before < 110 * MIB
        assert len(honest.bodies("Bad")) == 2


HANGING_DISK = """
import os, time
really_sync = os.fdatasync
def fdatasync(fd):
    while os.path.exists({flag!r}):
        time.sleep(0.02)
    really_sync(fd)
os.fdatasync = fdatasync
"""


def test_sends_that_wait_for_a_hanging_disk_keep_no_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "hangs"
    (tmp_path / "sitecustomize.py").write_text(HANGING_DISK.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{Path.cwd()}")
    settings = ("flushDiskType=SYNC_FLUSH", "syncFlushTimeout=60000")
    with broker(tmp_path / "s", *settings) as served, served.peer() as peer, served.peer() as other:
        assert peer.send(b"before").code == 0
        before = served.memory()
        flag.touch()
        body = bytes(200_000)
        for _ in range(1_000):
            peer.write(encode_command(peer.request(310, send_header(), body)))
        assert other.call(7_777).code == 3
        assert served.memory() - before < 60 * MIB
        flag.unlink()
        assert [peer.receive().code for _ in range(1_000)] == [0] * 1_000


@pytest.mark.parametrize("limits", [(256, 256), (256, 4096)], ids=["hard", "soft"])
def test_idle_connections_leave_descriptors_for_the_store_and_for_honest_peers(
    tmp_path: Path, limits: tuple[int, int]
) -> None:
    """The soft limit is raised; near the hard limit, connections without a request are closed."""
    with broker(tmp_path / "s", descriptors=limits) as served, contextlib.ExitStack() as stack:
        early = stack.enter_context(served.peer())
        idle = [stack.enter_context(Wire(served.address)) for _ in range(300)]
        honest = [stack.enter_context(served.peer()) for _ in range(20)]
        for number, peer in enumerate([early, *honest]):
            assert peer.send(b"x", f"Topic{number}").code == 0
            assert peer.bodies(f"Topic{number}") == [b"x"]
        kept_count = sum(map(is_established, idle))
        assert kept_count == 300 if limits[1] == 4096 else 100 < kept_count < 200


def test_many_connections_from_one_address_are_allowed(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(served.peer()) for _ in range(600)]
        assert all(peer.call(7_777).code == 3 for peer in (peers[0], peers[-1]))
