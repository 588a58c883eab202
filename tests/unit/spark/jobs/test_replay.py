import importlib.util
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.errors import JobError
from rocketpy.spark.jobs import replay


def test_command_without_the_extra_fails_before_options_are_parsed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(replay, "deal_options", None)
    for more in (["--to", "u"], ["--archive", str(tmp_path)]):
        failure = CliRunner().invoke(replay.command, ["orders", *more]).exception
        assert isinstance(failure, JobError)
        assert "pip install 'rocketpy-mq[spark]'" in str(failure)
