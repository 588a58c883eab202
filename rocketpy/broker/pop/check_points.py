"""Check points that wait in memory for the acks of their messages.

Most messages are acked soon: then neither the check point nor the acks are stored. A check point
that has waited `pop_ck_stay_buffer_time` is stored, and so are the acks that have come. The group's
committed offset passes the messages when either has happened: a crash in between delivers them
again, and none is lost.

The acks are stored first: should the store refuse what follows, both are tried again, and no ack
that was confirmed is forgotten. A check point that is due later than the timer reaches, as when the
clock was set back, waits in memory and holds up no other.

Source: PopBufferMergeService.java (5.4.0).
"""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.pop.positions import Advance, PopPositions
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.broker.pop.revive.revive_log import PopKey, ReviveLog, key_of
from rocketpy.lazy_dataclass import lazy_dataclass
from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessageResult, PutMessageStatus

STEP_INTERVAL_MS: Final = 500
_POINTS_PER_STEP: Final = 64
_PAUSE_MS: Final = 1_000
_TOO_FAR_MS: Final = 10_000
"""After so long a check point that the timer did not reach is tried again."""

_log = structlog.get_logger(__name__)


@lazy_dataclass()
class _Waiting:
    point: CheckPoint
    revive_queue_id: int
    advance: Advance
    due_ms: int  # monotonic


class CheckPointBuffer:
    """Keeps check points for a while; safe from any thread. See `step` for the service.

    At most `pop_ck_max_buffer_size` check points, some 700 bytes each, and
    `pop_ck_offset_max_queue_size` advances of one queue behind the oldest of them.

    Args:
        revive_log: where they are stored.
        positions: told when the committed offset may pass.
        config: the broker's settings; see `configure`.
        sync_flush: nothing waits here: consumers are told when check points and acks are on disk.
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
        """How many check points wait."""
        return len(self._waiting)

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config

    def add(
        self, point: CheckPoint, queue: GroupQueue, next_offset: int, revive_queue_id: int
    ) -> bool:
        """Keep a check point; its queue's lock is held.

        Args:
            point: the check point.
            queue: whose messages were popped.
            next_offset: where the next pop of it begins.
            revive_queue_id: where the check point is stored if it has to be.

        Returns:
            False when it is to be stored at once.
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
            or self._positions.unsettled(queue) >= config.pop_ck_offset_max_queue_size
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
        """Note acks.

        Args:
            key: of their check point.
            offsets: queue offsets of the messages.

        Returns:
            False when the check point is not here: the ack is to be stored.
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
            self._positions.settle_at(waiting.advance, 0)
        return True

    def step(self, now_ms: int) -> int:
        """Store what has waited long enough; see `rocketpy.runtime.service.Service.step`."""
        due = self._due
        if not due:  # one look for many steps: there may be very many that are not due
            with self._lock:
                waiting = list(self._waiting.items())
            due.extend(key for key, each in waiting if each.due_ms <= now_ms)
        for _ in range(min(len(due), _POINTS_PER_STEP)):
            if not self._store(due[0], now_ms):
                return now_ms + _PAUSE_MS
            due.popleft()
        return now_ms if due else now_ms + STEP_INTERVAL_MS

    def load(self) -> None:
        """Nothing to read: what waited when the broker stopped was stored."""

    def persist(self) -> None:
        """Store everything that waits; nothing waits here any more."""
        with self._lock:
            self._is_open = False
            keys = list(self._waiting)
        for key in keys:
            if not self._store(key, self._clock.monotonic_ms()):
                return  # its messages are popped again after the next start

    def _store(self, key: PopKey, now_ms: int) -> bool:
        """Store a check point that is due, with its acks; False when the store takes nothing."""
        # Once it is taken out, an ack that comes is stored and finds the check point in the log.
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
            self._positions.settle_at(waiting.advance, stored.phy_end)
            return True
        _log.warning(
            "a check point of popped messages is not stored yet",
            topic=point.topic,
            group=point.group,
            why=status.value,
        )
        if status is PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL:
            waiting.due_ms = now_ms + _TOO_FAR_MS
            return True
        return False

    def _keep(self, key: PopKey, waiting: _Waiting, acked: list[int]) -> None:
        """Let a check point that is not stored wait again."""
        waiting.point.note_acked(acked)
        with self._lock:
            self._waiting[key] = waiting

    def _put(self, point: CheckPoint, acked: list[int], revive_queue_id: int) -> PutMessageResult:
        point.bit_map = 0  # as Apache: what is acked is said by acks
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
