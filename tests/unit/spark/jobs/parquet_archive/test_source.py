"""Options of streams that the reader of the archive job accepts."""

import pytest

from rocketpy.errors import ConfigError, JobError
from rocketpy.spark.jobs.parquet_archive.files import check_names
from rocketpy.spark.jobs.parquet_archive.source import COMPRESSION, ROOT, ArchiveReader

GIVEN = {"nameservers": "127.0.0.1:9876", "subscribe": "T", ROOT: "/tmp", COMPRESSION: "snappy"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", "body"),
        ("include", "hosts"),
        ("schemaStyle", "kafka"),
        ("VALUEFORMAT", "string"),
        ("onDataLoss", "mark"),
    ],
)
def test_archive_reader_with_options_that_change_columns_raises(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i)^{name}: an archive always has"):
        ArchiveReader(GIVEN | {name: value})


def test_archive_reader_has_all_columns() -> None:
    reader = ArchiveReader(GIVEN | {"onDataLoss": "skip"})

    assert {"msgId", "bornHost", "properties"} <= set(reader.rows.names)


@pytest.mark.parametrize(
    ("topic", "broker", "words"),
    [
        ("t" * 249, "broker-a", ""),
        ("t" * 250, "broker-a", "topic ttt.* has 256 characters"),
        ("%RETRY%" + "g" * 240, "broker-a", "topic %RETRY%g.* has 257 characters"),
        ("T", "b" * 190, ""),
        ("T", "b" * 200, r"broker bbb.* has 2\d\d characters"),
    ],
)
def test_check_names_too_long_raises(topic: str, broker: str, words: str) -> None:
    if words:
        with pytest.raises(JobError, match=words):
            check_names([("T", "broker-a", 0), (topic, broker, 3)])
    else:
        check_names([("T", "broker-a", 0), (topic, broker, 3)])
