"""The health of a consumer, put together from what it is made of."""

from collections.abc import Mapping, Sequence

from rocketpy.client.health import ConsumerHealth, QueueHealth
from rocketpy.client.periodic import PeriodicJob
from rocketpy.client.process_queue import ProcessQueue
from rocketpy.client.queue_readers import QueueReaders
from rocketpy.client.unserved import UnservedTopics
from rocketpy.proto.message_queue import MessageQueue


def consumer_health(
    group: str,
    readers: QueueReaders,
    jobs: Sequence[PeriodicJob],
    failure: BaseException | None,
    unserved: UnservedTopics,
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
    """Return why background jobs fail, by name; nothing of those that do not."""
    return {job.name: repr(job.failure) for job in jobs if job.failure is not None}


def queue_failures(failures: Mapping[MessageQueue, str]) -> dict[str, str]:
    """Return why queues are not read, by a name for people."""
    return {
        f"queue {queue.topic}@{queue.broker_name}:{queue.queue_id}": failure
        for queue, failure in failures.items()
    }


def _queue_health(queue: ProcessQueue, failure: str) -> QueueHealth:
    return QueueHealth(
        queue.commit_offset or 0, queue.lag, len(queue.messages), queue.last_pull_ms, failure
    )
