"""Offsets are kept where they belong, also when the disk or the broker does not take them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketpy.client.consumer.offset_store import LocalOffsetStore
from rocketpy.errors import ConfigError, OffsetFileError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.clock import SystemClock
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

ONE, TWO = (MessageQueue("t", "broker-a", n) for n in range(2))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "group" / "offsets.json"


async def test_offsets_come_back_from_the_file(path: Path) -> None:
    await LocalOffsetStore(path, SystemClock()).save({ONE: 5, TWO: 6})

    again = LocalOffsetStore(path, SystemClock())

    assert await again.load(ONE) == 5
    assert await again.load(TWO) == 6
    assert await again.load(MessageQueue("u", "broker-a", 0)) is None


async def test_save_before_any_load_keeps_what_the_file_has(path: Path) -> None:
    await LocalOffsetStore(path, SystemClock()).save({ONE: 5})
    await LocalOffsetStore(path, SystemClock()).save({TWO: 6})

    assert await LocalOffsetStore(path, SystemClock()).load(ONE) == 5


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10])


async def test_torn_file_is_replaced_by_the_one_before(path: Path) -> None:
    store = LocalOffsetStore(path, SystemClock())
    await store.save({ONE: 5})
    await store.save({ONE: 6})
    tear(path)

    assert await LocalOffsetStore(path, SystemClock()).load(ONE) == 5


def damage_all(directory: Path, content: bytes) -> None:
    for each in directory.rglob("offsets.json*"):
        each.write_bytes(content)


def remove_all(directory: Path) -> None:
    for each in directory.rglob("offsets.json*"):
        each.unlink()


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


DAMAGES = [b"", b"[1]", b"null", b"{}", b'{"offsetTable"', b"\0" * 90]


@pytest.mark.parametrize("damage", DAMAGES, ids=repr)
async def test_first_saved_file_that_is_damaged_is_replaced_by_its_copy(
    path: Path, damage: bytes
) -> None:
    await LocalOffsetStore(path, SystemClock()).save({ONE: 5})
    put(path, damage)

    store = LocalOffsetStore(path, SystemClock())
    await store.open()

    assert await store.load(ONE) == 5


@pytest.mark.parametrize("damage", DAMAGES, ids=repr)
@pytest.mark.parametrize("has_copy", [True, False])
async def test_damaged_file_without_a_good_copy_is_an_error(
    path: Path, damage: bytes, has_copy: bool
) -> None:
    await LocalOffsetStore(path, SystemClock()).save({ONE: 5})
    if not has_copy:
        remove_all(path.parent)
        put(path, damage)
    damage_all(path.parent, damage)

    store = LocalOffsetStore(path, SystemClock())
    with pytest.raises(OffsetFileError, match=r"offsets\.json .* delete both") as caught:
        await store.open()
    assert not caught.value.retriable
    with pytest.raises(OffsetFileError):
        await store.save({ONE: 6})
    with pytest.raises(OffsetFileError):
        await LocalOffsetStore(path, SystemClock()).open()

    remove_all(path.parent)
    await store.open()
    assert await store.load(ONE) is None


async def test_damaged_file_does_not_replace_its_copy(path: Path) -> None:
    await LocalOffsetStore(path, SystemClock()).save({ONE: 5})
    tear(path)
    await LocalOffsetStore(path, SystemClock()).save({ONE: 6})

    tear(path)

    assert await LocalOffsetStore(path, SystemClock()).load(ONE) == 5


def test_broadcasting_consumer_with_damaged_offsets_does_not_start(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        options = {**broadcast(tmp_path), "handler": lambda _: None}
        async with cluster.client() as client:
            async with client.consumer("t", **options) as consumer:
                await until(lambda: len(consumer.assignment) == 4)
                await until(lambda: any(tmp_path.rglob("*.json")))
        damage_all(tmp_path, b"[1]")
        async with cluster.client() as client:
            consumer = client.consumer("t", **{**options, "start": "latest"})
            with pytest.raises(OffsetFileError, match="delete both"):
                await consumer.start()
            assert not cluster.members("c")

    run_sim(main)


async def test_disk_that_refuses_is_a_typed_error_and_the_next_save_tries_again(
    path: Path,
) -> None:
    path.parent.write_text("a file where the directory should be")
    store = LocalOffsetStore(path, SystemClock())
    with pytest.raises(OffsetFileError, match=r"offsets\.json") as caught:
        await store.save({ONE: 5})
    assert caught.value.retriable

    path.parent.unlink()
    await store.save({ONE: 5})

    assert await LocalOffsetStore(path, SystemClock()).load(ONE) == 5


def broadcast(tmp_path: Path) -> dict[str, Any]:
    return {"group": "c", "broadcast": True, "offset_dir": str(tmp_path), "start": "earliest"}


def test_broadcasting_member_continues_at_its_offset_after_a_restart(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        got: list[bytes] = []

        async def handler(message: object) -> None:
            got.append(message.body)  # type: ignore[attr-defined]

        for _ in range(2):
            async with cluster.client() as client:
                consumer = client.consumer("t", handler=handler, **broadcast(tmp_path))
                async with consumer:
                    await until(lambda c=consumer: len(c.assignment) == 4)
                    await until(lambda: len(got) >= 4)
                    await pass_time(2)
        assert len(got) == 4

    run_sim(main)


@pytest.mark.parametrize("is_made_again", [True, False])
def test_broadcasting_member_that_was_away_reads_a_topic_made_again_from_its_first_message(
    tmp_path: Path,
    *,
    is_made_again: bool,
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 12)
        got: list[bytes] = []

        async def handler(message: object) -> None:
            got.append(message.body)  # type: ignore[attr-defined]

        async def read(count: int) -> None:
            async with cluster.client() as client:
                async with client.consumer("t", handler=handler, **broadcast(tmp_path)):
                    await until(lambda: len(got) >= count)
                    await pass_time(20)

        await read(12)
        await pass_time(60)
        if is_made_again:
            cluster.store().delete_topics(["t"])
        # More and fewer messages than the offset in the file.
        for number in range(7):
            cluster.put("t", b"new %d" % number, queue_id=int(number > 4))
        await read(19)
        assert sorted(got[12:]) == [b"new %d" % number for number in range(7)]

    run_sim(main)


def break_directory(directory: Path) -> None:
    home = next(directory.iterdir())
    shutil.rmtree(home)
    home.write_text("a file where the directory should be")


def test_consumer_closes_although_its_offsets_cannot_be_written(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        got: list[bytes] = []

        async def handler(message: object) -> None:
            got.append(message.body)  # type: ignore[attr-defined]

        async with cluster.client() as client:
            consumer = client.consumer("t", handler=handler, **broadcast(tmp_path))
            await consumer.start()
            await until(lambda: len(got) == 4 and any(tmp_path.rglob("*.json")))
            break_directory(tmp_path)
            cluster.put("t", b"one more")
            await until(lambda: len(got) == 5)
            await until(lambda: "OffsetFileError" in str(consumer.health().failures))
            await consumer.close()
            assert not cluster.members("c")

    run_sim(main)


def test_broker_gets_each_offset_once() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)

        async def handler(message: object) -> None:
            return None

        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", handler=handler):
                await pass_time(60)
        stored = [r.ext_fields for r in cluster.of_code(15) if r.ext_fields["topic"] == "t"]
        assert len([fields for fields in stored if fields["commitOffset"] == "2"]) == 2

    run_sim(main, queues=1)


@pytest.mark.parametrize("directory", ["~/offsets", "${HOME}/offsets", "/a;/b"])
def test_offset_directory_that_nothing_expands_is_refused(directory: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="offset_dir: "):
                client.consumer("t", group="c", broadcast=True, offset_dir=directory)
            client.consumer("t", group="d", offset_dir=directory)  # not used

    run_sim(main)
