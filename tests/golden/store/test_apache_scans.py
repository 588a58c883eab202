"""Scans of clean, crashed and torn store directories of Apache 5.4.0."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from rocketpy.arrow import row_schema
from rocketpy.arrow.reference_rows import reference_rows
from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.message import decode_message
from rocketpy.store import to_arrow
from tests.golden.store.test_apache_stores import NAMES, unpack

GROUPS = ("hosts", "properties", "msgId")


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def record_at(root: Path, phy_offset: int, size: int) -> bytes:
    path = root / "commitlog" / f"{phy_offset >> 20 << 20:020d}"
    at = phy_offset & 0xFFFFF
    return path.read_bytes()[at : at + size]


def in_queues(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    queues = manifest["queues"]
    return [{**message, "queue": queue} for queue in queues for message in queue["messages"]]


@pytest.mark.parametrize("name", NAMES)
def test_scan_by_queue_returns_every_message_of_the_reference(name: str, tmp_path: Path) -> None:
    manifest = unpack(name, tmp_path)
    before = files_of(tmp_path)

    found = to_arrow(tmp_path, topics="*", include=GROUPS, broker_name="vec-a").read_all()

    found.validate(full=True)
    messages = {
        (each["queue"]["topic"], each["queue"]["queue_id"], each["stored_queue_offset"]): each
        for each in in_queues(manifest)
    }
    keys = list(
        zip(*(found[each].to_pylist() for each in ("topic", "queueId", "queueOffset")), strict=True)
    )
    assert len(set(keys)) == len(keys) == found.num_rows
    # In the crashed store one message is in the log and not yet in its queue.
    assert set(messages) == set(keys)
    rows = [messages[key] for key in keys]
    bodies = [hashlib.sha256(body).hexdigest() for body in found["body"].to_pylist()]
    assert bodies == [row["body_sha256"] for row in rows]
    schema = row_schema(include=GROUPS)
    decoded = [decode_message(record_at(tmp_path, r["phy_offset"], r["size"])) for r in rows]
    reference = reference_rows(decoded, schema, "vec-a")
    for column in found.schema.names:
        assert found[column].to_pylist() == reference.column(column).to_pylist(), column
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("name", NAMES)
def test_scan_by_log_returns_every_message_in_log_order(name: str, tmp_path: Path) -> None:
    manifest = unpack(name, tmp_path)

    found = to_arrow(tmp_path, topics="*", scan="log", with_deleted=True).read_all()

    assert found.num_rows == manifest["commitlog"]["messages"]
    in_log = set(zip(found["topic"].to_pylist(), found["queueOffset"].to_pylist(), strict=True))
    queued = {(each["queue"]["topic"], each["stored_queue_offset"]) for each in in_queues(manifest)}
    assert in_log >= queued


def test_scan_by_index_returns_the_messages_with_the_key(tmp_path: Path) -> None:
    manifest = unpack("store-small", tmp_path)
    places = {each["phy_offset"]: each for each in in_queues(manifest)}
    seen = 0
    for query in manifest["index"]["queries"]:
        if "key" not in query or query["topic"].startswith("VecBatchCq"):
            continue
        found = to_arrow(
            tmp_path, topics=query["topic"], scan="index", keys=query["key"], include=GROUPS
        ).read_all()
        rows = zip(found["keys"].to_pylist(), found["msgId"].to_pylist(), strict=True)
        assert all(query["key"] in [*(keys or "").split(), ident] for keys, ident in rows)
        wanted = [
            place
            for place in query["phy_offsets_newest_first"]
            if _has(tmp_path, places, place, query)
        ]
        assert found.num_rows == len(wanted)
        seen += found.num_rows
    assert seen > 50


def _has(root: Path, places: dict[int, Any], place: int, query: dict[str, Any]) -> bool:
    """Return whether a message has a key; the index finds by hash, which `Aa` and `BB` share."""
    message = decode_message(record_at(root, place, places[place]["size"]), inflate=False)
    return query["key"] in [*message.keys, message.msg_id]


@pytest.mark.parametrize("tags", ["TagA", "TagA || TagC", "no such tag"])
def test_scan_by_tags_returns_their_messages(tags: str, tmp_path: Path) -> None:
    unpack("store-small", tmp_path)
    every = to_arrow(tmp_path, topics="VecTags").read_all()
    wanted = {each.strip() for each in tags.split("||")}

    found = to_arrow(tmp_path, topics="VecTags", tags=tags, columns=["tags", "body"]).read_all()

    rows = zip(every["tags"].to_pylist(), every["body"].to_pylist(), strict=True)
    assert [row[1] for row in rows if row[0] in wanted] == found["body"].to_pylist()


def test_scan_of_batch_queues_returns_a_row_for_each_record(tmp_path: Path) -> None:
    unpack("store-small", tmp_path)
    topic = "VecBatchCq"

    by_log = to_arrow(tmp_path, topics=topic, scan="log").read_all()
    found = to_arrow(tmp_path, topics=topic).read_all()

    assert found.num_rows == 4
    assert found.equals(by_log)
    assert found["queueOffset"].to_pylist()[:2] == [0, 7]
    middle = to_arrow(tmp_path, topics=topic, starts={(topic, 0): 1}, ends={(topic, 0): 8})
    assert middle.read_all()["queueOffset"].to_pylist() == [7]
    times = [int(each.timestamp() * 1000) for each in found["storeTimestamp"].to_pylist()]
    later = to_arrow(tmp_path, topics=topic, start_ms=times[1]).read_all()
    assert later.num_rows == sum(time >= times[1] for time in times) < 4
    path = next((tmp_path / "batchconsumequeue" / topic / "0").iterdir())
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreFormatError, match="not a file of a batch consume queue"):
        to_arrow(tmp_path, topics=topic)
