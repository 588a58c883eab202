"""Senders and consumers of a master that waits for replicas."""

import pytest

from rocketpy.errors import DiskFullError
from rocketpy.store.message_store import MessageStore
from tests.unit.store.store_kit import Kit, bodies, message, put_many


class Master:
    """Store of a SYNC_MASTER that waits for replicas from its first message on."""

    def __init__(self, **config: object) -> None:
        self.kit = Kit(broker_role="SYNC_MASTER", **config)
        self.store: MessageStore = self.kit.open()
        self.responses: list[tuple[bytes, bool]] = []
        self.wakes = 0
        self.store.replicas.on_wait.append(self._woken)
        self.store.replicas.require()

    def _woken(self) -> None:
        self.wakes += 1

    def send(self, body: bytes) -> int:
        result = self.store.put_message(message(body))
        self.store.when_durable(
            result.phy_end, lambda is_durable: self.responses.append((body, is_durable))
        )
        return result.phy_end

    def step(self, name: str) -> None:
        self.kit.step(self.store, name)


def test_message_waits_for_replicas_before_response_and_consumers() -> None:
    master = Master()
    end = master.send(b"a")
    assert (master.responses, bodies(master.store), master.kit.arrivals) == ([], [], [])
    assert master.wakes == 2
    master.store.replicas.confirm(end - 1)
    assert master.responses == []
    master.store.replicas.confirm(end)
    assert (master.responses, bodies(master.store)) == ([(b"a", True)], [b"a"])
    assert len(master.kit.arrivals) == 1
    assert master.store.is_confirmed(end)


def test_log_that_may_be_cut_is_kept_up_to_the_confirmed_end_on_disk() -> None:
    master = Master()
    end = master.send(b"a")
    assert master.store.flush_log()
    assert master.store.kept_phy_offset == end, "no controller elects another master"
    master.store.replicas.let_cut()
    assert master.store.kept_phy_offset == 0
    master.store.replicas.confirm(end)
    later = master.send(b"b")
    assert master.store.kept_phy_offset == end
    master.store.replicas.confirm(later)
    assert master.store.kept_phy_offset == end, "not on disk"
    assert master.store.flush_log()
    assert master.store.kept_phy_offset == later


def test_message_with_sync_flush_waits_for_both() -> None:
    for first in ("disk", "replica"):
        master = Master(flush_disk_type="SYNC_FLUSH")
        end = master.send(b"a")
        for each in (first, "replica" if first == "disk" else "disk"):
            assert (master.responses, bodies(master.store)) == ([], [])
            if each == "disk":
                master.step("GroupCommitService")
            else:
                master.store.replicas.confirm(end)
        assert (master.responses, bodies(master.store)) == ([(b"a", True)], [b"a"])


def test_unconfirmed_message_fails_at_slave_timeout_and_is_readable_when_released() -> None:
    master = Master()
    end = master.send(b"a")
    master.kit.clock.advance(2_999)
    master.step("FlushDeadlineService")
    assert master.responses == []
    master.kit.clock.advance(1)
    master.step("FlushDeadlineService")
    assert master.responses == [(b"a", False)]
    assert not master.store.is_confirmed(end)
    assert bodies(master.store) == []
    master.store.replicas.release(end)
    assert bodies(master.store) == [b"a"]
    assert master.store.replicas.confirmed == 0


def test_released_messages_are_not_acknowledged() -> None:
    master = Master()
    end = master.send(b"a")
    master.store.replicas.release(end)
    assert (master.responses, bodies(master.store)) == ([], [b"a"])
    master.store.replicas.confirm(end)
    assert master.responses == [(b"a", True)]


def test_give_up_fails_unconfirmed_senders_at_once() -> None:
    master = Master()
    first = master.send(b"a")
    master.send(b"b")
    master.store.replicas.confirm(first)
    master.store.replicas.give_up()
    assert master.responses == [(b"a", True), (b"b", False)]


def test_give_up_leaves_senders_that_wait_for_disk() -> None:
    master = Master(flush_disk_type="SYNC_FLUSH")
    end = master.send(b"a")
    master.store.replicas.confirm(end)
    master.store.replicas.give_up()
    assert master.responses == []
    master.step("GroupCommitService")
    assert master.responses == [(b"a", True)]


