"""`to_arrow` on stores of ours: by queue, by log, by index; live, damaged, torn, trimmed."""

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rocketpy.errors import CorruptRecordError, DataLossError, StoreFormatError
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from rocketpy.store import to_arrow
from rocketpy.store.scan import by_index
from tests.unit.store.scan.kit import LOG_FILE_BYTES, Written, log_path, overwrite, written


def bodies(root: Path, **options: Any) -> list[bytes]:
    found = to_arrow(root, **options).read_all()
    found.validate(full=True)
    return [each.rstrip(b".") for each in found["body"].to_pylist()]


def numbers(root: Path, **options: Any) -> list[int]:
    return [int(each.rpartition(b"-")[2]) for each in bodies(root, **options)]


def test_queues_one_after_the_other_and_the_log_in_its_order(tmp_path: Path) -> None:
    written(tmp_path, 300, queues=3)

    assert len(list((tmp_path / "commitlog").iterdir())) > 2
    assert numbers(tmp_path) == [*range(0, 300, 3), *range(1, 300, 3), *range(2, 300, 3)]
    assert numbers(tmp_path, scan="log") == list(range(300))


@pytest.mark.parametrize("scan", ["queue", "log"])
@pytest.mark.parametrize("limits", [{"batch_rows": 1}, {"batch_rows": 7}, {"batch_bytes": 700}])
def test_batches_are_small_when_asked(scan: Any, limits: dict[str, Any], tmp_path: Path) -> None:
    written(tmp_path, 60)

    batches = list(to_arrow(tmp_path, scan=scan, **limits))

    assert sorted(n for batch in batches for n in _numbers_of(batch)) == list(range(60))
    if "batch_rows" in limits:
        assert max(batch.num_rows for batch in batches) == limits["batch_rows"]
    elif scan == "queue":
        assert max(batch.num_rows for batch in batches) == 2


def _numbers_of(batch: pa.RecordBatch) -> list[int]:
    return [int(each.rstrip(b".").rpartition(b"-")[2]) for each in batch["body"].to_pylist()]


@pytest.mark.parametrize(("start", "end"), [(0, 150), (10, 20), (149, 150), (150, 150), (20, 10)])
def test_ranges_by_offset(start: int, end: int, tmp_path: Path) -> None:
    written(tmp_path, 300)

    found = to_arrow(
        tmp_path, starts={("T", 0): start, ("T", 1): 150}, ends={("T", 0): end}
    ).read_all()

    assert found["queueOffset"].to_pylist() == list(range(start, end))
    assert set(found["queueId"].to_pylist()) <= {0}


@pytest.mark.parametrize("scan", ["queue", "log", "index"])
def test_ranges_by_time_are_those_of_the_rows(scan: Any, tmp_path: Path) -> None:
    written(tmp_path, 120)
    more: dict[str, Any] = {"keys": [f"k{n}" for n in range(120)]} if scan == "index" else {}
    every = to_arrow(tmp_path, scan=scan, **more).read_all()
    times = [int(each.timestamp() * 1000) for each in every["storeTimestamp"].to_pylist()]
    order = sorted(times)
    for start, end in (
        (order[30], order[90]),
        (order[30] + 1, order[31]),
        (0, 1),
        (None, order[5]),
    ):
        wanted = [n for n in times if (start is None or n >= start) and n < end]

        found = to_arrow(tmp_path, scan=scan, start_ms=start, end_ms=end, **more).read_all()

        assert [int(n.timestamp() * 1000) for n in found["storeTimestamp"].to_pylist()] == wanted


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_tags_and_topics(scan: Any, tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 30)
    store.fill("Other", 30)
    store.fill("RMQ_SYS_TRANS_HALF_TOPIC", 3)
    store.put("T", 0, b"Aa-30", tag="Aa")
    store.put("T", 0, b"BB-31", tag="BB")  # one hash
    store.close()

    assert sorted(numbers(tmp_path, scan=scan, topics="T", tags="Tag1")) == list(range(1, 30, 3))
    assert numbers(tmp_path, scan=scan, topics="T", tags="BB") == [31]
    assert len(bodies(tmp_path, scan=scan)) == 62
    assert len(bodies(tmp_path, scan=scan, topics="*")) == 65
    assert len(bodies(tmp_path, scan=scan, topics=["Oth*", "RMQ_SYS_TRANS_HALF_TOPIC"])) == 33


