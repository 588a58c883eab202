"""Calls whose consumer is closed, or whose queue is released, while they await a response."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from rocketpy.client.consumer.offset_store import BrokerOffsetStore, FirstOffsets
from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.consumer.queue_locks import QueueLockKeeper
from rocketpy.client.consumer.rebalance import Balance, Rebalancer
from rocketpy.errors import ClientError, ClosedError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

HEARTBEAT, CHECK_CLIENT_CONFIG, QUERY_OFFSET = 34, 46, 14
ONE, TWO, THREE = (MessageQueue("t", "broker-a", number) for number in range(3))
SQL = {"enablePropertyFilter": "true"}
SEEKS: dict[str, Callable[[Any], Coroutine[Any, Any, None]]] = {
    "seek": lambda consumer: consumer.seek(ONE, 1),
    "begin": lambda consumer: consumer.seek_to_begin([ONE]),
    "begin of all": lambda consumer: consumer.seek_to_begin(),
    "end": lambda consumer: consumer.seek_to_end([ONE]),
    "time": lambda consumer: consumer.seek_to_time([ONE], 1),
}


def loops() -> list[str]:
    """Names of pull loops and periodic jobs of consumers that run."""
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return [each for each in names if each.startswith(("rocketpy-pull-", "rocketpy-rebalance"))]


class Store:
    """Store whose saves wait until they are let through."""

    def __init__(self) -> None:
        self.saved: list[dict[MessageQueue, int]] = []
        self.begun = asyncio.Event()
        self.go = asyncio.Event()

    async def open(self) -> None: ...

    async def load(self, _queue: MessageQueue) -> int | None:
        return None

    async def save(self, offsets: dict[MessageQueue, int], *, final: bool = False) -> None:
        self.begun.set()
        await self.go.wait()
        assert final
        self.saved.append(dict(offsets))


# ---- offsets


async def test_first_offset_noted_during_a_save_is_saved_by_the_next() -> None:
    store = Store()
    offsets = FirstOffsets("g", store)
    await offsets.note(ONE, 5)
    await offsets.note(TWO, 6)
    committing = asyncio.create_task(offsets.commit({}))
    await store.begun.wait()
    await offsets.note(TWO, 7)
    await offsets.note(THREE, 8)
    store.go.set()
    await committing
    assert store.saved == [{ONE: 5, TWO: 6}]
    assert offsets
    await offsets.commit({})
    assert store.saved[1:] == [{TWO: 7, THREE: 8}]
    assert not offsets


async def test_save_does_not_overwrite_a_later_save_of_a_queue() -> None:
    sent: list[tuple[MessageQueue, int]] = []
    first_sent, go = asyncio.Event(), asyncio.Event()

    async def update_offset(
        _address: str, _group: str, queue: MessageQueue, offset: int, *, oneway: bool
    ) -> None:
        sent.append((queue, offset))
        if queue == ONE:
            first_sent.set()
            await go.wait()

    instance: Any = SimpleNamespace(
        routes=SimpleNamespace(read_address=lambda _: ("a", False)),
        api=SimpleNamespace(update_offset=update_offset),
    )
    store = BrokerOffsetStore(instance, "g")
    saving = asyncio.create_task(store.save({ONE: 1, TWO: 2}))
    await first_sent.wait()
    await store.save({TWO: 9}, final=True)
    go.set()
    await saving
    assert sent == [(ONE, 1), (TWO, 9)]


async def test_save_of_a_queue_waits_for_the_response_to_the_one_before() -> None:
    """A reset and the commit after it: the broker may process requests at the same time swapped."""
    sent: list[int] = []
    is_stored = asyncio.Event()

    async def update_offset(*words: Any, oneway: bool) -> None:
        assert not oneway
        sent.append(words[-1])
        if words[-1] == 0:
            await is_stored.wait()

    instance: Any = SimpleNamespace(
        routes=SimpleNamespace(read_address=lambda _: ("a", False)),
        api=SimpleNamespace(update_offset=update_offset),
    )
    store = BrokerOffsetStore(instance, "g")
    saves = []
    for offset in (0, 3):
        saves.append(asyncio.create_task(store.save({ONE: offset}, final=True)))
        for _ in range(5):
            await asyncio.sleep(0)
    assert sent == [0]
    is_stored.set()
    await asyncio.gather(*saves)
    assert sent == [0, 3]


# ---- seeks


@pytest.mark.parametrize("how", SEEKS)
@pytest.mark.parametrize("end", ["close", "release"])
def test_pull_seek_raises_when_its_queue_is_given_up_meanwhile(how: str, end: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([ONE])
                cluster.latency_ms = 500
                seeking = asyncio.create_task(SEEKS[how](consumer))
                await pass_time(0.1)
                await (consumer.close() if end == "close" else consumer.assign([]))
                with pytest.raises(ClosedError if end == "close" else ClientError) as caught:
                    await seeking
                if end == "release":
                    assert "not assigned" in str(caught.value)
                assert consumer.assignment == []
                assert consumer.position(ONE) is None
                assert loops() == []

    run_sim(main, queues=1)


@pytest.mark.parametrize("end", ["close", "release"])
def test_push_seek_raises_when_its_queue_is_given_up_meanwhile(end: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                cluster.latency_ms = 500
                seeking = asyncio.create_task(consumer.seek(ONE, 1))
                await pass_time(0.1)
                if end == "close":
                    await consumer.close()
                    with pytest.raises(ClosedError):
                        await seeking
                    assert loops() == []
                else:
                    await consumer._release(consumer._readers.queues[ONE])  # as a round does
                    with pytest.raises(ClientError, match="not assigned"):
                        await seeking
                assert ONE not in consumer.assignment

    run_sim(main, queues=1)


def test_push_seek_during_a_release_has_its_offset_stored() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)

        async def revoked(queues: list[MessageQueue]) -> None:
            await consumer.seek(ONE, 1)
            cluster.offsets["c", "broker-a", "t", 0] = 0  # the release stores it again

        async with cluster.client() as client:
            async with client.consumer(
                "t", group="c", start="earliest", handler=nothing, on_revoked=revoked
            ) as consumer:
                await until(lambda: consumer.health().queues[ONE].lag == 0)
                del consumer._subscriptions["t"]
                consumer._wake()
                await until(lambda: ONE not in consumer.assignment)
                await pass_time(1)
                assert cluster.offsets["c", "broker-a", "t", 0] == 1

    run_sim(main, queues=1)


def test_restart_begins_no_queue_that_is_not_read() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                assert not consumer._readers.restart(ONE, 0)
                assert consumer.assignment == []

    run_sim(main, queues=1)


def test_restart_of_a_queue_whose_pulls_were_stopped_begins_no_loop() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([ONE])
                readers = consumer._readers
                readers.queues[ONE].closing = True
                await readers.stop_pulling([ONE])
                assert readers.restart(ONE, 0)
                assert loops() == []
                assert readers.queues[ONE].closing, "it is still being released"
                assert readers.queues[ONE].commit_offset == 0

    run_sim(main, queues=1)


# ---- assign, subscribe, start


def test_assign_begins_no_queue_after_a_close_during_its_requests() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = client.pull_consumer(group="p", start="earliest")
            await consumer.start()
            await consumer.queues("t")
            cluster.latency_ms = 500
            assigning = asyncio.create_task(consumer.assign([ONE]))
            await until(lambda: cluster.of_code(QUERY_OFFSET))
            await consumer.close()
            with pytest.raises(ClosedError):
                await assigning
            assert consumer.assignment == []
            assert loops() == []

    run_sim(main, queues=1)


def test_assign_calls_at_the_same_time_leave_the_queues_of_the_last() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await asyncio.gather(
                    consumer.assign([ONE, TWO]), consumer.assign([TWO]), consumer.assign([TWO])
                )
                assert consumer.assignment == [TWO]

    run_sim(main, queues=2)


def test_assign_and_subscribe_at_the_same_time_are_not_mixed() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                subscribing = asyncio.create_task(consumer.subscribe("t"))
                with pytest.raises(ClientError, match="cannot be mixed"):
                    await asyncio.gather(consumer.assign([ONE]), subscribing)
                await asyncio.wait([subscribing])

    run_sim(main)


@pytest.mark.parametrize("code", [CHECK_CLIENT_CONFIG, HEARTBEAT])
def test_subscribe_does_not_join_after_a_close_during_its_requests(code: int) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = client.pull_consumer(group="p")
            await consumer.start()
            cluster.latency_ms = 500
            subscribing = asyncio.create_task(consumer.subscribe("t", sql="a = 1"))
            await until(lambda: cluster.of_code(code))
            await consumer.close()
            with pytest.raises(ClosedError):
                await subscribing
            assert client.health().consumers == {}
            assert cluster.members("p") == []
            assert loops() == []

    run_sim(main, properties=SQL)


@pytest.mark.parametrize("code", [CHECK_CLIENT_CONFIG, HEARTBEAT])
@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_start_does_not_join_after_a_close_during_its_requests(kind: str, code: int) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = getattr(client, kind)("t", group="c", sql="a = 1", handler=nothing)
            cluster.latency_ms = 500
            starting = asyncio.create_task(consumer.start())
            await until(lambda: cluster.of_code(code))
            await consumer.close()
            with pytest.raises(ClosedError):
                await starting
            assert client.health().consumers == {}
            assert cluster.members("c") == []
            assert consumer.assignment == []
            assert all(job._task is None for job in consumer._jobs)

    run_sim(main, properties=SQL)


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_start_called_twice_and_subscribe_meanwhile_join_once(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = getattr(client, kind)("t", group="c", sql="a = 1", handler=nothing)
            cluster.latency_ms = 100
            starting = [asyncio.create_task(consumer.start()) for _ in range(2)]
            await until(lambda: cluster.of_code(CHECK_CLIENT_CONFIG))
            consumer.subscribe("u")
            await asyncio.gather(*starting)
            assert cluster.members("c") == [client.client_id]
            await consumer.close()

    run_sim(main, topics=("t", "u"), properties=SQL)


def test_read_that_is_closed_during_its_first_requests_leaves_no_reader() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            messages: Any = client.read("t", until=None)
            cluster.latency_ms = 500
            reading = asyncio.ensure_future(anext(messages, None))
            await pass_time(0.7)
            await messages.aclose()
            assert await reading is None
            assert not client._parts
            assert loops() == []

    run_sim(main, queues=1)


# ---- rounds and locks


def make_rebalancer(
    owned: Mapping[MessageQueue, ProcessQueue],
    release: Callable[[ProcessQueue], Coroutine[Any, Any, bool]],
    served: list[MessageQueue],
) -> Rebalancer:
    async def subscribe_queues(_topic: str) -> list[MessageQueue]:
        return served

    async def note_queues(_topic: str, _queues: Any) -> None:
        pass

    async def acquire(_queue: MessageQueue) -> bool:
        return True

    instance: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        routes=SimpleNamespace(subscribe_queues=subscribe_queues, read_address=lambda _: None),
    )
    return Rebalancer(
        instance,
        "g",
        None,
        owned,
        note_queues=note_queues,
        acquire=acquire,
        release=release,
        takeover_pause_ms=0,
    )


@pytest.mark.parametrize("topics", [[], ["t"]], ids=["unsubscribed", "subscribed"])
def test_round_releases_queues_as_they_are_after_earlier_releases(topics: list[str]) -> None:
    async def main() -> None:
        owned = {each: ProcessQueue(each, Limits()) for each in (ONE, TWO, THREE)}
        replacement = ProcessQueue(THREE, Limits())
        released: list[ProcessQueue] = []

        async def release(entry: ProcessQueue) -> bool:
            released.append(entry)
            owned.pop(entry.queue)
            if entry.queue == ONE:
                owned.pop(TWO)
                owned[THREE] = replacement
            return True

        others = [MessageQueue("t", "broker-b", 0)]
        assert await make_rebalancer(owned, release, others).round(topics) is Balance.COMPLETE
        assert [each.queue for each in released] == [ONE, THREE]
        assert released[1] is replacement

    asyncio.run(main())


async def test_lock_renewal_leaves_out_queues_released_meanwhile() -> None:
    other = MessageQueue("t", "broker-b", 0)
    queues = {each: ProcessQueue(each, Limits()) for each in (ONE, other)}
    locked: list[set[MessageQueue]] = []

    async def lock_queues(
        _address: str, _group: str, _client_id: str, asked: set[MessageQueue]
    ) -> set[MessageQueue]:
        locked.append(asked)
        queues.pop(other, None)  # released while the first broker answers
        return asked

    async def introduce_to(_address: str) -> bool:
        return True

    instance: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        client_id="i",
        introduce_to=introduce_to,
        disconnects=lambda _address: 0,
        routes=SimpleNamespace(master_address=lambda name: name, replicas=lambda name: {0: name}),
        api=SimpleNamespace(lock_queues=lock_queues),
    )
    await QueueLockKeeper(instance, "g", queues, lambda: None).renew()
    assert locked == [{ONE}]
