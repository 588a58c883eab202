"""Copy of a master's log: order of parts, steps, and what happens when the store refuses."""

import random

import pytest

from rocketpy.broker.replication.handshake import (
    Accepted,
    MasterHandshake,
    PairIdentity,
    SlaveHandshake,
)
from rocketpy.broker.replication.store_log import STEP_BYTES, LogCopy, StoreLog
from rocketpy.errors import BadFrameError, DiskFullError, ResourceShortError, StoreReadOnlyError
from rocketpy.proto.replication.pair_frames import DiskState
from tests.unit.broker.replication.kit import FILE_BYTES, SECRET, FakeStore
from tests.unit.broker.replication.test_handshake import shake
from tests.unit.store.store_kit import Kit, bodies, message, put_many


def copy(store: FakeStore, *, sync: bool = False) -> LogCopy:
    return LogCopy(store, FILE_BYTES, confirms_disk=sync)


def test_parts_are_appended_as_one() -> None:
    store = FakeStore()
    log = copy(store)
    log.receive(0, b"ab")
    log.receive(2, b"cd")
    assert (log.queued_bytes, log.report.received) == (4, 0)

    assert log.step()
    assert (bytes(store.data), store.appends) == (b"abcd", [4])
    assert log.report == (4, 4, DiskState.WRITING)


def test_full_disk_is_reported_before_there_is_anything_to_write() -> None:
    store = FakeStore(b"ab")
    log = copy(store)
    store.log_refusal = "the disk is nearly full"
    assert log.report == (2, 2, DiskState.FULL)
    store.log_refusal = None
    assert log.report == (2, 2, DiskState.WRITING)


@pytest.mark.parametrize("phy_offset", [0, 3, 5])
def test_part_that_does_not_continue_the_log_is_refused(phy_offset: int) -> None:
    log = copy(FakeStore(b"ab"))
    log.receive(2, b"cd")

    with pytest.raises(BadFrameError):
        log.receive(phy_offset, b"x")


def test_empty_log_starts_at_a_file() -> None:
    store = FakeStore()
    with pytest.raises(BadFrameError):
        copy(store).receive(10, b"x")
    log = copy(store)
    log.receive(FILE_BYTES, b"x")
    log.step()

    assert (store.min_phy_offset, bytes(store.data)) == (FILE_BYTES, b"x")


def test_step_appends_a_bounded_part() -> None:
    store = FakeStore()
    log = copy(store)
    for index in range(6):
        log.receive(index * STEP_BYTES // 2, bytes(STEP_BYTES // 2))
    log.step()

    assert len(store.data) == STEP_BYTES
    assert log.queued_bytes == 2 * STEP_BYTES


def test_large_part_is_appended_in_steps() -> None:
    store = FakeStore()
    log = copy(store)
    data = bytes(range(256)) * (STEP_BYTES // 64)
    log.receive(0, memoryview(data))
    for count in range(1, 5):
        log.step()
        assert (len(store.data), log.queued_bytes) == (count * STEP_BYTES, (4 - count) * STEP_BYTES)

    assert store.data == data


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (DiskFullError("no space"), DiskState.FULL),
        (ResourceShortError("no descriptor"), DiskState.FULL),
        (StoreReadOnlyError("a flush failed"), DiskState.FAILED),
        (OSError("bad disk"), DiskState.FAILED),
    ],
)
def test_refusing_store_is_reported_and_retried(error: Exception, state: DiskState) -> None:
    store = FakeStore(b"ab")
    log = copy(store)
    store.error = error
    log.receive(2, b"cd")

    assert not log.step()
    assert (log.report.received, log.report.state, log.reason) == (2, state, str(error))

    store.error = None
    assert log.step()
    assert (bytes(store.data), log.report.state) == (b"abcd", DiskState.WRITING)


def test_part_that_was_appended_before_the_error_is_not_appended_again() -> None:
    class Short(FakeStore):
        def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
            error, self.error = self.error, None
            end = super().append_raw(phy_offset, data[:3])
            if error is not None:
                raise error
            return end

    store = Short(b"ab", identity="x")
    store.error = DiskFullError("no space for a queue")
    log = copy(store)
    log.receive(2, b"cde")
    log.receive(5, b"fgh")
    assert not log.step()
    while log.queued_bytes:
        log.step()

    assert store.data == b"abcdefgh"


