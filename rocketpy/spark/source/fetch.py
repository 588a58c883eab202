"""Pulls a range of a queue in the order of offsets, with several pulls in flight.

A broker returns fewer messages than a pull requests (32 and 256 KiB by default), and only its
response shows how many. So the range is split into pieces of as many offsets as a response is
estimated to cover, and the first pieces are requested together. The rest of a partly covered piece
is split by the improved estimate, and requested before later pieces. At most `prefetch` responses
are held, and one more after a split.

    piece:  waiting -> requested -> [response covers it]       returned
                                 -> [response covers a part]   the rest waits again
                                 -> [timeout]                  the read fails

No offset is returned twice or skipped silently: lost offsets are returned as a `Pulled` with the
reason.

Source: PullMessageProcessor, PullAPIWrapper (5.4.0); the pieces are specific to RocketPy.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rocketpy.client.cluster.broker_api import PullResult, PullStatus
from rocketpy.client.cluster.replica_choice import ReplicaChoice
from rocketpy.client.cluster.route_table import MASTER_ID
from rocketpy.errors import (
    BadBodyError,
    ClientError,
    FlowControlError,
    InvalidParameterError,
    NoRouteError,
    RequestTimeoutError,
    RocketPyError,
    TopicNotExistError,
)
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.record.sys_flag import PULL_SUBSCRIPTION
from rocketpy.proto.subscription import SUB_ALL
from rocketpy.runtime.clock import Clock
from rocketpy.spark.offsets import QueueRange

logger: logging.Logger = logging.getLogger(__name__)

GROW_AFTER: Final = 32
"""Complete responses after which a larger piece is tried."""
PAUSE_MS: Final = 200
SLAVE_PAUSE_MS: Final = 1_000
"""Pause in front of a slave that lags behind."""
FAULTS: Final = 10
"""Temporary rejections of a pull before the read fails; flow control does not count."""
EMPTY_TRIES: Final = 5
"""Responses without a message to a pull within the range before these count as lost."""
_MAX_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Settings of all pulls of a read.

    Attributes:
        group: consumer group of the pulls.
        batch: most messages of a pull.
        max_bytes: most bytes of a pull.
        prefetch: most pulls in flight or held.
        timeout_ms: time limit of a pull with its retries.
        attempt_ms: time limit of one attempt.
        expression: filter of the broker.
        expression_type: `TAG` or `SQL92`.
    """

    group: str
    batch: int
    max_bytes: int
    prefetch: int
    timeout_ms: int
    attempt_ms: int = 30_000
    expression: str = SUB_ALL
    expression_type: str = "TAG"


class Pulled(NamedTuple):
    """Data of a queue from `start` to before `end`.

    Attributes:
        body: consecutive records; those with offsets outside the range are to be ignored.
        reach: offset after the response; beyond `end` when a filter skipped more than expected.
        lost: reason, if the messages are lost; else empty.
    """

    start: int
    end: int
    body: bytes
    reach: int
    lost: str = ""


Locate = Callable[[QueueRange], Awaitable[Mapping[int, str]]]
"""Returns the addresses, by broker id, of the broker of a queue."""


class PullApi(Protocol):
    """Interface of `rocketpy.client.cluster.broker_api.BrokerApi` for a fetcher."""

    async def pull(
        self, address: str, header: PullMessageRequestHeader, timeout_ms: int
    ) -> PullResult:
        """Pull messages."""
        ...


@dataclass(slots=True)
class _Piece:
    start: int
    end: int
    task: "asyncio.Task[Pulled] | None" = None


