"""Check before recovery that the log is the one that the queues were made from.

With a wrong `storePathCommitLog`, a store would open with the log of another one: its queues would
be emptied, offsets of groups lowered, and further messages stored between those of the other.
Some entries of the queues are therefore compared with the log. Damage costs single records, and
logs of brokers with the same topics agree in their first ones at most.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.record_check import RecordCheck, RecordState
from rocketpy.proto.topic_names import LMQ_PREFIX
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE

_QUEUES: Final = 16
_PARTS: Final = 5
_LEAST: Final = 5
"""Entries to compare at least: a damaged page can have all messages of a smaller store."""
_LEAST_PART: Final = 0.25


def check_log_of_queues(
    queues: Iterable[ConsumeQueue], log: CommitLog, covers: Callable[[str, int], bool]
) -> None:
    """Compare entries of queues with the log; change nothing.

    After a power cut the queues may be ahead of the log, and this must not be called.

    Args:
        queues: the loaded queues.
        log: the loaded log.
        covers: returns whether a message (topic, physical offset) was deleted with its topic.

    Raises:
        StoreFormatError: the messages of most entries are not in the log.
    """
    compared = matching = 0
    # Entries of Apache's light queues point to messages of other topics.
    known = [each for each in queues if not each.topic.startswith(LMQ_PREFIX)]
    for queue in known[:: len(known) // _QUEUES + 1]:
        for queue_offset, phy_offset in _some_entries(queue):
            if phy_offset < log.min_phy_offset or covers(queue.topic, phy_offset):
                continue  # deleted since
            found = log.check(phy_offset, check_crc=False)
            if found is None:
                continue  # behind the last file: a log that lost its end is no other one
            compared += 1
            matching += _is_message(found, queue, queue_offset)
    if compared >= _LEAST and matching < compared * _LEAST_PART:
        raise StoreFormatError(
            f"{log.directory} has {matching} of {compared} messages that the queues of this store "
            "point to: it is the log of another store, which would empty the queues. Check "
            "storePathCommitLog; or, to have the queues made from this log, move consumequeue, "
            "index and checkpoint out of the store"
        )


def _is_message(found: RecordCheck, queue: ConsumeQueue, queue_offset: int) -> bool:
    place = (found.topic, found.queue_id, found.queue_offset)
    return found.state is RecordState.RECORD and place == (
        queue.topic.encode(),
        queue.queue_id,
        queue_offset,
    )


def _some_entries(queue: ConsumeQueue) -> Iterator[tuple[int, int]]:
    """Yield queue offset and physical offset of some entries of a queue, spread over it."""
    first, end = queue.min_offset, queue.max_offset
    last_part = _PARTS - 1
    places = {first + (end - 1 - first) * part // last_part for part in range(_PARTS)}
    for queue_offset in sorted(places) if end > first else ():
        entry = queue.entry(queue_offset)
        if entry is not None and 0 < entry[1] < BLANK_SIZE:
            yield queue_offset, entry[0]
