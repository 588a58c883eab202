"""Reading from a whole broker: beside retention, with a filter that takes nothing, off the loop."""

import threading
import time
from pathlib import Path
from typing import Any

from rocketpy.broker.broker import Broker
from rocketpy.proto.record.message import BatchItem, decode_messages, encode_batch
from rocketpy.proto.wire.fastjson import loads
from tests.bad_input.kit import send_header
from tests.integration.broker.test_broker import Peer, make_broker


async def started(path: Path, **store: Any) -> tuple[Broker, Peer]:
    broker = make_broker(path, **store)
    await broker.start()
    return broker, Peer(broker.address)


async def stopped(broker: Broker, peer: Peer) -> None:
    await peer.client.close()
    await broker.stop()


async def test_pull_whose_files_are_deleted_while_it_reads(tmp_path: Path) -> None:
    """The messages of a pull stay readable until its response is encoded."""
    broker, peer = await started(tmp_path, file_reserved_time=0)
    store: Any = broker.parts.store
    (retention,) = (one for one in store.services if one.name == "CleanCommitLogService")

    def then_delete(read: Any) -> Any:
        def read_then_delete(*args: Any, **named: Any) -> Any:
            result = read(*args, **named)
            store.delete_expired_files()
            now_ms = time.monotonic_ns() // 1_000_000
            while store.min_phy_offset == 0:
                now_ms = max(retention.step(now_ms), now_ms + 1)
            return result

        return read_then_delete

    try:
        bodies = [bytes([65 + number]) * 400_000 for number in range(6)]
        for body in bodies:
            assert (await peer.send(body)).code == 0
        # With the compiled path, and without it.
        store.reader.begin_plain = then_delete(store.reader.begin_plain)
        store.get_message = then_delete(store.get_message)
        response = await peer.pull(0)
        assert response.code == 0
        found = [one.body for one in decode_messages(response.body)]
        assert found
        assert found == bodies[: len(found)]
        assert store.min_phy_offset > 0, "and yet its file is gone"
        again = decode_messages((await peer.pull(0)).body)
        assert bodies[0] not in [one.body for one in again]
    finally:
        await stopped(broker, peer)


async def test_tag_that_matches_nothing_costs_little_at_a_time(tmp_path: Path) -> None:
    """The work of one pull is bounded for any batch size; the next pull continues it."""
    broker, peer = await started(tmp_path, mapped_file_size_consume_queue=600_000)
    try:
        many = encode_batch([BatchItem(0, b"x", b"TAGS\1other\2")] * 10_000)
        assert (await peer.call(320, {**send_header("T"), "m": "true"}, many)).code == 0
        offset, pulls = 0, 0
        while offset < 10_000:
            response = await peer.pull(offset, subscription="none", maxMsgNums=str(2**31 - 1))
            assert response.code == 20
            moved = int(response.ext_fields["nextBeginOffset"]) - offset
            assert 0 < moved <= 1_024
            offset += moved
            pulls += 1
        assert pulls >= 10
    finally:
        await stopped(broker, peer)


async def test_look_up_by_key_runs_beside_the_loop(tmp_path: Path) -> None:
    """With the settings a broker starts with: reading an index may take long."""
    broker, peer = await started(tmp_path)
    store: Any = broker.parts.store
    look_up = store.query_index
    threads: list[int] = []

    def noted(*args: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return look_up(*args, **options)

    store.query_index = noted
    try:
        await peer.send(b"found", properties="KEYS\1k\2UNIQ_KEY\1u\2")
        header = {"topic": "T", "key": "k", "maxNum": "9", "beginTimestamp": "0"}
        response = await peer.call(12, {**header, "endTimestamp": str(2**62)})
        assert [one.body for one in decode_messages(response.body)] == [b"found"]
        assert threads
        assert threading.get_ident() not in threads
    finally:
        await stopped(broker, peer)


def written_offsets(path: Path) -> set[str]:
    (file,) = path.rglob("consumerOffset.json")
    content: Any = loads(file.read_bytes())
    return set(content["offsetTable"])


async def test_topic_that_is_deleted_leaves_no_offsets_behind(tmp_path: Path) -> None:
    """Not even when the broker had no time to write anything after the deletion."""
    broker, peer = await started(tmp_path)
    try:
        await peer.send(b"x")
        await peer.heartbeat()
        header = {"topic": "T", "consumerGroup": "g", "queueId": "0", "commitOffset": "1"}
        assert (await peer.call(15, header)).code == 0
        broker.parts.offsets.persist()
        assert written_offsets(tmp_path) == {"T@g"}
        assert (await peer.call(215, {"topic": "T"})).code == 0
        assert written_offsets(tmp_path) == set()
    finally:
        await stopped(broker, peer)
