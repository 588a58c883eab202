"""Pulls that wait for a message: parked by queue, woken by arrivals, released in time.

An arrival wakes those of its queue whose filter takes its tag. Woken pulls gather until the
loop's next turn, so that a batch of messages runs each waiting pull once, and the responses for
one connection leave in one write. Every 5 s a pull whose queue has grown past its offset is
woken whatever the tags, so that a consumer with a narrow filter still moves on.

Source: PullRequestHoldService.java, ManyPullRequest.java (5.4.0).
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from rocketpy.broker.filters import TagFilter
from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.channel import Channel

MAX_HOLD_MS: Final = 30_000
SWEEP_INTERVAL_MS: Final = 1_000
GROWTH_INTERVAL_MS: Final = 5_000


class HeldPull:
    """One parked pull.

    Attributes:
        channel: who waits.
        request: as it came.
        topic: of the queue.
        queue_id: of the queue.
        queue_offset: nothing was there yet at this offset.
        filter: what the consumer takes; None is everything.
        deadline_ms: monotonic time of the empty answer.
    """

    __slots__ = ("channel", "deadline_ms", "filter", "queue_id", "queue_offset", "request", "topic")

    def __init__(  # noqa: PLR0917 - a record
        self,
        channel: Channel,
        request: RemotingCommand,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tag_filter: TagFilter | None,
        deadline_ms: int,
    ) -> None:
        self.channel = channel
        self.request = request
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.filter = tag_filter
        self.deadline_ms = deadline_ms


class PullRequestHold:
    """Keeps parked pulls; safe from any thread. Also a background service: see `step`.

    Args:
        max_offset: next offset of a queue.
        max_held: how many pulls may be parked.
        max_held_per_queue: how many of them for one queue.

    Attributes:
        resume: runs a woken pull and returns its frame (None: nothing to send); set by the
            pull processor.
        max_held: how many pulls may be parked.
        max_held_per_queue: how many of them for one queue.
    """

    name = "PullRequestHold"

    def __init__(
        self,
        max_offset: Callable[[str, int], int],
        max_held: int = 100_000,
        max_held_per_queue: int = 10_000,
    ) -> None:
        self.resume: Callable[[HeldPull], bytes | None] = lambda _: None
        self.max_held = max_held
        self.max_held_per_queue = max_held_per_queue
        self._max_offset = max_offset
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], list[HeldPull]] = {}
        self._count = 0
        self._woken: dict[asyncio.AbstractEventLoop, list[HeldPull]] = {}
        self._next_growth_ms = 0

    def __len__(self) -> int:
        return self._count

    def held_at(self, topic: str, queue_id: int) -> int:
        """How many pulls wait for a queue."""
        return len(self._held.get((topic, queue_id), ()))

    def park(self, held: HeldPull) -> bool:
        """Let a pull wait; False when too many wait already."""
        key = (held.topic, held.queue_id)
        with self._lock:
            waiting = self._held.get(key)
            if self._count >= self.max_held or self.max_held_per_queue <= len(waiting or ()):
                return False
            if waiting is None:
                waiting = self._held[key] = []
            waiting.append(held)
            self._count += 1
        if self._max_offset(held.topic, held.queue_id) > held.queue_offset:
            # Something arrived between the empty read and the parking.
            self._release(key, lambda one: one is held)
        return True

    def on_arrival(self, topic: str, queue_id: int, next_offset: int, tags_code: int) -> None:
        """Wake whoever waits for this message; called by the store on the putting thread."""
        if not self._count or (topic, queue_id) not in self._held:
            return
        self._release(
            (topic, queue_id),
            lambda one: (
                one.queue_offset < next_offset
                and (one.filter is None or one.filter.matches_tags_code(tags_code))
            ),
        )

    def forget_channel(self, channel: Channel) -> None:
        """Drop the pulls of a closed connection."""
        with self._lock:
            for key in list(self._held):
                self._take(key, lambda one: one.channel is channel)

    def forget_all(self) -> None:
        """Drop everything: the broker stops."""
        with self._lock:
            self._held.clear()
            self._count = 0

    def step(self, now_ms: int) -> int:
        """Release what is due; see `rocketpy.runtime.service.Service.step`."""
        look_for_growth = now_ms >= self._next_growth_ms
        if look_for_growth:
            self._next_growth_ms = now_ms + GROWTH_INTERVAL_MS
        for key in list(self._held):
            end = self._max_offset(*key) if look_for_growth else 0
            self._release(key, _is_due(now_ms, end))
        return now_ms + SWEEP_INTERVAL_MS

    def _release(self, key: tuple[str, int], due: Callable[[HeldPull], bool]) -> None:
        to_wake: list[Channel] = []
        with self._lock:
            for held in self._take(key, due):
                woken = self._woken.get(held.channel.loop)
                if woken is None:
                    woken = self._woken[held.channel.loop] = []
                    to_wake.append(held.channel)
                woken.append(held)
        for channel in to_wake:
            if _is_running(channel.loop):
                channel.loop.call_soon(self._run_woken, channel.loop)
            elif not channel.call_soon(self._run_woken, channel.loop):
                with self._lock:
                    self._woken.pop(channel.loop, None)

    def _take(self, key: tuple[str, int], due: Callable[[HeldPull], bool]) -> list[HeldPull]:
        waiting = self._held.get(key)
        if waiting is None:
            return []
        taken: list[HeldPull] = []
        kept: list[HeldPull] = []
        for one in waiting:
            (taken if due(one) else kept).append(one)
        if taken:
            self._count -= len(taken)
            if kept:
                self._held[key] = kept
            else:
                del self._held[key]
        return taken

    def _run_woken(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            woken = self._woken.pop(loop, [])
        frames: dict[Channel, list[bytes]] = {}
        for held in woken:
            if held.channel.is_open:
                frame = self.resume(held)
                if frame is not None:
                    frames.setdefault(held.channel, []).append(frame)
        for channel, parts in frames.items():
            channel.send(parts[0] if len(parts) == 1 else b"".join(parts))


def _is_due(now_ms: int, queue_end: int) -> Callable[[HeldPull], bool]:
    return lambda one: one.deadline_ms <= now_ms or one.queue_offset < queue_end


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
