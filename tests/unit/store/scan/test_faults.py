"""Damage and deletion during a scan cost only the affected messages, and are reported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import CorruptRecordError, DataLossError, RocketPyError
from rocketpy.store import to_arrow
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log
from tests.unit.store.scan.kit import Written, overwrite, written

SIZE = slice(0, 4)
QUEUE_OFFSET = slice(20, 28)


def offsets(root: Path, **options: Any) -> list[int]:
    found: list[int] = to_arrow(root, columns=["queueOffset"], **options).read_all()[0].to_pylist()
    return sorted(found)


def damage(root: Path, place: int, part: slice, change: Callable[[int], int]) -> None:
    path = root / "commitlog" / f"{0:020d}"
    at = slice(place + part.start, place + part.stop)
    stored = path.read_bytes()[at]
    number = change(int.from_bytes(stored, "big"))
    overwrite(root, at.start, number.to_bytes(len(stored), "big"))


def live(root: Path) -> tuple[Written, list[int]]:
    """Write six messages with entries on disk and ten without, of at least 250 bytes."""
    store = Written(root)
    store.fill("T", 6, queues=1)
    store.flush()
    return store, [store.put("T", 0, b"late".ljust(100)) for _ in range(10)]


@pytest.mark.parametrize(
    ("part", "change"),
    [
        pytest.param(SIZE, lambda size: size | 1 << 30, id="too long"),
        pytest.param(SIZE, lambda size: size + 8, id="into the next"),
        pytest.param(SIZE, lambda size: size * 2, id="over the next"),
        pytest.param(SIZE, lambda size: size * 3, id="over the next two"),
        pytest.param(QUEUE_OFFSET, lambda offset: offset | 1 << 40, id="a far queue offset"),
        pytest.param(QUEUE_OFFSET, lambda offset: offset - 1, id="the queue offset before"),
    ],
)
def test_damage_of_what_no_queue_file_knows_yet_costs_one_message(
    part: slice, change: Callable[[int], int], tmp_path: Path
) -> None:
    store, places = live(tmp_path)
    damage(tmp_path, places[4], part, change)

    with pytest.raises(DataLossError, match="messages 10 to 10 of T, queue 0, were deleted"):
        offsets(tmp_path)
    assert offsets(tmp_path, on_data_loss="skip") == [*range(10), *range(11, 16)]
    assert offsets(tmp_path, on_data_loss="mark") == list(range(16))
    store.close()


@pytest.mark.parametrize("topics", ["", "T"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_wrong_size_costs_no_record_behind_it(times: int, topics: str, tmp_path: Path) -> None:
    """A damaged record is reported for every topic, because it may belong to it."""
    store, places = live(tmp_path)
    store.close()
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}')
    damage(tmp_path, places[4], SIZE, lambda size: size * times + 8 * (times == 1))
    bad: list[CorruptRecordError] = []
    options: dict[str, Any] = {"scan": "log", "topics": topics or (), "end_ms": 1 << 60}

    with pytest.raises(CorruptRecordError, match=f"physical offset {places[4]}: lengths do not"):
        offsets(tmp_path, **options)
    found = offsets(tmp_path, damaged="skip", on_damaged=bad.append, **options)

    assert found == [*range(10), *range(11, 16)]
    assert [each.phy_offset for each in bad] == [places[4]]


@pytest.mark.parametrize("at", [0, 4])
def test_record_being_written_is_not_skipped(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is whole once there is one behind it."""
    store, places = live(tmp_path)
    path = tmp_path / "commitlog" / f"{0:020d}"
    whole = path.read_bytes()[places[4] + at : places[4] + at + 4]
    overwrite(tmp_path, places[4] + at, b"\x01\x02\x03\x04")
    search = Log.next_record

    def write_and_search(log: Log, phy_offset: int) -> int | None:
        if phy_offset == places[4] + 1:
            overwrite(tmp_path, places[4] + at, whole)
        return search(log, phy_offset)

    monkeypatch.setattr(Log, "next_record", write_and_search)

    assert offsets(tmp_path) == list(range(16))
    store.close()


