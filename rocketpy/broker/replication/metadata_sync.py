"""Tables of the master, fetched by a slave every 3 s; see docs/replication.md.

Topics and groups are fetched at once, too, when the log has a message of a topic that is unknown
here. While no master answers, such topics are created from the log. A slave that a controller may
elect at any time fetches topics, groups, what was committed since, and the master's progress with
messages four times a second.

Only differences are written. Topics and groups are fetched when their data version differs from
the one fetched last. What the master has already done with messages (the progress of the delay
levels, of the timer, and of the broker's own groups) is applied only when this log contains the
master's log of that time: otherwise a slave that takes over would skip messages that were stored
again after its end of the log.

All requests go to the master's ordinary port, which answers them at Apache's brokers as well.

Source: SlaveSynchronize.java (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import structlog

from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets, offsets_of
from rocketpy.broker.metadata.found_topics import FoundTopics
from rocketpy.broker.metadata.json_document import as_int, as_numbers, as_table
from rocketpy.broker.metadata.message_request_modes import MessageRequestModes
from rocketpy.broker.metadata.persistent_table import PersistentTable
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.replication.offset_handback import GroupOffsets, OffsetHandback, SlaveCommits
from rocketpy.errors import BadBodyError, BrokerError, RocketPyError, StoreError
from rocketpy.proto.bodies.group import MessageRequestModeSerializeWrapper, SubscriptionGroupWrapper
from rocketpy.proto.bodies.stats import HARuntimeInfo
from rocketpy.proto.bodies.topic import DataVersion, KVTable, TopicConfigSerializeWrapper
from rocketpy.proto.headers.base import Header
from rocketpy.proto.headers.offset import (
    GetAllConsumerOffsetRequestHeader,
    GetAllConsumerOffsetResponseHeader,
)
from rocketpy.proto.headers.topic import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllTopicConfigRequestHeader,
)
from rocketpy.proto.topic_names import SYSTEM_GROUP_PREFIX
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.runtime.clock import Clock
from rocketpy.store.timer.checkpoint import TimerMarks

_log = structlog.get_logger(__name__)

INTERVAL_MS: Final = 3_000
_ELECTABLE_MS: Final = 250
"""Pause between two requests of a slave that may be elected.

What a consumer committed in that time, and delayed messages of that time, are delivered again when
the master is lost.
"""
_LONGEST_MS: Final = 30_000
_FIRST_ASK_MS: Final = 100
"""Pause between a message of an unknown topic and the request of the table; doubled each time.

