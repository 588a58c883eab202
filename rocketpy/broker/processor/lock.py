"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42): who consumes a queue in order.

Source: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ (5.4.0).
"""

from typing import Final

from rocketpy.broker.operation.queue_lock import QueueLocking
from rocketpy.proto.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.fastjson import loads_plain
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor

MAX_REQUEST_BYTES: Final = 1 << 20
"""Longest body that is read; some thousands of queues."""


class LockProcessor:
    """Hands out queue locks."""

    def __init__(self, locking: QueueLocking) -> None:
        self._locking = locking

    @property
    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    def lock(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """41: take or renew locks; the body names those that the client holds now.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            return _too_long(request)
        wanted = LockBatchRequestBody.from_json(loads_plain(request.body))
        held = self._locking.lock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
        return make_response(request, body=LockBatchResponseBody(set(held)).encode())

    def unlock(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """42: give locks back.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            return _too_long(request)
        wanted = LockBatchRequestBody.from_json(loads_plain(request.body))
        self._locking.unlock(wanted.consumer_group, wanted.client_id, wanted.mq_set)
        return make_response(request)


def _too_long(request: RemotingCommand) -> RemotingCommand:
    remark = f"the request is longer than {MAX_REQUEST_BYTES} bytes"
    return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
