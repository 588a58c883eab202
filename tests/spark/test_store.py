"""Reads by `spark.read.format("rocketmq.store")` of store directories of RocketPy and Apache."""

import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from rocketpy.store import to_arrow
from tests.golden.store.test_apache_stores import NAMES, unpack
from tests.sampling import sample
from tests.unit.store.scan.kit import Written, overwrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS = ("brokerName", "topic", "queueId", "queueOffset")
SIZES = (0, 1, 100, 1024, 100_000)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Store in use, with 1, 2 and 8 queues and bodies of every size."""
    # In a separate folder, so that patterns do not match stores of other modules.
    root = tmp_path_factory.mktemp("one_store") / "ours"
    root.mkdir()
    store = Written(root, log_file_bytes=1 << 20)
    for queues in (1, 2, 8):
        for number in range(240):
            size = SIZES[number % 5] if queues == 2 and number < 40 else 100
            body = f"{queues}-{number}-".encode().ljust(size, b".")[:size]
            store.put(f"Q{queues}", number % queues, body, tag=f"Tag{number % 3}", key=f"k{number}")
        if queues == 2:
            store.flush()
    yield root
    store.close()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    roots = {name: tmp_path_factory.mktemp(name) for name in NAMES}
    for name, root in roots.items():
        unpack(name, root)
    return roots


@pytest.fixture(scope="module")
def everything(spark: "SparkSession", ours: Path) -> "DataFrame":
    """All rows, cached by Spark, as reference for conditions."""
    return read(spark, ours).cache()


def read(spark: "SparkSession", root: object, **options: Any) -> "DataFrame":
    named = {key.replace("__", "."): str(value) for key, value in options.items()}
    return spark.read.format("rocketmq.store").options(**named).load(str(root))


def rows(frame: "DataFrame") -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in frame.selectExpr(*KEYS, "crc32(body)").collect())


def held(root: Path, **options: Any) -> Counter[tuple[Any, ...]]:
    """Return the messages of the directory, read without Spark."""
    table = to_arrow(root, columns=[*KEYS, "body"], **options).read_all()
    columns = [table[name].to_pylist() for name in KEYS]
    crcs = [zlib.crc32(body) for body in table["body"].to_pylist()]
    return Counter(zip(*columns, crcs, strict=True))


@pytest.mark.parametrize("scan", sample(["queue", "log"], 2))
def test_store_reads_every_message_once(spark: "SparkSession", ours: Path, scan: Any) -> None:
    found = rows(read(spark, ours, scan=scan))

    assert found == held(ours)
    assert found.total() == 720
    assert max(found.values()) == 1


@pytest.mark.parametrize("name", sample(NAMES, 3))
def test_store_of_apache_is_read_completely(
    spark: "SparkSession", apache: dict[str, Path], name: str
) -> None:
    frame = read(spark, apache[name], topics="*", include="properties,hosts,msgId")

    assert rows(frame) == held(apache[name], topics="*")
    expected = to_arrow(apache[name], topics="*", include=("properties", "hosts", "msgId"))
    order = ["topic", "queueId", "queueOffset"]
    mine = frame.toArrow().sort_by([(each, "ascending") for each in order])
    wanted = expected.read_all().sort_by([(each, "ascending") for each in order])
    for column in wanted.schema.names:
        assert mine[column].to_pylist() == wanted[column].to_pylist(), column


TOPICS = ("Q1", "Q2", "Q8")
SPLITS: tuple[dict[str, Any], ...] = (
    {},
    {"minPartitions": 9},
    {"maxRecordsPerPartition": 7},
)


@pytest.mark.parametrize(("topic", "more"), sample(itertools.product(TOPICS, SPLITS), 4))
def test_store_read_with_any_split(
    spark: "SparkSession", ours: Path, topic: str, more: dict[str, Any]
) -> None:
    frame = read(spark, ours, topics=topic, **more)

    assert rows(frame) == held(ours, topics=topic)
    if "maxRecordsPerPartition" in more:
        assert frame.rdd.getNumPartitions() >= 240 // 7


def test_store_read_by_offsets_and_times(spark: "SparkSession", ours: Path) -> None:
    name = ours.name
    bounds = {"Q2": {name: {"0": 7, "1": -2}}}, {"Q2": {name: {"0": 90, "1": 10}}}
    start, end = (json.dumps(each) for each in bounds)

    found = rows(read(spark, ours, topics="Q2", startingOffsets=start, endingOffsets=end))

    assert Counter((row[2], row[3]) for row in found) == Counter(
        [*((0, n) for n in range(7, 90)), *((1, n) for n in range(10))]
    )
    times = to_arrow(ours, topics="Q8", columns=["storeTimestamp"]).read_all()[0].to_pylist()
    low, high = (int(sorted(times)[n].timestamp() * 1000) for n in (50, 100))
    for scan in ("queue", "log"):
        frame = read(
            spark, ours, topics="Q8", scan=scan, startingTimestamp=low, endingTimestamp=high
        )
        assert frame.count() == 50


def test_store_read_by_tags_keys_and_directories(
    spark: "SparkSession", ours: Path, apache: dict[str, Path]
) -> None:
    assert read(spark, ours, topics="Q2,Q8", subExpression="Tag1 || Tag2").count() == 320
    assert read(spark, ours, scan="index", keys="k7,k8").count() == 6
    small = apache["store-small"]
    both = rows(read(spark, f"{ours},{small}", brokerName="a,b"))
    assert both == held(ours, broker_name="a") + held(small, broker_name="b")
    pattern = rows(read(spark, ours.parent / "our[st]"))
    assert pattern == held(ours)
    loaded = spark.read.format("rocketmq.store").load([str(ours), str(small)])
    assert loaded.select("brokerName").distinct().count() == 2


def test_store_read_with_columns_styles_and_user_schema(spark: "SparkSession", ours: Path) -> None:
    kafka = read(spark, ours, topics="Q1", schemaStyle="kafka", valueFormat="string")
    assert kafka.columns[:6] == ["key", "value", "topic", "partition", "offset", "timestamp"]
    assert kafka.where("offset = 3").collect()[0].value.startswith("1-3-")
    few = read(spark, ours, topics="Q1", columns="body,queueOffset")
    assert few.columns == ["body", "queueOffset"]
    assert few.count() == 240
    own = spark.read.format("rocketmq.store").schema("tags STRING, queueOffset BIGINT")
    assert own.load(str(ours)).where("tags = 'Tag0'").count() == 240
    with pytest.raises(PySparkException, match="column queueOffset is bigint, not string"):
        spark.read.format("rocketmq.store").schema("queueOffset STRING").load(str(ours)).collect()


FILTER = re.compile(r"\bFilter \((.*)")
PREDICATES = [
    "topic = 'Q2'",
    "topic IN ('Q1', 'Q8')",
    "queueId = 1",
    "queueOffset >= 100",
    "queueOffset > 20 AND queueOffset < 30",
    "queueOffset <= 5",
    "tags = 'Tag1'",
    "tags <=> 'Tag2'",
    "tags IS NOT NULL",
    "keys LIKE 'k1%'",
    "keys LIKE '%7'",
    "keys LIKE '%23%'",
    "NOT tags = 'Tag0'",
    "storeTimestamp > '2027-01-15 08:10:00'",
    "tags IS NULL",
]


@pytest.mark.parametrize("predicate", sample(PREDICATES, 4))
def test_store_read_with_pushdown_returns_the_same_rows(
    spark: "SparkSession", ours: Path, everything: "DataFrame", predicate: str
) -> None:
    plain = rows(everything.where(predicate))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, ours, pushdown=True).where(predicate)
        assert rows(frame) == plain
        assert not FILTER.search(physical_plan(frame))
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_store_read_leaves_other_conditions_to_spark(
    spark: "SparkSession", ours: Path, everything: "DataFrame"
) -> None:
    predicate = "queueOffset = 3 AND length(body) > 5 AND properties['KEYS'] = 'k3'"
    plain = rows(everything.where(predicate))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark, ours, pushdown=True).where(predicate)
        assert rows(frame) == plain
        assert plain.total() == 1
        left = FILTER.search(physical_plan(frame))
        assert left is not None
        assert "queueOffset" not in left[1]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def physical_plan(frame: "DataFrame") -> str:
    query = frame._jdf.queryExecution()
    return str(query.executedPlan().toString())


def test_store_read_without_sparks_setting_has_no_pushdown(
    spark: "SparkSession", ours: Path
) -> None:
    assert read(spark, ours).where("queueId = 1").count() == 120 + 30


def test_store_tables(spark: "SparkSession", ours: Path, apache: dict[str, Path]) -> None:
    topics = read(spark, apache["store-small"], table="topics")
    assert topics.where("topic = 'VecBulk'").collect()[0].messages > 500
    assert read(spark, ours, table="offsets").columns[:3] == ["brokerName", "group", "topic"]
    assert read(spark, ours, table="groups").count() == 0
    few = spark.read.format("rocketmq.store").option("table", "topics").schema("topic STRING")
    assert {row.topic for row in few.load(str(ours)).collect()} == {"Q1", "Q2", "Q8"}


def test_store_read_damaged_records_fail_or_skip(spark: "SparkSession", tmp_path: Path) -> None:
    store = Written(tmp_path)
    places = [store.put("T", 0, f"m-{n}".encode()) for n in range(20)]
    store.close()
    overwrite(tmp_path, places[11] + 4, bytes(4))

    with pytest.raises(PySparkException, match=f"physical offset {places[11]}"):
        read(spark, tmp_path).collect()
    for scan in ("queue", "log"):
        assert read(spark, tmp_path, scan=scan, onDamaged="skip").count() == 19


def test_store_read_lost_offsets_fail_or_skip(spark: "SparkSession", ours: Path) -> None:
    beyond = json.dumps({"Q1": {ours.name: {"0": 250}}})

    with pytest.raises(PySparkException, match="messages 240 to 249 of Q1, queue 0, were deleted"):
        read(spark, ours, endingOffsets=beyond).collect()
    frame = read(spark, ours, topics="Q1", endingOffsets=beyond, onDataLoss="skip")
    assert frame.count() == 240


@pytest.mark.parametrize(
    ("options", "words"),
    sample(
        [
            ({"scna": "log"}, "no such option; did you mean scan"),
            ({"scan": "logs"}, "not one of queue, log, index"),
            ({"topics": "Q11"}, "no topic 'Q11' .* did you mean Q1"),
            ({"scan": "index"}, "keys: needs scan=index"),
            ({"columns": "bdoy"}, "did you mean body"),
            ({"subExpression": " || "}, "holds no tag"),
            ({"startingOffsets": "latest"}, "not one of earliest"),
            ({"startingOffsets": '{"Q1":{"broker-x":{"0":1}}}'}, "names broker 'broker-x'"),
            ({"brokerName": "a,b"}, "has 2 names for 1 directories"),
            ({"table": "topic"}, "not one of messages, offsets, topics, groups"),
        ],
        3,
    ),
)
def test_store_read_wrong_option_fails(
    spark: "SparkSession", ours: Path, options: dict[str, str], words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        read(spark, ours, **options).collect()


def test_store_read_of_another_directory_fails(spark: "SparkSession", tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="is not a store directory"):
        read(spark, tmp_path).collect()
    with pytest.raises(PySparkException, match="nothing matches"):
        read(spark, tmp_path / "none*").collect()


def test_store_read_of_an_empty_store_has_no_rows(spark: "SparkSession", tmp_path: Path) -> None:
    Written(tmp_path).close()

    assert read(spark, tmp_path).count() == 0
