"""Consumer groups: create, change, delete and list them, and forbid them to read topics.

Source: `AdminBrokerProcessor` (updateAndCreateSubscriptionGroup and its list,
getAllSubscriptionGroup, getSubscriptionGroup, deleteSubscriptionGroup, updateAndGetGroupForbidden)
(5.4.0).
"""

from typing import Final

import structlog

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.admin.topics import page
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.proto.bodies.group import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from rocketpy.proto.bodies.topic import DataVersion
from rocketpy.proto.headers.topic import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from rocketpy.proto.validators import check_group, check_topic
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor

_log = structlog.get_logger(__name__)

MAX_GROUPS_IN_LIST: Final = 10_000
MAX_RETRY_QUEUE_NUMS: Final = 1_024
MAX_GROUP_BYTES: Final = 64 * 1024
"""Bounds of one request and one group: the file is written as a whole with each change."""


class GroupAdmin:
    """Admin requests about subscription groups."""

    def __init__(
        self,
        *,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsets,
        stats: BrokerStats,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_one,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbidden,
        }

    def update(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Create or change a group (200)."""
        return self._put(request, [SubscriptionGroupConfig.decode_request(request.body)])

    def update_list(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Create or change several groups (225): all of them, or none."""
        groups = SubscriptionGroupList.decode_request(request.body).group_config_list
        if not 0 < len(groups) <= MAX_GROUPS_IN_LIST:
            remark = f"the list must have 1 to {MAX_GROUPS_IN_LIST} groups"
            return refuse(request, ResponseCode.INVALID_PARAMETER, remark)
        return self._put(request, groups)

    def get_all(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return the group table, or a page of it (201)."""
        header = GetAllSubscriptionGroupRequestHeader.from_ext(request.ext_fields)
        groups = self._groups
        version = DataVersion.from_json(groups.data_version)
        entries = groups.all()
        shown = page(entries, version, header.group_seq, header.max_group_num, header.data_version)
        body = SubscriptionGroupWrapper(shown, groups.to_json()["forbiddenTable"], version)
        total = GetAllSubscriptionGroupResponseHeader(total_group_num=len(entries))
        return ok(request, body, total)

    def get_one(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return one group (352)."""
        name = GetSubscriptionGroupConfigRequestHeader.from_ext(request.ext_fields).group
        group = self._groups.get(name)
        if group is None:
            remark = f"No group in this broker. group: {name}"
            return refuse(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        return ok(request, group)

    def delete(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Delete a group, with its offsets if requested (207)."""
        header = DeleteSubscriptionGroupRequestHeader.from_ext(request.ext_fields)
        name = header.group_name
        clean = header.remove_offset if header.clean_offset is None else header.clean_offset
        self._groups.delete(name)
        if clean:
            self._offsets.remove_group(name)
        self._stats.remove_group(name)
        _log.info("group deleted", group=name, offsets_too=clean)
        return ok(request)

    def forbidden(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Forbid or allow a group to read a topic, and return the current state (353)."""
        groups = self._groups
        header = UpdateGroupForbiddenRequestHeader.from_ext(request.ext_fields)
        group, topic = header.group, header.topic
        if header.readable is not None:
            reason = check_group(group) or check_topic(topic)
            if reason is not None:
                return refuse(request, ResponseCode.INVALID_PARAMETER, reason)
            if groups.get(group) is None:
                remark = f"No group in this broker. group: {group}"
                return refuse(request, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            groups.set_forbidden(group, topic, not header.readable)
        readable = not groups.is_forbidden(group, topic)
        return ok(request, GroupForbidden(topic, group, readable))

    def _put(
        self, request: RemotingCommand, wanted: list[SubscriptionGroupConfig]
    ) -> RemotingCommand:
        for group in wanted:
            reason = check_group(group.group_name)
            if reason is None and not 0 <= group.retry_queue_nums <= MAX_RETRY_QUEUE_NUMS:
                reason = f"retryQueueNums must be 0 to {MAX_RETRY_QUEUE_NUMS}"
            if reason is None and len(group.encode()) > MAX_GROUP_BYTES:
                reason = f"the configuration of a group must not exceed {MAX_GROUP_BYTES} bytes"
            if reason is not None:
                return refuse(request, ResponseCode.INVALID_PARAMETER, reason)
        changed = [one for one in wanted if one != self._groups.get(one.group_name)]
        with self._groups.one_write():
            for group in changed:
                self._groups.put(group)
        for group in changed:
            _log.info("group changed", group=group.group_name)
        return ok(request)
