"""For any mix of sends with linger, each caller's bodies are stored once and unchanged."""

import asyncio
from collections import defaultdict
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import rocketpy
from rocketpy.client.producer.producer import Producer
from rocketpy.client.sending.result import SendResult
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim

QUEUES = [MessageQueue("t", "broker-a", number) for number in (0, 1)]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"tag": "a", "keys": ["k"], "headers": {"h": "1"}, "flag": 5},
    {"queue": QUEUES[0]},
    {"queue": QUEUES[1]},
    {"queue": QUEUES[1], "timeout": 2},
    {"order_key": "k"},
    {"selector": lambda queues: queues[-1]},
    {"timeout": 2},
    {"retries": 0},
    {"delay": 1},
    {"delay_level": 1},
]
DELAYED = 9
SENDS = st.tuples(
    st.sampled_from(["send", "nowait", "batch", "half", "oneway"]),
    st.integers(0, len(OPTIONS) - 1),
    st.integers(1, 3),  # messages of a batch
    st.sampled_from([1, 1, 1, 1_500]),  # a long body is compressed
    st.sampled_from([0, 0, 0, 0.002, 0.02]),  # pause after it
)
Stored = dict[str, bytes]


class Mix:
    """Starts sends of all kinds, and records what each of them sent."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.by_id: Stored = {}
        self.bodies: list[bytes] = []
        self.in_queue: dict[MessageQueue, list[asyncio.Future[SendResult]]] = defaultdict(list)

    def body(self, repeats: int) -> bytes:
        self.bodies.append(b"body %d;" % len(self.bodies) * repeats)
        return self.bodies[-1]

    def begin(self, kind: str, option: int, count: int, repeats: int) -> asyncio.Future[Any] | None:
        options = OPTIONS[option]
        if kind in ("batch", "half") and option >= DELAYED:
            options = {}
        if kind == "batch":
            bodies = [self.body(repeats) for _ in range(count)]
            return asyncio.ensure_future(self.batch(bodies, options))
        body = self.body(repeats)
        if kind == "half":
            return asyncio.ensure_future(self.half(body, options))
        if kind == "oneway":
            self.producer.send_oneway("t", body, **options)
            return None
        if kind == "nowait":
            sent = self.producer.send_nowait("t", body, **options)
            if "queue" in options:
                self.in_queue[options["queue"]].append(sent)
        else:
            sent = asyncio.ensure_future(self.producer.send("t", body, **options))
        return asyncio.ensure_future(self.single(sent, body))

    async def single(self, sent: asyncio.Future[SendResult], body: bytes) -> None:
        self.by_id[(await sent).msg_id] = body

    async def batch(self, bodies: list[bytes], options: dict[str, Any]) -> None:
        results = await self.producer.send_batch("t", bodies, **options)
        self.by_id.update(zip([each.msg_id for each in results], bodies, strict=True))

    async def half(self, body: bytes, options: dict[str, Any]) -> None:
        async with self.producer.transaction("t", body, **options) as transaction:
            self.by_id[transaction.id] = body


@given(sends=st.lists(SENDS, min_size=1, max_size=12), linger_messages=st.sampled_from([2, 500]))
# An example takes a tenth of a second or more, so that shrinking would take minutes.
@settings(max_examples=12, phases=[Phase.explicit, Phase.generate])
def test_mix_of_sends_with_linger_stores_each_body_for_its_caller_and_in_order(
    sends: list[tuple[str, int, int, int, float]], linger_messages: int
) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(group="shop") as client:
            producer = client.producer(
                linger=0.005,
                linger_messages=linger_messages,
                tx_checker=lambda _: rocketpy.TxState.COMMIT,
            )
            await producer.send("t", b"warm", timeout=3)
            mix = Mix(producer)
            begun = []
            for kind, option, count, repeats, pause in sends:
                begun.append(mix.begin(kind, option, count, repeats))
                if pause:
                    await pass_time(pause)
            await asyncio.gather(*(each for each in begun if each is not None))
            await producer.flush()
            await pass_time(10)  # the delayed ones are due
            found = [(message.id, message.body) async for message in client.read("t")]
        assert sorted(body for _, body in found) == sorted([b"warm", *mix.bodies])
        stored = dict(found)
        assert {msg_id: stored.get(msg_id) for msg_id in mix.by_id} == mix.by_id
        for futures in mix.in_queue.values():
            offsets = [each.result().offset for each in futures]
            assert offsets == sorted(offsets)

    run_sim(main)
