"""Topics and their brokers: three consistent, bounded tables.

    topics    topic -> broker name -> its queues and permission
    mappings  topic -> broker name -> static mapping
    served    broker name -> its topics: removing a broker visits only its topics

The route table holds its lock around each call.

Source: RouteInfoManager (5.4.0)
"""

from collections.abc import Callable, Collection, ItemsView, Iterable, Mapping
from dataclasses import replace

from rocketpy.namesrv.route_types import RouteLimits
from rocketpy.proto.bodies.route import QueueData
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.perm import PERM_WRITE
from rocketpy.runtime.ordered_set import OrderedSet


class TopicRoutes:
    """Tables of topics; not thread-safe.

    Args:
        limits: bounds; may be replaced at run time.
    """

    def __init__(self, limits: RouteLimits) -> None:
        self.limits = limits
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._mappings: dict[str, dict[str, object]] = {}
        self._served: dict[str, OrderedSet[str]] = {}
        self._route_count = 0
        self._mapping_count = 0

    # ---- queries

    def topics(self) -> Collection[str]:
        """Return every topic."""
        return self._topics.keys()

    def items(self) -> ItemsView[str, dict[str, QueueData]]:
        """Return every topic with its queues by broker name."""
        return self._topics.items()

    def queues(self, topic: str) -> Mapping[str, QueueData]:
        """Return the queues of a topic by broker name."""
        return self._topics.get(topic, {})

    def mappings(self, topic: str) -> Mapping[str, object]:
        """Return the static mappings of a topic by broker name."""
        return self._mappings.get(topic, {})

    def of_broker(self, broker_name: str) -> Collection[str]:
        """Return the topics of a broker name."""
        return self._served.get(broker_name, ())

    # ---- changes

    def put(self, topic: str, queue: QueueData) -> bool:
        """Set a broker's queues of a topic; return False if the table is full."""
        queues = self._topics.get(topic)
        if queues is None or queue.broker_name not in queues:
            if self._route_count >= self.limits.max_routes:
                return False
            if queues is None:
                if len(self._topics) >= self.limits.max_topics:
                    return False
                queues = self._topics[topic] = {}
            self._route_count += 1
            self._served.setdefault(queue.broker_name, OrderedSet()).add(topic)
        queues[queue.broker_name] = queue
        return True

    def put_configs(
        self,
        configs: Iterable[tuple[str, TopicConfig]],
        broker_name: str,
        *,
        only_new: bool,
        wipe: bool,
    ) -> int:
        """Set a broker's queues by its topic configurations.

        Args:
            configs: topics with their configurations.
            broker_name: of the broker.
            only_new: skip topics that it serves already.
            wipe: make them read-only.

        Returns:
            Number of topics without room.
        """
        dropped = 0
        for topic, config in configs:
            if only_new and broker_name in self._topics.get(topic, ()):
                continue
            dropped += not self.put(topic, _queue_data(broker_name, config, wipe=wipe))
        return dropped

    def put_mappings(self, mappings: Iterable[tuple[str, object]], broker_name: str) -> int:
        """Set a broker's static mappings of its topics, up to the limit; return 0."""
        for topic, mapping in mappings:
            if broker_name in self._topics.get(topic, ()):
                known = self._mappings.get(topic, {})
                if broker_name not in known:
                    if self._mapping_count >= self.limits.max_mappings:
                        continue
                    self._mapping_count += 1
                self._mappings[topic] = {**known, broker_name: mapping}
        return 0

    def change_perm(
        self, topics: Iterable[str], broker_name: str, change: Callable[[int], int]
    ) -> int:
        """Change the permission of the broker's topics among some; return their number."""
        changed = 0
        for topic in topics:
            queues = self._topics.get(topic, {})
            queue = queues.get(broker_name)
            if queue is not None:
                queues[broker_name] = replace(queue, perm=change(queue.perm))
                changed += 1
        return changed

    # ---- removal

    def drop(self, topics: Iterable[str], broker_name: str) -> int:
        """Remove a broker name from topics, and topics without brokers; return 0."""
        for topic in topics:
            queues = self._topics.get(topic)
            if queues is not None:
                if queues.pop(broker_name, None) is not None:
                    self._route_count -= 1
                    self._forget_served(topic, broker_name)
                if not queues:
                    del self._topics[topic]
            self._drop_mapping(topic, broker_name)
        return 0

    def drop_broker(self, broker_name: str) -> None:
        """Remove a broker name from all its topics; fast enough for a hundred thousand."""
        topics = self._topics
        served = self._served.pop(broker_name, ())
        for topic in served:
            queues = topics[topic]
            del queues[broker_name]
            if not queues:
                del topics[topic]
        self._route_count -= len(served)
        if self._mappings:
            for topic in served:
                self._drop_mapping(topic, broker_name)

    def _drop_mapping(self, topic: str, broker_name: str) -> None:
        mappings = self._mappings.get(topic)
        if mappings is not None:
            self._mapping_count -= broker_name in mappings
            mappings.pop(broker_name, None)
            if not mappings:
                del self._mappings[topic]

    def _forget_served(self, topic: str, broker_name: str) -> None:
        served = self._served[broker_name]
        served.discard(topic)
        if not served:
            del self._served[broker_name]


def _queue_data(broker_name: str, config: TopicConfig, *, wipe: bool) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm & ~PERM_WRITE if wipe else config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
