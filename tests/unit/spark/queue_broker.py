"""In-memory queue of a broker, with configurable limits and faults."""

from collections.abc import Callable

from rocketpy.client.cluster.broker_api import PullResult, pull_result
from rocketpy.errors import RocketPyError
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response

MASTER, SLAVE = "10.0.0.1:10911", "10.0.0.2:10911"


def record(offset: int, topic: str = "T", queue_id: int = 0) -> bytes:
    """Return the stored bytes of a message."""
    return encode_message(
        MessageExt(
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            phy_offset=offset * 1000,
            born_host="127.0.0.1:1",
            store_host="127.0.0.1:2",
            body=b"body-%d" % offset,
            properties={"KEYS": f"k{offset}"},
        )
    )


class QueueBroker:
    """Fake broker that answers pulls of one queue, as Apache's broker does.

    Attributes:
        low: of the oldest message.
        high: of the next message.
        per_pull: most messages of a response.
        per_scan: most offsets that a filtered response scans.
        takes: whether the filter matches an offset.
        absent: offsets of missing messages.
        script: called before each response; may return or raise another outcome.
        asked: (address, offset, count) of every pull.
    """

    def __init__(self, low: int = 0, high: int = 100, *, per_pull: int = 32) -> None:
        self.low, self.high, self.per_pull, self.per_scan = low, high, per_pull, 800
        self.takes: Callable[[int], bool] = lambda _: True
        self.absent: set[int] = set()
        self.script: list[int | RocketPyError | None] = []
        self.asked: list[tuple[str, int, int]] = []
        self.slave_high: int | None = None
        self.suggests = 0

    async def pull(
        self, address: str, header: PullMessageRequestHeader, timeout_ms: int
    ) -> PullResult:
        self.asked.append((address, header.queue_offset, header.max_msg_nums))
        step = self.script.pop(0) if self.script else None
        if isinstance(step, RocketPyError):
            raise step
        if step is not None:
            return pull_result(make_response(make_request(11), step, "scripted"))
        return pull_result(self._answer(address, header))

    def _answer(self, address: str, header: PullMessageRequestHeader) -> RemotingCommand:
        start = header.queue_offset
        high = self.high
        if address == SLAVE and self.slave_high is not None:
            high = self.slave_high
        body, following, code = b"", start, ResponseCode.SUCCESS
        if start < self.low:
            code, following = ResponseCode.PULL_OFFSET_MOVED, self.low
        elif start > high:
            code, following = ResponseCode.PULL_OFFSET_MOVED, high
        elif start == high:
            code = ResponseCode.PULL_NOT_FOUND
        else:
            found: list[int] = []
            most = min(self.per_pull, header.max_msg_nums)
            while following < min(high, start + self.per_scan) and len(found) < most:
                if self.takes(following) and following not in self.absent:
                    found.append(following)
                following += 1
            body = b"".join(map(record, found))
            code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        fields = {
            "suggestWhichBrokerId": str(self.suggests),
            "nextBeginOffset": str(following),
            "minOffset": str(self.low),
            "maxOffset": str(high),
        }
        return make_response(make_request(11), code, None, fields, body)
