"""Senders, flushes and replicas on several threads: answers follow the dispatch."""

import itertools
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.unit.store.store_kit import OK, Kit, message

PUTS = 400
SENDERS = 3


@pytest.fixture
def many_switches() -> Iterator[None]:
    """Let threads take turns as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.usefixtures("many_switches")
def test_senders_are_answered_after_dispatch_while_replicas_come_and_go(flush: str) -> None:
    kit = Kit(broker_role="SYNC_MASTER", flush_disk_type=flush, mapped_file_size_commit_log=1 << 20)
    store = kit.open()
    offsets, replicas = store._offsets, store.replicas
    replicas.require()
    early: list[int] = []
    answers: list[bool] = []
    is_over = threading.Event()

    def send(queue_id: int) -> None:
        for number in range(PUTS):
            result = store.put_message(message(b"%d" % number, queue_id))
            assert result.status is OK
            end = result.phy_end

            def answered(is_durable: bool, end: int = end) -> None:
                if is_durable and offsets.dispatched < end:
                    early.append(end)
                answers.append(is_durable)

            store.when_durable(end, answered)

    def change() -> None:
        steps = itertools.cycle(
            (
                lambda: replicas.confirm(store.max_phy_offset),
                replicas.wait_for_none,
                replicas.require,
                lambda: replicas.confirm(store.max_phy_offset),
                lambda: replicas.release(store.max_phy_offset),
                replicas.give_up,
                store.flush_log,
            )
        )
        while not is_over.is_set():
            next(steps)()

    senders = [threading.Thread(target=send, args=(each,)) for each in range(SENDERS)]
    others = [threading.Thread(target=change) for _ in range(2)]
    for thread in (*senders, *others):
        thread.start()
    for thread in senders:
        thread.join(60)
    is_over.set()
    for thread in others:
        thread.join(60)
    store.flush_log()
    replicas.wait_for_none()
    assert early == []
    assert len(answers) == PUTS * SENDERS
    assert offsets.dispatched == offsets.appended == offsets.visible
    assert [store.max_offset("Topic", each) for each in range(SENDERS)] == [PUTS] * SENDERS
    store.close()
