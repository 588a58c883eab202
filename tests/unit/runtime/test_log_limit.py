import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from rocketpy.runtime import logs
from rocketpy.runtime.log_limit import LogLimiter
from tests.unit.runtime.test_logs import restore_logging  # noqa: F401 - a fixture


class FakeClock:
    def __init__(self) -> None:
        self.now_ms = 1_000

    def time_ms(self) -> int:
        return self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class Written:
    """Lines that a limiter lets through, with the clock of its periods."""

    def __init__(self, log_format: logs.LogFormat = "json") -> None:
        self.clock = FakeClock()
        self.stream = io.StringIO()
        handler = logs.configure(level="debug", log_format=log_format, stream=self.stream)
        self.wakes: list[int] = []
        self.limiter = LogLimiter(self.clock, handler.emit, lines=3, period_ms=10_000)
        self.limiter.use_wake(lambda: self.wakes.append(self.clock.now_ms))
        handler.addFilter(self.limiter.admit)
        self.limiter.begin()

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def step(self, at_ms: int) -> int:
        self.clock.now_ms = at_ms
        return self.limiter.step(at_ms)


@pytest.fixture
def written() -> Iterator[Written]:
    yield Written()
    structlog.reset_defaults()


def test_limiter_repeated_lines_are_written_once_a_period_with_their_count(
    written: Written,
) -> None:
    log = logging.getLogger("rocketpy.remoting")
    for number in range(13):
        log.warning("request failed peer=%s opaque=%d", f"10.0.0.1:{number}", number)
    assert [line["opaque"] for line in written.lines()] == [0, 1, 2]
    assert written.wakes == [1_000]
    assert written.step(5_000) == 11_000
    assert len(written.lines()) == 3
    written.step(11_000)
    last = written.lines()[-1]
    assert (last["event"], last["opaque"], last["repeated"]) == ("request failed", 12, 10)


def test_limiter_lasting_flood_has_one_line_a_period(written: Written) -> None:
    log = structlog.get_logger("rocketpy.broker")
    for at_ms in range(1_000, 41_000, 100):
        written.step(at_ms)
        log.warning("request rejected", peer="10.0.0.1:1")
    counts = [line.get("repeated") for line in written.lines()]
    assert counts == [None, None, None, 97, 100, 100]


def test_limiter_quiet_period_gives_first_lines_again(written: Written) -> None:
    log = structlog.get_logger("rocketpy.broker")
    for at_ms in (1_000, 30_000):
        written.step(at_ms)
        for _ in range(3):
            log.error("flush failed")
    assert [line.get("repeated") for line in written.lines()] == [None] * 6


def test_limiter_service_that_fails_each_second_has_one_line_a_period() -> None:
    clock, stream = FakeClock(), io.StringIO()
    handler = logs.configure(log_format="json", stream=stream)
    limiter = LogLimiter(clock, handler.emit)
    handler.addFilter(limiter.admit)
    limiter.begin()
    log = logging.getLogger("rocketpy.runtime.service")
    for second in range(60):
        clock.now_ms = 1_000 + 1_000 * second
        limiter.step(clock.now_ms)
        log.error("service step failed: service=%s reason=%s", "delay-offsets", "no space")
    counts = [json.loads(line).get("repeated") for line in stream.getvalue().splitlines()]
    assert counts == [None] * 10 + [10] * 4
    structlog.reset_defaults()


def test_limiter_rare_lines_are_all_written() -> None:
    clock, stream = FakeClock(), io.StringIO()
    handler = logs.configure(log_format="json", stream=stream)
    limiter = LogLimiter(clock, handler.emit)
    handler.addFilter(limiter.admit)
    limiter.begin()
    log = structlog.get_logger("rocketpy.broker")
    for number in range(50):
        clock.now_ms = 1_000 + 3_000 * number
        limiter.step(clock.now_ms)
        log.warning("topic created", number=number)
    written = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["number"] for line in written] == list(range(50))
    structlog.reset_defaults()


def test_limiter_kinds_differ_in_event_level_logger_and_peer_host(written: Written) -> None:
    for name in ("rocketpy.a", "rocketpy.b"):
        log = structlog.get_logger(name)
        for host in ("10.0.0.1", "10.0.0.2", "[fe80::1]"):
            for port in range(5):
                log.info("rejected", peer=f"{host}:{port}")
                log.warning("rejected", peer=f"{host}:{port}")
                log.warning("refused", peer=f"{host}:{port}")
    assert len(written.lines()) == 2 * 3 * 3 * 3


def test_limiter_lines_before_begin_changes_and_debug_lines_are_all_written() -> None:
    written = Written()
    written.limiter.end()
    start = structlog.get_logger("rocketpy.store")
    for _ in range(20):
        start.warning("queue emptied")
    written.limiter.begin()
    for _ in range(20):
        structlog.get_logger("rocketpy.broker.admin.topics").info("topic deleted")
        structlog.get_logger("rocketpy.namesrv.processor.brokers").info("broker registered")
        start.debug("asked for")
        start.critical("the store is read-only")
    assert len(written.lines()) == 100
    structlog.reset_defaults()


def test_limiter_end_writes_what_is_still_counted(written: Written) -> None:
    log = structlog.get_logger("rocketpy.broker")
    for number in range(5):
        log.warning("rejected", number=number)
    written.limiter.end()
    assert [(line["number"], line.get("repeated")) for line in written.lines()[3:]] == [(4, 2)]
    log.warning("rejected", number=5)
    assert written.lines()[-1]["number"] == 5


def test_limiter_counted_traceback_is_not_written(written: Written) -> None:
    log = logging.getLogger("rocketpy.client")
    for _ in range(5):
        try:
            int("no")
        except ValueError:
            log.exception("handler failed")
    written.limiter.end()
    shown = ["exception" in line for line in written.lines()]
    assert shown == [True, True, True, False]
    assert written.lines()[-1]["repeated"] == 2


def test_limiter_template_with_percent_or_named_fields_gets_the_count() -> None:
    written = Written("console")
    log = logging.getLogger("rocketpy.store")
    for _ in range(4):
        log.warning("disk at 90 %")
        log.warning("disk full: used=%(used)s", {"used": "90%"})
    written.limiter.end()
    text = written.stream.getvalue()
    assert text.count("disk at 90 %") == 4
    assert "disk at 90 % repeated=1" in text
    assert "used=90% repeated=1" in text
    structlog.reset_defaults()


def test_limiter_many_peers_share_their_counts_beyond_the_bound(written: Written) -> None:
    log = structlog.get_logger("rocketpy.broker")
    for number in range(2_000):
        for port in range(4):
            log.warning("rejected", peer=f"10.{number >> 8}.{number & 255}.1:{port}")
    # 512 hosts with 3 lines each, then 3 lines for all others.
    # Parts of earlier tests may log meanwhile.
    rejected = [line for line in written.lines() if line["event"] == "rejected"]
    assert len(rejected) == 512 * 3 + 3