class RangeFetcher:
    """Fetcher of a range; `next` returns its data in order.

    Args:
        api: sends pulls to brokers.
        wanted: the range.
        settings: of the pulls.
        addresses: known addresses of the queue's broker by broker id; `locate` updates them when
            none answers.
        locate: looks up the current addresses of the broker.
        clock: for the time limit.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        api: PullApi,
        wanted: QueueRange,
        settings: PullSettings,
        *,
        addresses: Mapping[int, str],
        locate: Locate,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self.wanted = wanted
        self._api = api
        self._settings = settings
        self._addresses = dict(addresses)
        self._locate = locate
        self._clock = clock
        self._choice = ReplicaChoice(lambda: self._addresses, clock)
        self._piece_size = settings.batch
        self._full_count = 0
        self._waiting: deque[_Piece] = deque()
        self._next_start = wanted.start

    async def next(self) -> Pulled | None:
        """Return the next data, None at the end.

        Raises:
            RequestTimeoutError: no broker answered within the time limit; the message names the
                broker and the last reason.
            BrokerError: the broker rejects the pull permanently.
        """
        self._ask_ahead()
        if not self._waiting:
            return None
        piece = self._waiting[0]
        assert piece.task is not None, "the first piece is always asked for"
        pulled = await piece.task
        self._waiting.popleft()
        self._guess(pulled.reach - pulled.start, piece.end - piece.start)
        if pulled.end < piece.end:
            self._cut_rest(pulled.end, piece.end)
        self._ask_ahead()
        return pulled

    async def close(self) -> None:
        """Cancel the pulls in flight."""
        tasks = [piece.task for piece in self._waiting if piece.task is not None]
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- pieces

    def _ask_ahead(self) -> None:
        """Request the first pieces, up to the limit of pulls in flight."""
        waiting, end = self._waiting, self.wanted.end
        while len(waiting) < self._settings.prefetch and self._next_start < end:
            following = min(self._next_start + self._piece_size, end)
            waiting.append(_Piece(self._next_start, following))
            self._next_start = following
        room = self._settings.prefetch - sum(piece.task is not None for piece in waiting)
        for index, piece in enumerate(waiting):
            if piece.task is None and (room > 0 or index == 0):
                piece.task = asyncio.ensure_future(self._pull(piece.start, piece.end))
                room -= 1

    def _cut_rest(self, start: int, end: int) -> None:
        """Split the rest of a piece by the improved estimate, and put it before later pieces."""
        if self._waiting and all(piece.task is None for piece in self._waiting):
            end = self._next_start  # no later piece is requested: split all of the rest again
            self._waiting.clear()
        size = self._piece_size
        self._waiting.extendleft(
            _Piece(begin, min(begin + size, end)) for begin in reversed(range(start, end, size))
        )

    def _guess(self, covered: int, asked: int) -> None:
        if covered != asked and (covered < asked or covered > self._piece_size):
            self._piece_size = min(max(1, covered), _MAX_PIECE)
            self._full_count = 0
            return
        self._full_count += 1
        if self._full_count >= GROW_AFTER:
            self._full_count = 0
            self._piece_size = min(self._piece_size * 2, max(self._settings.batch, covered))

    # ---- one pull

    async def _pull(self, start: int, end: int) -> Pulled:
        """Pull until a response covers `start`; return at most the data before `end`."""
        begin_ms = self._clock.monotonic_ms()
        faults, empties = 0, 0
        failure: RocketPyError | None = None
        while failure is None or self._clock.monotonic_ms() - begin_ms < self._settings.timeout_ms:
            broker_id, is_slave = MASTER_ID, False
            try:
                broker_id = await self._chosen()
                is_slave = broker_id != MASTER_ID
                result = await self._attempt(broker_id, start, end)
            except RocketPyError as error:
                is_unknown = isinstance(error, TopicNotExistError | InvalidParameterError)
                if is_unknown and not is_slave:
                    reason = f"broker {self.wanted.broker_name} says: {error}"
                    return Pulled(start, end, b"", end, reason)
                # A slave has the topics of its master some seconds later.
                is_fault = not is_unknown and not isinstance(error, ClientError | FlowControlError)
                faults += is_fault
                if not (is_unknown or _passes(error)) or faults > FAULTS:
                    raise
                failure = error
                await self._look_again(broker_id, error)
                continue
            found = _understood(result, start, end)
            # A slave may lag behind, and a restarted broker may not be ready.
            is_doubtful = found is None or (
                found.lost and (is_slave or (start >= result.min_offset and empties < EMPTY_TRIES))
            )
            if found is not None and not is_doubtful:
                self._choice.suggest(result.suggested_broker_id)
                return found
            empties += not is_slave
            self._choice.suggest(MASTER_ID)
            where = f"slave {broker_id}" if is_slave else "it"
            failure = RequestTimeoutError(
                f"{where} says {result.status.name} of a queue from {result.min_offset} to "
                f"{result.max_offset}"
            )
            await self._sleep((SLAVE_PAUSE_MS if is_slave else PAUSE_MS) / 1000)
            if is_slave:
                await self._locate_again()  # the master may be back
        where = ", ".join(self._addresses.values()) or "an unknown address"
        raise RequestTimeoutError(
            f"{self.wanted} cannot be read on at offset {start}: broker {self.wanted.broker_name} "
            f"at {where} did not answer for {self._settings.timeout_ms} ms: "
            f"{failure}"
        )

    async def _chosen(self) -> int:
        """Return the id of the replica for the next attempt."""
        if not self._addresses:
            self._addresses = dict(await self._locate(self.wanted))
        broker_id = self._choice.choose()
        if broker_id is None:
            raise NoRouteError(f"broker {self.wanted.broker_name} is not registered")
        return broker_id

    async def _attempt(self, broker_id: int, start: int, end: int) -> PullResult:
        address = self._addresses[broker_id]
        settings, queue = self._settings, self.wanted
        header = PullMessageRequestHeader(
            consumer_group=settings.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=start,
            max_msg_nums=min(end - start, settings.batch),
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=settings.expression,
            sub_version=0,
            expression_type=settings.expression_type,
            max_msg_bytes=settings.max_bytes,
            bname=queue.broker_name,
        )
        limit_ms = min(settings.attempt_ms, settings.timeout_ms)
        return await self._api.pull(address, header, limit_ms)

    async def _look_again(self, broker_id: int, error: RocketPyError) -> None:
        """Wait before a retry; unless a master answered look up the broker's addresses."""
        pause_ms = self._choice.note_failure(broker_id, error, PAUSE_MS)
        await self._sleep(pause_ms / 1000)
        if isinstance(error, ClientError):
            logger.info("pull failed: range=%s error=%r", self.wanted, error)
        elif broker_id == MASTER_ID:
            return
        await self._locate_again()

    async def _locate_again(self) -> None:
        try:
            self._addresses = dict(await self._locate(self.wanted)) or self._addresses
        except RocketPyError as trouble:
            logger.info("broker lookup failed: range=%s error=%r", self.wanted, trouble)


def _passes(error: RocketPyError) -> bool:
    """Return whether a retry may succeed, as after a response that cannot be decoded."""
    return error.retriable or isinstance(error, BadBodyError)


def _understood(result: PullResult, start: int, end: int) -> Pulled | None:
    """Return the data or loss that a response reports at `start`; None for a retry."""
    low, high, reach = result.min_offset, result.max_offset, result.next_begin_offset
    if result.status in {PullStatus.FOUND, PullStatus.NO_MATCHED_MESSAGE} and reach > start:
        body = result.body if result.status is PullStatus.FOUND else b""
        return Pulled(start, min(reach, end), body, reach)
    if start < low:
        return Pulled(start, min(low, end), b"", min(low, end), f"the queue begins at {low}")
    if start >= high:
        return Pulled(start, end, b"", end, f"the queue ends at {high}")
    if result.status is PullStatus.NO_NEW_MESSAGE and reach > start:
        return Pulled(start, min(reach, end), b"", reach)
    return None