def test_bodies_of_other_tags_are_not_touched(tmp_path: Path) -> None:
    """Even broken ones do no harm: the entry's hash is enough to pass them over."""
    store = Written(tmp_path)
    victim = store.put("T", 0, b"a-0", tag="A")
    store.put("T", 0, b"b-1", tag="B")
    store.close()
    overwrite(tmp_path, victim + 4, b"\1\2\3\4")

    assert numbers(tmp_path, tags="B") == [1]
    with pytest.raises(CorruptRecordError, match=f"physical offset {victim}"):
        numbers(tmp_path, tags="A")


def test_keys_by_the_index(tmp_path: Path) -> None:
    store = Written(tmp_path)
    for number in range(200):
        store.put("T", number % 2, f"m-{number}".encode(), key=f"key{number % 5} other")
    store.put("U", 0, b"m-999", key="key3")
    store.close()

    assert numbers(tmp_path, scan="index", keys="key3") == [*range(3, 200, 5), 999]
    assert numbers(tmp_path, scan="index", keys=["key3", "key4"], topics="U") == [999]
    assert len(numbers(tmp_path, scan="index", keys="other", topics="T")) == 200
    assert numbers(tmp_path, scan="index", keys="none") == []
    with pytest.raises(ValueError, match="needs keys"):
        to_arrow(tmp_path, scan="index")


def test_key_of_too_many_messages_is_an_error_and_no_part_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 20)
    monkeypatch.setattr(by_index, "MAX_FOUND", 1)

    assert numbers(tmp_path, scan="index", keys="k3") == [3]
    monkeypatch.setattr(by_index, "MAX_FOUND", 0)
    with pytest.raises(StoreFormatError, match="more than 0 messages: scan by queue"):
        to_arrow(tmp_path, scan="index", keys="k3")


