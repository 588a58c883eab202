"""Check points: bounded memory, and no offset before the redelivered messages are on disk."""

from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.pop.revive import revive
from rocketpy.broker.pop.revive.revive import ReviveQueue, ReviveService
from rocketpy.broker.system_topics.system_queue import SystemRead
from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.proto.pop import REVIVE_GROUP
from rocketpy.proto.record.message import MessageExt, decode_messages
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.results import MessageFilter, PutMessage
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.fakes import FakeClock, MemoryFile
from tests.unit.broker.pop.kit import Popper, after, send, simulate


class Queue:
    """A revive queue in memory."""

    topic = "rmq_sys_REVIVE_LOG_c"
    queue_id = 3

    def __init__(self) -> None:
        self.messages: list[MessageExt] = []
        self.read_count = 0

    @property
    def max_offset(self) -> int:
        return len(self.messages)

    def read(self, offset: int, *, wanted: MessageFilter | None = None) -> SystemRead:
        found = self.messages[offset : offset + 32]
        end = offset + len(found)
        if wanted is not None:
            codes = [tags_code(each.properties["TAGS"]) for each in found]
            found = [
                each
                for each, code in zip(found, codes, strict=True)
                if wanted.matches_tags_code(code)
            ]
        self.read_count += len(found)
        return SystemRead(found, end)

    def put(self, body: bytes, tag: str, deliver_ms: int) -> None:
        properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(deliver_ms)}
        message = MessageExt(
            topic=self.topic,
            body=body,
            properties=properties,
            queue_offset=len(self.messages),
            phy_offset=len(self.messages) * 5,
            store_size_bytes=5,
        )
        self.messages.append(message)


class Reviver:
    """Records revived messages."""

    def __init__(self) -> None:
        self.revived: list[tuple[int, list[int]]] = []
        self.works = True
        self.stores = True
        self.phy_end = 0

    def revive(self, point: CheckPoint, revive_queue_id: int) -> bool:
        assert revive_queue_id == 3
        if not self.works:
            return False
        left = [index for index in range(point.count) if not point.bit_map >> index & 1]
        self.revived.append((point.start_offset, left))
        self.phy_end += 10 if self.stores else 0
        return True


class Kit:
    def __init__(self, max_pending: int = 100) -> None:
        self.clock = FakeClock()
        self.queue = Queue()
        self.reviver = Reviver()
        self.behind_ms = 0
        self.flushed_phy_offset = 1 << 40
        self.dispatch_behind_bytes = 0
        self.offsets = ConsumerOffsets(BrokerConfig(), MemoryFile(), self.clock)
        self.max_pending = max_pending
        self.start()

    def start(self) -> None:
        """A process that begins: what it had in memory is gone."""
        self.revive = ReviveQueue(
            self.queue,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.reviver,  # type: ignore[arg-type]
            offsets=self.offsets,
            timer=self,  # type: ignore[arg-type]
            clock=self.clock,
            max_pending=self.max_pending,
        )

    def delivered_before_ms(self) -> int:
        return self.clock.now_ms - self.behind_ms

    @property
    def kept_phy_offset(self) -> int:
        return self.flushed_phy_offset

    @property
    def max_phy_offset(self) -> int:
        return max(self.reviver.phy_end, len(self.queue.messages) * 5)

    @property
    def committed(self) -> int:
        return self.offsets.query(REVIVE_GROUP, self.queue.topic, 3)

    def check_point(self, start: int, count: int = 1) -> None:
        now_ms = self.clock.now_ms
        point = CheckPoint("T", "g", 0, start, now_ms, 1_000, count, list(range(count)), "b")
        self.queue.put(point.encode(), "ck", now_ms)

    def ack(self, start: int, *offsets: int, broker: str | None = "b") -> None:
        now_ms = self.clock.now_ms
        tag, many = ("ack", None) if len(offsets) == 1 else ("bAck", list(offsets))
        ack = PopAck("T", "g", 0, start, now_ms, broker, offsets[0], many)
        self.queue.put(ack.encode(), tag, now_ms + 1_000)

    def run(self) -> list[Any]:
        self.reviver.revived.clear()
        while self.revive.step():
            pass
        return list(self.reviver.revived)


