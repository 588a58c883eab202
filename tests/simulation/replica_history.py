"""History of a replicated log, and its checker.

The promises, each with the words of the failure:

- "is lost": what was acknowledged is on `inSyncReplicas` machines, after each fault;
- "differs": the log of a slave that follows is byte for byte a prefix of its master's;
- "is invented", "was changed", "order", "comes twice": see `store_history`;
- "seen too early": a consumer sees no message that is not confirmed, before `slaveTimeout`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rocketpy.store.message_store import MessageStore
from tests.simulation.store_history import Found, read_all


@dataclass(slots=True)
class Message:
    """Message that was put on the master.

    Attributes:
        put_s: when.
        place: topic, queue, queue offset and physical offset; None when it was not stored.
        phy_end: end of its record.
        acknowledged: whether its sender was answered SEND_OK.
    """

    number: int
    put_s: float
    place: tuple[str, int, int, int] | None = None
    phy_end: int = 0
    acknowledged: bool = False


@dataclass
class ReplicaHistory:
    """All messages of one seed, by number.

    Attributes:
        acknowledged_end: end of the log that was acknowledged.
        acknowledged_count: number of acknowledged messages.
    """

    messages: dict[int, Message] = field(default_factory=dict)
    acknowledged_end: int = 0
    acknowledged_count: int = 0

    def begin(self, number: int, now_s: float) -> Message:
        message = self.messages[number] = Message(number, now_s)
        return message

    def acknowledge(self, message: Message) -> None:
        message.acknowledged = True
        self.acknowledged_count += 1
        self.acknowledged_end = max(self.acknowledged_end, message.phy_end)

    def lost_by_mode(self, end: int) -> None:
        """The master lost its page cache (ASYNC_FLUSH): what it had beyond `end` may be gone."""
        for message in self.messages.values():
            if message.phy_end > end:
                message.acknowledged = False
        self.acknowledged_end = min(self.acknowledged_end, end)

    def check_seen(
        self, found: Iterable[Found], copied_end: int, now_s: float, timeout_s: float
    ) -> None:
        """Judge what a consumer reads from a SYNC_MASTER.

        Args:
            found: messages that consumers could not read before its start.
            copied_end: end of the log that enough slaves have, or had.
            now_s: time.
            timeout_s: `slaveTimeout`.
        """
        for each in found:
            message = self.messages.get(each.number)
            assert message is not None, f"message is invented: {each}"
            if message.place is not None and message.phy_end > copied_end:
                age_s = now_s - message.put_s
                assert age_s >= timeout_s, f"seen too early, after {age_s:.3f} s: {each}"

    def check_copies(self, ends: Iterable[int], needed: int) -> None:
        """Judge the ends of the logs of all machines."""
        ends = sorted(ends, reverse=True)
        has = sum(end >= self.acknowledged_end for end in ends)
        assert has >= needed, (
            f"acknowledged is lost: {self.acknowledged_end} is on {has} machines, ends {ends}"
        )

    def check_store(self, store: MessageStore) -> None:
        """Judge what a store holds once everything was copied."""
        found = {each.number: each for each in read_all(store)}
        last: dict[tuple[str, int], int] = {}
        for number, each in found.items():
            assert number in self.messages, f"message is invented: {each}"
            key = each.topic, each.queue_id
            before = last.get(key, -1)
            assert each.place.queue_offset == before + 1 or before < 0, f"a hole before {each}"
            last[key] = each.place.queue_offset
        for number, message in self.messages.items():
            if message.acknowledged:
                assert number in found, f"acknowledged is lost: message {number}"
                each = found[number]
                place = (each.topic, each.queue_id, *each.place)
                assert place == message.place, f"{each} has moved from {message.place}"


def check_prefix(master: MessageStore, slave: MessageStore, name: str) -> None:
    """Judge the bytes of a slave that follows."""
    position = max(master.min_phy_offset, slave.min_phy_offset)
    end = slave.max_phy_offset
    assert end <= master.max_phy_offset, f"{name} is longer than its master"
    while position < end:
        one = master.log_part(position, end - position)
        other = slave.log_part(position, end - position)
        assert one is not None
        assert other is not None
        size_bytes = min(len(one), len(other))
        if one[:size_bytes] != other[:size_bytes]:
            raise AssertionError(f"the log of {name} differs between {position} and {end}")
        position += size_bytes
