"""Division of job options between reader and sink, and progress output."""

import subprocess
import sys

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.jobs.job_cli import deal_options, split_conf

SERVERS = "127.0.0.1:9876"


def test_split_conf_separates_spark_and_rocketmq_options() -> None:
    settings, options = split_conf({"spark.ui.port": "1", "rocketmq.accessKey": "a", "x": "2"})

    assert settings == {"spark.ui.port": "1", "x": "2"}
    assert options == {"accessKey": "a"}


def test_deal_options_passes_common_options_to_reader_and_sink() -> None:
    given = {"accesskey": "a", "fetch.prefetch": "2", "inflight": "7", "nobodys": "1"}

    of_reader, of_sink = deal_options(given, SERVERS)

    assert of_reader == {"accesskey": "a", "fetch.prefetch": "2", "nobodys": "1"}
    assert of_sink == {"accesskey": "a", "inflight": "7"}


def test_deal_options_without_a_reader_accepts_only_sink_options() -> None:
    given = {"accessKey": "a", "secretKey": "s", "inflight": "7"}

    assert deal_options(given, SERVERS, is_read=False) == ({}, given)
    with pytest.raises(ConfigError, match=r"prefetch: no such option of this query, it is for str"):
        deal_options({"fetch.prefetch": "2"}, SERVERS, is_read=False)
    with pytest.raises(ConfigError, match="inflihgt: no such option; did you mean inflight"):
        deal_options({"inflihgt": "2"}, SERVERS, is_read=False)


@pytest.mark.parametrize(("output", "is_said"), [("json", False), ("table", True)])
def test_progress_with_json_on_a_shared_output_is_quiet(output: str, is_said: bool) -> None:
    code = f"from rocketpy.spark.jobs.job_cli import progress_for; progress_for({output!r})('half')"
    command = [sys.executable, "-c", code]
    apart = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (apart.stdout, apart.stderr[-5:]) == ("", "half\n")
    joined = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
    )
    assert ("half" in joined.stdout) is is_said
