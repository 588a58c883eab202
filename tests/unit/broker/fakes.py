"""Small stand-ins for the store, connections and files, shared by the broker's unit tests."""

import asyncio
import copy
import struct
from collections.abc import Callable, Sequence
from typing import Any

from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.fair_turns import HeldRequest, TurnScheduler
from rocketpy.store.results import (
    GetMessageResult,
    GetMessageStatus,
    PutBatch,
    PutMessage,
    PutMessageResult,
    PutMessageStatus,
    QueryIndexResult,
)


class FakeClock:
    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class MemoryFile:
    """A JSON document in memory."""

    def __init__(self, value: Any = None) -> None:
        self.value = value
        self.saves = 0

    def load(self) -> Any:
        return copy.deepcopy(self.value)

    def save(self, value: object) -> None:
        self.value = copy.deepcopy(value)
        self.saves += 1


class FakeLoop:
    """Collects callbacks; `turn` runs them, as a loop's next turn would."""

    def __init__(self) -> None:
        self.turns = TurnScheduler(self, lambda: 0)
        self.callbacks: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: object) -> None:
        self.callbacks.append((callback, args))

    def call_soon(self, callback: Callable[..., object]) -> None:
        self.call_soon_threadsafe(callback)

    def call_later(self, delay: float, callback: Callable[..., object]) -> None:
        raise AssertionError("no output is limited here")

    def turn(self) -> int:
        callbacks, self.callbacks = self.callbacks, []
        for callback, args in callbacks:
            callback(*args)
        return len(callbacks)


class FakeChannel:
    """A connection which remembers what was sent."""

    def __init__(self, loop: FakeLoop | None = None, port: int = 40_000) -> None:
        self.loop = loop or FakeLoop()
        self.remote_address = f"127.0.0.1:{port}"
        self.remote_host_bytes = b"\x7f\0\0\1" + struct.pack(">i", port)
        self.is_rocketpy = False
        self.is_open = True
        self.sent: list[bytes] = []
        self.at_once: list[bytes] = []
        self.has_unwritten = False
        self.commands: list[RemotingCommand] = []
        self.deferred: list[tuple[DeferredResponse, Any]] = []
        self.oneway: list[RemotingCommand] = []
        self.close_reason: str | None = None
        self.is_writable = True

    def resume(self, request: HeldRequest, pool: BusinessPool | None = None) -> None:
        """Run the request in the loop's next turn, or once the peer reads again: see `read_on`."""
        if self.is_open:
            self.loop.turns.add(self, request, pool)

    def read_on(self) -> None:
        self.is_writable = True
        self.loop.turns.resume(self)

    def send(self, frame: bytes) -> None:
        self.sent.append(frame)

    def write(self, frame: bytes) -> None:
        self.at_once.append(frame)
        self.sent.append(frame)

    def defer(self, request: RemotingCommand) -> DeferredResponse:
        def complete(deferred: DeferredResponse, response: Any) -> None:
            self.deferred.append((deferred, response))
            (self.commands if isinstance(response, RemotingCommand) else self.sent).append(response)

        return DeferredResponse(request, complete)

    def take(self, deferred: DeferredResponse) -> RemotingCommand | bytes | None:
        """The response that was set, which then counts as not sent; None when none was."""
        for known, response in self.deferred:
            if known is deferred:
                sent = self.commands if isinstance(response, RemotingCommand) else self.sent
                sent.remove(response)
                return response
        return None

    def send_command(self, command: RemotingCommand) -> None:
        self.commands.append(command)

    def invoke_oneway(self, command: RemotingCommand) -> None:
        self.oneway.append(command)

    def call_soon(self, callback: Callable[..., object], *args: object) -> bool:
        self.loop.call_soon_threadsafe(callback, *args)
        return True

    def close(self, reason: str) -> None:
        self.is_open = False
        self.close_reason = reason
        self.loop.turns.drop(self)


class FakeStore:
    """Keeps puts in lists; reads are scripted."""

    def __init__(self) -> None:
        self.puts: list[PutMessage] = []
        self.batches: list[PutBatch] = []
        self.deleted: list[str] = []
        self.status = PutMessageStatus.PUT_OK
        self.is_writable = True
        self.confirmed = 1 << 63
        self.waiting: list[tuple[int, Callable[[bool], None]]] = []
        self.results: list[GetMessageResult] = []
        self.reads: list[tuple[Any, ...]] = []
        self.ends: dict[tuple[str, int], int] = {}
        self.records: dict[int, bytes] = {}
        self.index: QueryIndexResult = QueryIndexResult([])
        self.queries: list[tuple[Any, ...]] = []
        self.max_phy_offset = 0

    def put_message(self, message: PutMessage) -> PutMessageResult:
        if self.status is not PutMessageStatus.PUT_OK:
            return PutMessageResult(self.status)
        self.puts.append(message)
        count = len(self.puts)
        return PutMessageResult(PutMessageStatus.PUT_OK, 1000 * count, 200, count - 1, 5)

    def put_batch(self, batch: PutBatch) -> PutMessageResult:
        if self.status is not PutMessageStatus.PUT_OK:
            return PutMessageResult(self.status)
        self.batches.append(batch)
        offsets = tuple(range(0, 100 * len(batch.messages), 100))
        return PutMessageResult(PutMessageStatus.PUT_OK, 0, offsets[-1] + 100, 7, 5, offsets)

    def delete_topics(self, topics: Sequence[str]) -> None:
        self.deleted.extend(topics)

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        self.waiting.append((phy_end, callback))

    when_flushed = when_durable

    def is_confirmed(self, phy_end: int) -> bool:
        return self.confirmed >= phy_end

    def get_message(self, *args: Any, may_join: bool = False) -> GetMessageResult:
        self.reads.append(args)
        if self.results:
            return self.results.pop(0)
        return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, args[2], 0, args[2])

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)

    def offset_by_time(self, topic: str, queue_id: int, ts_ms: int, upper: bool = False) -> int:
        return 17 if upper else 11

    def earliest_store_time_ms(self, topic: str, queue_id: int) -> int:
        return -1

    def query_index(
        self, *args: Any, accept: Callable[[int], bool] | None = None
    ) -> QueryIndexResult:
        self.queries.append(args)
        return self.index

    def look_message(self, phy_offset: int) -> memoryview | None:
        record = self.records.get(phy_offset)
        return None if record is None else memoryview(record)


class FakeStats:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.calls.append((name, *args))


def request(
    code: int, ext: dict[str, str] | None = None, body: bytes = b"", **slots: Any
) -> RemotingCommand:
    command = make_request(code, ext or {}, body)
    command.opaque = 42
    for name, value in slots.items():
        setattr(command, name, value)
    return command


def running_loop_of(channel: FakeChannel) -> None:
    """Let a channel live on the loop that runs the test."""
    channel.loop = asyncio.get_running_loop()  # type: ignore[assignment]
