"""Stores of a group's offsets: the broker, or a local file when broadcasting.

Source: RemoteBrokerOffsetStore, LocalFileOffsetStore (5.4.0).

Where to begin in a queue: the stored offset, else what the start setting says.

Source: RebalancePushImpl.computePullFromWhere (5.4.0).
"""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.config import StartPosition
from rocketpy.client.consumer.queue_locks import by_broker
from rocketpy.client.options.durations import moment_ms
from rocketpy.client.options.validation import checked_whole, described, fits
from rocketpy.errors import (
    BadBodyError,
    ClientError,
    ConfigError,
    ConnectError,
    NoRouteError,
    OffsetFileError,
    RocketPyError,
)
from rocketpy.proto.bodies.heartbeat import (
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_FROM_TIMESTAMP,
)
from rocketpy.proto.bodies.offset import OffsetSerializeWrapper
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.setting_checks import path_fault

T = TypeVar("T")

logger: logging.Logger = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Offsets of one group: the next message to read of each queue."""

    async def open(self) -> None:
        """Check before the start that stored offsets can be read; raises OffsetFileError."""
        ...

    async def load(self, queue: MessageQueue) -> int | None:
        """Return the stored offset, None when there is none; raises RocketPyError."""
        ...

    async def save(self, offsets: dict[MessageQueue, int], *, final: bool = False) -> None:
        """Store offsets; `final` waits for the responses. Raises RocketPyError."""
        ...


class BrokerOffsetStore:
    """Offsets at the broker that holds the queue; at a slave while its master is away.

    Args:
        instance: connections and routes.
        group: whose offsets.
    """

    def __init__(self, instance: Instance, group: str) -> None:
        self._instance = instance
        self._group = group
        # With the address: offsets that a slave took while its master was away must be stored at
        # the master as well when it is back.
        self._saved: dict[MessageQueue, tuple[str, int]] = {}
        self._latest: dict[MessageQueue, int] = {}  # offsets of the latest saves
        self._turns: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)

    def _address(self, queue: MessageQueue) -> str:
        found = self._instance.routes.read_address(queue.broker_name)
        if found is None:
            raise NoRouteError(f"broker {queue.broker_name} has no address")
        return found[0]

    async def open(self) -> None:
        """See `OffsetStore.open`; brokers are asked by `load`."""

    async def load(self, queue: MessageQueue) -> int | None:
        """Ask the broker."""
        # Other members may have stored offsets since: an equal one must be sent again.
        self._saved.pop(queue, None)
        return await self._instance.api.query_offset(self._address(queue), self._group, queue)

    async def save(self, offsets: dict[MessageQueue, int], *, final: bool = False) -> None:
        """Tell the brokers what changed since the last time, all at once; one-way unless `final`.

        A broker that does not answer is asked once, not for each of its queues. Of two saves of a
        queue at the same time, the later one counts.
        """
        changed: dict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for queue, offset in offsets.items():
            # `final` repeats unchanged offsets, because a one-way request may have been lost.
            if final or not self._is_saved(queue, offset):
                changed[queue.broker_name][queue] = offset
                self._latest[queue] = offset
        outcomes = await asyncio.gather(
            *(self._save_at_one(each, final=final) for each in changed.values())
        )
        # Raised at the end: offsets of the other brokers must be stored all the same.
        for failure in outcomes:
            if failure is not None:
                raise failure

    async def _save_at_one(
        self, queues: Iterable[MessageQueue], *, final: bool
    ) -> RocketPyError | None:
        """Tell one broker; return what went wrong."""
        failure: RocketPyError | None = None
        for queue in queues:
            # After the response to an earlier save: threads of a broker may swap two requests.
            async with self._turns[queue]:
                # Read here: a seek or a release during an earlier request may have saved another
                # offset of the queue, which an older one must not overwrite.
                offset = self._latest[queue]
                if not final and self._is_saved(queue, offset):
                    continue
                try:
                    address = self._address(queue)
                    await self._instance.api.update_offset(
                        address, self._group, queue, offset, oneway=not final
                    )
                except ClientError as error:
                    return error
                # A refusal is about one queue: those after it are still sent.
                except RocketPyError as error:
                    failure = error
                else:
                    self._saved[queue] = (address, offset)
        return failure

    def _is_saved(self, queue: MessageQueue, offset: int) -> bool:
        found = self._instance.routes.read_address(queue.broker_name)
        return found is not None and self._saved.get(queue) == (found[0], offset)


class LocalOffsetStore:
    """Offsets in a file, for broadcasting; Apache's own format, with a `.bak` of the last one.

    The `.bak` file is there from the first save on, and is read when the other file is damaged or
    missing. Then some messages are delivered again. When no file can be read, the group must not
    be treated as a new one, which would skip messages.

    Args:
        path: of `offsets.json`.
        clock: of the modification time of the file.

    Attributes:
        saved_ms: when the offsets that were read had been written; 0 when none were.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self.saved_ms: int = 0
        self._path = path
        self._clock = clock
        self._backup = path.with_name(path.name + ".bak")
        self._is_valid = False  # whether the file may replace its backup
        self._offsets: dict[MessageQueue, int] | None = None
        # One at a time: two threads would write the same file, and the older offsets might win.
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Read the file.

        Raises:
            OffsetFileError: it is there, and neither it nor its backup can be read.
        """
        async with self._turn:
            await self._known()

    async def load(self, queue: MessageQueue) -> int | None:
        """Read the file the first time, then look in memory; raises as `open`."""
        async with self._turn:
            return (await self._known()).get(queue)

    async def save(self, offsets: dict[MessageQueue, int], *, final: bool = False) -> None:  # noqa: ARG002
        """Write the file if anything changed.

        Raises:
            OffsetFileError: it cannot be written; the next save tries again.
        """
        async with self._turn:
            known = await self._known()
            # Queues that are not read now keep their offsets in the file.
            merged = {**known, **offsets}
            if merged != known:
                await self._in_thread(lambda: self._write(merged))
                # After the write, so that the next save repeats one that failed.
                self._offsets = merged

    async def _known(self) -> dict[MessageQueue, int]:
        if self._offsets is None:
            self._offsets = await self._in_thread(self._read)
        return self._offsets

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            # A slow disk must not stop the heartbeats of this event loop.
            return await asyncio.to_thread(work)
        except OSError as error:
            raise OffsetFileError(f"offset file {self._path}: {error}") from error

    def _read(self) -> dict[MessageQueue, int]:
        # A crash between the two renames of `_write` leaves only the `.bak` file.
        failure: BadBodyError | None = None
        for path in (self._path, self._backup):
            try:
                offsets = _decoded(path.read_bytes())
                self.saved_ms = path.stat().st_mtime_ns // 1_000_000
            except FileNotFoundError:
                continue
            except BadBodyError as error:
                failure = error
                logger.warning(
                    "offset file not readable: path=%(path)s error=%(error)s",
                    {"path": path, "error": error},
                )
            else:
                self._is_valid = path is self._path
                return offsets
        if failure is None:
            return {}
        damaged = OffsetFileError(
            f"offset file {self._path} is damaged, and so is its copy {self._backup.name}, or it "
            "has none: restore one of them, or delete both, to begin where `start` says"
        )
        damaged.retriable = False  # it does not pass by itself, unlike a full disk
        raise damaged from failure

    def _write(self, offsets: dict[MessageQueue, int]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        content = OffsetSerializeWrapper(offsets).encode()
        if self._is_valid and self._path.exists():
            self._path.replace(self._backup)
        self._replace(self._path, content)
        self._is_valid = True
        if not self._backup.exists():
            self._replace(self._backup, content)

    def _replace(self, path: Path, content: bytes) -> None:
        # Written beside the file, synced and renamed: a crash leaves no half file. The id of the
        # process is in the name, because two processes may use one directory.
        fresh = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        time_s = self._clock.time_ms() / 1000
        os.utime(fresh, (time_s, time_s))
        fresh.replace(path)


def _decoded(content: bytes) -> dict[MessageQueue, int]:
    """Return the offsets of a file; raises BadBodyError when it is not one of offsets."""
    offsets = OffsetSerializeWrapper.decode(content).offset_table
    if not offsets and b"offsetTable" not in content:  # another document
        raise BadBodyError("there is no offsetTable")
    return offsets


def make_offset_store(
    instance: Instance, group: str, *, broadcast: bool, directory: str
) -> OffsetStore:
    """Return the store a consumer needs.

    Args:
        instance: connections and id of the client.
        group: whose offsets.
        broadcast: offsets stay here.
        directory: where, when broadcasting; empty means `~/.rocketmq_offsets`.

    Raises:
        ConfigError: the directory begins with `~`, or has `${` or `;` in it.
    """
    if not broadcast:
        return BrokerOffsetStore(instance, group)
    if fault := path_fault(directory):
        raise ConfigError(f"{directory!r} {fault}", key="offset_dir")
    home = Path(directory) if directory else Path.home() / ".rocketmq_offsets"
    return LocalOffsetStore(home / instance.lasting_id / group / "offsets.json", instance.clock)


def start_time_ms(start: StartPosition, key: str = "start") -> int | None:
    """Return the time a start position names, None when it names an end of the queue.

    Raises:
        ConfigError: neither a time nor `"latest"` or `"earliest"`.
    """
    if isinstance(start, str):
        if start not in {"latest", "earliest"}:
            reason = f"{start!r} is not one of 'latest', 'earliest', a datetime, a number"
            raise ConfigError(reason, key=key)
        return None
    try:
        return moment_ms(start)
    except ValueError as error:
        raise ConfigError(str(error), key=key) from None


def checked_position(name: str, position: StartPosition) -> StartPosition:
    """Return a position in queues.

    Raises:
        ConfigError: it is none; names the parameter.
    """
    if not fits(StartPosition, position):
        raise ConfigError(f"{position!r} is not {described(StartPosition)}", key=name)
    start_time_ms(position, name)
    return position


def consume_from_where(start: StartPosition) -> str:
    """Return the wire's word for a start position."""
    if start == "latest":
        return CONSUME_FROM_LAST_OFFSET
    return CONSUME_FROM_FIRST_OFFSET if start == "earliest" else CONSUME_FROM_TIMESTAMP