def test_when_flushed_waits_for_no_replica() -> None:
    master = Master(flush_disk_type="SYNC_FLUSH")
    end = master.send(b"a")
    flushed: list[bool] = []
    master.store.when_flushed(end, flushed.append)
    master.store.replicas.give_up()
    assert flushed == []
    master.step("GroupCommitService")
    assert flushed == [True]
    assert master.responses == [(b"a", False)]


def test_wait_for_none_confirms_those_that_wait() -> None:
    master = Master()
    master.send(b"a")
    master.store.replicas.wait_for_none()
    assert (master.responses, bodies(master.store)) == ([(b"a", True)], [b"a"])
    master.send(b"b")
    assert master.responses[1:] == [(b"b", True)]
    assert bodies(master.store) == [b"a", b"b"]
    assert master.store.replicas.confirmed is None


def test_require_leaves_earlier_messages_acknowledged() -> None:
    master = Master()
    master.store.replicas.wait_for_none()
    sent = put_many(master.store, 3)
    end = master.store.max_phy_offset
    master.store.replicas.require()
    assert master.store.replicas.confirmed == end
    assert bodies(master.store) == sent
    master.send(b"a")
    assert (master.responses, bodies(master.store)) == ([], sent)
    master.store.replicas.require()
    assert master.store.replicas.confirmed == end


def test_confirmed_and_released_never_go_back() -> None:
    master = Master()
    end = master.send(b"a")
    master.store.replicas.confirm(end)
    master.store.replicas.confirm(3)
    assert master.store.replicas.confirmed == end
    master.store.replicas.release(end)
    master.store.replicas.release(2)
    assert master.store.replicas.released == end


def test_message_stored_while_waiting_ends_is_dispatched() -> None:
    """A message that is appended before the dispatch of pending ones must not stay behind them."""
    master = Master()
    master.send(b"a")
    release = master.store._offsets.on_visible

    def put_meanwhile(visible: int) -> None:
        master.store._offsets.on_visible = release
        master.store.put_message(message(b"b"))
        release(visible)

    master.store._offsets.on_visible = put_meanwhile
    master.store.replicas.wait_for_none()
    assert bodies(master.store) == [b"a", b"b"]


def test_message_is_dispatched_before_its_sender_is_answered() -> None:
    """Also if another thread moves an offset while pending messages are dispatched."""
    master = Master()
    end = master.send(b"a")
    offsets = master.store._offsets
    release = offsets.on_visible
    seen: list[list[bytes]] = []

    def late(visible: int) -> None:
        offsets.on_visible = release
        master.store.when_durable(end, lambda _: seen.append(bodies(master.store)))
        release(visible)

    offsets.on_visible = late
    master.store.replicas.confirm(end)
    assert seen == [[b"a"]]


def test_confirmation_while_waiting_ends_and_begins_again_is_answered_after_dispatch() -> None:
    """`wait_for_none` is dispatching while another thread requires and confirms."""
    master = Master()
    master.send(b"a")
    offsets = master.store._offsets
    release = offsets.on_visible
    acknowledged: list[int] = []

    def meanwhile(visible: int) -> None:
        release(visible)
        offsets.on_visible = lambda _: None  # the other thread has not dispatched yet
        offsets.confirmed = master.store.max_phy_offset
        offsets._epoch += 1
        master.store.put_message(message(b"b"))
        offsets.confirmed = master.store.max_phy_offset
        acknowledged.append(master.store.max_phy_offset)

    offsets.on_visible = meanwhile
    end = master.store.max_phy_offset
    master.store.replicas.wait_for_none()
    assert offsets.acknowledged == end < acknowledged[0]


def test_slave_refuses_messages_and_takes_its_masters_log() -> None:
    master = Kit().open()
    sent = put_many(master, 20)
    slave = Kit(broker_role="SLAVE").open()
    status = slave.put_message(message(b"x")).status
    assert status.value == "SERVICE_NOT_AVAILABLE"
    assert not slave.is_writable
    assert slave.log_refusal is None
    part = master.log_part(0, 1 << 20)
    assert part is not None
    slave._gate.set_disk_full("nearly full")
    with pytest.raises(DiskFullError, match="nearly full"):
        slave.append_raw(0, part)
    slave._gate.set_disk_full(None)
    assert slave.append_raw(0, part) == slave.write_end == master.max_phy_offset
    assert bodies(slave) == sent