def test_revive_acked_message_is_not_redelivered() -> None:
    kit = Kit()
    kit.check_point(0, 4)
    kit.ack(0, 1)
    kit.ack(0, 0, 3)
    assert not kit.run()
    kit.clock.now_ms += 5_000
    assert kit.run() == [(0, [2])]
    assert not kit.run()
    assert kit.committed == 0, "the check point that was dealt with, as Apache notes it"
    assert kit.revive.pending == 0


def test_revive_waits_until_all_possible_acks_are_read() -> None:
    kit = Kit()
    kit.check_point(0)
    kit.clock.now_ms += 60_000
    kit.behind_ms = 59_000
    kit.ack(7, 7)  # one that came late goes past the timer, and says nothing of the others
    kit.run()
    assert not kit.run()
    kit.queue.put(
        PopAck("T", "g", 0, 0, kit.clock.now_ms - 60_000, "b", 0).encode(), "ack", kit.clock.now_ms
    )
    kit.behind_ms = 0
    kit.dispatch_behind_bytes = 1
    assert not kit.run(), "what the timer delivered may not be visible yet"
    kit.dispatch_behind_bytes = 0
    assert kit.run() == [(0, [])]


def test_revive_offset_waits_for_flush() -> None:
    kit = Kit()
    kit.flushed_phy_offset = 15
    for start in range(3):
        kit.check_point(start)
    kit.clock.now_ms += 10_000
    assert [start for start, _ in kit.run()] == [0, 1, 2]
    assert not kit.run()
    assert kit.committed == 0
    kit.start()
    kit.flushed_phy_offset = 1 << 40
    again = [start for start, _ in kit.run()]
    assert again == [1, 2], "a new process gives back what the old one did not vouch for"
    kit.run()
    assert kit.committed == 2


def test_revive_failed_put_delays_following_messages() -> None:
    kit = Kit()
    kit.check_point(0)
    kit.check_point(1)
    kit.reviver.works = False
    kit.clock.now_ms += 10_000
    assert not kit.run()
    assert kit.committed == -1
    kit.reviver.works = True
    assert [start for start, _ in kit.run()] == [0, 1]


def test_revive_ack_before_check_point_counts() -> None:
    kit = Kit()
    kit.ack(0, 1)
    kit.ack(0, 2)
    for number in range(revive.MAX_EARLY_ACKS - 1):
        kit.ack(1_000 + number, 5)
    kit.check_point(0, 4)
    kit.clock.now_ms += 5_000
    assert kit.run() == [(0, [0, 3])]


def test_revive_ack_before_check_point_counts_after_restart() -> None:
    """The offset passes it with its check point, not with another one between them."""
    kit = Kit()
    kit.clock.now_ms += 2_100
    kit.ack(5, 5)
    kit.clock.now_ms -= 2_100
    kit.check_point(0)
    kit.clock.now_ms += 2_100
    kit.check_point(5)
    kit.clock.now_ms += 2_000
    assert kit.run() == [(0, [0])]
    kit.run()
    assert kit.revive.pending == 1
    kit.start()
    kit.clock.now_ms += 5_000
    assert (5, []) in kit.run()
    kit.run()
    assert kit.committed == 2


def test_revive_early_acks_are_bounded() -> None:
    kit = Kit()
    for number in range(revive.MAX_EARLY_ACKS + 1):
        kit.ack(number, number)
    kit.check_point(0)
    kit.check_point(1)
    kit.clock.now_ms += 5_000
    assert kit.run() == [(0, [0]), (1, [])], "the oldest goes"


