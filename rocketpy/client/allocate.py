"""Who in a group reads which queue; every member computes the same answer on its own.

Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle (5.4.0).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from rocketpy.proto.message_queue import MessageQueue

__all__ = [
    "Allocation",
    "allocate_average",
    "allocate_circle",
    "find_allocation",
    "java_sorted",
    "sorted_queues",
]

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def java_sorted(names: Iterable[str]) -> list[str]:
    """Sort as Java's String.compareTo does, by UTF-16 units; mixed groups depend on it."""
    return sorted(names, key=lambda name: name.encode("utf-16-be", "surrogatepass"))


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Sort by topic, broker name and queue id, strings as Java does."""
    return sorted(
        queues,
        key=lambda queue: (
            queue.topic.encode("utf-16-be"),
            queue.broker_name.encode("utf-16-be"),
            queue.queue_id,
        ),
    )


def allocate_average(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Give contiguous pages; the first ``len(queues) % len(client_ids)`` members get one more."""
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


def find_allocation(chosen: Literal["avg", "circle"] | Allocation) -> Allocation:
    """Return the rule of that name, or the function itself."""
    if callable(chosen):
        return chosen
    return allocate_circle if chosen == "circle" else allocate_average
