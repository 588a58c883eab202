"""Several threads put at once: queues stay contiguous and records whole."""

import threading
from collections import defaultdict

import pytest

from rocketpy.proto.record.message import decode_message
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import BatchColumns, BatchEntry, PutBatch, PutMessage, PutMessageStatus
from tests.unit.store.store_kit import Kit

THREADS = 4
PUTS = 300
QUEUES = 3


def put_all(store: MessageStore, worker: int, results: list[tuple[int, str, int, int]]) -> None:
    """Put single messages and batches, each body naming its writer and its number."""
    for number in range(PUTS):
        queue_id = (worker + number) % QUEUES
        topic = f"T{number % 2}"
        if number % 10 == 9:
            entries = [BatchEntry(b"%d:%d:%d" % (worker, number, part)) for part in range(3)]
            put = store.put_batch(PutBatch(topic, queue_id, BatchColumns.of(entries)))
            count = len(entries)
        else:
            put = store.put_message(PutMessage(topic, queue_id, b"%d:%d:0" % (worker, number)))
            count = 1
        assert put.status is PutMessageStatus.PUT_OK
        results.append((number, topic, queue_id, put.queue_offset + (count << 32)))


def run(store: MessageStore) -> list[list[tuple[int, str, int, int]]]:
    results: list[list[tuple[int, str, int, int]]] = [[] for _ in range(THREADS)]
    start = threading.Barrier(THREADS)

    def work(worker: int) -> None:
        start.wait()
        put_all(store, worker, results[worker])

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(each) for each in results] == [PUTS] * THREADS
    return results


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_threads_share_queues_without_gaps(flush: str) -> None:
    kit = Kit(flush_disk_type=flush, message_index_enable=False)
    store = kit.open()
    results = run(store)
    if flush == "SYNC_FLUSH":
        assert store.max_offset("T0", 0) == 0  # nothing is on disk yet, so nobody sees it
        kit.step(store, "GroupCommitService")
    taken: dict[tuple[str, int], list[int]] = defaultdict(list)
    for each in results:
        for _, topic, queue_id, packed in each:
            offset, count = packed & 0xFFFFFFFF, packed >> 32
            taken[topic, queue_id].extend(range(offset, offset + count))
    for (topic, queue_id), offsets in taken.items():
        assert sorted(offsets) == list(range(len(offsets)))
        assert store.max_offset(topic, queue_id) == len(offsets)
    check_contents(store, taken)
    store.close()
    again = kit.open()
    check_contents(again, taken)
    told: dict[tuple[str, int], int] = {}
    for topic, queue_id, next_offset, _ in kit.arrivals:
        told[topic, queue_id] = max(next_offset, told.get((topic, queue_id), 0))
    assert told == {key: len(offsets) for key, offsets in taken.items()}


def check_contents(store: MessageStore, taken: dict[tuple[str, int], list[int]]) -> None:
    seen: set[bytes] = set()
    for topic, queue_id in taken:
        last: dict[bytes, tuple[int, int]] = {}
        offset = 0
        while offset < store.max_offset(topic, queue_id):
            result = store.get_message(topic, queue_id, offset, 32, 1 << 20)
            for number, buffer in enumerate(result.buffers):
                message = decode_message(buffer, check_crc=True)
                assert (message.topic, message.queue_id) == (topic, queue_id)
                assert message.queue_offset == offset + number
                worker, index, part = message.body.split(b":")
                assert last.get(worker, (-1, -1)) < (int(index), int(part))  # in order
                last[worker] = int(index), int(part)
                seen.add(message.body)
            offset = result.next_begin_offset
    assert len(seen) == sum(map(len, taken.values()))
