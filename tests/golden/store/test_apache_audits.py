"""Audits of stores of Apache 5.4.0: clean, crashed and torn."""

from pathlib import Path

import pytest

from rocketpy.spark.jobs.audit import audit_here
from rocketpy.spark.jobs.audit_store import Audit, Store, by_message
from tests.golden.store.test_apache_stores import unpack


def audited(root: Path) -> Audit:
    return audit_here(Store.find(root), lambda _: None)


@pytest.mark.parametrize(("name", "pending"), [("store-small", 0), ("store-crashed", 1)])
def test_audit_of_intact_apache_stores_finds_nothing(
    name: str, pending: int, tmp_path: Path
) -> None:
    """After the crash the next file of the log is empty, and one entry is not on disk."""
    manifest = unpack(name, tmp_path)
    done = audited(tmp_path)
    assert done.findings == []
    assert done.records == manifest["commitlog"]["messages"]
    assert done.pending == pending
    by_topic: dict[str, int] = {}
    for (topic, _), size_bytes in done.days.items():
        by_topic[topic] = by_topic.get(topic, 0) + size_bytes
    assert by_topic.keys() == manifest["commitlog"]["messages_by_topic"].keys()
    assert sum(by_topic.values()) == done.size_bytes


def test_audit_of_a_torn_store_finds_the_record_and_later_entries(tmp_path: Path) -> None:
    unpack("store-torn", tmp_path)
    found = by_message(audited(tmp_path).findings)
    assert [each.queue_offset for each in found] == [1612, 1613, 1614, 1615]
    assert found[0].phy_offset == 2450009
    assert {each.problem for each in found[1:]} == {
        "its entry points to no record, or to one of another size"
    }


def test_audit_of_a_flipped_body_byte_finds_that_message(tmp_path: Path) -> None:
    manifest = unpack("store-small", tmp_path)
    queue = next(each for each in manifest["queues"] if each["topic"] == "VecPlain")
    message = queue["messages"][0]
    path = tmp_path / "commitlog" / f"{message['phy_offset'] >> 20 << 20:020d}"
    data = bytearray(path.read_bytes())
    data[(message["phy_offset"] & 0xFFFFF) + 88] ^= 1
    path.write_bytes(data)
    (finding,) = by_message(audited(tmp_path).findings)
    assert finding.phy_offset == message["phy_offset"]
    assert (finding.queue_id, finding.queue_offset) == (
        queue["queue_id"],
        message["stored_queue_offset"],
    )
