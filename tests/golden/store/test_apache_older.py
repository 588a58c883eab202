"""Scans of a store directory of the broker of Apache 4.9.7.

The newest 4.9 broker on Maven Central created it. The manifest has the messages it returned: plain
and zlib bodies from 1 byte to 6 KB, tags, keys, properties in two scripts, committed transactions.
"""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from rocketpy.store import to_arrow
from tests.golden.store.test_apache_scans import files_of
from tests.golden.store.test_apache_stores import unpack

NAME = "store-497"
GROUPS = ("hosts", "properties", "msgId")


def rows_of(root: Path, **options: Any) -> list[dict[str, Any]]:
    """Return rows in the form of the manifest."""
    found = to_arrow(root, include=GROUPS, broker_name="old-a", **options).read_all()
    found.validate(full=True)
    rows = found.to_pylist()
    for row in rows:
        row["body_sha256"] = hashlib.sha256(row.pop("body")).hexdigest()
        row["properties"] = dict(row["properties"])
        for name in ("bornTimestamp", "storeTimestamp"):
            row[name] = int(row[name].timestamp() * 1000)
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


@pytest.mark.parametrize("scan", ["queue", "log"])
def test_store_of_4_9_messages_equal_those_of_its_broker(scan: Any, tmp_path: Path) -> None:
    manifest = unpack(NAME, tmp_path)
    before = files_of(tmp_path)

    assert rows_of(tmp_path, scan=scan, topics="Old*") == manifest["messages"]
    assert len(manifest["messages"]) == 64
    assert files_of(tmp_path) == before


def test_store_of_4_9_finds_keys_by_its_index(tmp_path: Path) -> None:
    manifest = unpack(NAME, tmp_path)
    wanted = [row for row in manifest["messages"] if "k7" in (row["keys"] or "").split()]

    assert rows_of(tmp_path, scan="index", keys=["k7"]) == wanted
    assert len(wanted) == 1
