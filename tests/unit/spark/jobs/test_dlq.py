import importlib.util

import pytest
from click.testing import CliRunner

from rocketpy.errors import JobError
from rocketpy.spark.jobs import dlq


def test_command_without_the_extra_fails_before_options_are_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(dlq, "deal_options", None)
    for more in ([], ["--requeue"]):
        failure = CliRunner().invoke(dlq.command, ["readers", *more]).exception
        assert isinstance(failure, JobError)
        assert "pip install 'rocketpy-mq[spark]'" in str(failure)
