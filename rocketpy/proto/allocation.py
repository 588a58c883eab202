"""Who in a group reads which queue: rules that every member, or the broker, computes alike.

Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle (5.4.0).
"""

from collections.abc import Iterable, Sequence

from rocketpy.proto.message_queue import MessageQueue


def _java_key(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


def java_sorted(names: Iterable[str]) -> list[str]:
    """Sort as Java's String.compareTo does, by UTF-16 units; mixed groups depend on it."""
    return sorted(names, key=_java_key)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort by topic, broker name and queue id, strings as Java does."""
    return sorted(
        queues,
        key=lambda queue: (_java_key(queue.topic), _java_key(queue.broker_name), queue.queue_id),
    )


def allocate_average(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Give contiguous pages; the first `len(queues) % len(client_ids)` members get one more."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    size, extra = divmod(len(queues), len(client_ids))
    start = index * size + min(index, extra)
    return list(queues[start : start + size + (1 if index < extra else 0)])


def allocate_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Deal the queues out one by one."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])
