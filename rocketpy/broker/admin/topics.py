"""Topics: create, change, delete, list and inspect them.

Source: `AdminBrokerProcessor` (updateAndCreateTopic, updateAndCreateTopicList, deleteTopic,
getAllTopicConfig, getTopicConfig, getTopicStatsInfo, getSystemTopicListFromBroker),
`TopicAttributes` and `AttributeUtil` (5.4.0).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import structlog

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.proto.bodies.topic import (
    CreateTopicListRequestBody,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from rocketpy.proto.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import (
    SYSTEM_TOPICS,
    is_system_topic,
    pop_retry_topic_v1,
    pop_retry_topic_v2,
)
from rocketpy.proto.validators import check_topic
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.store.message_store import MessageStore

_log = structlog.get_logger(__name__)

MAX_QUEUE_NUMS: Final = 65_536
MAX_TOPICS_IN_LIST: Final = 10_000
"""Bounds of one request: queues and topics are files on disk."""
_FILTER_TYPES: Final = frozenset({"SINGLE_TAG", "MULTI_TAG"})
_MESSAGE_TYPES: Final = frozenset(
    {"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY"}
)
_RESERVE_TIME: Final = re.compile(r"-?[0-9]{1,18}\Z")


class TopicAdmin:
    """Admin requests about topics."""

    def __init__(
        self,
        *,
        configs: LiveBrokerConfig,
        identity: BrokerIdentity,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
        store: MessageStore,
        topics: TopicTable,
    ) -> None:
        self._configs = configs
        self._identity = identity
        self._offsets = offsets
        self._stats = stats
        self._store = store
        self._topics = topics

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all,
            RequestCode.GET_TOPIC_CONFIG: self.get_one,
            RequestCode.GET_TOPIC_STATS_INFO: self.stats,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
        }

    def update(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Create or change a topic (17)."""
        header = CreateTopicRequestHeader.from_ext(request.ext_fields)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        changes = _split_attributes(header.attributes or "")
        if isinstance(changes, str):
            return refuse(request, ResponseCode.SYSTEM_ERROR, changes)
        return self._put(request, [(topic, changes)])

    def update_list(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Create or change several topics (18): all of them, or none."""
        topics = CreateTopicListRequestBody.decode_request(request.body).topic_config_list
        if not 0 < len(topics) <= MAX_TOPICS_IN_LIST:
            remark = f"the list must have 1 to {MAX_TOPICS_IN_LIST} topics"
            return refuse(request, ResponseCode.INVALID_PARAMETER, remark)
        wanted = [(replace(topic, attributes={}), topic.attributes) for topic in topics]
        return self._put(request, wanted)

    def delete(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete a topic, its queues, offsets and pop retry topics (215)."""
        name = DeleteTopicRequestHeader.from_ext(request.ext_fields).topic
        reason = self._refused_name(name)
        if reason is not None:
            return refuse(request, ResponseCode.INVALID_PARAMETER, reason)
        doomed = [name]
        for group in sorted(self._offsets.groups_of_topic(name)):
            retries = (pop_retry_topic_v2(name, group), pop_retry_topic_v1(name, group))
            doomed.extend(retry for retry in retries if self._topics.get(retry) is not None)
        with self._topics.deleting(doomed):
            for topic in doomed:
                self._topics.delete(topic)
                self._offsets.remove_topic(topic)
                self._stats.remove_topic(topic)
            self._store.delete_topics(doomed)
        _log.info("topic deleted", topic=name, with_retry_topics=doomed[1:])
        return ok(request)

    def get_all(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the topic table, or a page of it (21)."""
        header = GetAllTopicConfigRequestHeader.from_ext(request.ext_fields)
        version = DataVersion.from_json(self._topics.data_version)
        entries = self._topics.all()
        shown = page(entries, version, header.topic_seq, header.max_topic_num, header.data_version)
        body = TopicConfigSerializeWrapper(shown, version)
        total = GetAllTopicConfigResponseHeader(total_topic_num=len(entries))
        return ok(request, body, total)

    def get_one(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return one topic (351)."""
        name = GetTopicConfigRequestHeader.from_ext(request.ext_fields).topic
        topic = self._topics.get(name)
        if topic is None:
            remark = f"No topic in this broker. topic: {name}"
            return refuse(request, ResponseCode.TOPIC_NOT_EXIST, remark)
        return ok(request, topic)

    def stats(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the offsets of all queues of a topic (202)."""
        name = GetTopicStatsInfoRequestHeader.from_ext(request.ext_fields).topic
        topic = self._topics.get(name)
        if topic is None:
            return refuse(request, ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist")
        table: dict[MessageQueue, TopicOffset] = {}
        for queue_id in range(max(topic.read_queue_nums, topic.write_queue_nums)):
            low = max(0, self._store.min_offset(name, queue_id))
            high = max(0, self._store.max_offset(name, queue_id))
            last_ms = self._store.store_time_ms(name, queue_id, high - 1) if high > 0 else 0
            table[MessageQueue(name, self._identity.broker_name, queue_id)] = TopicOffset(
                low, high, max(0, last_ms)
            )
        return ok(request, TopicStatsTable(table, self._stats.topic_put_tps(name)))

    def system_topics(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the topics that belong to the system (305)."""
        own = {name for name in self._topics.all() if self._is_system(name)}
        return ok(request, TopicList(topic_list=own | SYSTEM_TOPICS))

    def _put(
        self, request: RemotingCommand, wanted: list[tuple[TopicConfig, dict[str, str]]]
    ) -> RemotingCommand:
        topics = self._topics
        with topics.one_write():
            checked = []
            for topic, changes in wanted:
                reason = self._refused_name(topic.topic_name) or _refused_values(topic)
                if reason is not None:
                    return refuse(request, ResponseCode.INVALID_PARAMETER, reason)
                attributes = self._merged_attributes(topic, changes)
                if isinstance(attributes, str):
                    return refuse(request, ResponseCode.SYSTEM_ERROR, attributes)
                checked.append(replace(topic, attributes=attributes))
            changed = [one for one in checked if one != topics.current(one.topic_name)]
            for topic in changed:
                topics.put(topic)
                topics.when_written(partial(_log_change, topic))
        return ok(request)

    def _merged_attributes(
        self, topic: TopicConfig, changes: dict[str, str]
    ) -> dict[str, str] | str:
        """Return the attributes after `+key` and `-key` changes, or why they are refused."""
        old = self._topics.current(topic.topic_name)
        merged = {} if old is None else dict(old.attributes)
        for signed, value in changes.items():
            sign, key = (signed[0], signed[1:]) if signed[:1] in {"+", "-"} else ("+", signed)
            attribute = _ATTRIBUTES.get(key)
            if attribute is None:
                return f"unsupported key: {key}"
            is_valid, may_change = attribute
            if old is None and sign == "-":
                return f"only add attribute is supported while creating topic. key: {key}"
            if old is not None and not may_change and merged.get(key) != value:
                return f"attempt to update an unchangeable attribute. key: {key}"
            if sign == "-":
                if merged.pop(key, None) is None:
                    return f"attempt to delete a nonexistent key: {key}"
            elif not is_valid(value):
                return f"value of {key} is not supported: {value}"
            else:
                merged[key] = value
        return merged

    def _refused_name(self, topic: str) -> str | None:
        reason = check_topic(topic)
        if reason is not None:
            return reason
        if self._configs.broker.validate_system_topic_when_update_topic and self._is_system(topic):
            return f"The topic[{topic}] is conflict with system topic."
        return None

    def _is_system(self, topic: str) -> bool:
        return is_system_topic(topic) or self._topics.is_system(topic)


def _log_change(topic: TopicConfig) -> None:
    _log.info("topic changed", topic=topic.topic_name, perm=topic.perm)


_Entry = TypeVar("_Entry")


def page(
    entries: Mapping[str, _Entry],
    version: DataVersion,
    start: int | None,
    count: int | None,
    seen_version: str | None,
) -> dict[str, _Entry]:
    """Return the part of a table that a request asks for.

    A reader that saw another version of the table begins again at its start.

    Args:
        entries: the table.
        version: of the table.
        start: how many entries to leave out; None asks for all entries.
        count: how many entries at most; None for all that follow.
        seen_version: the version that the reader saw with its last page, as JSON.
    """
    if start is None:
        return dict(entries)
    if start > 0 and seen_version and DataVersion.decode(seen_version.encode()) != version:
        start = 0
    begin = max(0, start)
    end = begin + (len(entries) if count is None else max(0, count))
    return dict(list(entries.items())[begin:end])


def _refused_values(topic: TopicConfig) -> str | None:
    nums = (topic.read_queue_nums, topic.write_queue_nums)
    if not all(0 <= num <= MAX_QUEUE_NUMS for num in nums):
        return f"The number of queues must be 0 to {MAX_QUEUE_NUMS}."
    if topic.topic_filter_type not in _FILTER_TYPES:
        return f"topicFilterType {topic.topic_filter_type} is not supported."
    if not 0 <= topic.perm <= 0xF:
        return f"The permission {topic.perm} is not supported."
    return None


def _split_attributes(text: str) -> dict[str, str] | str:
    """Parse `+key=value,-key` into a table of signed keys; returns why the text is refused."""
    changes: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if len(key) < 2 or key[0] != ("+" if equals else "-") or (equals and not value):
            return f"attribute format is wrong: {part}"
        if key in changes:
            return f"key duplication in attributes: {key}"
        changes[key] = value
    return changes


# Key to (is the value good, may it change after creation). Batch queues and compaction are not
# offered: a topic must not promise what the store does not do.
_ATTRIBUTES: Final[dict[str, tuple[Callable[[str], bool], bool]]] = {
    "message.type": (_MESSAGE_TYPES.__contains__, True),
    "queue.type": ("SimpleCQ".__eq__, False),
    "cleanup.policy": ("DELETE".__eq__, False),
    "reserve.time": (lambda text: _RESERVE_TIME.match(text) is not None, True),
}
