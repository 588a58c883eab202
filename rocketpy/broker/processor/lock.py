"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (41, 42): who consumes a queue in order.

Source: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ (5.4.0).
"""

import orjson

from rocketpy.broker.document import as_table
from rocketpy.broker.queue_locks import QueueLocks
from rocketpy.errors import BadBodyError
from rocketpy.proto.codes import RequestCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.fastjson import loads_plain
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor
from rocketpy.runtime.clock import Clock

__all__ = ["LockProcessor"]


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
        group, client_id, queues = _read(request.body)
        held = self._locks.lock(group, queues, client_id, self._clock.monotonic_ms())
        body = {
            "lockOKMQSet": [
                {"brokerName": one.broker_name, "queueId": one.queue_id, "topic": one.topic}
                for one in held
            ]
        }
        return make_response(request, body=orjson.dumps(body))

    def unlock(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """42: give locks back.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        group, client_id, queues = _read(request.body)
        self._locks.unlock(group, queues, client_id)
        return make_response(request)


def _read(body: bytes) -> tuple[str, str, list[MessageQueue]]:
    table = as_table(loads_plain(body))
    group, client_id, listed = (table.get(k) for k in ("consumerGroup", "clientId", "mqSet"))
    if not isinstance(group, str) or not isinstance(client_id, str):
        raise BadBodyError("consumerGroup and clientId must be text")
    queues = []
    for entry in listed if isinstance(listed, list) else []:
        one = as_table(entry)
        topic, name, queue_id = one.get("topic"), one.get("brokerName"), one.get("queueId")
        if not isinstance(topic, str) or not isinstance(name, str) or not isinstance(queue_id, int):
            raise BadBodyError("a queue needs topic, brokerName and queueId")
        queues.append(MessageQueue(topic, name, queue_id))
    return group, client_id, queues