def test_records_of_every_layout(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.put("T" * 127, 0, b"m-0")
    store.put("T", 0, b"m-1", born_host=bytes(16) + b"\0\0\0\1")
    store.put(
        "T",
        0,
        deflate(b"m-2".ljust(2000, b"."), CompressionType.ZSTD),
        sys_flag=with_compression(0, CompressionType.ZSTD),
    )
    store.put("T", 0, b"m-3")
    store.put("%RETRY%" + "g" * 150, 0, b"m-4")
    store.close()

    assert numbers(tmp_path, scan="log") == [0, 1, 2, 3, 4]
    assert sorted(numbers(tmp_path)) == [0, 1, 2, 3, 4]
    assert numbers(tmp_path, scan="log", topics="T") == [1, 2, 3]


def test_store_in_use_is_read_as_it_is_and_left_alone(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 50)
    store.flush()
    store.fill("T", 17)  # not in the files of the queues
    store.put("New", 3, b"new-17")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    assert numbers(tmp_path, scan="log") == [*range(50), *range(18)]
    assert sorted(numbers(tmp_path)) == sorted([*range(50), *range(18)])
    assert numbers(tmp_path, tags="Tag1", starts={("T", 0): 20}, topics="T")[:4] == [40, 46, 4, 10]
    reader = to_arrow(tmp_path)
    in_log = to_arrow(tmp_path, scan="log")
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    store.fill("T", 50)
    store.flush()

    assert before == after
    assert reader.read_all().num_rows == 68
    assert in_log.read_all().num_rows == 68
    assert len(numbers(tmp_path)) == 118
    store.close()


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_damaged_record_costs_itself_and_is_reported(scan: Any, tmp_path: Path) -> None:
    store = Written(tmp_path)
    places = [store.put("T", 0, f"m-{n}".encode().ljust(500, b".")) for n in range(40)]
    store.close()
    overwrite(tmp_path, places[7] + 4, b"\0\0\0\0")  # no magic
    overwrite(tmp_path, places[20], b"\0\1")  # another size
    overwrite(tmp_path, places[30] + 85, b"\1")  # lengths
    seen: list[CorruptRecordError] = []

    left = numbers(tmp_path, scan=scan, damaged="skip", on_damaged=seen.append)

    assert left == [n for n in range(40) if n not in {7, 20, 30}]
    assert [each.phy_offset for each in seen] == [places[7], places[20], places[30]]
    with pytest.raises(CorruptRecordError, match=str(places[7])):
        numbers(tmp_path, scan=scan)


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_wrong_body_is_found_when_asked(scan: Any, tmp_path: Path) -> None:
    store = Written(tmp_path)
    places = [store.put("T", 0, f"m-{n}".encode().ljust(100, b".")) for n in range(10)]
    store.close()
    overwrite(tmp_path, places[4] + 95, b"?")

    assert len(bodies(tmp_path, scan=scan)) == 10
    assert len(bodies(tmp_path, scan=scan, check_crc=True, damaged="skip")) == 9
    with pytest.raises(CorruptRecordError, match=f"{places[4]}.*checksum"):
        bodies(tmp_path, scan=scan, check_crc=True)


def _cut_file(root: Path, place: int) -> None:
    path, at = log_path(root, place)
    with path.open("r+b") as file:
        file.truncate(at)


def _zeros(root: Path, place: int) -> None:
    path, at = log_path(root, place)
    with path.open("r+b") as file:
        file.truncate(at)
        file.truncate(LOG_FILE_BYTES)


@pytest.mark.parametrize("scan", ["queue", "log"])
@pytest.mark.parametrize("tear", [_cut_file, _zeros])
@pytest.mark.parametrize("within", [0, 3, 30, 89, 300])
@pytest.mark.parametrize("last", [3, 31])
def test_torn_tail_is_where_the_log_ends(
    scan: Any, tear: Callable[[Path, int], None], within: int, last: int, tmp_path: Path
) -> None:
    store = Written(tmp_path)
    places = [store.put("T", 0, f"m-{n}".encode().ljust(500, b".")) for n in range(32)]
    store.close()
    for path in sorted((tmp_path / "commitlog").iterdir()):
        if int(path.name) > places[last]:
            path.unlink()
    tear(tmp_path, places[last] + within)

    assert numbers(tmp_path, scan=scan) == list(range(last))


def test_files_that_expired_are_not_missed(tmp_path: Path) -> None:
    written(tmp_path, 300)
    every = to_arrow(tmp_path, scan="log").read_all()["body"].to_pylist()
    min(tmp_path.joinpath("commitlog").iterdir()).unlink()

    left = to_arrow(tmp_path, scan="log").read_all()["body"].to_pylist()

    assert 0 < len(left) < 300
    assert left == every[-len(left) :]
    assert sorted(to_arrow(tmp_path).read_all()["body"].to_pylist()) == sorted(left)


def test_deleted_offsets_are_reported_or_skipped(tmp_path: Path) -> None:
    written(tmp_path, 300)
    min(tmp_path.joinpath("commitlog").iterdir()).unlink()
    first = to_arrow(tmp_path).read_all()["queueOffset"].to_pylist()[0]

    with pytest.raises(DataLossError, match=f"messages 2 to {first - 1} of T, queue 0"):
        to_arrow(tmp_path, starts={("T", 0): 2})
    with pytest.raises(DataLossError, match="messages 150 to 159 of T, queue 1"):
        to_arrow(tmp_path, ends={("T", 1): 160})
    found = to_arrow(
        tmp_path, starts={("T", 0): 2}, ends={("T", 1): 160}, on_data_loss="skip"
    ).read_all()
    assert found.num_rows == to_arrow(tmp_path).read_all().num_rows


def test_files_that_expire_between_plan_and_read(tmp_path: Path) -> None:
    written(tmp_path, 300)
    failing = to_arrow(tmp_path)
    skipping = to_arrow(tmp_path, on_data_loss="skip")
    by_log = to_arrow(tmp_path, scan="log")
    min(tmp_path.joinpath("commitlog").iterdir()).unlink()

    with pytest.raises(DataLossError, match="messages 0 to"):
        failing.read_all()
    with pytest.raises(DataLossError, match=r"file with physical offsets 0 to .* was deleted"):
        by_log.read_all()
    assert 0 < skipping.read_all().num_rows < 300


def test_deleted_topic_is_gone_from_every_scan(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 20)
    store.fill("Gone", 20)
    store.store.delete_topics({"Gone"})
    store.fill("Gone", 3)
    store.close()

    assert len(bodies(tmp_path)) == len(bodies(tmp_path, scan="log")) == 23
    found = bodies(tmp_path, scan="index", keys=[f"k{n}" for n in range(20)])
    assert len(found) == 23
    assert len(bodies(tmp_path, scan="log", with_deleted=True)) == 43


def test_topic_deleted_by_apache_is_detected_from_configuration(
    tmp_path: Path,
) -> None:
    store = Written(tmp_path)
    store.fill("T", 5)
    store.fill("Gone", 5)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue" / "Gone")
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}')

    assert len(bodies(tmp_path, scan="log")) == 5
    assert len(bodies(tmp_path, scan="log", topics="Gone", with_deleted=True)) == 5


