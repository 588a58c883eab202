"""Memory buffer of check points: most messages are acked before theirs has to be stored.

Most messages are acked soon; then neither the check point nor the acks are stored. A check point
that has been buffered for `pop_ck_stay_buffer_time` is stored together with the acks received so
far. The group's committed offset advances past the messages only after either has happened, so a
crash in between delivers them again and loses none.

The acks are stored before the check point: if storing the check point fails, both are tried again,
and no confirmed ack is forgotten. A check point that is due later than the timer reaches, because
the clock was set back, stays in memory and does not delay others.

Source: PopBufferMergeService.java (5.4.0).
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.positions import Advance, PopPositions
from rocketpy.broker.pop.revive.revive_log import PopKey, ReviveLog, key_of
from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessageResult, PutMessageStatus

STEP_INTERVAL_MS: Final = 500
_POINTS_PER_STEP: Final = 64
"""Bound of one step, so that a step that stores many check points does not delay a stop."""
_PAUSE_MS: Final = 1_000
"""Pause after the store refused a check point."""
_TOO_FAR_MS: Final = 10_000
"""Pause before a check point beyond the reach of the timer is tried again."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    point: CheckPoint
    revive_queue_id: int
    advance: Advance
    due_ms: int  # monotonic


class CheckPointBuffer:
    """Buffers check points; safe from any thread. `step` is the background service.

    Bounds: `pop_ck_max_buffer_size` check points of some 700 bytes each, and
    `pop_ck_offset_max_queue_size` uncommitted advances of one queue.

    Args:
        revive_log: stores check points and acks that leave the buffer.
        positions: notified when the committed offset may advance.
        config: the broker's settings; see `configure`.
        sync_flush: whether responses wait for the disk; then nothing is buffered.
        clock: time.
    """

    name = "PopCheckPointBuffer"

    def __init__(
        self,
        revive_log: ReviveLog,
        positions: PopPositions,
        *,
        config: BrokerConfig,
        sync_flush: bool,
        clock: Clock,
    ) -> None:
        self._revive_log = revive_log
        self._positions = positions
        self._config = config
        self._sync_flush = sync_flush
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: dict[PopKey, _Waiting] = {}
        self._due: deque[PopKey] = deque()
        self._is_open = True

    def __len__(self) -> int:
        """Number of buffered check points."""
        return len(self._waiting)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def add(
        self, point: CheckPoint, queue: GroupQueue, next_offset: int, revive_queue_id: int
    ) -> bool:
        """Buffer a check point; the caller holds the lock of its queue.

        Args:
            point: the check point.
            queue: the popped queue.
            next_offset: where the next pop of the queue starts.
            revive_queue_id: revive queue in which the check point is stored if it has to be.

        Returns:
            False when the caller must store the check point now.
        """
        config = self._config
        if self._sync_flush or not config.enable_pop_buffer_merge:
            return False
        stay_ms = min(
            config.pop_ck_stay_buffer_time,
            point.invisible_ms - config.pop_ck_stay_buffer_time_out,
        )
        if (
            stay_ms <= 0
            or len(self._waiting) >= config.pop_ck_max_buffer_size
            or self._positions.uncommitted_count(queue) >= config.pop_ck_offset_max_queue_size
        ):
            return False
        key = key_of(point)
        with self._lock:
            if not self._is_open or key in self._waiting:
                return False
            advance = self._positions.advance(queue, next_offset, None)
            due_ms = self._clock.monotonic_ms() + stay_ms
            self._waiting[key] = _Waiting(point, revive_queue_id, advance, due_ms)
        return True

    def ack(self, key: PopKey, offsets: Sequence[int]) -> bool:
        """Record acks.

        Args:
            key: key of their check point.
            offsets: queue offsets of the messages.

        Returns:
            False when the check point is not buffered, so the ack must be stored.
        """
        with self._lock:
            waiting = self._waiting.get(key)
            if waiting is None:
                return False
            point = waiting.point
            point.note_acked(offsets)
            is_done = point.bit_map == (1 << point.count) - 1
            if is_done:
                del self._waiting[key]
        if is_done:
            self._positions.set_phy_end(waiting.advance, 0)
        return True

    def step(self, now_ms: int) -> int:
        """Store check points that are due; see `rocketpy.runtime.service.Service.step`."""
        due = self._due
        # One scan serves many steps: most of the buffered check points are not due, and there
        # may be very many. The lock is held for the copy only, so that acks do not wait.
        if not due:
            with self._lock:
                waiting = list(self._waiting.items())
            due.extend(key for key, each in waiting if each.due_ms <= now_ms)
        for _ in range(min(len(due), _POINTS_PER_STEP)):
            if not self._store(due[0], now_ms):
                return now_ms + _PAUSE_MS
            due.popleft()
        return now_ms if due else now_ms + STEP_INTERVAL_MS

    def revive_expired(self, before_ms: int, revive: Callable[[CheckPoint, int], bool]) -> None:
        """Redeliver messages whose check points are not stored, at an acting master.

        Args:
            before_ms: wall time before which the invisible time must have ended.
            revive: redelivers the messages of a check point; see `Reviver.revive`.
        """
        with self._lock:
            waiting = list(self._waiting.items())
        over = [
            key
            for key, each in waiting
            if each.point.pop_time_ms + each.point.invisible_ms < before_ms
        ]
        for key in over[:_POINTS_PER_STEP]:
            with self._lock:
                taken = self._waiting.pop(key, None)
            if taken is None:
                continue
            is_done = False
            try:
                is_done = revive(taken.point, taken.revive_queue_id)
            finally:
                if not is_done:
                    self._keep(key, taken, [])
            if not is_done:
                return
            self._positions.set_phy_end(taken.advance, 0)

    def load(self) -> None:
        """Nothing to load: `persist` stored the whole buffer when the broker stopped."""

    def persist(self) -> None:
        """Store all buffered check points, and buffer no more."""
        with self._lock:
            self._is_open = False
            keys = list(self._waiting)
        for key in keys:
            if not self._store(key, self._clock.monotonic_ms()):
                return  # its messages are popped again after the next start

    def _store(self, key: PopKey, now_ms: int) -> bool:
        """Store a due check point with its acks; False when the store accepts nothing now."""
        # It leaves the buffer first: acks that arrive from now on are stored, and find the check
        # point in the log. Otherwise an ack could be recorded after its bits were read.
        with self._lock:
            waiting = self._waiting.pop(key, None)
        if waiting is None:
            return True
        point = waiting.point
        acked = point.offsets(acked=True)
        status = PutMessageStatus.UNKNOWN_ERROR
        try:
            stored = self._put(point, acked, waiting.revive_queue_id)
            status = stored.status
        finally:
            if status is not PutMessageStatus.PUT_OK:
                self._keep(key, waiting, acked)
        if status is PutMessageStatus.PUT_OK:
            self._positions.set_phy_end(waiting.advance, stored.phy_end)
            return True
        _log.warning(
            "check point not stored",
            topic=point.topic,
            group=point.group,
            status=status.value,
        )
        if status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL:
            waiting.due_ms = now_ms + _TOO_FAR_MS
            return True
        return False

    def _keep(self, key: PopKey, waiting: _Waiting, acked: list[int]) -> None:
        """Return a check point that could not be stored to the buffer."""
        waiting.point.note_acked(acked)
        with self._lock:
            self._waiting[key] = waiting

    def _put(self, point: CheckPoint, acked: list[int], revive_queue_id: int) -> PutMessageResult:
        point.bit_map = 0  # as Apache: acks are stored as separate messages
        if acked:
            ack = PopAck(
                point.topic,
                point.group,
                point.queue_id,
                point.start_offset,
                point.pop_time_ms,
                point.broker_name,
                -1,
                acked,
            )
            over_ms = point.pop_time_ms + point.invisible_ms
            stored = self._revive_log.put_ack(ack, revive_queue_id, over_ms)
            if stored.status is not PutMessageStatus.PUT_OK:
                return stored
        return self._revive_log.put_check_point(point, revive_queue_id)
