"""Sends of clients to a group and their answers, and the check of all stores against them."""

import asyncio
import itertools
import struct
import zlib
from collections import defaultdict
from typing import Protocol

import rocketpy
from rocketpy.client.sending.result import SendStatus
from rocketpy.errors import RocketPyError
from rocketpy.proto.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt, decode_messages
from rocketpy.proto.record.sys_flag import PULL_SUBSCRIPTION
from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.replication.group import MASTER, Group

TOPIC = "history"
QUEUES = 4
_BODY = struct.Struct(">HIH")
_READ_GROUP = "history-readers"
_PAUSE_S = 0.02


class Addresses(Protocol):
    """Group, as the check of a queue sees it."""

    def address(self, name: str) -> str:
        """Return `host:port` of a broker."""
        ...


class History:
    """Sends of a run.

    Attributes:
        acknowledged: queue offset of each message that was answered SEND_OK, by queue and number.
        ids: of these messages, with the address of the broker and the physical offset.
        sent: number of messages sent to each queue.
        uncertain: number of answers that promise nothing (12), and of errors.
    """

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, int]] = {each: {} for each in range(QUEUES)}
        self.ids: dict[int, dict[int, str]] = {each: {} for each in range(QUEUES)}
        self.sent: dict[int, int] = defaultdict(int)
        self.uncertain = 0
        self._checked: dict[tuple[str, int], int] = defaultdict(int)
        self._numbers: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._seen: dict[tuple[str, int], set[int]] = defaultdict(set)
        self._last: dict[tuple[str, int], int] = defaultdict(lambda: -1)
        self._returned: dict[int, int] = defaultdict(int)
        self._compared = 0

    @property
    def count(self) -> int:
        """Number of acknowledged messages."""
        return sum(map(len, self.acknowledged.values()))

    def new_ids(self) -> list[str]:
        """Return the ids of messages that were acknowledged since the last call."""
        found: list[str] = []
        for queue_id, ids in self.ids.items():
            found += itertools.islice(ids.values(), self._returned[queue_id], None)
            self._returned[queue_id] = len(ids)
        return found

    async def send(self, producer: rocketpy.Producer, queue_id: int, stop: asyncio.Event) -> None:
        """Send messages to a queue, one after the other, until `stop` is set."""
        queue = MessageQueue(TOPIC, "broker-a", queue_id)
        while not stop.is_set():
            number = self.sent[queue_id]
            self.sent[queue_id] = number + 1
            try:
                result = await producer.send(
                    TOPIC, _body(queue_id, number), queue=queue, retries=0, timeout=4.0
                )
            except RocketPyError:
                self.uncertain += 1
                await asyncio.sleep(_PAUSE_S)
                continue
            if result.status is SendStatus.SEND_OK:
                self.ids[queue_id][number] = result.offset_msg_id
                self.acknowledged[queue_id][number] = result.offset
            else:
                self.uncertain += 1

    def check(self, group: Group, end: int) -> None:
        """Compare all stores of a group that is in sync with what was answered.

        Raises:
            AssertionError: a message is lost, doubled, invented or out of order, or logs differ.
        """
        for name in group.slaves:
            ours = group.log_bytes(name, self._compared, end)
            assert ours == group.log_bytes(MASTER, self._compared, end), f"{name}: another log"
        self._compared = end
        for name, queue_id in itertools.product(group.brokers, range(QUEUES)):
            self.read(group, name, queue_id)

    def read(self, group: "Addresses", name: str, queue_id: int) -> None:
        """Read on in a queue of one broker, and compare it with what was answered.

        Raises:
            AssertionError: a message is lost, doubled, invented or out of order.
        """
        numbers = self._numbers[name, queue_id]
        offset = self._checked[name, queue_id]
        for message in read_queue(group.address(name), queue_id, offset):
            assert message.queue_offset == offset, f"{name}: queue {queue_id}: a gap at {offset}"
            offset += 1
            number = number_of(message.body, queue_id)
            assert number < self.sent[queue_id], f"{name}: invented message {number}"
            assert number not in self._seen[name, queue_id], f"{name}: {number} twice"
            self._seen[name, queue_id].add(number)
            # A request without an answer may arrive on a lost connection after later ones.
            if number in self.acknowledged[queue_id]:
                last = self._last[name, queue_id]
                assert number > last, f"{name}: queue {queue_id}: {number} after {last}"
                self._last[name, queue_id] = number
                assert message.offset_msg_id == self.ids[queue_id][number], (
                    f"{name}: queue {queue_id}: {number} is the message of another master or place"
                )
            numbers.append(number)
        self._checked[name, queue_id] = offset
        for number, expected in self.acknowledged[queue_id].items():
            found = numbers[expected] if expected < len(numbers) else None
            assert found == number, f"{name}: queue {queue_id}: lost {number} at {expected}"


def _body(queue_id: int, number: int) -> bytes:
    # Sizes differ, so that records end at all distances from the ends of frames and files.
    filler = b"x" * (number * 37 % 1_500)
    head = _BODY.pack(queue_id, number, len(filler))
    return head + filler + zlib.crc32(head + filler).to_bytes(4, "big")


def number_of(body: bytes, queue_id: int) -> int:
    assert zlib.crc32(body[:-4]).to_bytes(4, "big") == body[-4:], "a body that was never sent"
    queue, number, _ = _BODY.unpack_from(body)
    assert queue == queue_id, f"message of queue {queue} in queue {queue_id}"
    return int(number)


def read_queue(address: str, queue_id: int, offset: int) -> list[MessageExt]:
    """Return the messages of a queue from an offset on."""
    found: list[MessageExt] = []
    with Wire(address) as peer:
        while True:
            header = PullMessageRequestHeader(
                consumer_group=_READ_GROUP, topic=TOPIC, queue_id=queue_id, queue_offset=offset,
                max_msg_nums=32, sys_flag=PULL_SUBSCRIPTION, commit_offset=0,
                suspend_timeout_millis=0, subscription="*", sub_version=0,
            )  # fmt: skip
            response = peer.call(RequestCode.PULL_MESSAGE, header.to_ext())
            if response.code != 0:
                return found
            found += decode_messages(response.body)
            header_found = PullMessageResponseHeader.from_ext(response.ext_fields)
            offset = header_found.next_begin_offset
