"""What an archive's reader takes of the options of a stream."""

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
def test_options_that_files_of_one_shape_cannot_follow(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i)^{name}: an archive has"):
        ArchiveReader(GIVEN | {name: value})


def test_every_column_is_there() -> None:
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
def test_names_that_no_file_system_takes_are_refused(topic: str, broker: str, words: str) -> None:
    if words:
        with pytest.raises(JobError, match=words):
            check_names([("T", "broker-a", 0), (topic, broker, 3)])
    else:
        check_names([("T", "broker-a", 0), (topic, broker, 3)])
