"""`rocketpy message trace`: output of trace records."""

import contextlib
from collections.abc import AsyncIterator

import orjson
import pytest
from click.testing import CliRunner

from rocketpy import admin
from rocketpy.cli.main import command
from rocketpy.proto.trace import ConsumeEndTrace, TraceRecord

RECORD = ConsumeEndTrace(
    request_id="r", msg_id="id", cost_ms=3, time_ms=1_700_000_000_123, group="g"
)


class Recorded:
    def __init__(self, *records: TraceRecord) -> None:
        self._records = list(records)

    async def trace(self, message_id: str, *, topic: str) -> admin.Answers[TraceRecord]:
        assert (message_id, topic) == ("id", "RMQ_SYS_TRACE_TOPIC")
        return admin.Answers(self._records)


def traced(monkeypatch: pytest.MonkeyPatch, *records: TraceRecord, output: str = "table") -> str:
    @contextlib.asynccontextmanager
    async def connect(_namesrv: str) -> AsyncIterator[Recorded]:
        yield Recorded(*records)

    monkeypatch.setattr(admin, "connect", connect)
    result = CliRunner().invoke(command, ["message", "trace", "id", "-o", output])
    assert result.exit_code == 0, result.output
    return result.output


def test_times_of_a_trace_are_iso_8601(monkeypatch: pytest.MonkeyPatch) -> None:
    head, row = traced(monkeypatch, RECORD).splitlines()
    assert head.split()[:3] == ["KIND", "TIME", "GROUP"]
    assert row.split()[:3] == ["SubAfter", "2023-11-14T22:13:20.123Z", "g"]
    [found] = orjson.loads(traced(monkeypatch, RECORD, output="json"))
    assert (found["time"], found["time_ms"]) == ("2023-11-14T22:13:20.123Z", RECORD.time_ms)


def test_old_client_records_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ConsumeEndTrace(request_id="r", msg_id="id", cost_ms=3)
    [found] = orjson.loads(traced(monkeypatch, old, output="json"))
    assert found["time"] == ""
