"""The reports a broker asks a consumer for.

Source: ConsumerRunningInfo, ProcessQueueInfo, ConsumeMessageDirectlyResult (5.4.0).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from rocketpy.client.heartbeat import subscription_json
from rocketpy.client.process_queue import ProcessQueue
from rocketpy.proto import fastjson
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData

__all__ = ["direct_result", "running_info"]

_MIB = 1024 * 1024


def _queue_info(queue: ProcessQueue) -> dict[str, Any]:
    first = queue.first_offset
    return {
        "cachedMsgCount": len(queue.messages),
        "cachedMsgMaxOffset": queue.pulled_end_offset - 1 if first is not None else 0,
        "cachedMsgMinOffset": first if first is not None else 0,
        "cachedMsgSizeInMiB": queue.size_bytes // _MIB,
        "commitOffset": queue.commit_offset or 0,
        "droped": queue.dropped,
        "lastConsumeTimestamp": queue.last_consume_ms,
        "lastLockTimestamp": 0,
        "lastPullTimestamp": queue.last_pull_ms,
        "locked": False,
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def running_info(
    queues: Mapping[MessageQueue, ProcessQueue],
    subscriptions: Iterable[SubscriptionData],
    rates: Mapping[str, Mapping[str, float]],
    properties: Mapping[str, str],
) -> bytes:
    """Return the body of GET_CONSUMER_RUNNING_INFO's answer."""
    return fastjson.dumps(
        {
            "mqPopTable": {},
            "mqTable": {queue: _queue_info(entry) for queue, entry in queues.items()},
            "properties": dict(properties),
            "statusTable": {topic: dict(entry) for topic, entry in rates.items()},
            "subscriptionSet": [subscription_json(entry) for entry in subscriptions],
            "userConsumerInfo": {},
        }
    )


def direct_result(result: str, spent_ms: int, remark: str = "") -> dict[str, Any]:
    """Return the body of CONSUME_MESSAGE_DIRECTLY's answer; ``result`` is ``CR_SUCCESS`` etc."""
    report: dict[str, Any] = {
        "autoCommit": True,
        "consumeResult": result,
        "order": False,
        "spentTimeMills": spent_ms,
    }
    if remark:
        report["remark"] = remark
    return report
