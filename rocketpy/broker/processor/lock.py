"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42): who consumes a queue in order.

Source: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ (5.4.0).
"""

from rocketpy.broker.queue_locks import QueueLocks
from rocketpy.proto.bodies.lock import LockBatchRequestBody, LockBatchResponseBody
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.fastjson import loads_plain
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor
from rocketpy.runtime.clock import Clock


class LockProcessor:
    """Hands out queue locks."""

    def __init__(self, locks: QueueLocks, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock

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
        wanted = LockBatchRequestBody.from_json(loads_plain(request.body))
        held = self._locks.lock(
            wanted.consumer_group, wanted.mq_set, wanted.client_id, self._clock.monotonic_ms()
        )
        return make_response(request, body=LockBatchResponseBody(set(held)).encode())

    def unlock(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """42: give locks back.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        wanted = LockBatchRequestBody.from_json(loads_plain(request.body))
        self._locks.unlock(wanted.consumer_group, wanted.mq_set, wanted.client_id)
        return make_response(request)
