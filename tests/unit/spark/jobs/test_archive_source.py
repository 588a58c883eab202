"""What an archive's reader takes of the options of a stream."""

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.jobs.archive_source import COMPRESSION, ROOT, ArchiveReader

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