def test_path_that_is_not_a_store_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "data" / "store" / "commitlog").mkdir(parents=True)
    odd = tmp_path / "odd"
    (odd / "commitlog").mkdir(parents=True)
    (odd / "commitlog" / "notes.txt").write_text("x")

    for name, words in (
        ("nowhere", "does not exist"),
        ("file", "is a file"),
        ("empty", "is not a store directory"),
        ("data", "it has no commitlog/; .*data/store has one"),
        ("odd", "not named by an offset"),
    ):
        with pytest.raises(StoreFormatError, match=words):
            to_arrow(tmp_path / name)


def test_empty_store_has_no_rows(tmp_path: Path) -> None:
    Written(tmp_path).close()

    assert to_arrow(tmp_path).read_all().num_rows == 0
    assert to_arrow(tmp_path, scan="log").read_all().num_rows == 0


def test_mistyped_topic_names_the_nearest(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("flights", 1)
    store.close()

    with pytest.raises(ValueError, match=r"no topic 'flight' .* did you mean flights"):
        to_arrow(tmp_path, topics="flight")


def test_rows_go_to_pandas(tmp_path: Path) -> None:
    written(tmp_path, 10)

    frame = to_arrow(tmp_path).read_pandas()

    assert list(frame["queueOffset"]) == [*range(5), *range(5)]
    assert frame["tags"][0] == "Tag0"
    assert set(frame["brokerName"]) == {tmp_path.name}


def test_rows_go_to_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    written(tmp_path, 10)

    frame = polars.from_arrow(to_arrow(tmp_path).read_all())

    assert frame.shape[0] == 10
    assert frame["queueOffset"].to_list() == [*range(5), *range(5)]
    assert frame["body"][0].rstrip(b".") == b"T-0"
    assert frame["storeTimestamp"].dtype == polars.Datetime("us", "UTC")
    assert frame["properties"][0]["KEYS"] == "k0"


def test_import_of_store_does_not_import_numpy() -> None:
    code = (
        "import sys, rocketpy, rocketpy.store.message_store, rocketpy.broker.broker;"
        "print([m for m in ('numpy', 'pyarrow', 'pyspark') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == "[]"


def test_memory_does_not_grow_with_the_store(tmp_path: Path) -> None:
    """Memory that Arrow holds for a store larger than a batch."""
    written(tmp_path, 3000)
    most = 0
    before = pa.total_allocated_bytes()
    for batch in itertools.chain(
        to_arrow(tmp_path, batch_bytes=10_000), to_arrow(tmp_path, scan="log", batch_rows=40)
    ):
        assert batch.num_rows <= 60
        most = max(most, pa.total_allocated_bytes() - before)
    assert most < 100_000


@pytest.mark.parametrize("scan", ["queue", "log"])
@pytest.mark.parametrize(
    "damage", [(4, b"\0\0\0\0"), (0, b"\0\1"), (0, b"\0" * 8), (85, b"\1"), (28, b"\7")]
)
@pytest.mark.parametrize("by_apache", [False, True])
def test_damaged_last_record_of_a_closed_log_is_no_torn_tail(
    scan: Any, damage: tuple[int, bytes], by_apache: bool, tmp_path: Path
) -> None:
    """Apache's checkpoint does not say where the log ends: then what is left of the record does."""
    store = Written(tmp_path)
    places = [store.put("T", 0, f"m-{n}".encode().ljust(500, b".")) for n in range(20)]
    store.close()
    overwrite(tmp_path, places[-1] + damage[0], damage[1])
    if by_apache:
        (tmp_path / "checkpoint").unlink()
    seen: list[CorruptRecordError] = []

    left = numbers(tmp_path, scan=scan, damaged="skip", on_damaged=seen.append)

    assert left == list(range(19))
    assert [each.phy_offset for each in seen] == [places[-1]]
    with pytest.raises(CorruptRecordError, match=str(places[-1])):
        numbers(tmp_path, scan=scan)


@pytest.mark.parametrize("scan", ["queue", "log"])
@pytest.mark.parametrize("kept", [3, 8, 60, 88, 300, 500])
def test_torn_last_record_of_a_log_that_was_closed_since_is_its_end(
    scan: Any, kept: int, tmp_path: Path
) -> None:
    """Apache's broker leaves it where it is, when it recovers and stops before a next message."""
    store = Written(tmp_path)
    places = [store.put("T", 0, f"m-{n}".encode().ljust(500, b".")) for n in range(20)]
    store.close()
    (tmp_path / "checkpoint").unlink()
    overwrite(tmp_path, places[-1] + kept, bytes(700 - kept))

    assert numbers(tmp_path, scan=scan) == list(range(19))
