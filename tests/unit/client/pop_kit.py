"""Environment of a pop consumer's parts without a cluster: a broker with scripted answers."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, TypeVar

from rocketpy.client.messages.outcomes import Backoff
from rocketpy.client.messages.serializers import PLAIN
from rocketpy.client.pop.invisible_messages import InvisibleMessages
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.proto.headers.send import ConsumerSendMsgBackRequestHeader
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.testing.sim_loop import LoopClock, SimLoop

T = TypeVar("T")

ACK, CHANGE, POP = 200051, 200053, 200050
AT = "10.0.0.1:10911"
INVISIBLE_MS = 60_000


class Broker:
    """Answers requests by code: with an exception, a code, or fields and a body; else success."""

    def __init__(self) -> None:
        self.script: dict[int, list[Any]] = defaultdict(list)
        self.asked: list[tuple[str, RemotingCommand]] = []
        self.timeouts: list[int] = []

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        self.asked.append((address, command))
        self.timeouts.append(timeout_ms)
        steps = self.script[command.code]
        step = steps.pop(0) if steps else None
        if isinstance(step, Awaitable):
            step = await step
        if isinstance(step, BaseException):
            raise step
        if isinstance(step, int):
            return make_response(command, step, "scripted")
        fields, body = step or ({}, b"")
        if command.code == CHANGE:
            changed = {"popTime": "5000", "invisibleTime": command.ext_fields["invisibleTime"]}
            fields = {**changed, "reviveQid": "7", **fields}
        return make_response(command, 0, None, fields, body)

    def of_code(self, code: int) -> list[dict[str, str]]:
        return [command.ext_fields for _, command in self.asked if command.code == code]


class Instance:
    """The shared part of a client, as far as popping needs it."""

    def __init__(self, clock: LoopClock) -> None:
        self.clock = clock
        self.client_id = "10.0.0.1@7"
        self.remoting = Broker()
        self.config = SimpleNamespace(namespace="")
        self.masters: dict[str, str] = {"b": AT}
        self.routes = SimpleNamespace(master_address=self.masters.get)
        self.api = SimpleNamespace(send_back=self._send_back)
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.send_back_failures: list[BaseException] = []
        self.refreshes = 0

    def refresh_routes_soon(self) -> None:
        self.refreshes += 1

    async def _send_back(self, address: str, header: ConsumerSendMsgBackRequestHeader) -> None:
        assert address == AT
        if self.send_back_failures:
            raise self.send_back_failures.pop(0)
        self.sent_back.append(header)


class Kit:
    """A hand, its broker and its time."""

    def __init__(
        self, *, max_messages: int = 3, max_retries: int = 16, backoff: Backoff | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.clock = LoopClock(loop)
        self.instance = Instance(self.clock)
        self.broker = self.instance.remoting
        self.hand = InvisibleMessages(
            self.instance,  # type: ignore[arg-type]
            "g",
            max_messages=max_messages,
            max_retries=max_retries,
            serializer=PLAIN,
            backoff=backoff,
        )

    def take(self, offset: int = 0, *, retries: int = 0, revive: int = 2) -> PoppedMessage:
        return self.hand.take(stored(offset, retries=retries, revive=revive), "b", INVISIBLE_MS)


def stored(offset: int = 0, *, retries: int = 0, revive: int = 2, tag: str = "") -> MessageExt:
    """A message as a pop brings it, with its handle."""
    properties = {"POP_CK": f"0 1000 {INVISIBLE_MS} {revive} 0 b 3 {offset}", "UNIQ_KEY": "ID"}
    return MessageExt(
        topic="T",
        queue_id=3,
        queue_offset=offset,
        phy_offset=900 + offset,
        reconsume_times=retries,
        body=b"%d" % offset,
        born_host="127.0.0.1:1",
        store_host="127.0.0.1:2",
        properties={**properties, "TAGS": tag} if tag else properties,
    )


def popped(*messages: MessageExt) -> tuple[dict[str, str], bytes]:
    """The response to a pop that found messages."""
    body = b"".join(
        encode_message(each, properties=encode_properties(each.properties)) for each in messages
    )
    fields = {
        "popTime": "1000",
        "invisibleTime": str(INVISIBLE_MS),
        "reviveQid": "2",
        "restNum": "0",
        "startOffsetInfo": "0 3 0",
    }
    return fields, body


def run(case: Callable[[], Awaitable[T]]) -> T:
    """Run a case in simulated time."""
    loop = SimLoop(1)  # type: ignore[abstract] # as in run_simulation

    async def main() -> T:
        return await case()

    try:
        return loop.run_until_complete(main())
    finally:
        loop.end_tasks()
        loop.close()
