"""Pop simulation of one seed: producers, pop consumers, a broker and faults.

Handlers ack, fail, take too long, or keep their messages, in a `TroubledWorld`. Judged:

- "is lost": everything that was acknowledged to a sender is handled, and acked as far as its
  consumer knows;
- "log": what comes again has a reason that the broker's log shows: see `Trail`;
- "buffered", where check points wait in memory, and "ordered", where there are none: nothing is
  delivered while somebody has it, nor when it is acked, unless the broker ended before it had
  written that (Apache's delivers it again then, too). Where the broker's clock was set, somebody
  has it until its wall clock has shown that the time is over, or so much time has gone by;
- "ordered": nothing is delivered before everything that lies before it is acked.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, TypeAlias

from rocketpy import PoppedMessage
from rocketpy.errors import RocketPyError
from rocketpy.proto.pop import PopHandle, parse_handle, revive_topic
from rocketpy.proto.topic_names import pop_retry_topic_v1, pop_retry_topic_v2
from rocketpy.testing.sim_cluster import SimBroker, SimCluster
from tests.simulation.cluster_history import body_of, name_of
from tests.simulation.cluster_world import ClusterWorld
from tests.simulation.pop_history import End, Key, Place, read_trail
from tests.simulation.world import CONSUMERS, PRODUCERS, TOPIC, run_world

GROUP: Final = "g"
INVISIBLE_S: Final = 6.0
UNWRITTEN_S: Final = 16.0
"""Committed offsets are written every 5 s, and follow the disk: where little is written, the log
is flushed 10 s after the flush before it (`flushCommitLogThoroughInterval`)."""
AGAIN_S: Final = 4.0
"""By so much later the offset passes a check point that was delivered twice over an end: what lies
between its places was delivered before that end, a second before its messages may come back, and
brings them back 3 s after that."""
BUFFERED_S: Final = UNWRITTEN_S + INVISIBLE_S - 3.0
"""A check point waits in memory until 3 s before its messages are visible again."""
_MOST_IN_HAND_S: Final = 2 * INVISIBLE_S
"""Between a pop and its handler."""
MODES: Final = {"log": "false", "buffered": "true", "ordered": "true"}
"""How messages are popped and judged, and whether check points wait in memory."""
_ACK, _CHANGE = 200051, 200053


What: TypeAlias = Place | tuple[bytes, int]
"""A message: where it is, or its body and when it was sent (an attempt may be made again)."""


class _Last:
    """The last delivery of a message."""

    def __init__(
        self, handle: PopHandle, at_s: float, popped_s: float, until_ms: int, free_s: float
    ) -> None:
        self.handle = handle
        self.at_s = at_s
        self.popped_s = popped_s
        self.until_ms = until_ms
        self.free_s = free_s
        self.acked_s: float | None = None


class Holders:
    """Invisible messages and their holders, as consumers see them.

    Args:
        forgets_s: what happened so long before an end of the broker may be forgotten by it.
        forks: a message that was forgotten once is in two places, and comes from both.
    """

    def __init__(self, forgets_s: float, *, forks: bool) -> None:
        self._forgets_s = forgets_s
        self._forks = forks
        self._last: dict[What, _Last] = {}
        self._steps: list[tuple[float, int]] = []

    def step_clock(self, now_s: float, wall_ms: int) -> None:
        """The broker's wall clock is set; it showed `wall_ms`."""
        self._steps.append((now_s, wall_ms))

    def _shown_ms(self, since_s: float) -> int:
        """The latest that the clock showed before it was set, -1 when it was not."""
        return max((wall_ms for at_s, wall_ms in self._steps if at_s >= since_s), default=-1)

    def deliver(
        self,
        what: What,
        handle: PopHandle,
        stored_ms: int,
        now_s: float,
        wall_ms: int,
        ends_s: list[float],
        since_s: float,
    ) -> None:
        """Judge one delivery.

        Args:
            what: the message.
            handle: it says when it was popped, and for how long, by its broker's wall clock.
            stored_ms: when it was stored; a copy, when it came back.
            now_s: time.
            wall_ms: what the broker's clock shows.
            ends_s: when the broker ended.
            since_s: when the message was sent; what was popped may never have arrived.
        """
        before = self._last.get(what)
        popped_s = now_s - min(max(0, wall_ms - handle.pop_time_ms) / 1_000, _MOST_IN_HAND_S)
        if before is not None:
            if popped_s < before.popped_s and self._shown_ms(popped_s) >= 0:
                return  # the clock ended its time while it waited in a consumer's hand
            noted_s = [before.at_s] if before.acked_s is None else [before.at_s, before.acked_s]
            if not any(
                (since_s if self._forks else each) <= end_s <= min(now_s, each + self._forgets_s)
                for each in noted_s
                for end_s in ends_s
            ):
                assert before.acked_s is None, f"{what!r} was acked and came again"
                shown_ms = self._shown_ms(before.at_s - _MOST_IN_HAND_S)
                free_ms = max(handle.pop_time_ms, stored_ms, shown_ms)
                is_free = free_ms >= before.until_ms or (
                    shown_ms >= 0 and popped_s >= before.free_s
                )
                assert is_free, f"{what!r} came while somebody had it"
        until_ms = handle.pop_time_ms + handle.invisible_ms
        free_s = popped_s + handle.invisible_ms / 1_000
        self._last[what] = _Last(handle, now_s, popped_s, until_ms, free_s)

    def keep(self, what: What, handle: PopHandle, until_ms: int, free_s: float) -> None:
        """Extend the invisible time of a handle unless the message was delivered again."""
        last = self._last[what]
        if last.handle == handle:
            last.until_ms, last.free_s = until_ms, free_s

    def ack(self, what: What, handle: PopHandle, now_s: float, wall_ms: int) -> None:
        """Record the ack of a handle.

        One that came too late may count for nothing, and one of an earlier delivery says nothing of
        the last one: that comes again until it is acked itself.
        """
        last = self._last[what]
        if last.handle != handle:
            return
        shown_ms = self._shown_ms(last.at_s - _MOST_IN_HAND_S)
        if max(wall_ms, shown_ms) < last.until_ms and (shown_ms < 0 or now_s < last.free_s):
            last.acked_s = now_s


