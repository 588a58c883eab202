"""Selection of scans: by condition, with marks for deleted offsets, by index of any size."""

from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import DataLossError, ExpressionError, StoreFormatError
from rocketpy.store import to_arrow
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from tests.unit.store.scan.kit import Written, written


@pytest.mark.parametrize("scan", ["queue", "log", "index"])
@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("TAGS = 'Tag1'", {n for n in range(60) if n % 3 == 1}),
        ("KEYS IN ('k5', 'k7') AND TAGS IS NOT NULL", {5, 7}),
        ("UNIQ_KEY IS NULL", set()),
        ("nobody > 3 OR KEYS = 'k9'", {9}),
    ],
)
def test_condition_on_properties(scan: Any, sql: str, wanted: set[int], tmp_path: Path) -> None:
    written(tmp_path, 60)
    more: dict[str, Any] = {"keys": [f"k{n}" for n in range(60)]} if scan == "index" else {}

    found = to_arrow(tmp_path, scan=scan, sql=sql, columns=["keys", "queueId"], **more).read_all()

    assert found.schema.names == ["keys", "queueId"]  # properties are read and left out again
    assert {int(key[1:]) for key in found["keys"].to_pylist()} == wanted
    assert found.num_rows == len(wanted)


@pytest.mark.parametrize("sql", ["a >", "a IS NULL garbage here"])
def test_to_arrow_with_a_wrong_condition_raises(tmp_path: Path, sql: str) -> None:
    written(tmp_path, 3)

    with pytest.raises(ExpressionError):
        to_arrow(tmp_path, sql=sql).read_all()


def test_lost_messages_are_marked_where_they_were(tmp_path: Path) -> None:
    written(tmp_path, 300)
    min((tmp_path / "commitlog").iterdir()).unlink()
    left = to_arrow(tmp_path).read_all()
    begin = min(row["queueOffset"] for row in left.to_pylist() if row["queueId"] == 0)
    assert begin > 5
    starts = {("T", 0): 3}
    with pytest.raises(DataLossError, match=f"messages 3 to {begin - 1} of T, queue 0"):
        to_arrow(tmp_path, starts=starts)

    rows = (
        to_arrow(
            tmp_path, starts=starts, ends={("T", 0): 1000}, on_data_loss="mark", sql="TAGS = 'Tag1'"
        )
        .read_all()
        .to_pylist()
    )

    mark, *others = [row for row in rows if row["queueId"] == 0]
    assert (mark["topic"], mark["brokerName"], mark["queueOffset"]) == ("T", tmp_path.name, 3)
    assert mark["properties"] == [("LOST_UNTIL", str(begin))]
    assert mark["body"] is mark["storeTimestamp"] is None
    assert [row["queueOffset"] for row in others] == [
        row["queueOffset"]
        for row in left.to_pylist()
        if row["queueId"] == 0 and row["tags"] == "Tag1"
    ]
    assert len(to_arrow(tmp_path, starts=starts, on_data_loss="skip").read_all()) == len(left)


def test_index_of_other_proportions(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.store.close()
    config = MessageStoreConfig(
        store_path_root_dir=str(tmp_path),
        mapped_file_size_commit_log=16_384,
        mapped_file_size_consume_queue=400,
        max_hash_slot_num=7,
        max_index_num=50,
    )
    store.store = MessageStore(config, clock=store.clock)
    store.store.open()
    store.fill("T", 90)
    store.close()

    with pytest.raises(
        StoreFormatError, match="not an index of four entries per slot; give its max"
    ):
        to_arrow(tmp_path, scan="index", keys="k4")
    with pytest.raises(StoreFormatError, match="not an index of 8 slots"):
        to_arrow(tmp_path, scan="index", keys="k4", index_slots=8)
    found = to_arrow(tmp_path, scan="index", keys=["k4", "k88"], index_slots=7).read_all()
    assert sorted(found["keys"].to_pylist()) == ["k4", "k88"]
