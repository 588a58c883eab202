"""Offsets, topics and groups of a store directory as tables."""

import json
from pathlib import Path

from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.tables import SCHEMAS, table
from tests.unit.store.scan.kit import written


def with_config(root: Path) -> StoreDirectory:
    written(root, 100)
    config = root / "config"
    config.mkdir(exist_ok=True)
    (config / "consumerOffset.json").write_text(
        '{"offsetTable":{"T@g":{0:30,1:50},"T@a":{1:7},"Gone@g":{0:3}}}'
    )
    topic = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False}
    (config / "topics.json").write_text(
        json.dumps({"topicConfigTable": {"T": {**topic, "attributes": {"+k": "v"}}, "New": topic}})
    )
    (config / "subscriptionGroup.json").write_text("torn")
    (config / "subscriptionGroup.json.bak").write_text(
        json.dumps({"subscriptionGroupTable": {"g": {"retryMaxTimes": 16, "consumeEnable": True}}})
    )
    return StoreDirectory(root)


def test_offsets_beside_the_ends_of_queues(tmp_path: Path) -> None:
    found = table(with_config(tmp_path), "offsets").to_pylist()

    assert [tuple(row.values()) for row in found] == [
        ("a", "T", 1, 7, 0, 50, 43),
        ("g", "Gone", 0, 3, None, None, None),
        ("g", "T", 0, 30, 0, 50, 20),
        ("g", "T", 1, 50, 0, 50, 0),
    ]


def test_topics_with_what_they_hold(tmp_path: Path) -> None:
    found = table(with_config(tmp_path), "topics").to_pylist()

    assert [(row["topic"], row["queues"], row["messages"], row["perm"]) for row in found] == [
        ("New", 0, 0, 6),
        ("T", 2, 100, 6),
    ]
    assert found[1]["attributes"] == [("+k", "v")]


def test_groups_come_from_the_copy_when_the_file_is_torn(tmp_path: Path) -> None:
    found = table(with_config(tmp_path), "groups").to_pylist()

    assert [(row["group"], row["retryMaxTimes"], row["consumeEnable"]) for row in found] == [
        ("g", 16, True)
    ]


def test_directory_without_configuration_has_empty_tables(tmp_path: Path) -> None:
    written(tmp_path, 2)
    directory = StoreDirectory(tmp_path)

    assert table(directory, "offsets").num_rows == table(directory, "groups").num_rows == 0
    assert table(directory, "topics").column("topic").to_pylist() == ["T"]
    for name, schema in SCHEMAS.items():
        assert table(directory, name).schema.equals(schema)