The master writes its table meanwhile, and topics that are created together need one request.
"""
_CALL_MS: Final = 3_000
_PAGE_MS: Final = 30_000
_PAGE: Final = 2_000
_PROBE: Final = 1
"""Entries of a request that asks for the version of a table."""
_MOST_PAGES: Final = 1_000


_Offsets = dict[tuple[str, str], Mapping[int, int]]


class MasterClient(Protocol):
    """Interface of the connections: `rocketpy.remoting.client.RemotingClient`."""

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Call a server and return its response, with any response code."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaveTables:
    """Parts of a slave that follow the master.

    Attributes:
        topics: topic table.
        groups: group table.
        offsets: consumer offsets.
        modes: message request modes.
        follow_delays: takes the offsets of the delay levels.
        follow_timer: takes the checkpoint of the timer.
        found: topics of the log that the topic table lacks.
        drop_topic: deletes the data of a topic, but messages from a physical offset on.
        max_offset: returns the end of a queue, by topic and queue id.
        max_phy_offset: returns the end of this log.
        flushed_phy_offset: returns the end of this log on disk.
    """

    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    modes: MessageRequestModes
    found: FoundTopics
    follow_delays: Callable[[Mapping[int, int]], None]
    follow_timer: Callable[[TimerMarks], None]
    drop_topic: Callable[[str, int], None]
    max_offset: Callable[[str, int], int]
    max_phy_offset: Callable[[], int]
    flushed_phy_offset: Callable[[], int]


class _Done(NamedTuple):
    """Progress of the master with the messages of a part of its log.

    Attributes:
        phy_end: end of its log.
        delays: offsets of the delay levels.
        timer: checkpoint of its timer; None without one.
        offsets: offsets of the broker's own groups.
    """

    phy_end: int
    delays: Mapping[int, int]
    timer: TimerMarks | None
    offsets: GroupOffsets


class MetadataSync:
    """Fetches the master's tables; lives on the loop that calls `start`.

    Args:
        client: connections.
        master: returns the master's ordinary address; empty while it is unknown.
        tables: what follows the master.
        commits: offsets that were committed here, which go to the master.
        clock: time.
        lost: called when the master ceases to answer: its address may have changed.
        is_electable: whether a controller may elect this slave at any time.
    """

    def __init__(
        self,
        client: MasterClient,
        master: Callable[[], str],
        tables: SlaveTables,
        commits: SlaveCommits,
        *,
        clock: Clock,
        lost: Callable[[], None] = lambda: None,
        is_electable: bool = False,
    ) -> None:
        self._client = client
        self._master = master
        self._tables = tables
        self._commits = commits
        self._handback = OffsetHandback(commits)
        self._clock = clock
        self._lost = lost
        self._is_electable = is_electable
        self._names_ms = _ELECTABLE_MS if is_electable else INTERVAL_MS
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._noticed = asyncio.Event()
        self._is_noticed = False
        self._address = ""
        self._topics_version: DataVersion | None = None
        self._groups_version: DataVersion | None = None
        self._before: _Offsets | None = None
        self._own: _Offsets = {}
        self._done_end = 0
        self._mark: str | None = None
        self._held: _Done | None = None
        self._earlier: _Done | None = None
        self._failure = ""
        self._refused: set[int] = set()
        self.synced_ms: int = 0

    def start(self) -> None:
        """Begin to follow the master."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep_following())

    async def stop(self) -> None:
        """Stop following."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    @property
    def failure(self) -> str:
        """Why the last round failed; empty if it did not."""
        return self._failure

    async def _keep_following(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            await self.follow_once()
            took_ms = self._clock.monotonic_ms() - began_ms
            # Large tables take long to read: a round uses at most half of the time.
            await self._pause(max(INTERVAL_MS, min(took_ms, _LONGEST_MS)))

    async def _pause(self, pause_ms: int) -> None:
        """Wait for the next round; meanwhile fetch topics when the log has an unknown one.

        Where a controller may elect this slave, they are fetched regularly, with new commits.
        """
        end_ms, ask_ms = self._clock.monotonic_ms() + pause_ms, _FIRST_ASK_MS
        while (left_ms := end_ms - self._clock.monotonic_ms()) > 0:
            try:
                async with asyncio.timeout(min(left_ms, self._names_ms) / 1_000):
                    await self._noticed.wait()
                    await asyncio.sleep(ask_ms / 1_000)
            except TimeoutError:
                if left_ms <= self._names_ms:
                    return
            else:
                ask_ms *= 2
            await self.follow_names_once()

    def notice(self, topic: str) -> None:
        """Note a new message of a topic, which may be unknown here; on any thread, and cheap."""
        if self._is_noticed or self._loop is None or not self._tables.found.is_new(topic):
            return
        self._is_noticed = True
        try:
            self._loop.call_soon_threadsafe(self._noticed.set)
        except RuntimeError:
            _log.debug("loop closed, unknown topic not fetched", topic=topic)

    async def follow_once(self) -> bool:
        """Fetch all tables once; returns whether the master answered.

        If it does not, or is unknown, topics are created from the log.
        """
        return await self._attempt(self._round)

    async def follow_names_once(self) -> bool:
        """Fetch topics, groups, new commits and new progress once."""

        async def follow_names() -> None:
            await self._follow_topics()
            await self._follow_groups()
            await self._follow_commits()
            await self._follow_new_done()

        return await self._attempt(follow_names)

    async def follow_last(self) -> None:
        """Stop following, and fetch all tables a last time: the master hands over to this slave."""
        await self.stop()
        self._earlier, self._held = self._held, None
        await self.follow_once()

    def take_last(self) -> None:
        """Apply fetched progress that this log contains; the log does not grow any more."""
        for held in (self._earlier, self._held):
            self._held = held
            self._take_done()

    async def _attempt(self, follow: Callable[[], Awaitable[None]]) -> bool:
        # Reset first: topics that are noticed from here on need another request.
        self._noticed.clear()
        self._is_noticed = False
        is_followed = await self._try(follow)
        if not is_followed and self._tables.found.create():
            # Fetched again in any case: the master's table replaces topics that were created here.
            self._topics_version = None
        return is_followed

    async def _try(self, follow: Callable[[], Awaitable[None]]) -> bool:
        address = self._master()
        if not address:
            return False
        if address != self._address:
            self._address = address
            self._forget()
        try:
            await follow()
        except (RocketPyError, OSError) as error:
            self._interrupted(str(error))
            return False
        except Exception as error:  # noqa: BLE001 - the next round may succeed
            _log.exception("tables not followed", master=address)
            self._interrupted(repr(error))
            return False
        if self._failure:
            self._failure = ""
            _log.info("tables of the master followed again", master=address)
        self.synced_ms = self._clock.time_ms()
        return True

    def _interrupted(self, reason: str) -> None:
        if not self._failure:
            _log.warning("tables of the master not followed", master=self._address, error=reason)
            self._lost()
        self._failure = reason

    def _forget(self) -> None:
        """Fetch everything: another master may have other tables with the same versions."""
        self._topics_version = self._groups_version = self._before = self._mark = None
        self._held = self._earlier = None
        self._own.clear()
        self._done_end = 0
        self._refused.clear()

    async def _round(self) -> None:
        for step in (
            self._follow_topics,
            self._follow_groups,
            self._follow_offsets,
            self._follow_modes,
            self._follow_done,
        ):
            await step()

    # -- topics and groups -----------------------------------------------------------------

    async def _follow_topics(self) -> None:
        table = self._tables.topics
        if not _is_written(table):
            self._topics_version = None

        async def fetch(start: int, count: int, seen: DataVersion | None) -> _Page:
            header = GetAllTopicConfigRequestHeader(
                topic_seq=start, max_topic_num=count, data_version=_as_text(seen)
            )
            response = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG, header, _PAGE_MS)
            body = TopicConfigSerializeWrapper.decode(response.body)
            total = as_int(response.ext_fields.get("totalTopicNum"), 0)
            return _Page(body.topic_config_table, body.data_version, total, {})

        # Later messages of a topic that the master lacks are those of its next creation.
        end = self._tables.max_phy_offset()
        # Asked before the table: topics whose messages all precede it are in the table, or were
        # deleted. One that is created between both answers may only be missing in the table.
        master_end = await self._master_end()
        found = await _fetch(fetch, self._topics_version)
        if found is not None:
            for topic in table.follow(found.entries):
                self._commits.drop_topic(topic)
                self._tables.drop_topic(topic, end)
            self._commits.note_tables(master_end)
            self._topics_version = found.version

    async def _follow_groups(self) -> None:
        table = self._tables.groups
        if not _is_written(table):
            self._groups_version = None

        async def fetch(start: int, count: int, seen: DataVersion | None) -> _Page:
            header = GetAllSubscriptionGroupRequestHeader(
                group_seq=start, max_group_num=count, data_version=_as_text(seen)
            )
            code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
            response = await self._ask(code, header, _PAGE_MS)
            body = SubscriptionGroupWrapper.decode(response.body)
            total = as_int(response.ext_fields.get("totalGroupNum"), 0)
            return _Page(
                body.subscription_group_table, body.data_version, total, body.forbidden_table
            )

        found = await _fetch(fetch, self._groups_version)
        if found is not None:
            table.follow(found.entries, found.forbidden)
            self._groups_version = found.version

    # -- offsets ---------------------------------------------------------------------------

    async def _follow_offsets(self) -> None:
        offsets = self._tables.offsets
        before: GroupOffsets | None = self._before
        found, self._mark = await self._fetch_offsets("" if self._is_electable else None)
        master, self._own = _split(found)
        # Asked each time: the file must not name an older process when this one is stopped.
        boot = await self._boot_time()
        if boot != self._commits.master_boot:
            # A killed master has lost commits of some seconds: lower offsets are not resets.
            before = None
        elif before is None and boot:
            # The first round: this process continues from the offsets that it has loaded.
            before = offsets_of(offsets.to_json())
        offsets.follow(master, before, self._commits, self._tables.max_offset)
        self._commits.note_master(boot)
        self._before = master
        if len(self._commits):
            await self._handback.send(self._call, master)

    async def _follow_commits(self) -> None:
        """Apply offsets that clients have committed at the master since the last request.

        Offsets only move forward here: resets and deletions wait for the next round.
        """
        if self._mark is None or self._before is None:
            return  # a master that counts no commits, as Apache's
        found, self._mark = await self._fetch_offsets(self._mark)
        new, own = _split(found)
        self._tables.offsets.follow(new, None, self._commits)
        # `_before` as well: the next round would not notice a reset to an offset between the two.
        for table, changed in ((self._before, new), (self._own, own)):
            for key, queues in changed.items():
                table[key] = {**table.get(key, {}), **queues}

    async def _fetch_offsets(self, since: str | None = None) -> tuple[GroupOffsets, str | None]:
        """Return the master's offsets, or those since a mark, and the mark of now if it has one."""
        header = GetAllConsumerOffsetRequestHeader(since=since)
        response = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET, header)
        mark = GetAllConsumerOffsetResponseHeader.from_ext(response.ext_fields).mark
        return offsets_of(as_table(fastjson.loads(response.body))), mark

    async def _boot_time(self) -> str:
        """Return when the master started; empty without an answer."""
        try:
            response = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        except BrokerError:
            return ""
        return KVTable.decode(response.body).table.get("bootTimestamp", "")

    async def _follow_modes(self) -> None:
        response = await self._optional(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if response is None:
            return
        wanted = MessageRequestModeSerializeWrapper.decode(response.body)
        try:
            self._tables.modes.follow(wanted)
        except (StoreError, OSError) as error:
            _log.warning("message request modes not written", error=str(error))

    # -- progress of the master ------------------------------------------------------------

    async def _follow_done(self) -> None:
        self._take_done()
        if self._held is None:
            # One at a time: a slave that always lags a little would never reach the newest one.
            self._held = await self._fetch_done()

    async def _follow_new_done(self) -> None:
        """Fetch progress if messages have arrived since: all progress stores messages."""
        if self._mark is not None and self._tables.max_phy_offset() > self._done_end:
            await self._follow_done()
        else:
            self._take_done()

    def _take_done(self) -> None:
        """Apply the fetched progress, if this log contains the master's log of that time."""
        held, tables = self._held, self._tables
        if held is None or tables.flushed_phy_offset() < held.phy_end:
            return
        tables.follow_delays(held.delays)
        if held.timer is not None:
            tables.follow_timer(held.timer)
        tables.offsets.follow(held.offsets, None, None)
        self._held = None

    async def _fetch_done(self) -> _Done | None:
        delays = await self._optional(RequestCode.GET_ALL_DELAY_OFFSET)
        timer = await self._optional(RequestCode.GET_TIMER_CHECK_POINT)
        # Last, so that the log ends behind everything that was stored before the answers above.
        phy_end = await self._master_end()
        if phy_end is None:
            return None
        self._done_end = phy_end
        levels = {} if delays is None else as_table(fastjson.loads(delays.body)).get("offsetTable")
        return _Done(phy_end, as_numbers(levels), _timer_marks(timer), {**self._own})

    async def _master_end(self) -> int | None:
        """Return the end of the master's log; None when it does not name it."""
        status = await self._optional(RequestCode.GET_BROKER_HA_STATUS)
        if status is None:
            return None
        return HARuntimeInfo.decode(status.body).master_commit_log_max_offset

    # -- requests --------------------------------------------------------------------------

    async def _call(self, request: RemotingCommand, timeout_ms: int = _CALL_MS) -> RemotingCommand:
        return await self._client.invoke(self._address, request, timeout_ms)

    async def _ask(
        self, code: int, header: Header | None = None, timeout_ms: int = _CALL_MS
    ) -> RemotingCommand:
        request = make_request(code, {} if header is None else header.to_ext())
        response = await self._call(request, timeout_ms)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError.from_code(response.code, response.remark)
        return response

    async def _optional(self, code: int) -> RemotingCommand | None:
        """Return a response; None when the master refuses it, as one without a timer does."""
        try:
            response = await self._ask(code)
        except BrokerError as error:
            if code not in self._refused:
                self._refused.add(code)
                _log.info("table not fetched", master=self._address, code=code, reason=str(error))
            return None
        self._refused.discard(code)
        return response


class _Page(NamedTuple):
    """Page of a table, or the complete table.

    Attributes:
        entries: entries by name.
        version: of the table.
        total: number of entries of the table; 0: the page is complete (brokers before 5.1).
        forbidden: `forbiddenTable` of groups.
    """

    entries: dict[str, Any]
    version: DataVersion
    total: int
    forbidden: dict[str, dict[str, int]]


async def _fetch(
    fetch: Callable[[int, int, DataVersion | None], Awaitable[_Page]], seen: DataVersion | None
) -> _Page | None:
    """Fetch a table page by page; None when it has the version that was seen last.

    Raises:
        BadBodyError: the table changes faster than it can be read.
    """
    page = await fetch(0, _PAGE if seen is None else _PROBE, seen)
    if page.version == seen:
        return None
    if seen is not None:
        page = await fetch(0, _PAGE, page.version)
    found: dict[str, Any] = {}
    version, pages = page.version, 0
    while True:
        if page.version != version:
            found, version = {}, page.version  # the master began again at its start
        found.update(page.entries)
        pages += 1
        if not page.entries or len(found) >= page.total:
            return _Page(found, version, page.total, page.forbidden)
        if pages >= _MOST_PAGES:
            raise BadBodyError("the table changes faster than it can be read")
        page = await fetch(len(found), _PAGE, version)


def _is_written(table: PersistentTable[Any]) -> bool:
    """Return whether the file has all changes so far; otherwise they may have been undone."""
    return table.failure is None


def _as_text(version: DataVersion | None) -> str:
    return "" if version is None else version.encode().decode()


def _split(found: GroupOffsets) -> tuple[_Offsets, _Offsets]:
    """Return the offsets of the clients' groups, and those of the broker's own groups."""
    clients: _Offsets = {}
    own: _Offsets = {}
    for key, queues in found.items():
        (own if key[1].startswith(SYSTEM_GROUP_PREFIX) else clients)[key] = queues
    return clients, own


def _timer_marks(response: RemotingCommand | None) -> TimerMarks | None:
    """Return the checkpoint in a response to 60; None without a valid one."""
    return None if response is None else TimerMarks.decode(response.body)
