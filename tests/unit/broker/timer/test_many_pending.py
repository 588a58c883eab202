"""Memory of many pending timed messages, and the exactness of their delivery."""

import gc
import random
import sys
from statistics import median
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from rocketpy.proto.record.message import decode_message
from rocketpy.store.message_store import MessageStore
from tests.unit.broker.timer.timer_kit import QUEUE, Kit

PENDING = 20_000
MOST_BYTES = 3 << 19
"""What the timer may hold: pages of the wheel, blocks of its log, the moments of one slot.

Measured: 1.14 MiB for 20,000 and 1.32 MiB for 100,000; 20 bytes a message would exceed it."""
NOT_ITS_OWN = (type, ModuleType, FunctionType, CodeType, MessageStore, Kit)


def held_bytes(kit: Kit) -> int:
    """Everything the timer can reach, without the store and the simulated disk beside it."""
    waiting: list[Any] = [kit.timer, kit.state, kit.flush]
    seen: set[int] = set()
    total = 0
    while waiting:
        each = waiting.pop()
        is_disk = type(each).__module__ == "rocketpy.testing.sim_files"
        if is_disk or id(each) in seen or isinstance(each, NOT_ITS_OWN):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        waiting.extend(gc.get_referents(each))
    return total


def errors_ms(kit: Kit) -> list[int]:
    """Return the delay of each message after its delivery time."""
    found: list[int] = []
    while len(found) < kit.store.max_offset("T", QUEUE):
        records = kit.store.get_message("T", QUEUE, len(found), 32, 1 << 20).buffers
        for record in records:
            message = decode_message(record)
            requested_ms = int(message.properties["TIMER_DELIVER_MS"])
            found.append(message.store_timestamp_ms - requested_ms)
    return found


@pytest.mark.timeout(600)
def test_many_pending_take_bounded_memory_and_arrive_on_the_millisecond() -> None:
    kit = Kit(
        log_file_bytes=520_000,
        mapped_file_size_commit_log=4 << 20,
        mapped_file_size_consume_queue=2_000_000,
    )
    rng = random.Random(7)
    before = most = held_bytes(kit)
    end_ms = kit.clock.time_ms() + 900_000
    for count in range(1, PENDING + 1):
        kit.send(b"x", TIMER_DELIVER_MS=str(end_ms - rng.randrange(300_000)))
        if count % 1_000 == 0:
            kit.run(1_000)
            kit.store.flush_log()
            most = max(most, held_bytes(kit))
    assert kit.state.pending_count == PENDING
    assert held_bytes(kit) - before < MOST_BYTES
    while kit.clock.time_ms() < end_ms:
        kit.run(10_000)
        kit.store.flush_log()
        most = max(most, held_bytes(kit))
    assert most - before < MOST_BYTES
    late = errors_ms(kit)
    assert len(late) == PENDING
    assert min(late) >= 0, "none is early"
    assert (median(late), max(late)) == (0, 0)