def test_record_within_a_body_is_no_record(tmp_path: Path) -> None:
    inner = Written(tmp_path / "inner")
    inner.put("T", 0, b"inner")
    inner.close()
    record = (tmp_path / "inner" / "commitlog" / f"{0:020d}").read_bytes()[:200]
    store = Written(tmp_path / "outer")
    for _ in range(5):
        store.put("T", 0, record)
    store.close()

    assert offsets(tmp_path / "outer", scan="log") == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("scan", ["queue", "log", "index"])
def test_log_files_that_expire_while_they_are_read_are_data_loss(scan: Any, tmp_path: Path) -> None:
    written(tmp_path, 300)
    keys = {"keys": [f"k{n}" for n in range(300)]} if scan == "index" else {}
    options: dict[str, Any] = {"scan": scan, "batch_rows": 10, "topics": "T", **keys}
    failing = to_arrow(tmp_path, **options)
    skipping = to_arrow(tmp_path, on_data_loss="skip", **options)
    rows = skipping.read_next_batch().num_rows + failing.read_next_batch().num_rows * 0
    for path in sorted((tmp_path / "commitlog").iterdir())[1:3]:
        path.unlink()

    with pytest.raises(DataLossError, match=r"(was|were) deleted"):
        failing.read_all()
    rows += sum(batch.num_rows for batch in skipping)
    assert 100 < rows < 300


def test_queue_file_that_is_deleted_while_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 100)
    victim = min((tmp_path / "consumequeue" / "T" / "0").iterdir())
    listed = Path.iterdir

    def list_and_delete(path: Path) -> Any:
        found = list(listed(path))
        if path == victim.parent:
            monkeypatch.setattr(Path, "iterdir", listed)
            monkeypatch.setattr(Path, "is_file", lambda _: True)
            victim.unlink()
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", list_and_delete)

    assert offsets(tmp_path, starts={("T", 1): 50}) == list(range(20, 50))


@pytest.mark.parametrize("number", [2, 7, 9])
def test_entry_that_leads_to_an_earlier_message_is_not_followed(
    number: int, tmp_path: Path
) -> None:
    written(tmp_path, 10, queues=1)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    stored = bytearray(path.read_bytes())
    stored[number * 20 : number * 20 + 12] = stored[:12]
    path.write_bytes(stored)

    with pytest.raises(DataLossError, match=f"messages {number} to {number} of T, queue 0"):
        offsets(tmp_path)
    kept = [each for each in range(10) if each != number]
    assert offsets(tmp_path, on_data_loss="skip") == kept


@pytest.mark.parametrize("where", ["commitlog", "consumequeue", "index", "checkpoint"])
def test_any_flipped_bit_is_a_typed_error_or_costs_no_other_message(
    where: str, tmp_path: Path
) -> None:
    store = Written(tmp_path, 2_048)
    for number in range(9):
        store.put("T", 0, bytes([number]), key=f"k{number}")
    store.flush()
    store.put("T", 0, b"9", key="k9")
    assert StoreDirectory(tmp_path).root == tmp_path
    root = tmp_path / where
    paths = [root] if root.is_file() else [path for path in root.rglob("*") if path.is_file()]
    scan: Any = "index" if where == "index" else "queue"
    keys = [f"k{n}" for n in range(10)] if where == "index" else []
    for path in paths:
        stored = path.read_bytes()
        for at in range(0, min(len(stored), len(stored.rstrip(b"\0")) + 8), 7):
            path.write_bytes(stored[:at] + bytes([stored[at] ^ 1 << at % 8]) + stored[at + 1 :])
            try:
                found = to_arrow(
                    tmp_path, scan=scan, keys=keys, check_crc=True, damaged="skip",
                    on_data_loss="skip",
                ).read_all()  # fmt: skip
            except RocketPyError:
                continue
            bodies = found["body"].to_pylist()
            assert len(bodies) == len(set(bodies)), (path.name, at)
            if where in {"commitlog", "checkpoint"}:
                assert len(bodies) >= 9, (path.name, at)
        path.write_bytes(stored)
    store.close()