@pytest.mark.parametrize("acked", [False, True])
def test_revive_pending_check_points_are_bounded(acked: bool) -> None:
    kit = Kit(max_pending=10)
    for start in range(35):
        kit.check_point(start)
    for start in range(35):
        if acked:
            kit.ack(start, start)
    assert not kit.run()
    assert kit.revive.pending == 10
    kit.clock.now_ms += 10_000
    seen = []
    for _ in range(10):
        seen += kit.run()
        assert kit.revive.pending <= 10
        kit.clock.now_ms += 5_000
    assert [start for start, _ in seen] == list(range(35))
    assert all(left == ([] if acked else [0]) for _, left in seen)
    assert kit.committed == 34


def test_revive_skipped_check_points_are_not_read() -> None:
    kit = Kit(max_pending=10)
    for start in range(200):
        kit.check_point(start)
    kit.clock.now_ms += 10_000
    seen = []
    for _ in range(30):
        seen += kit.run()
        kit.clock.now_ms += 5_000
    assert [start for start, _ in seen] == list(range(200))
    assert kit.queue.read_count <= 20 * 32, "a read for each ten, not all that follow them"


def test_revive_unreadable_entry_is_skipped() -> None:
    kit = Kit()
    kit.queue.put(b"not json", "ck", kit.clock.now_ms)
    kit.queue.put(b"{}", "ck", kit.clock.now_ms)
    kit.queue.put(b"[]", "ack", kit.clock.now_ms)
    kit.queue.put(b"", "other", kit.clock.now_ms)
    kit.check_point(7)
    kit.clock.now_ms += 10_000
    kit.run()
    kit.run()
    assert kit.committed == 4


def test_revive_service_with_backlog_steps_again_at_once() -> None:
    kit = Kit(max_pending=1_000)
    service = ReviveService(lambda: [kit.revive], 1_000)
    for start in range(300):
        kit.check_point(start)
    assert service.step(0) == 0
    assert service.step(0) == 1_000
    assert service.pending == 300


def test_revive_offset_stays_before_check_point_not_on_disk() -> None:
    kit = Kit()
    kit.flushed_phy_offset = 7
    for start in range(3):
        kit.check_point(start)
    for start in range(3):
        kit.ack(start, start)
    kit.reviver.stores = False
    kit.clock.now_ms += 10_000
    kit.run()
    kit.run()
    assert kit.committed == NO_OFFSET, "not all of it is on disk"
    kit.flushed_phy_offset = 1 << 40
    kit.run()
    assert kit.committed == 2


def test_revive_offset_waits_for_messages_stored_before_failure() -> None:
    kit = Kit()
    kit.check_point(0, count=2)
    kit.clock.now_ms += 10_000
    kit.flushed_phy_offset = 100
    kit.reviver.phy_end = 200  # the first message is stored again, the second cannot be
    kit.reviver.works = False
    kit.run()
    kit.reviver.works, kit.reviver.stores = True, False  # there is no second one any more
    kit.run()
    kit.run()
    assert kit.committed == NO_OFFSET, "a power cut would take what was given back"
    kit.flushed_phy_offset = 200
    kit.run()
    assert kit.committed == 0


def test_revive_check_points_of_same_key_are_merged() -> None:
    """Extended message, and a pop that starts with it in the same millisecond."""
    kit = Kit()
    kit.check_point(7)
    kit.check_point(7, 4)
    kit.ack(7, 7)
    kit.ack(7, 9)
    kit.clock.now_ms += 5_000
    assert kit.run() == [(7, [1, 3])]
    kit.check_point(7, 4)
    kit.check_point(7)
    kit.ack(7, 8)
    kit.clock.now_ms += 5_000
    assert kit.run() == [(7, [0, 2, 3])]
    kit.run()
    kit.start()
    assert not kit.run(), "both were dealt with"


def test_revive_duplicate_check_point_keeps_position_and_acks() -> None:
    kit = Kit()
    kit.check_point(0)
    kit.ack(0, 0)
    kit.clock.now_ms += 3_000
    kit.check_point(5)
    kit.clock.now_ms -= 3_000
    kit.check_point(0)  # again: over a kill the timer delivered it twice
    kit.clock.now_ms += 5_000
    kit.queue.put(b"", "other", kit.clock.now_ms)
    assert kit.run() == [(0, [])]
    kit.run()
    assert kit.committed == 0, "the one in between is still to be dealt with"


