"""Plain records that the index missed: what is put compiled, and where the rest goes."""

from pathlib import Path

import pytest

from rocketpy.store.index.index_file import IndexFile
from rocketpy.store.message_store import MessageStore
from rocketpy.store.recovery.bulk_recovery import compiled_records
from rocketpy.store.recovery.index_catch_up import BulkReplay, IndexCatchUpService, Replayed
from rocketpy.store.results import PutMessage
from tests.unit.store.store_kit import OK, Kit

FOREVER = (1 << 63) - 1
pytestmark = pytest.mark.skipif(compiled_records() is None, reason="runs as pure Python")


def put(store: MessageStore, topic: str, key: str) -> int:
    properties = f"UNIQ_KEY\x01{key}\x02KEYS\x01all {key}-two\x02TAGS\x01tag\x02".encode()
    result = store.put_message(
        PutMessage(topic, 0, b"body", properties, uniq_key=key, keys=f"all {key}-two", tags="tag")
    )
    assert result.status is OK
    return result.phy_offset


def catch_up(store: MessageStore) -> IndexCatchUpService:
    found = next(each for each in store.services if each.name == "IndexCatchUpService")
    assert isinstance(found, IndexCatchUpService)
    return found


def killed_without_index(topics: list[str]) -> tuple[Kit, list[int]]:
    """Store with one message for each topic, in order, and without index."""
    kit = Kit(max_index_num=2_000, max_msgs_num_batch=2_000)
    store = kit.open()
    places = [put(store, topic, f"key-{number}") for number, topic in enumerate(topics)]
    store.close()
    kit.files.remove_tree(Path("/store/index"))
    kit.open()
    kit.files.kill()
    kit.files.remove_tree(Path("/store/index"))
    return kit, places


def step_to_the_end(store: MessageStore) -> int:
    """Complete the index; return how many steps that took."""
    service, count = catch_up(store), 0
    while service.step(0) == 0:
        count += 1
        assert count < 1_000
    return count


def found(store: MessageStore, topic: str, key: str) -> list[int]:
    return store.query_index(topic, key, 2_000, 0, FOREVER).phy_offsets


def test_index_that_is_gone_is_made_again_in_few_steps() -> None:
    kit, places = killed_without_index(["T"] * 300)
    store = kit.open()
    files = len(kit.files.list_files(Path("/store/commitlog")))
    assert step_to_the_end(store) <= 3 * files
    for number, place in enumerate(places):
        assert found(store, "T", f"key-{number}") == [place]
        assert found(store, "T", f"key-{number}-two") == [place]
    assert found(store, "T", "all") == places[::-1]


def test_replay_continues_where_disk_was_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit, places = killed_without_index(["T"] * 100)
    store = kit.open()
    open_run, put_keys = IndexFile.open_run, IndexFile.put
    most = 150

    def refusing_run(file: IndexFile, count: int, *fields: int) -> object:
        if file.count + count > most:
            raise OSError("no space")
        return open_run(file, count, *fields)

    def refusing_put(file: IndexFile, hashes: list[int], *fields: int) -> int:
        if file.count + len(hashes) > most:
            raise OSError("no space")
        return put_keys(file, hashes, *fields)

    with monkeypatch.context() as full:
        full.setattr(IndexFile, "open_run", refusing_run)
        full.setattr(IndexFile, "put", refusing_put)
        for _ in range(20):
            catch_up(store).step(0)
        assert store._parts.index is not None
        assert store._parts.index.missing_from in places[30:40]
    step_to_the_end(store)
    assert found(store, "T", "all") == places[::-1]


def test_deleted_topic_within_a_run_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit(max_index_num=2_000, max_msgs_num_batch=2_000)
    store = kit.open()
    topics = ["T", "Gone"] * 40
    places = [put(store, topic, f"key-{number}") for number, topic in enumerate(topics)]
    store.delete_topics(["Gone"])
    places += [put(store, "T", f"late-{number}") for number in range(200)]
    kit.files.kill()
    kit.files.remove_tree(Path("/store/index"))
    outcomes: list[Replayed] = []
    replay = BulkReplay.replay

    def noting(runs: BulkReplay, missing_from: int) -> Replayed:
        outcomes.append(replay(runs, missing_from))
        return outcomes[-1]

    monkeypatch.setattr(BulkReplay, "replay", noting)
    again = kit.open()
    again._parts.index.keep(0)  # type: ignore[union-attr]
    again._parts.index.replayed_to(0)  # type: ignore[union-attr]
    step_to_the_end(again)
    assert Replayed.PUT in outcomes
    assert found(again, "Gone", "all") == []
    assert found(again, "T", "all") == [*places[:80:2], *places[80:]][::-1]
