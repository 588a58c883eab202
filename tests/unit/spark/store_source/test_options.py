"""Options of the format `rocketmq.store`: errors and results, and the plan of a split read."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from rocketpy.errors import ConfigError
from rocketpy.spark.options import options_of, parse_options
from rocketpy.spark.store_source.format import store_reader, store_schema
from rocketpy.spark.store_source.options import StoreOptions
from tests.unit.store.scan.kit import Written


def parsed(**options: str) -> StoreOptions:
    return parse_options({"path": "/a/store", **options}, StoreOptions)


@pytest.mark.parametrize("name", [each.name for each in options_of(StoreOptions)])
def test_store_options_misspelt_name_suggests_the_option(name: str) -> None:
    known = {each.name.lower() for each in options_of(StoreOptions)}
    for index in range(1, len(name)):
        misspelt = name[:index] + name[index + 1 :]
        if misspelt.lower() not in known:
            with pytest.raises(ConfigError, match="no such option") as caught:
                parsed(**{misspelt: "1"})
            assert len(name) < 5 or "did you mean" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ""}, "path: is required"),
        ({"keys": "k"}, "keys: needs scan=index"),
        ({"scan": "index"}, "keys: needs scan=index"),
        ({"scan": "log", "startingOffsets": '{"T":{"b":{"0":1}}}'}, "needs scan=queue"),
        ({"startingOffsets": "latest"}, "not one of earliest"),
        ({"startingOffsets": '{"T":{"b":{"0":-1}}}'}, "cannot be the latest"),
        ({"endingOffsets": '{"T":{"b":{"0":-2}}}'}, "cannot be the earliest"),
        ({"subExpression": " || "}, "holds no tag"),
        ({"subExpression": "a >", "expressionType": "SQL92"}, "subExpression: "),
        ({"subExpression": "a IS NULL b", "expressionType": "SQL92"}, "subExpression: "),
        ({"onDataLoss": "mark", "scan": "log"}, "mark needs scan=queue"),
        ({"onDataLoss": "skip", "failOnDataLoss": "true"}, "excludes failOnDataLoss"),
        ({"paths": "x"}, "is not JSON"),
        ({"paths": "[1]"}, "is not a list of paths"),
    ],
)
def test_store_options_invalid_raise(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parsed(**options)


def test_roots_and_broker_names(tmp_path: Path) -> None:
    for name in ("a/store", "b/store", "c"):
        (tmp_path / name).mkdir(parents=True)

    both = parsed(path=f"{tmp_path}/a/store, {tmp_path}/c")
    assert both.roots() == [f"{tmp_path}/a/store", f"{tmp_path}/c"]
    assert both.broker_names() == ["store", "c"]
    pattern = parsed(path=f"file://{tmp_path}/*/store")
    assert pattern.roots() == [f"{tmp_path}/a/store", f"{tmp_path}/b/store"]
    assert pattern.broker_names() == pattern.roots()
    named = parsed(path=f"{tmp_path}/*/store", brokerName="x,y")
    assert named.broker_names() == ["x", "y"]
    with pytest.raises(ConfigError, match="has 1 names for 2 directories"):
        parsed(path=f"{tmp_path}/*/store", brokerName="x").roots()
    with pytest.raises(ConfigError, match="nothing matches"):
        parsed(path=f"{tmp_path}/none*").roots()
    with pytest.raises(ConfigError, match="is for a single directory"):
        parsed(path=f"{tmp_path}/*/store", commitLogPath="/log").roots()


def test_split_store_read_marks_lost_messages_of_a_queue_once(tmp_path: Path) -> None:
    store = Written(tmp_path)
    store.fill("T", 300)
    store.close()
    min((tmp_path / "commitlog").iterdir()).unlink()
    given = CaseInsensitiveDict(
        {
            "path": str(tmp_path),
            "startingOffsets": json.dumps({"T": {tmp_path.name: {"0": 0, "1": 0}}}),
            "onDataLoss": "mark",
            "maxRecordsPerPartition": "10",
            "minPartitions": "30",
        }
    )
    reader = store_reader(given, store_schema(given))

    planned = reader.partitions()
    batches: list[Any] = [batch for each in planned for batch in reader.read(each)]
    rows = [row for batch in batches for row in batch.to_pylist()]

    marks = [row for row in rows if row["body"] is None]
    assert [(row["queueId"], row["queueOffset"]) for row in marks] == [(0, 0), (1, 0)]
    for mark in marks:
        offsets = [r["queueOffset"] for r in rows if r["queueId"] == mark["queueId"]]
        assert offsets == [0, *range(int(dict(mark["properties"])["LOST_UNTIL"]), 150)]
    assert len(planned) > 4
