"""Plain records at a start: what the compiled reader takes, and that it changes nothing else."""

import struct
from pathlib import Path

import pytest

from rocketpy.proto.record.properties import encode_properties
from rocketpy.store.append.dispatch import DispatchRequest
from rocketpy.store.consume_queue.queue_entry import MOST_QUEUE_OFFSET
from rocketpy.store.index.index_file import IndexFile
from rocketpy.store.message_store import MessageStore
from rocketpy.store.recovery import bulk_recovery as recovered_runs
from rocketpy.store.recovery.bulk_recovery import BulkRecovery, compiled_records
from rocketpy.store.results import PutMessage
from tests.unit.store.recovery_cases import compare
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies

SEEDS = 12
QUEUE_OFFSET_AT = 20
needs_compiled = pytest.mark.skipif(compiled_records() is None, reason="runs as pure Python")


@needs_compiled
@pytest.mark.parametrize("first", range(0, 60, SEEDS))
def test_start_finds_the_same_as_without_it(first: int) -> None:
    assert sum(map(compare, range(first, first + SEEDS)))


def put_keyed(store: MessageStore, numbers: range) -> list[bytes]:
    sent = []
    for number in numbers:
        key = f"key{number}"
        body = b"%06d" % number
        properties = encode_properties({"UNIQ_KEY": key, "KEYS": "one two", "TAGS": "TagA"})
        put = PutMessage(
            TOPIC, 0, body, properties=properties, uniq_key=key, keys="one two", tags="TagA"
        )
        assert store.put_message(put).status is OK
        sent.append(body)
    return sent


def noted(monkeypatch: pytest.MonkeyPatch) -> list[BulkRecovery]:
    """Return a list to which every reading that begins adds its runs."""
    taken: list[BulkRecovery] = []
    begin = BulkRecovery.__init__

    def noting(runs: BulkRecovery, *args: object, **more: object) -> None:
        begin(runs, *args, **more)  # type: ignore[arg-type]
        taken.append(runs)

    monkeypatch.setattr(BulkRecovery, "__init__", noting)
    return taken


@needs_compiled
def test_all_but_the_first_record_of_each_file_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = noted(monkeypatch)
    kit = Kit()
    sent = put_keyed(kit.open(), range(200))
    kit.files.kill()
    again = kit.open()
    file_count = len(kit.files.list_files(Path("/store/commitlog")))
    assert file_count > 1
    assert again.recovery.record_count == again.recovery.entry_count == len(sent)
    assert taken[-1].record_count == len(sent) - file_count
    assert bodies(again) == sent


@needs_compiled
def test_messages_without_keys_end_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = noted(monkeypatch)
    kit = Kit(max_index_num=40, max_msgs_num_batch=2_000)
    store = kit.open()
    sent = []
    for number in range(100):
        sent += put_keyed(store, range(number, number + 1))
        sent.append(b"no key %d" % number)
        assert store.put_message(PutMessage(TOPIC, 0, sent[-1])).status is OK
    kit.files.kill()
    again = kit.open()
    file_count = len(kit.files.list_files(Path("/store/commitlog")))
    assert taken[-1].record_count == len(sent) - file_count
    assert bodies(again) == sent
    assert len(again.query_index(TOPIC, "two", 1_000, 0, 1 << 62).phy_offsets) == 100


@pytest.mark.parametrize("is_pure", [True, False])
@pytest.mark.parametrize("queue_offset", [MOST_QUEUE_OFFSET + 1, (1 << 63) - 2, (1 << 63) - 1])
def test_place_that_no_queue_reaches_is_damage(
    monkeypatch: pytest.MonkeyPatch, queue_offset: int, *, is_pure: bool
) -> None:
    if is_pure:
        monkeypatch.setattr(recovered_runs, "compiled_records", lambda: None)
    kit = Kit()
    sent = put_keyed(kit.open(), range(3))
    kit.files.kill()
    kit.files.remove_tree(Path("/store/consumequeue"))
    kit.files.remove(Path("/store/checkpoint"))
    log = Path("/store/commitlog/00000000000000000000")
    data = bytearray(kit.files.read_bytes(log))
    struct.pack_into(">q", data, QUEUE_OFFSET_AT, queue_offset)
    kit.files.write_bytes(log, bytes(data))
    store = kit.open()
    assert bodies(store) == sent[1:]
    store.close()
    assert bodies(kit.open()) == sent[1:]


def test_clean_start_does_not_load_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit()
    store = kit.open()
    sent = put_keyed(store, range(20))
    store.close()
    monkeypatch.setattr(recovered_runs, "compiled_records", pytest.fail)
    assert bodies(kit.open()) == sent


def test_further_dispatcher_receives_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BulkRecovery, "take", pytest.fail)
    kit = Kit()
    sent = put_keyed(kit.open(), range(20))
    kit.files.kill()
    store = MessageStore(kit.config, clock=kit.clock, files=kit.files, new_log_id=lambda: "0")
    told: list[int] = []

    class Told:
        def dispatch(self, request: DispatchRequest) -> None:
            told.append(request.phy_offset)

    store._parts.dispatcher_list.append(Told())  # type: ignore[arg-type]
    store.open()
    assert len(told) == len(sent)


@needs_compiled
def test_index_that_the_disk_refuses_falls_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    kit = Kit(max_index_num=2000)
    put_keyed(kit.open(), range(60))
    kit.files.kill()
    pure = index_of_refused_start(kit, monkeypatch, is_pure=True)
    compiled = index_of_refused_start(kit, monkeypatch, is_pure=False)
    assert pure == compiled
    assert pure[0] is not None


def index_of_refused_start(
    kit: Kit, patch: pytest.MonkeyPatch, *, is_pure: bool
) -> tuple[int | None, int]:
    """Start with an index that is full after the 30th message."""
    open_run, put = IndexFile.open_run, IndexFile.put

    def refuse(file: IndexFile) -> None:
        if file.count > 90:
            raise OSError("no")

    def refusing_run(file: IndexFile, count: int, *fields: int, **how: bool) -> object:
        if file.count + count > 90:
            raise OSError("no")
        return open_run(file, count, *fields, **how)

    def refusing_put(file: IndexFile, *fields: object) -> int:
        refuse(file)
        return put(file, *fields)  # type: ignore[arg-type]

    with patch.context() as here:
        here.setattr(IndexFile, "open_run", refusing_run)
        here.setattr(IndexFile, "put", refusing_put)
        if is_pure:
            here.setattr(recovered_runs, "compiled_records", lambda: None)
        store = MessageStore(kit.config, clock=kit.clock, files=kit.files, new_log_id=lambda: "0")
        store.open()
        kit.files.kill()
        assert store._parts.index is not None
        return store._parts.index.missing_from, store._parts.index.end_phy_offset
