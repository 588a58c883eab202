"""Network of Linux namespaces, one for each process, whose links a test cuts and slows down.

Each name has a namespace with one address; a bridge connects them, and the namespace of the thread
that made the network, which observes and is never cut off. A link with a fault is routed through
TUN devices to a thread here, which delays or drops its packets. So a cut link is silent, as a
broken cable is: connections stay open, requests have no answer, and TCP retransmits afterwards.
"""

import contextlib
import ctypes
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SUBNET = "10.88.0"
_MTU_BYTES = 1 << 16
_QUEUE_BYTES = 256 << 10
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Quality:
    """Delay, rate and loss of the packets of each direction of a link.

    Attributes:
        delay_s: added to the way of each packet.
        bytes_per_s: rate; 0 is no limit. Packets that wait longer than a full buffer are dropped.
        loss: share of packets that are dropped; 1 cuts the link.
    """

    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    loss: float = 0.0


CUT = Quality(loss=1.0)


def in_own_network(work: Callable[[], _T]) -> _T:
    """Run `work` in a new network namespace, also its threads and processes; return its result.

    Raises:
        OSError: the process may not make namespaces.
    """
    back = _open_namespace()
    try:
        _new_namespace()
        try:
            return work()
        finally:
            _enter(back)
    finally:
        os.close(back)


def is_available() -> bool:
    """Return whether this process may make such a network."""
    try:
        return in_own_network(lambda: Path("/dev/net/tun").exists() and _ip("link set lo up"))
    except (OSError, subprocess.CalledProcessError):
        return False


class Network:
    """Namespaces of some names; made and closed in the work of `in_own_network`."""

    def __init__(self, names: Sequence[str]) -> None:
        _ip("link set lo up", "link add hub type bridge", "link set hub up")
        _ip(f"address add {_SUBNET}.1/24 dev hub")
        self._home = _open_namespace()
        self._hosts = {name: f"{_SUBNET}.{2 + number}" for number, name in enumerate(names)}
        self._namespaces: dict[str, int] = {}
        self._tunnels: dict[str, int] = {}
        for name in names:
            self._add(name)
        self._switch = _Switch({self._hosts[name]: each for name, each in self._tunnels.items()})

    def host(self, name: str) -> str:
        """Return the address of a name."""
        return self._hosts[name]

    def prefix(self, name: str) -> tuple[str, ...]:
        """Return the words before a command that run it there, in the same process."""
        return ("nsenter", f"--net=/proc/{os.getpid()}/fd/{self._namespaces[name]}")

    def enter(self, name: str) -> None:
        """Move the calling thread there."""
        _enter(self._namespaces[name])

    def set(self, one: str, other: str, quality: Quality) -> None:
        """Change a link."""
        ends = self._hosts[one], self._hosts[other]
        self._switch.set(*ends, quality)
        for name, host, peer in ((one, *ends), (other, *reversed(ends))):
            with self._inside(name):
                _ip(f"route replace {peer}/32 dev slow src {host}")

    def close_connections(self, one: str, other: str) -> None:
        """Close the connections of a link at both ends, as if each end had reset them."""
        for name, peer in ((one, other), (other, one)):
            with self._inside(name):
                words = ["ss", "-K", "-t", "dst", self._hosts[peer]]
                subprocess.run(words, check=True, capture_output=True)

    def heal(self) -> None:
        """Give all links their full quality again."""
        for ends in self._switch.heal():
            names = [
                next(name for name, each in self._hosts.items() if each == end) for end in ends
            ]
            for name, end in zip(names, reversed(ends), strict=True):
                with self._inside(name):
                    _ip(f"route delete {end}/32 dev slow")

    def close(self) -> None:
        self._switch.close()
        for each in (*self._tunnels.values(), *self._namespaces.values(), self._home):
            os.close(each)

    def _add(self, name: str) -> None:
        """Make a namespace with its address, its end of the bridge and its TUN device."""
        host, number = self._hosts[name], len(self._namespaces)
        _new_namespace()
        self._namespaces[name] = _open_namespace()
        self._tunnels[name] = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", b"slow", _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(self._tunnels[name], _TUNSETIFF, request)
        _enter(self._home)
        target = f"/proc/{os.getpid()}/fd/{self._namespaces[name]}"
        _ip(f"link add port{number} type veth peer name eth0 netns {target}")
        _ip(f"link set port{number} master hub up")
        with self._inside(name):
            _ip("link set lo up", f"address add {host}/24 dev eth0", "link set eth0 up")
            _ip("link set slow up")

    @contextlib.contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        back = _open_namespace()
        try:
            _enter(self._namespaces[name])
            yield
        finally:
            _enter(back)
            os.close(back)


class _Switch:
    """Thread that forwards the packets of links with a fault."""

    def __init__(self, tunnels: dict[str, int]) -> None:
        self._tunnels = {_packed(host): each for host, each in tunnels.items()}
        self._qualities: dict[tuple[bytes, bytes], Quality] = {}
        self._free_s: dict[tuple[bytes, bytes], float] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()
        self._rng = random.Random(1)
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def set(self, one: str, other: str, quality: Quality) -> None:
        ends = _packed(one), _packed(other)
        self._qualities |= {ends: quality, (ends[1], ends[0]): quality}

    def heal(self) -> list[tuple[str, str]]:
        """Forward everything from now on; return the links that had a fault."""
        links = {tuple(sorted(ends)) for ends in self._qualities}
        self._qualities = {}
        return [(_text(one), _text(other)) for one, other in links]

    def close(self) -> None:
        self._is_closed = True
        self._thread.join(10)

    def _run(self) -> None:
        selector = selectors.DefaultSelector()
        for each in self._tunnels.values():
            selector.register(each, selectors.EVENT_READ)
        while not self._is_closed:
            pause_s = 0.05
            if self._waiting:
                pause_s = min(pause_s, max(0.0, self._waiting[0][0] - time.monotonic()))
            for key, _ in selector.select(pause_s):
                self._read(key.fd)
            while self._waiting and self._waiting[0][0] <= time.monotonic():
                _, _, sink, packet = heapq.heappop(self._waiting)
                with contextlib.suppress(OSError):  # its queue is full
                    os.write(sink, packet)
        selector.close()

    def _read(self, source: int) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._forward(os.read(source, _MTU_BYTES))

    def _forward(self, packet: bytes) -> None:
        ends = packet[12:16], packet[16:20]
        sink = self._tunnels.get(ends[1])
        if packet[0] >> 4 != 4 or sink is None:
            return
        quality, now = self._qualities.get(ends, Quality()), time.monotonic()
        if quality.loss and self._rng.random() < quality.loss:
            return
        due_s = now
        if quality.bytes_per_s:
            due_s = max(now, self._free_s.get(ends, 0.0))
            if (due_s - now) * quality.bytes_per_s > _QUEUE_BYTES:
                return
            due_s += len(packet) / quality.bytes_per_s
            self._free_s[ends] = due_s
        heapq.heappush(self._waiting, (due_s + quality.delay_s, next(self._numbers), sink, packet))


def _packed(host: str) -> bytes:
    return bytes(map(int, host.split(".")))


def _text(host: bytes) -> str:
    return ".".join(map(str, host))


def _ip(*commands: str) -> bool:
    """Run commands of `ip` in the namespace of the calling thread."""
    for each in commands:
        subprocess.run(["ip", *each.split()], check=True, capture_output=True)
    return True


def _new_namespace() -> None:
    if _LIBC.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare of the network namespace")


def _open_namespace() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns to a network namespace")
