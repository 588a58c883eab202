"""Return of a master whose slave may have acted for it: fetches the progress, then registers.

For each registered slave, by id: it receives the master's addresses (906), its HA connection
streams, and then the master applies its progress: delay levels (45), consumer offsets (43), and the
timer's checkpoint (60). Offsets only move forward. After a failure everything is repeated a second
later. Until the end the master delivers nothing that is due, and is not registered.

Source: BrokerPreOnlineService (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from rocketpy.broker.acting.member_poll import MemberPoll
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.config import MASTER_ID
from rocketpy.broker.feature import Feature
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets, offsets_of
from rocketpy.broker.metadata.json_document import as_numbers, as_table
from rocketpy.broker.operation.scheduling.delivery_time import decimal
from rocketpy.errors import BrokerError, RocketPyError
from rocketpy.proto.headers.admin import ExchangeHAInfoRequestHeader
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.runtime.clock import Clock
from rocketpy.store.timer.checkpoint import DELIVERED_MS, UNREVIVED_MS, TimerMarks

_log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0
_CALL_MS: Final = 5_000
_STREAM_MS: Final = 3_000
_CHECK_S: Final = 0.05

Offsets = dict[tuple[str, str], dict[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveProgress:
    """Functions that apply the progress of a slave; no offset moves backwards.

    Attributes:
        delays: applies the offsets of the delay levels.
        timer: applies the checkpoint of the timer.
        unrevived: applies the time from which on check points of pops were not processed.
        offsets: applies consumer offsets.
        is_streaming: returns whether the slave with an id copies the log.
        flushed_phy_offset: returns the end of the log on disk.
    """

    delays: Callable[[Mapping[int, int]], None]
    timer: Callable[[TimerMarks], None]
    unrevived: Callable[[int], None]
    offsets: Callable[[Offsets], None]
    is_streaming: Callable[[int], bool]
    flushed_phy_offset: Callable[[], int]


def taker_of_offsets(
    offsets: ConsumerOffsets, features: Sequence[Feature]
) -> Callable[[Offsets], None]:
    """Return the function that applies the offsets of a slave, at a master.

    Args:
        offsets: the master's offsets.
        features: features that continue at some of these offsets.
    """

    def take(found: Offsets) -> None:
        offsets.follow(found, None, None)
        for each in features:
            if each.follow_master is not None and each.follow_master.offsets is not None:
                each.follow_master.offsets()

    return take


def taker_of_unrevived(features: Sequence[Feature]) -> Callable[[int], None]:
    """Return the function that revives, at a master, the messages that a slave did not revive.

    Args:
        features: those of the master.
    """

    def take(since_ms: int) -> None:
        for each in features:
            if each.follow_master is not None and each.follow_master.unrevived is not None:
                each.follow_master.unrevived(since_ms)

    return take


class PreOnline:
    """Reverse synchronisation of one master; lives on the loop that calls `start`.

    Args:
        client: connections.
        poll: members of the group.
        identity: names and addresses of this broker.
        progress: functions that apply the progress of a slave.
        clock: time.

    Attributes:
        is_online: whether the master serves; read on any thread.
    """

    def __init__(
        self,
        client: RemotingClient,
        poll: MemberPoll,
        *,
        identity: BrokerIdentity,
        progress: SlaveProgress,
        clock: Clock,
    ) -> None:
        self._client = client
        self._poll = poll
        self._identity = identity
        self._progress = progress
        self._clock = clock
        self._failure = ""
        self._task: asyncio.Task[None] | None = None
        self.is_online: bool = False

    def start(self, online: Callable[[], Awaitable[None]]) -> None:
        """Start the synchronisation.

        Args:
            online: called when the progress of all slaves is applied.
        """
        self._task = asyncio.get_running_loop().create_task(self._run(online))

    async def stop(self) -> None:
        """Stop the synchronisation; idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def attempt(self) -> bool:
        """Synchronise with all slaves; returns whether that succeeded."""
        try:
            members = await self._poll.members()
            if members is None:
                self._failed("no name server answers")
                return False
            for broker_id, address in sorted(members.items()):
                if broker_id != MASTER_ID:
                    await self._synchronise(broker_id, address)
        except (RocketPyError, OSError) as error:
            self._failed(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - the next attempt may succeed
            _log.exception("progress of the slaves not taken")
            self._failure = repr(error)
            return False
        return True

    async def _run(self, online: Callable[[], Awaitable[None]]) -> None:
        while True:
            if await self.attempt():
                break
            await asyncio.sleep(_RETRY_S)
        self.is_online = True
        _log.info("master online", broker_name=self._identity.broker_name)
        await online()

    def _failed(self, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            _log.warning(
                "master not online: it waits for its slaves (skipPreOnline=true ends that)",
                reason=reason,
            )

    async def _synchronise(self, broker_id: int, address: str) -> None:
        identity, progress = self._identity, self._progress
        header = ExchangeHAInfoRequestHeader(
            master_ha_address=identity.ha_address,
            master_flush_offset=progress.flushed_phy_offset(),
            master_address=identity.address,
        )
        await self._ask(address, RequestCode.EXCHANGE_BROKER_HA_INFO, header.to_ext())
        deadline_ms = self._clock.monotonic_ms() + _STREAM_MS
        while not progress.is_streaming(broker_id):
            if self._clock.monotonic_ms() >= deadline_ms:
                raise BrokerError.from_code(
                    ResponseCode.SYSTEM_ERROR, f"slave {address} does not copy the log yet"
                )
            await asyncio.sleep(_CHECK_S)
        delays = await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET)
        offsets = await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        timer = await self._client.invoke(
            address, make_request(RequestCode.GET_TIMER_CHECK_POINT), _CALL_MS
        )
        progress.delays(as_numbers(as_table(fastjson.loads(delays.body)).get("offsetTable")))
        progress.offsets(offsets_of(as_table(fastjson.loads(offsets.body))))
        marks = TimerMarks.decode(timer.body) if timer.code == ResponseCode.SUCCESS else None
        if marks is not None:
            delivered_ms = decimal(timer.ext_fields.get(DELIVERED_MS)) or 0
            unrevived_ms = decimal(timer.ext_fields.get(UNREVIVED_MS))
            if unrevived_ms is not None:
                progress.unrevived(unrevived_ms)
            progress.timer(marks._replace(read_ms=max(marks.read_ms, delivered_ms)))

    async def _ask(
        self, address: str, code: int, ext: dict[str, str] | None = None
    ) -> RemotingCommand:
        response = await self._client.invoke(address, make_request(code, ext or {}), _CALL_MS)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError.from_code(response.code, response.remark)
        return response
