"""Pulling one range of a queue, several pulls ahead, in the order of offsets.

A broker gives fewer messages than a pull asks for (32 and 256 KiB by default), and says so only in
its response. So the range is cut into pieces of as many offsets as a response is guessed to cover,
and the first pieces are asked for together. A response that covers less leaves a rest, which is cut
by the better guess and asked for before anything behind it. At most `prefetch` responses are held,
and one more after a cut.

    piece:  waiting -> asked -> [response covers it]        handed over, whole
                             -> [response covers a part]    the rest waits again
                             -> [nobody answers in time]    the read fails

Nothing is handed over twice, and nothing is passed over in silence: offsets that are gone come as a
`Pulled` that says why.

Source: PullMessageProcessor, PullAPIWrapper (5.4.0); the pieces are ours.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from rocketpy.client.cluster.broker_api import PullResult, PullStatus
from rocketpy.errors import (
    BadBodyError,
    ClientError,
    FlowControlError,
    InvalidParameterError,
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

MASTER_ID: Final = 0
GROW_AFTER: Final = 32
"""Full responses after which a larger piece is tried."""
PAUSE_MS: Final = 200
FAULTS: Final = 10
"""Refusals of one pull that may pass, before they are believed; flow control does not count."""
EMPTY_TRIES: Final = 5
"""Answers "nothing there" to a pull within the range before it is believed."""
_MAX_PIECE: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """What all pulls of a read share.

    Attributes:
        group: in whose name they are.
        batch: messages that one asks for.
        max_bytes: bytes that one asks for.
        prefetch: that are on their way, or held, together.
        timeout_ms: how long one is tried again and again.
        attempt_ms: limit of one attempt.
        expression: the broker's filter.
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
    """What a queue has from `start` to before `end`.

    Attributes:
        body: records back to back; also some of offsets outside, which are not meant.
        reach: how far the response reached; beyond `end` when a filter left out more than expected.
        lost: why there is nothing, when messages are gone; else empty.
    """

    start: int
    end: int
    body: bytes
    reach: int
    lost: str = ""


Locate = Callable[[QueueRange], Awaitable[Mapping[int, str]]]
"""Asks for the addresses, by broker id, of the broker that has a queue."""


class PullApi(Protocol):
    """What a fetcher needs of `rocketpy.client.cluster.broker_api.BrokerApi`."""

    async def pull(
        self, address: str, header: PullMessageRequestHeader, timeout_ms: int
    ) -> PullResult:
        """Ask for messages."""
        ...


@dataclass(slots=True)
class _Piece:
    start: int
    end: int
    task: "asyncio.Task[Pulled] | None" = None


class RangeFetcher:
    """Pulls a range; `next` returns what follows until there is no more.

    Args:
        api: sends pulls to brokers.
        wanted: the range.
        settings: of the pulls.
        addresses: of the queue's broker by broker id, as far as known; asked for again by `locate`
            when none of them answers.
        locate: asks where the broker is now.
        clock: for the time limit.
        sleep: waits so many seconds.
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
        self._broker_id = MASTER_ID
        self._piece_size = settings.batch
        self._full_count = 0
        self._waiting: deque[_Piece] = deque()
        self._next_start = wanted.start

    async def next(self) -> Pulled | None:
        """Return what follows, None at the end.

        Raises:
            RequestTimeoutError: nobody answered within the time limit; names the broker and the
                last reason.
            BrokerError: the broker refuses for good.
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
        """Give up what is on its way."""
        tasks = [piece.task for piece in self._waiting if piece.task is not None]
        self._waiting.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- pieces

    def _ask_ahead(self) -> None:
        """Ask for the first pieces, as many as may be on their way."""
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
        """Put what a response left over before everything else, cut by the better guess."""
        if self._waiting and all(piece.task is None for piece in self._waiting):
            end = self._next_start  # nothing behind it is asked for: cut all of it anew
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
        """Pull until something is known about `start`; returns at most what lies before `end`."""
        begin_ms = self._clock.monotonic_ms()
        faults, empties = 0, 0
        failure: RocketPyError | None = None
        while failure is None or self._clock.monotonic_ms() - begin_ms < self._settings.timeout_ms:
            try:
                result, is_slave = await self._attempt(start, end)
            except (TopicNotExistError, InvalidParameterError) as error:
                reason = f"broker {self.wanted.broker_name} says: {error}"
                return Pulled(start, end, b"", end, reason)
            except RocketPyError as error:
                faults += not isinstance(error, (ClientError, FlowControlError))
                if not _passes(error) or faults > FAULTS:
                    raise
                failure = error
                await self._look_again(error)
                continue
            found = _understood(result, start, end)
            # A slave may be behind, and a broker that came back may not be ready.
            is_doubtful = found is None or (
                found.lost and (is_slave or (start >= result.min_offset and empties < EMPTY_TRIES))
            )
            if found is not None and not is_doubtful:
                self._broker_id = result.suggested_broker_id
                return found
            empties += not is_slave
            self._broker_id = MASTER_ID
            failure = RequestTimeoutError(
                f"it says {result.status.name} of a queue from {result.min_offset} to "
                f"{result.max_offset}"
            )
            await self._sleep(PAUSE_MS / 1000)
        where = ", ".join(self._addresses.values()) or "an unknown address"
        raise RequestTimeoutError(
            f"{self.wanted} cannot be read on at offset {start}: broker {self.wanted.broker_name} "
            f"at {where} did not answer for {self._settings.timeout_ms} ms: {failure}"
        )

    async def _attempt(self, start: int, end: int) -> tuple[PullResult, bool]:
        if not self._addresses:
            self._addresses = dict(await self._locate(self.wanted))
        addresses, wanted = self._addresses, self._broker_id
        broker_id = wanted if wanted in addresses else min(addresses)
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
        result = await self._api.pull(addresses[broker_id], header, limit_ms)
        return result, broker_id != MASTER_ID

    async def _look_again(self, error: RocketPyError) -> None:
        """Wait a moment, and after a failure of the connection ask where the broker is now."""
        await self._sleep(PAUSE_MS / 1000)
        if not isinstance(error, ClientError):
            return
        logger.info("pulling %s failed: %r", self.wanted, error)
        self._broker_id = MASTER_ID
        try:
            self._addresses = dict(await self._locate(self.wanted)) or self._addresses
        except RocketPyError as trouble:
            logger.info("where %s is served cannot be asked: %r", self.wanted, trouble)


def _passes(error: RocketPyError) -> bool:
    """Whether the next attempt may do better, as after a response that cannot be read."""
    return error.retriable or isinstance(error, BadBodyError)


def _understood(result: PullResult, start: int, end: int) -> Pulled | None:
    """Return what a response says about the offsets from `start` on; None when it says nothing."""
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
