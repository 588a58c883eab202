"""Hand-made parts: a loop with its own time, a transport that keeps what is written, an owner."""

import asyncio
import heapq
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.config import ConnectionLimits
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection import Connection
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget, TurnScheduler
from rocketpy.remoting.connection.memory_budget import MemoryBudget


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000

    def time_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class FakeTimer:
    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """Event loop that runs callbacks on request; time moves only with `advance`."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.is_closed = False
        self.timers_made = 0
        self.wake_ups = 0
        self._ready: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._timers: list[tuple[float, int, FakeTimer, Callable[..., object], Any]] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self._ready.append((callback, args))

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        if self.is_closed:
            raise RuntimeError("Event loop is closed")
        self.wake_ups += 1
        self._ready.append((callback, args))

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> FakeTimer:
        self.timers_made += 1
        timer = FakeTimer()
        heapq.heappush(self._timers, (when, self.timers_made, timer, callback, args))
        return timer

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> FakeTimer:
        return self.call_at(self.now_s + delay, callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return FakeFuture()  # type: ignore[return-value]

    def run(self) -> None:
        while self._ready:
            callback, args = self._ready.pop(0)
            callback(*args)

    def turn(self, seconds: float) -> None:
        """Run one iteration as an event loop does: ready callbacks, then due timers."""
        ready, self._ready = self._ready, []
        for callback, args in ready:
            callback(*args)
        self.now_s += seconds
        while self._timers and self._timers[0][0] <= self.now_s:
            _, _, timer, callback, args = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                callback(*args)

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        while self._timers and self._timers[0][0] <= self.now_s:
            _, _, timer, callback, args = heapq.heappop(self._timers)
            if not timer.is_cancelled:
                callback(*args)
        self.run()


class FakeFuture:
    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_done = False

    def done(self) -> bool:
        return self.is_done

    def set_result(self, value: Any) -> None:
        assert not self.is_done
        self.is_done, self.value = True, value

    def set_exception(self, error: BaseException) -> None:
        assert not self.is_done
        self.is_done, self.error = True, error


class FakeTransport:
    """Transport that keeps writes; `buffered` is the size of its unsent output."""

    def __init__(self, peer: tuple[str, int] = ("10.0.0.7", 4321)) -> None:
        self.writes: list[bytes] = []
        self.buffered = 0
        self.is_closed = False
        self.is_aborted = False
        self.is_reading = True
        self.protocol: Any = None
        self.socket: Any = None
        self._peer = peer

    def write(self, data: Any) -> None:
        assert isinstance(data, bytes)
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed or self.is_aborted

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def get_write_buffer_size(self) -> int:
        return self.buffered

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self.limits = (low, high)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str) -> Any:
        return {"peername": self._peer, "socket": self.socket}.get(name)

    def responses(self) -> list[RemotingCommand]:
        reader = CommandReader()
        responses = reader.feed(b"".join(self.writes))
        assert reader.error is None
        assert reader.pending_bytes == 0
        return responses


LIMITS = ConnectionLimits(
    max_frame_bytes=1 << 20,
    high_water_bytes=4096,
    low_water_bytes=1024,
    hard_limit_bytes=10_000,
    write_stall_timeout_ms=30_000,
    idle_timeout_ms=120_000,
    first_frame_timeout_ms=15_000,
    frame_timeout_ms=30_000,
    max_in_flight=8,
    max_in_flight_bytes=1 << 20,
)


class FakeOwner:
    def __init__(
        self, loop: FakeLoop, limits: ConnectionLimits = LIMITS, memory_limit_bytes: int = 0
    ) -> None:
        self.budget = MemoryBudget(memory_limit_bytes)
        budget = self.budget
        self.turns = TurnScheduler(
            loop, self.now_ms, budget.is_output_full, lambda: budget.is_exhausted
        )
        self.table = ProcessorTable()
        self.limits = limits
        self.is_draining = False
        self.turn = TurnBudget(loop, self.now_ms, lambda: self.turns.is_behind)
        self.clock = ManualClock()
        self.events: list[str] = []
        self.spawned: list[Awaitable[None]] = []

    def now_ms(self) -> int:
        return self.clock.now

    def opened(self, connection: Connection) -> None:
        self.events.append("open")

    def closed(self, connection: Connection) -> None:
        self.events.append("close")

    def idle(self, connection: Connection) -> None:
        self.events.append("idle")

    def spawn(self, coroutine: Awaitable[None]) -> None:
        self.spawned.append(coroutine)

    def run_spawned(self) -> None:
        """Run coroutines that do not wait."""
        for coroutine in self.spawned:
            try:
                coroutine.send(None)  # type: ignore[attr-defined]
            except StopIteration:
                continue
            raise AssertionError("the coroutine waits")
        self.spawned.clear()


class Rig:
    """Connection on a fake loop with a fake transport."""

    def __init__(self, limits: ConnectionLimits = LIMITS, memory_limit_bytes: int = 0) -> None:
        self.loop = FakeLoop()
        self.owner = FakeOwner(self.loop, limits, memory_limit_bytes)
        self.transport = FakeTransport()
        self.connection = Connection(self.owner, self.loop)  # type: ignore[arg-type]

    def open(self) -> "Rig":
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        return self


class Held:
    """Held request whose response is an action of the test."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def run(self) -> None:
        self.action()


class FakeHost:
    """Host of a channel that is tested alone."""

    def __init__(self, loop: FakeLoop) -> None:
        self.turns = TurnScheduler(loop, lambda: 0)
        self.big_writes = 0

    def complete(self, deferred: DeferredResponse, response: object) -> None:
        raise AssertionError("nothing is deferred here")

    def add_in_progress(self, count: int) -> None:
        raise AssertionError("nothing is deferred here")

    def wrote_big_frame(self, size_bytes: int) -> None:
        self.big_writes += 1


def make_channel(loop: FakeLoop, transport: FakeTransport, hard_limit_bytes: int = 100) -> Channel:
    return Channel(
        loop,  # type: ignore[arg-type]
        transport,
        ("10.0.0.7", 4321),
        hard_limit_bytes=hard_limit_bytes,
        host=FakeHost(loop),
    )


def on_other_thread(action: Callable[[], object]) -> None:
    """Run an action on another thread and wait for its end."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised again below, on the test's thread
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def request(code: int, opaque: int, **ext: str) -> RemotingCommand:
    command = make_request(code, ext)
    command.opaque = opaque
    return command


def echo(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, None, None, command.body)


def feed(rig: Rig, *commands: RemotingCommand) -> None:
    rig.connection.data_received(b"".join(map(encode_command, commands)))


def codes(rig: Rig) -> list[tuple[int, int]]:
    return [(response.opaque, response.code) for response in rig.transport.responses()]