def read_address(instance: Instance, queue: MessageQueue) -> str:
    """Return the address to read a queue from; raises NoRouteError when it is unknown."""
    found = instance.routes.read_address(queue.broker_name)
    if found is None:
        raise NoRouteError(f"broker {queue.broker_name} has no address")
    return found[0]


async def checked_offset(instance: Instance, queue: MessageQueue, offset: int) -> int:
    """Return an offset that a queue has.

    Raises:
        TypeError: it is no whole number.
        ClientError: it is outside of the queue.
        RocketPyError: the broker does not say.
    """
    offset = checked_whole("offset", offset)
    address = read_address(instance, queue)
    low = await instance.api.min_offset(address, queue)
    high = await instance.api.max_offset(address, queue)
    if not low <= offset <= high:
        raise ClientError(f"offset {offset} of {queue} is outside {low}..{high}")
    return offset


async def offsets_at(
    instance: Instance, queues: Iterable[MessageQueue], position: StartPosition
) -> dict[MessageQueue, int]:
    """Return the offset of a position in each queue; brokers are asked at the same time.

    Raises:
        RocketPyError: a broker does not say.
    """
    time_ms = start_time_ms(position)

    async def ask(address: str, queue: MessageQueue) -> int:
        api = instance.api
        if time_ms is not None:
            return await api.search_offset(address, queue, time_ms)
        return await (api.max_offset if position == "latest" else api.min_offset)(address, queue)

    async def offset_at(queue: MessageQueue) -> int:
        addresses = [read_address(instance, queue)]
        # A master that was lost stays in the route for a while: its slaves are read meanwhile.
        replicas = instance.routes.replicas(queue.broker_name).values()
        addresses += [each for each in replicas if each not in addresses]
        while True:
            try:
                # A broker answers -1 for a queue that it has not created yet.
                return max(0, await ask(addresses.pop(0), queue))
            except ConnectError:
                if not addresses:
                    raise

    async def of_one_broker(found: list[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: await offset_at(queue) for queue in found}

    parts = await asyncio.gather(*(of_one_broker(each) for each in by_broker(queues).values()))
    return {queue: offset for part in parts for queue, offset in part.items()}


async def has_any_offset(store: OffsetStore, queues: Sequence[MessageQueue]) -> bool:
    """Return whether an offset of a queue is stored; all brokers are asked at once.

    Raises:
        RocketPyError: no offset was found, and a broker did not answer.
    """
    searches = [
        asyncio.create_task(_search_offset(store, each)) for each in by_broker(queues).values()
    ]
    failure: RocketPyError | None = None
    try:
        for search in asyncio.as_completed(searches):
            found = await search
            if found is True:
                return True
            if isinstance(found, RocketPyError):
                failure = found
    finally:
        # One offset decides: searches at brokers that are down must not continue.
        for task in searches:
            task.cancel()
    if failure is not None:
        raise failure
    return False


async def _search_offset(store: OffsetStore, queues: list[MessageQueue]) -> bool | RocketPyError:
    """Return whether an offset of queues is stored, or why that is not known."""
    try:
        for queue in queues:
            if await store.load(queue) is not None:
                return True
    except RocketPyError as error:
        return error
    return False


class FirstOffsets:
    """Offsets at which a consumer began in queues without a stored one, until they are stored.

    A queue from which nothing was handed out has no other offset to commit. Without this one, it
    would begin with its first message after a restart.

    Args:
        group: for the log.
        store: where they go.
    """

    def __init__(self, group: str, store: OffsetStore) -> None:
        self._group = group
        self._store = store
        self._offsets: dict[MessageQueue, int] = {}

    def __bool__(self) -> bool:
        return bool(self._offsets)

    async def note(self, queue: MessageQueue, offset: int) -> None:
        """Take an offset that `StartFinder` found."""
        self._offsets[queue] = offset

    def drop(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self._offsets.pop(queue, None)

    async def commit(self, positions: Container[MessageQueue]) -> None:
        """Store them, except of queues that have a position; failures are repeated.

        An older offset must not follow that of a position.
        """
        self._offsets = {each: at for each, at in self._offsets.items() if each not in positions}
        if not self._offsets:
            return
        offsets = self._offsets.copy()
        try:
            await self._store.save(offsets, final=True)
        except RocketPyError as error:
            logger.info(
                "first offsets not stored, repeated: group=%(group)s error=%(error)r",
                {"group": self._group, "error": error},
            )
        else:
            # Not all: others may have been noted during the save.
            for queue, offset in offsets.items():
                if self._offsets.get(queue) == offset:
                    del self._offsets[queue]


class StartFinder:
    """Finds the first offset to pull.

    Where nothing is stored, it is what the start setting says, with three exceptions, without
    which messages would be lost:

    - A queue that came while the consumer was there (a broker or a queue more, a topic that its
      first message made) begins with its first message.
    - So does a queue of a topic in whose other queues the group has offsets: it came while the
      group was away.
    - So does a retry topic: all its messages belong to the group.

    Args:
        instance: connections and routes.
        store: stored offsets.
        start: where to begin without one.
        keep: stores what was found. Otherwise a member that dies before its first commit had moved
            the group's beginning past messages that came meanwhile; and a queue without messages
            would begin with its first one after a restart, old ones included.
    """

    def __init__(
        self,
        instance: Instance,
        store: OffsetStore,
        start: StartPosition,
        *,
        keep: Callable[[MessageQueue, int], Awaitable[None]],
    ) -> None:
        self._keep = keep
        self._instance = instance
        self._store = store
        self._start = start
        self._time_ms = start_time_ms(start)
        self._first_seen: dict[str, frozenset[MessageQueue]] = {}
        self._has_offsets: dict[str, bool] = {}  # by topic, when it was seen first
        self._unanswered: dict[str, RocketPyError] = {}  # by topic, why that is not known yet
        self._noted: dict[MessageQueue, int] = {}  # what `start` meant meanwhile

    async def note_queues(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Note the queues of a topic; the queues of the first call do not count as new.

        Must be called before members of a new group store their first offsets, which would look
        like offsets of an old group: in a round, before the pause for former owners.
        """
        first_seen = self._first_seen.setdefault(topic, frozenset(queues))
        is_decided = self._start == "earliest" or topic.startswith(RETRY_PREFIX) or not first_seen
        if is_decided or topic in self._has_offsets:
            return
        try:
            self._has_offsets[topic] = await has_any_offset(self._store, queues)
        except RocketPyError as error:
            self._unanswered[topic] = error
        else:
            self._unanswered.pop(topic, None)

    async def find(self, queue: MessageQueue) -> int:
        """Return where to begin.

        Raises:
            RocketPyError: the broker does not say; better no start than a wrong one.
        """
        stored = await self._store.load(queue)
        if stored is not None:
            return await self._in_same_topic(queue, stored)
        topic = queue.topic
        if self._start == "earliest" or topic.startswith(RETRY_PREFIX):
            return 0
        if queue not in self._first_seen.get(topic, (queue,)):
            offset = 0
        elif self._has_offsets.get(topic):
            offset = max(0, await self._instance.api.min_offset(self._address(queue), queue))
        elif (unanswered := self._unanswered.get(topic)) is not None:
            # If the group turns out to be new, messages from now on are its own.
            if queue not in self._noted:
                self._noted[queue] = await self._asked(queue)
            raise ClientError(
                f"whether the group has offsets in other queues of topic {topic} is not known: "
                f"{unanswered!r}; its brokers are asked again"
            )
        else:
            offset = self._noted[queue] if queue in self._noted else await self._asked(queue)
        await self._keep(queue, offset)
        return offset

    async def _in_same_topic(self, queue: MessageQueue, stored: int) -> int:
        """Return a stored offset, or the first one of a topic that was made again since.

        A broker drops its offsets with the topic; a file keeps them. All messages before an offset
        in a file are older than the file.
        """
        saved_ms = self._store.saved_ms if isinstance(self._store, LocalOffsetStore) else 0
        if not saved_ms or not stored:
            return stored
        api, address = self._instance.api, self._address(queue)
        first = await api.min_offset(address, queue)
        if first >= stored or await api.earliest_store_time_ms(address, queue) <= saved_ms:
            return stored
        logger.warning(
            "topic was made again, read from its first message: queue=%(queue)s "
            "offset=%(offset)d next_offset=%(next_offset)d",
            {"queue": queue, "offset": stored, "next_offset": first},
        )
        return first

    def _address(self, queue: MessageQueue) -> str:
        return read_address(self._instance, queue)

    async def _asked(self, queue: MessageQueue) -> int:
        address = self._address(queue)
        if self._time_ms is None:
            return await self._instance.api.max_offset(address, queue)
        return await self._instance.api.search_offset(address, queue, self._time_ms)