class Order:
    """Messages handled in queues that are popped in order."""

    def __init__(self) -> None:
        self._handled: dict[tuple[str, int], set[int]] = {}

    def deliver(self, place: Place) -> None:
        """Judge one delivery."""
        missing = set(range(place.offset)) - self._handled.get(place[:2], set())
        assert not missing, f"{place} came before {sorted(missing)[:3]}"

    def handle(self, place: Place) -> None:
        """It is about to be acked: from here on it may count as acked."""
        self._handled.setdefault(place[:2], set()).add(place.offset)


class PopWorld(ClusterWorld):
    """Simulated run of one seed.

    Args:
        cluster: with one broker.
        sync: SYNC_FLUSH; power is lost only then, and no check point waits in memory.
        mode: one of `MODES`.
    """

    mended_s = 3_600.0
    clock_steps_ms = (-60_000, -5_000, -1_000, 1_000, 5_000, 600_000)

    def __init__(self, cluster: SimCluster, *, sync: bool, mode: str) -> None:
        super().__init__(cluster, sync=sync)
        self.mode = mode
        self.ordered = mode == "ordered"
        forgets_s = UNWRITTEN_S if self.ordered else BUFFERED_S
        self.holders = Holders(forgets_s, forks=not self.ordered)
        self.order = Order()
        self.acked: set[bytes] = set()
        self.confirmed: list[Key] = []
        self._ends: list[End] = []
        self._ends_at_s: list[float] = []
        self._positions: list[tuple[float, int]] = []

    @property
    def _broker(self) -> SimBroker:
        return self.cluster.brokers[0]

    @property
    def _now_s(self) -> float:
        return self.cluster.loop.time()

    async def _begin(self) -> None:
        clients = await self._start_clients(PRODUCERS + CONSUMERS)
        self._producers = [client.producer(retries=0) for client in clients[:PRODUCERS]]
        for client in clients[PRODUCERS:]:
            consumer = client.pop_consumer(
                TOPIC,
                group=GROUP,
                handler=self._handle,
                start="earliest",
                invisible_time=INVISIBLE_S,
                ordered=self.ordered,
                concurrency=1 if self.ordered else 4,
                pop_batch=1 if self.ordered else 8,
                max_in_hand=1 if self.ordered else 16,
                pop_wait=5,
            )
            await consumer.start()

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._work(), self._note_positions()]

    async def _note_positions(self) -> None:
        while not self.is_over:
            if self._broker.is_running:
                position = self._broker.broker.parts.store.max_phy_offset
                self._positions.append((self._now_s, position))
            await asyncio.sleep(0.25)

    @property
    def _is_complete(self) -> bool:
        return len(self.acked) >= len(self.history.acknowledged) and not self._unacked()

    def _missing(self) -> str:
        names = self._unacked()
        return f"is lost: {len(names)} messages, as {names[:3]}"

    def _unacked(self) -> list[tuple[int, int]]:
        return [name for name in self.history.acknowledged if body_of(*name) not in self.acked]

    async def _settle(self) -> None:
        await asyncio.sleep(2 * INVISIBLE_S + 15)

    def _judge(self) -> None:
        if self.mode != "log":
            return
        retry = [pop_retry_topic_v1(TOPIC, GROUP), pop_retry_topic_v2(TOPIC, GROUP)]
        parts = self._broker.broker.parts
        revive = revive_topic(parts.config.broker_cluster_name)
        trail = read_trail(parts.store, [TOPIC, *retry], revive)
        self.counts["came back"] = sum(each.reconsume_times > 0 for each in trail.messages.values())
        changes: Counter[Place] = Counter()
        for request in self.world.of_code(_CHANGE):
            changes[self._place_of(request.ext_fields)] += 1
        trail.check(self._ends, changes, self.confirmed)

    # -- ends of the broker --------------------------------------------------------------------

    def _ended(self, broker: SimBroker) -> None:
        self._ends_at_s.append(self._now_s)
        dead = broker._broker
        assert dead is not None
        store = dead.parts.store
        forgotten = self._position_before(self._now_s - UNWRITTEN_S)
        forgotten_again = self._position_before(self._now_s - UNWRITTEN_S - AGAIN_S)
        kept = store.flushed_phy_offset if self.sync else store.max_phy_offset
        self._ends.append(End(forgotten, forgotten_again, store.max_phy_offset, kept))

    def _position_before(self, since_s: float) -> int:
        before = [position for at_s, position in self._positions if at_s < since_s]
        return before[-1] if before else 0

    def _started(self, _: SimBroker) -> None:
        self._ends_at_s.append(self._now_s)

    # -- consumers -----------------------------------------------------------------------------

    async def _handle(self, message: PoppedMessage) -> None:
        self.counts["delivered"] += 1
        self._deliver(message)
        chance = self.rng.random()
        if chance < 0.1:
            self.counts["failed"] += 1
            self._held_until(message, 0, 0)
            raise ValueError("not this time")
        if chance < 0.15:
            self.counts["too slow"] += 1
            await asyncio.sleep(INVISIBLE_S + 5)
            return
        if chance < 0.25:
            await self._keep(message)
        await asyncio.sleep(self.rng.choice([0, 0.01, 0.3]))
        self.order.handle(_place(message))
        self.acked.add(message.body)  # its broker may honour an ack whose response is lost
        asked = len(self.world.of_code(_ACK))
        try:
            await message.ack()
        except RocketPyError:
            self.counts["ack failed"] += 1
            return
        self._acked(message, asked)

    def _what(self, message: PoppedMessage) -> What:
        """In order, a message stays where it is; otherwise it comes back as a copy."""
        if self.ordered:
            return _place(message)
        return message.body, message.ext.born_timestamp_ms

    def _deliver(self, message: PoppedMessage) -> None:
        if self.mode == "log":
            return
        handle = _handle_of(message)
        sent_s = self.began_s[name_of(message.body)]
        try:
            self.holders.deliver(
                self._what(message),
                handle,
                message.ext.store_timestamp_ms,
                self._now_s,
                self._broker.clock.time_ms(),
                self._ends_at_s,
                sent_s,
            )
            if self.ordered:
                self.order.deliver(_place(message))
        except AssertionError as error:  # the consumer would take it for a handler's failure
            self._broken.append(error)

    def _held_until(self, message: PoppedMessage, until_ms: int, free_s: float) -> None:
        if self.mode != "log":
            self.holders.keep(self._what(message), _handle_of(message), until_ms, free_s)

    def _step_clock(self, whose: SimBroker | SimCluster, change_ms: int) -> None:
        if whose is self._broker:
            self.holders.step_clock(self._now_s, whose.clock.time_ms())
        super()._step_clock(whose, change_ms)

    def _acked(self, message: PoppedMessage, asked: int) -> None:
        """An ack has returned, before which so many acks had been asked for."""
        place = _place(message)
        handles = {
            request.ext_fields["extraInfo"]
            for request in self.world.of_code(_ACK)[asked:]
            if self._place_of(request.ext_fields) == place
        }
        if not handles:
            return  # its time was over, and nothing was asked
        if (
            len(handles) > 1
        ):  # of somebody else, too, who had it before: nobody knows which is whose
            self.counts["acked together"] += 1
            return
        self.counts["acked"] += 1
        handle = parse_handle(handles.pop())
        if self.mode == "log":
            self.confirmed.append(Key(place, handle.check_point_offset, handle.pop_time_ms))
        else:
            wall_ms = self._broker.clock.time_ms()
            self.holders.ack(self._what(message), _handle_of(message), self._now_s, wall_ms)

    async def _keep(self, message: PoppedMessage) -> None:
        self.counts["kept"] += 1
        until_ms = self._broker.clock.time_ms() + round(INVISIBLE_S * 1_000)
        free_s = self._now_s + INVISIBLE_S
        try:
            await message.change_invisible(INVISIBLE_S)
        except RocketPyError:
            self.counts["not kept"] += 1
            until_ms, free_s = 0, 0.0  # its handle may be another one by now
        self._held_until(message, until_ms, free_s)

    @staticmethod
    def _place_of(fields: dict[str, str]) -> Place:
        return Place(fields["topic"], int(fields["queueId"]), int(fields["offset"]))


def _place(message: PoppedMessage) -> Place:
    return Place(message.queue.topic, message.queue.queue_id, message.offset)


def _handle_of(message: PoppedMessage) -> PopHandle:
    """Handle of a delivery; a later one may have replaced it."""
    return parse_handle(message.properties["POP_CK"])


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    sync = seed % 2 == 0
    mode = ("log", "buffered", "ordered")[seed // 2 % 3]
    if mode == "buffered":
        sync = False
    return run_world(
        lambda cluster: PopWorld(cluster, sync=sync, mode=mode),
        seed=seed,
        sync=sync,
        properties={"enablePopBufferMerge": MODES[mode]},
    )
