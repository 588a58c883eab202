"""Filter of a pull: from the expression in the request, or from the group's heartbeats.

Source: PullMessageProcessor.processRequest (5.4.0).
"""

from typing import Final

from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.filters.consumer_filters import ConsumerFilters
from rocketpy.broker.filters.message_filters import (
    ConsumerFilter,
    ExpressionCache,
    SqlFilter,
    filter_of,
)
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.operation.pull.request import PullForbidden, PullRefused, PullRequest
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.subscription import EXPRESSION_SQL92, SUB_ALL, is_tag_type
from rocketpy.proto.wire.codes import ResponseCode

_FORBIDDEN_BROADCAST: Final = 4
_FORBIDDEN_SUBSCRIPTION: Final = 5


class PullFilters:
    """Finds the filter of a pull, or why it is refused.

    Args:
        groups: group table.
        consumers: connected consumers and their subscriptions.
        sql: SQL92 filters of connected groups.
        config: the broker's settings; see `configure`.

    Attributes:
        consumers: connected consumers.
    """

    def __init__(
        self,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
        sql: ConsumerFilters,
        config: BrokerConfig,
    ) -> None:
        self._groups = groups
        self.consumers = consumers
        self._sql = sql
        self._config = config
        self._expressions = ExpressionCache()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def of(self, wanted: PullRequest, group: SubscriptionGroupConfig) -> ConsumerFilter | None:
        """Return the filter of a pull; None accepts everything.

        Raises:
            PullRefused: the pull, or its filter, is not permitted.
        """
        if wanted.expression is None:
            return self.of_group(wanted, group)
        kind = wanted.expression_type
        if not is_tag_type(kind) and kind != EXPRESSION_SQL92:
            raise not_supported(kind or "")
        try:
            found = self._expressions.filter_of(wanted.expression or SUB_ALL, kind)
        except ValueError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise PullRefused.with_code(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None
        # Compiled before the permission is checked, so that an invalid expression is reported.
        if isinstance(found, SqlFilter) and not self._config.enable_property_filter:
            raise not_supported(EXPRESSION_SQL92)
        return found

    def of_group(
        self, wanted: PullRequest, group: SubscriptionGroupConfig
    ) -> ConsumerFilter | None:
        """Return the filter that a group subscribed with; None accepts everything.

        Raises:
            PullRefused: the group is unknown, not permitted, or has no such subscription.
        """
        members = self.consumers.group(wanted.group)
        if members is None:
            remark = "the consumer's group info not exist"
            raise PullRefused.with_code(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if not group.consume_broadcast_enable and members.is_broadcast:
            remark = f"the consumer group[{wanted.group}] can not consume by broadcast way"
            raise PullRefused(PullForbidden(_FORBIDDEN_BROADCAST, remark))
        if self._groups.is_forbidden(wanted.group, wanted.topic):
            remark = f"the consumer group[{wanted.group}] is forbidden for topic[{wanted.topic}]"
            raise PullRefused(PullForbidden(_FORBIDDEN_SUBSCRIPTION, remark))
        subscription = members.subscriptions.get(wanted.topic)
        if subscription is None:
            remark = "the consumer's subscription not exist"
            raise PullRefused.with_code(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        # The broker has an older heartbeat than the consumer: its filter would be outdated.
        if subscription.sub_version < wanted.sub_version:
            remark = "the consumer's subscription not latest"
            raise PullRefused.with_code(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        if subscription.takes_all:
            return None
        if is_tag_type(subscription.expression_type):
            return filter_of(subscription)
        return self._sql_of_group(wanted, subscription.sub_string, subscription.expression_type)

    def _sql_of_group(self, wanted: PullRequest, expression: str, kind: str) -> SqlFilter:
        registration = self._sql.get(wanted.topic, wanted.group)
        if registration is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            # Compiled again for the reason: the heartbeat that was rejected gets no response.
            if kind == EXPRESSION_SQL92 and (reason := self._why_none(expression)):
                remark = f"{remark} {reason}"
            raise PullRefused.with_code(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
        # As with tags: the filter is that of an older heartbeat.
        if registration.client_version < wanted.sub_version:
            remark = "the consumer's consumer filter data not latest"
            raise PullRefused.with_code(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        if not self._config.enable_property_filter:
            raise not_supported(kind)
        return registration.filter

    def _why_none(self, expression: str) -> str:
        try:
            self._expressions.filter_of(expression, EXPRESSION_SQL92)
        except ValueError as error:
            return str(error)
        return ""


def not_supported(expression_type: str) -> PullRefused:
    """Return the refusal of a filter type other than TAG."""
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return PullRefused.with_code(ResponseCode.SYSTEM_ERROR, remark)
