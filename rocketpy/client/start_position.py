"""Where to begin in a queue: the stored offset, else what the start setting says.

Source: RebalancePushImpl.computePullFromWhere (5.4.0).
"""

from collections.abc import Iterable
from datetime import datetime

from rocketpy.client.config import StartPosition
from rocketpy.client.instance import Instance
from rocketpy.client.offset_store import OffsetStore
from rocketpy.errors import ClientError, ConfigError, NoRouteError
from rocketpy.proto.bodies.heartbeat import (
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_FROM_TIMESTAMP,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import RETRY_PREFIX


def start_time_ms(start: StartPosition) -> int | None:
    """Return the time a start position names, None when it names an end of the queue.

    Raises:
        ConfigError: neither a time nor `"latest"` or `"earliest"`.
    """
    if isinstance(start, datetime):
        return int(start.timestamp() * 1000)
    if isinstance(start, int):
        return start
    if start not in {"latest", "earliest"}:
        raise ConfigError(f"{start!r} is not latest, earliest or a time", key="start")
    return None


def consume_from_where(start: StartPosition) -> str:
    """Return the wire's word for a start position."""
    if start == "latest":
        return CONSUME_FROM_LAST_OFFSET
    return CONSUME_FROM_FIRST_OFFSET if start == "earliest" else CONSUME_FROM_TIMESTAMP


def read_address(instance: Instance, queue: MessageQueue) -> str:
    """Return where a queue is read; raises NoRouteError when nobody knows."""
    found = instance.routes.read_address(queue.broker_name)
    if found is None:
        raise NoRouteError(f"broker {queue.broker_name} has no address")
    return found[0]


async def checked_offset(instance: Instance, queue: MessageQueue, offset: int) -> int:
    """Return an offset that a queue has.

    Raises:
        ClientError: it is outside of the queue.
        RocketPyError: the broker does not say.
    """
    address = read_address(instance, queue)
    low = await instance.api.min_offset(address, queue)
    high = await instance.api.max_offset(address, queue)
    if not low <= offset <= high:
        raise ClientError(f"offset {offset} of {queue} is outside {low}..{high}")
    return offset


class StartFinder:
    """Finds the first offset to pull.

    Where nothing is stored, it is what the start setting says, with two exceptions, without
    which messages would be lost. A queue that came while the consumer was there (a broker or a
    queue more, a topic that its first message made) begins with its first message. So does a
    retry topic: whatever is in it is the group's own.

    Args:
        instance: connections and routes.
        store: stored offsets.
        start: where to begin without one.
        keep: store what was found, so that a member that dies before its first commit has not
            moved the group's beginning past messages that came meanwhile.
    """

    def __init__(
        self, instance: Instance, store: OffsetStore, start: StartPosition, *, keep: bool
    ) -> None:
        self._keep = keep
        self._instance = instance
        self._store = store
        self._start = start
        self._time_ms = start_time_ms(start)
        self._first_seen: dict[str, frozenset[MessageQueue]] = {}

    def saw(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """Note the queues that a topic has; those that are there the first time are not new."""
        if topic not in self._first_seen:
            self._first_seen[topic] = frozenset(queues)

    async def find(self, queue: MessageQueue) -> int:
        """Return where to begin.

        Raises:
            RocketPyError: the broker does not say; better no start than a wrong one.
        """
        stored = await self._store.load(queue)
        if stored is not None:
            return stored
        if self._start == "earliest" or queue.topic.startswith(RETRY_PREFIX):
            return 0
        is_new = queue not in self._first_seen.get(queue.topic, (queue,))
        offset = 0 if is_new else await self._asked(queue)
        if self._keep:
            await self._store.save({queue: offset}, final=True)
        return offset

    async def _asked(self, queue: MessageQueue) -> int:
        address = read_address(self._instance, queue)
        if self._time_ms is None:
            return await self._instance.api.max_offset(address, queue)
        return await self._instance.api.search_offset(address, queue, self._time_ms)