def test_revive_duplicate_check_point_is_not_redelivered_after_restart() -> None:
    kit = Kit()
    kit.check_point(0)
    kit.check_point(1)
    for _ in range(2):
        kit.check_point(0)  # again: over a kill the timer delivered it twice
    kit.clock.now_ms += 10_000
    assert kit.run() == [(0, [0]), (1, [0])]
    kit.run()
    assert kit.committed == 3, "nothing else lies in the queue"
    kit.start()
    assert kit.run() == []


def test_revive_queue_shorter_than_offset_continues_at_end() -> None:
    kit = Kit()
    kit.offsets.commit(REVIVE_GROUP, kit.queue.topic, 3, 40)
    kit.run()
    kit.check_point(0)
    kit.clock.now_ms += 10_000
    assert kit.run() == [(0, [0])]
    kit.run()
    assert kit.committed == 0


def test_revive_skipped_check_point_waits_for_acks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revive, "MAX_EARLY_ACKS", 10)
    kit = Kit(max_pending=300)
    for start in range(600):
        kit.check_point(start)
    for start in range(600):
        kit.ack(start, start)
    kit.clock.now_ms += 10_000
    seen = []
    for _ in range(10):
        seen += kit.run()
        kit.clock.now_ms += 5_000
    assert [start for start, _ in seen] == list(range(600))
    assert [start for start, left in seen if left] == []


def test_revive_message_with_full_properties_is_redelivered() -> None:
    async def scenario(cluster: SimCluster, popper: Popper) -> set[bytes]:
        store = cluster.brokers[0].broker.parts.store
        for body, size_bytes in ((b"big", 32_766), (b"other", 100)):
            properties = b"k\x01".ljust(size_bytes, b"v")
            assert store.put_message(PutMessage("T", 0, body, properties)).phy_end
        assert len((await popper.pop(invisibleTime=1_000)).messages) == 2
        await after(20)
        popped = await popper.ask(
            200050,
            consumerGroup="g",
            topic="T",
            queueId=-1,
            maxMsgNums=32,
            invisibleTime=1_000,
            pollTime=0,
            bornTime=popper.now_ms,
            initMode=0,
            order="false",
        )
        return {message.body for message in decode_messages(popped.body)}

    assert simulate(scenario, queues=1) == {b"big", b"other"}


def test_revive_clock_set_back_delays_only_older_check_points() -> None:
    kit = Kit()
    kit.check_point(0)
    kit.clock.now_ms -= 3_600_000
    kit.check_point(1)
    kit.check_point(2)
    kit.ack(2, 2)
    kit.clock.now_ms += 5_000
    assert kit.run() == [(1, [0]), (2, [])]
    kit.run()
    assert kit.committed == NO_OFFSET, "another process must find the first one"
    kit.check_point(4)
    kit.clock.now_ms += 5_000
    assert kit.run() == [(4, [0])]
    kit.clock.now_ms += 3_600_000
    kit.flushed_phy_offset = 20
    assert kit.run() == [(0, [0])]
    kit.run()
    assert kit.committed == NO_OFFSET, "what it gave back is not on disk"
    kit.flushed_phy_offset = 1 << 40
    kit.run()
    assert kit.committed == 4


def test_revive_lowered_queue_number_loses_no_message() -> None:
    async def case(cluster: SimCluster, popper: Popper) -> tuple[list[int], list[bytes]]:
        await send(cluster, 16)
        popped = [(await popper.pop(maxMsgNums=1)).messages[0] for _ in range(16)]
        (broker,) = cluster.brokers
        await broker.stop()
        broker._properties["reviveQueueNum"] = "1"
        await broker.start()
        codes = [(await popper.ack(each)).code for each in popped[:8]]
        await after(30)
        found: list[bytes] = []
        while bodies := (await popper.pop()).bodies:
            found += bodies
        return codes, sorted(found, key=int)

    codes, found = simulate(case)
    assert codes == [0] * 8
    assert len(found) == 8
