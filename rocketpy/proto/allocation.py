"""Allocation of queues to the members of a group, by deterministic rules.

Source: AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle,
AllocateMessageQueueByConfig, AllocateMessageQueueByMachineRoom, AllocateMachineRoomNearby,
AllocateMessageQueueConsistentHash (5.4.0).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from rocketpy.proto.message_queue import MessageQueue

Allocation: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""Returns a member's queues, given its id, all queues and all members' ids (both sorted)."""

VIRTUAL_NODES: Final = 10


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
    """Assign the queues in turn."""
    if client_id not in client_ids:
        return []
    return list(queues[client_ids.index(client_id) :: len(client_ids)])


def fixed_queues(queues: Iterable[MessageQueue]) -> Allocation:
    """Return a rule that gives this member fixed queues, regardless of other members.

    Args:
        queues: those of this member; that every queue has a member is not checked.
    """
    mine = list(queues)
    return lambda _client_id, queues, _client_ids: [each for each in mine if each in queues]


def by_machine_room(rooms: Collection[str]) -> Allocation:
    """Return a rule that assigns the queues of some machine rooms, pages first, then the rest.

    Args:
        rooms: only queues of brokers named `room@...` of these are assigned.
    """

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        dealt = [queue for queue in queues if _room_of(queue) in rooms]
        index, members = client_ids.index(client_id), len(client_ids)
        size, extra = divmod(len(dealt), members)
        mine = dealt[size * index : size * (index + 1)]
        if index < extra:
            mine.append(dealt[index + size * members])
        return mine

    return allocate


def _room_of(queue: MessageQueue) -> str | None:
    parts = queue.broker_name.split("@")
    return parts[0] if len(parts) == 2 else None


def machine_room_nearby(
    room_of_queue: Callable[[MessageQueue], str],
    room_of_member: Callable[[str], str],
    rule: Allocation | None = None,
) -> Allocation:
    """Return a rule by which members read the queues of their machine room.

    All members share the queues of a room without members.

    Args:
        room_of_queue: returns the room of a queue.
        room_of_member: returns the room of a client id.
        rule: within a room; None is `allocate_average`.
    """
    share = rule or allocate_average

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        by_room: dict[str, list[MessageQueue]] = defaultdict(list)
        for queue in queues:
            by_room[room_of_queue(queue)].append(queue)
        members: dict[str, list[str]] = defaultdict(list)
        for each in client_ids:
            members[room_of_member(each)].append(each)
        own = room_of_member(client_id)
        mine = share(client_id, by_room.pop(own, []), members[own])
        for room in sorted(by_room, key=_java_key):
            if room not in members:
                mine += share(client_id, by_room[room], client_ids)
        return mine

    return allocate


def consistent_hash(virtual_nodes: int = VIRTUAL_NODES) -> Allocation:
    """Return a rule by which few queues move when a member joins or leaves.

    Args:
        virtual_nodes: positions of each member on the ring; the same for all members.
    """

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in client_ids:
            return []
        ring = {
            _ring_place(f"{each}-{number}"): each
            for each in client_ids
            for number in range(virtual_nodes)
        }
        places = sorted(ring)
        mine = []
        for queue in queues:
            place = _ring_place(
                f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
                f"queueId={queue.queue_id}]"
            )
            next_place = places[bisect_left(places, place) % len(places)]
            if ring[next_place] == client_id:
                mine.append(queue)
        return mine

    return allocate


def _ring_place(text: str) -> int:
    import hashlib  # noqa: PLC0415 - needed by this rule only

    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
