"""Reports of a consumer to brokers, and its health.

Source: ConsumerRunningInfo, ProcessQueueInfo, ConsumeMessageDirectlyResult (5.4.0).
"""

import traceback
from collections.abc import Iterable, Mapping, Sequence

from rocketpy.client.callbacks.handlers import Invoke
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.consumer.pulling.queue_readers import QueueReaders
from rocketpy.client.consumer.rebalance import MissingTopics
from rocketpy.client.health import ConsumerHealth, QueueHealth
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry, ToDLQ, ends_task, running_task
from rocketpy.proto.bodies.heartbeat import CONSUME_ACTIVELY, CONSUME_PASSIVELY
from rocketpy.proto.bodies.running import (
    CONSUME_LATER,
    CONSUME_SUCCESS,
    CONSUME_THROW_EXCEPTION,
    PROP_CLIENT_VERSION,
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.runtime.clock import Clock

_MIB = 1024 * 1024
_VERSION = "V5_4_0"

PULL_PROPERTIES = {PROP_CONSUME_TYPE: CONSUME_ACTIVELY, PROP_CLIENT_VERSION: _VERSION}
"""Reported settings of a pull consumer."""


def push_properties(
    name_servers: Iterable[str], concurrency: int, started_ms: int, *, ordered: bool
) -> dict[str, str]:
    """Return the reported settings of a push consumer."""
    return {
        PROP_NAMESERVER_ADDR: ";".join(name_servers),
        PROP_CONSUME_TYPE: CONSUME_PASSIVELY,
        PROP_CONSUME_ORDERLY: "true" if ordered else "false",
        PROP_THREADPOOL_CORE_SIZE: str(concurrency),
        PROP_CLIENT_VERSION: _VERSION,
        PROP_CONSUMER_START_TIMESTAMP: str(started_ms),
    }


def _queue_info(queue: ProcessQueue) -> ProcessQueueInfo:
    first = queue.first_offset
    return ProcessQueueInfo(
        commit_offset=queue.commit_offset or 0,
        # 0 without messages, as Apache's clients leave these fields.
        cached_msg_min_offset=first if first is not None else 0,
        cached_msg_max_offset=queue.pulled_end_offset - 1 if first is not None else 0,
        cached_msg_count=len(queue.messages),
        cached_msg_size_in_mi_b=queue.size_bytes // _MIB,
        droped=queue.dropped,
        last_pull_timestamp=queue.last_pull_ms,
        last_consume_timestamp=queue.last_consume_ms,
    )


def running_info(
    queues: Mapping[MessageQueue, ProcessQueue],
    subscriptions: Iterable[SubscriptionData],
    rates: Mapping[str, ConsumeStatus],
    properties: Mapping[str, str],
) -> ConsumerRunningInfo:
    """Return the body of the response to GET_CONSUMER_RUNNING_INFO."""
    return ConsumerRunningInfo(
        properties=dict(properties),
        subscription_set=list(subscriptions),
        mq_table={queue: _queue_info(entry) for queue, entry in queues.items()},
        status_table=dict(rates),
    )


def no_handler_result(reason: str) -> ConsumeMessageDirectlyResult:
    """Return the report of a consumer that has no handler to call."""
    return ConsumeMessageDirectlyResult(consume_result=CONSUME_THROW_EXCEPTION, remark=reason)


async def consume_and_report(
    invoke: Invoke, message: ReceivedMessage, clock: Clock
) -> ConsumeMessageDirectlyResult:
    """Call the handler with one message, outside of any queue, and report how it went."""
    started_ms = clock.monotonic_ms()
    task = running_task()
    result, remark = CONSUME_SUCCESS, None
    try:
        await invoke([message])
    except (Retry, ToDLQ) as order:
        # A choice of the handler, which Apache's listeners report as RECONSUME_LATER.
        result, remark = CONSUME_LATER, repr(order)
    except BaseException as error:  # the user's handler may raise anything
        if ends_task(error, task):
            raise
        result, remark = CONSUME_THROW_EXCEPTION, "".join(traceback.format_exception(error))
    ms = clock.monotonic_ms() - started_ms
    return ConsumeMessageDirectlyResult(consume_result=result, remark=remark, spent_time_mills=ms)


def consumer_health(
    group: str,
    readers: QueueReaders,
    jobs: Sequence[PeriodicJob],
    failure: BaseException | None,
    unserved: MissingTopics,
) -> ConsumerHealth:
    """Return the state of every queue and what fails in the background."""
    failures = {**job_failures(jobs), **unserved.failures(), **queue_failures(readers.failures)}
    if failure is not None:
        failures["pulling"] = repr(failure)
    return ConsumerHealth(
        group,
        {
            queue: _queue_health(entry, readers.failures.get(queue, ""))
            for queue, entry in readers.queues.items()
        },
        failures,
    )


def job_failures(jobs: Sequence[PeriodicJob]) -> dict[str, str]:
    """Return the failures of background jobs, by name of the job."""
    return {job.name: repr(job.failure) for job in jobs if job.failure is not None}


def queue_failures(failures: Mapping[MessageQueue, str]) -> dict[str, str]:
    """Return the failures of queues, by a readable name of the queue."""
    return {
        f"queue {queue.topic}@{queue.broker_name}:{queue.queue_id}": failure
        for queue, failure in failures.items()
    }


def _queue_health(queue: ProcessQueue, failure: str) -> QueueHealth:
    return QueueHealth(
        queue.commit_offset or 0, queue.lag, len(queue.messages), queue.last_pull_ms, failure
    )
