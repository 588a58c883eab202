"""CHECK_TRANSACTION_STATE (39): asks one connected producer of a group how a transaction ended.

Source: AbstractTransactionalMessageCheckListener.sendCheckMessage,
ProducerManager.getAvailableChannel, Broker2Client.checkProducerTransactionState (5.4.0).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import structlog

from rocketpy.broker.registry import ClientChannel
from rocketpy.broker.transaction.half import real_place
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.command import make_request
from rocketpy.proto.headers.transaction import CheckTransactionStateRequestHeader
from rocketpy.proto.message import MessageExt, encode_message
from rocketpy.proto.message_id import encode_message_id
from rocketpy.proto.properties import PROPERTY_PRODUCER_GROUP
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC

_log = structlog.get_logger(__name__)


class _Producers(Protocol):
    def clients(self, group: str) -> Sequence[ClientChannel]: ...


class AskProducer:
    """Asks the members of a producer group in turn; safe from any thread.

    Args:
        producers: who is connected.
        broker_name: told to the producer.
    """

    def __init__(self, producers: _Producers, broker_name: str) -> None:
        self._producers = producers
        self._broker_name = broker_name
        self._turn = 0

    def __call__(self, half: MessageExt) -> None:
        """Ask about a half message; nothing happens when nobody can be asked now."""
        place = real_place(half.properties)
        group = half.properties.get(PROPERTY_PRODUCER_GROUP, "")
        member = self._next_member(group)
        if member is None or place is None:
            _log.info("no producer to ask about a transaction", group=group, msg_id=half.msg_id)
            return
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.phy_offset,
            msg_id=half.msg_id,
            transaction_id=half.msg_id,
            offset_msg_id=encode_message_id(half.store_host, half.phy_offset),
            topic=TRANS_HALF_TOPIC,
            bname=self._broker_name,
        )
        told = replace(half, topic=place.topic, queue_id=place.queue_id)
        request = make_request(
            RequestCode.CHECK_TRANSACTION_STATE, header.to_ext(), encode_message(told)
        )
        member.channel.invoke_oneway(request)

    def _next_member(self, group: str) -> ClientChannel | None:
        """The next one that keeps up with what it is sent."""
        members = [one for one in self._producers.clients(group) if one.channel.is_open]
        if not members:
            return None
        self._turn += 1
        start = self._turn % len(members)
        for member in members[start:] + members[:start]:
            if member.channel.is_writable:
                return member
        return None
