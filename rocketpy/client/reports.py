"""The reports a broker asks a consumer for, and the header that gives a message back.

Source: ConsumerRunningInfo, ProcessQueueInfo, ConsumeMessageDirectlyResult (5.4.0).
"""

import traceback
from collections.abc import Iterable, Mapping
from typing import Any

from rocketpy.client.handlers import Invoke
from rocketpy.client.heartbeat import subscription_json
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.outcomes import Retry, ToDLQ
from rocketpy.client.process_queue import ProcessQueue
from rocketpy.proto import fastjson
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.runtime.clock import Clock

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


async def consume_and_report(
    invoke: Invoke, message: ReceivedMessage, clock: Clock
) -> dict[str, Any]:
    """Call the handler with one message, outside of any queue, and report how it went."""
    started_ms = clock.monotonic_ms()
    result, remark = "CR_SUCCESS", ""
    try:
        await invoke([message])
    except (Retry, ToDLQ) as order:
        result, remark = "CR_LATER", repr(order)
    except Exception as error:  # noqa: BLE001 - the user's handler may raise anything
        result, remark = "CR_THROW_EXCEPTION", "".join(traceback.format_exception(error))
    return direct_result(result, clock.monotonic_ms() - started_ms, remark)


def send_back_fields(
    group: str, message: ReceivedMessage, delay_level: int, max_retries: int
) -> dict[str, str]:
    """Return the header of CONSUMER_SEND_MSG_BACK."""
    return {
        "group": group,
        "offset": str(message.ext.phy_offset),
        "delayLevel": str(delay_level),
        "originMsgId": message.ext.msg_id,
        "originTopic": message.topic,
        "unitMode": "false",
        "maxReconsumeTimes": str(max_retries),
        "bname": message.queue.broker_name,
    }