def test_new_connection_drops_what_was_queued() -> None:
    log = copy(FakeStore(b"ab"))
    log.receive(2, b"cd")
    log.begin()
    log.receive(2, b"xy")
    log.step()

    assert log.report.received == 4


def test_sync_flush_confirms_what_is_flushed_and_waits_once() -> None:
    store = FakeStore(b"ab")
    store.flushed = 2
    log = copy(store, sync=True)
    log.receive(2, b"cd")
    log.step()
    calls: list[int] = []
    for _ in range(3):
        log.when_flushed(lambda _: calls.append(1))
    assert log.report == (4, 2, DiskState.WRITING)
    assert len(store.waiting) == 1

    store.flush()
    assert (log.report.confirmed, calls) == (4, [1])
    log.when_flushed(lambda _: calls.append(1))
    assert store.waiting == []


def test_async_flush_waits_for_no_flush() -> None:
    store = FakeStore(b"ab")
    store.flushed = 0
    copy(store).when_flushed(lambda _: None)

    assert store.waiting == []


def test_identity_is_adopted_when_it_differs() -> None:
    store = FakeStore(identity="x")
    log = copy(store)
    log.adopt("")
    assert store.log_identity == "x"
    log.adopt("y")
    assert store.log_identity == "y"


@pytest.mark.parametrize("sync", [False, True])
def test_part_of_a_record_is_received_and_not_confirmed(sync: bool) -> None:
    store = FakeStore(b"ab")
    log = copy(store, sync=sync)
    log.receive(2, b"cd")
    log.step()
    store.incomplete_bytes = 2

    assert log.report == (4, 2, DiskState.WRITING)


def test_new_connection_drops_a_part_of_a_record() -> None:
    store = FakeStore(b"abcd")
    store.incomplete_bytes = 1
    log = copy(store)
    log.begin()

    assert (bytes(store.data), log.report.received) == (b"abc", 3)


def test_new_connection_of_an_empty_log_may_start_at_another_file() -> None:
    store = FakeStore()
    log = copy(store)
    log.receive(FILE_BYTES, b"x")
    log.begin()
    assert log.end_phy_offset == 0
    log.receive(2 * FILE_BYTES, b"y")
    log.step()

    assert (store.min_phy_offset, bytes(store.data)) == (2 * FILE_BYTES, b"y")


@pytest.mark.parametrize("body", [b"another", b"lost" * 2_000], ids=["another", "same"])
def test_record_that_the_master_lost_is_not_continued_with_another(body: bytes) -> None:
    """The master's computer fails while it sends a record; it stores another one there."""
    kit, slave = Kit(), Kit(broker_role="SLAVE").open()
    master = kit.open()
    put_many(master, 5)
    master.flush_log()
    end = master.max_phy_offset
    master.put_message(message(b"lost" * 2_000))
    log = copy(slave)  # type: ignore[arg-type]
    log.receive(0, bytes(master.log_part(0, end + 5_000) or b""))
    assert log.step()
    assert log.report == (end + 5_000, end, DiskState.WRITING)

    kit.files.power_cut(random.Random(1))
    kit.files.start_process()
    kit.clock.advance(5)
    master = kit.open()
    assert master.max_phy_offset == end
    master.put_message(message(body))
    put_many(master, 5)
    log.begin()
    result = shake(
        MasterHandshake(
            PairIdentity(cluster="c", name="b", broker_id=0, secret=SECRET),
            StoreLog(master, FILE_BYTES),
            nonce=bytes(32),
            is_taken=lambda _: False,
        ),
        SlaveHandshake(
            PairIdentity(cluster="c", name="b", broker_id=1, secret=SECRET), log, nonce=bytes(32)
        ),
    )
    assert isinstance(result, Accepted)
    assert result.start == end
    log.receive(end, bytes(master.log_part(end, 1 << 20) or b""))
    assert log.step()
    assert log.report.confirmed == slave.max_phy_offset == master.max_phy_offset
    assert bodies(slave) == bodies(master)
    assert slave.damaged_phy_offsets == []
    assert slave.first_difference(master.log_samples(64, 4_096)) is None
