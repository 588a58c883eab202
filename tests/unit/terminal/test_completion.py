"""Shell completion without a cluster; tests/integration/cli has one."""

import os
import subprocess
import sys
import threading
from typing import Self

import click
import pytest

import rocketpy.admin
from rocketpy.cli.main import COMMANDS
from rocketpy.terminal import completion


def offered(line: str, **environ: str) -> list[str]:
    """Return the completions of bash at the end of a line."""
    done = subprocess.run(
        [sys.executable, "-m", "rocketpy"],
        env={**os.environ, "_ROCKETPY_COMPLETE": "bash_complete", "COMP_LINE": line, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not done.stderr
    return [each.partition(",")[2] for each in done.stdout.split()]


def test_commands_and_options() -> None:
    assert offered("rocketpy ") == sorted(COMMANDS)
    assert offered("rocketpy co") == ["completion", "consume", "context", "controller"]
    assert offered("rocketpy -n 127.0.0.1:1 group re") == ["reset"]
    assert offered("rocketpy topic peek --new") == ["--newest"]


def test_cluster_that_is_not_there_offers_nothing() -> None:
    assert offered("rocketpy topic delete -n 127.0.0.1:1 or") == []
    assert offered("rocketpy group lag ", NAMESRV_ADDR="no such:address:") == []
    assert offered("rocketpy --context none group lag ") == []


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A cluster whose look-up holds its thread up; gives how long was waited for it."""
    waited: list[float] = []

    class Held:
        def join(self, limit_s: float) -> None:
            waited.append(limit_s)

        def start(self) -> None:
            pass

    monkeypatch.setattr(threading, "Thread", lambda **_: Held())
    return waited


def test_cluster_that_does_not_answer_is_waited_for_a_second(
    frozen: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = click.Context(click.Command("x"))
    ctx.params["namesrv"] = "127.0.0.1:1"
    for complete in (completion.topic_names, completion.group_names, completion.broker_names):
        assert complete(ctx, click.Argument(["x"]), "") == []
    assert frozen == [1.0, 1.0, 1.0]
    monkeypatch.setenv("ROCKETPY_COMPLETION_TIMEOUT", "2.5")
    completion.topic_names(ctx, click.Argument(["x"]), "")
    assert frozen[-1] == 2.5


def test_only_what_begins_so_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    class Admin:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def topics(self, *, include_system: bool) -> list[str]:
            return ["orders", "bills", *(["%RETRY%g"] if include_system else [])]

    monkeypatch.setenv("ROCKETPY_COMPLETION_TIMEOUT", "60")
    monkeypatch.setattr(rocketpy.admin, "connect", lambda _: Admin())
    ctx, topic = click.Context(click.Command("x")), click.Argument(["x"])
    assert completion.topic_names(ctx, topic, "") == ["bills", "orders"]
    assert completion.topic_names(ctx, topic, "or") == ["orders"]
    assert completion.topic_names(ctx, topic, "%") == ["%RETRY%g"]
