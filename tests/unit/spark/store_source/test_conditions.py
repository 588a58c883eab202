"""Push-down of conditions to reads of a store."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rocketpy.spark.store_source.format import store_reader, store_schema
from rocketpy.spark.store_source.narrowing_reader import NarrowingReader
from tests.unit.store.scan.kit import Written


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Store with T: 30 messages in 2 queues, tags 0 to 2; U: 10 in one, one without a tag."""
    store = Written(tmp_path_factory.mktemp("store"))
    store.fill("T", 30)
    store.fill("U", 10, queues=1)
    store.flush()
    store.put("U", 0, b"U-10", key="none")
    yield store.root
    store.close()


def read(root: Path, *filters: Filter, **options: Any) -> tuple[list[str], list[Filter], int]:
    """Read a store; return bodies, conditions left to Spark, and the number of tasks."""
    given = CaseInsensitiveDict({"path": str(root), "pushdown": "true", **options})
    reader = store_reader(given, store_schema(given))
    assert isinstance(reader, NarrowingReader)
    left = list(reader.pushFilters(list(filters)))
    planned = reader.partitions()
    sent = pickle.loads(pickle.dumps((reader, planned)))
    batches = [batch for each in sent[1] for batch in sent[0].read(each)]
    name = "value" if options.get("schemaStyle") == "kafka" else "body"
    found = [body.rstrip(b".").decode() for batch in batches for body in batch[name].to_pylist()]
    return found, left, len(planned)


@pytest.mark.parametrize(
    ("condition", "count", "tasks"),
    [
        (EqualTo(("topic",), "U"), 11, 1),
        (In(("topic",), ("U", "V")), 11, 1),
        (EqualTo(("brokerName",), "another"), 0, 0),
        (EqualTo(("queueId",), 1), 15, 1),
        (GreaterThan(("queueOffset",), 11), 6, 2),
        (GreaterThanOrEqual(("queueOffset",), 10), 11, 3),
        (LessThan(("queueOffset",), 3), 9, 3),
        (LessThanOrEqual(("queueOffset",), 3), 12, 3),
        (In(("queueOffset",), (3, 7)), 6, 3),
        (EqualTo(("tags",), "Tag1"), 13, 3),
        (EqualNullSafe(("tags",), "Tag1"), 13, 3),
        (IsNull(("tags",)), 1, 3),
        (IsNotNull(("tags",)), 40, 3),
        (Not(EqualTo(("tags",), "Tag1")), 27, 3),
        (Not(In(("tags",), ("Tag1", "Tag2"))), 14, 3),
        (Not(EqualNullSafe(("tags",), "Tag1")), 28, 3),
        (StringStartsWith(("keys",), "k2"), 12, 3),
        (StringEndsWith(("keys",), "9"), 4, 3),
        (StringContains(("keys",), "one"), 1, 3),
        (EqualTo(("sysFlag",), 1), 0, 3),
    ],
    ids=str,
)
def test_conditions_filter_every_row(root: Path, condition: Filter, count: int, tasks: int) -> None:
    found, left, planned = read(root, condition)

    assert (len(found), left) == (count, [])
    assert planned == tasks


def test_conditions_unsupported_are_left_to_spark(root: Path) -> None:
    others: list[Filter] = [
        EqualTo(("body",), b"x"),
        IsNotNull(("properties",)),
        EqualTo(("properties", "KEYS"), "k1"),
        GreaterThan(("tags",), "Tag1"),
        EqualTo(("tags",), None),
        In(("tags",), ("a", None)),
        Not(EqualTo(("body",), b"x")),
    ]

    found, left, _ = read(root, *others, EqualTo(("queueOffset",), 0))

    assert left == others
    assert len(found) == 3


def test_conditions_use_names_of_the_style(root: Path) -> None:
    found, left, tasks = read(
        root, EqualTo(("partition",), 1), LessThan(("offset",), 4), schemaStyle="kafka"
    )

    assert (found, left, tasks) == (["T-1", "T-3", "T-5", "T-7"], [], 1)


def test_conditions_on_tags_combine_with_the_expression(root: Path) -> None:
    found, _, _ = read(root, EqualTo(("tags",), "Tag1"), subExpression="Tag1 || Tag2")

    assert len(found) == 13


def test_conditions_empty_read_everything(root: Path) -> None:
    found, left, _ = read(root, paths=json.dumps([]))

    assert len(found) == 41
    assert left == []


def test_conditions_are_accepted_only_with_pushdown(root: Path) -> None:
    given = CaseInsensitiveDict({"path": str(root)})

    assert not isinstance(store_reader(given, store_schema(given)), NarrowingReader)
