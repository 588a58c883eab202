import contextlib
import io
import json
import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from rocketpy.runtime import logs
from rocketpy.runtime.log_file import LogFileHandler


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, made_as = root.handlers[:], root.level, logging.getLoggerClass()
    yield
    logging.setLoggerClass(made_as)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_events_and_library_lines_end_in_the_same_json() -> None:
    stream = io.StringIO()
    logs.configure(log_format="json", stream=stream)
    structlog.get_logger("daemon").info("ready", port=9876)
    logging.getLogger("rocketpy.store").warning("flush failed: queue=%d error=%s", 3, "a b=c")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["port"], first["level"]) == ("ready", 9876, "info")
    assert (second["event"], second["queue"], second["error"]) == ("flush failed", 3, "a b=c")
    assert second["logger"] == "rocketpy.store"
    assert second["level"] == "warning"


def test_lower_levels_are_dropped() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", stream=stream)
    structlog.get_logger("daemon").info("hidden")
    logging.getLogger("rocketpy").info("hidden")
    structlog.get_logger("daemon").warning("shown", key="value")
    assert stream.getvalue().count("\n") == 1
    assert "key=value" in stream.getvalue()


def test_traceback_stays_on_its_line_in_json_and_shows_no_variables() -> None:
    for log_format in ("json", "console"):
        stream = io.StringIO()
        logs.configure(log_format=log_format, stream=stream)
        try:
            _fail_with_a_local("hunter" + "2")
        except ZeroDivisionError:
            logging.getLogger("rocketpy").exception("failed")
        assert "ZeroDivisionError" in stream.getvalue()
        assert "hunter2" not in stream.getvalue()
        if log_format == "json":
            assert stream.getvalue().count("\n") == 1


def _fail_with_a_local(secret: str) -> float:
    return len(secret) / 0


def test_events_may_go_through_logging_for_a_while(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.INFO)
    # One logger was made before structlog made its own class the one of all, one after.
    of_structlog: type[logging.Logger] = type(structlog.stdlib.LoggerFactory()("made by it"))
    classes: list[type[logging.Logger]] = [logging.Logger, of_structlog]
    for number, made_as in enumerate(classes):
        before = logging.getLoggerClass()
        logging.setLoggerClass(made_as)
        name = f"daemon.{number}"
        with logs.through_logging():
            structlog.get_logger(name).info("ready", port=9876)
            structlog.get_logger(name).debug("hidden")
        logging.setLoggerClass(before)
    assert {record.getMessage() for record in caplog.records} == {"event='ready' port=9876"}
    assert [record.pathname for record in caplog.records] == [__file__] * 2
    assert capsys.readouterr() == ("", "")
    assert not structlog.is_configured()


def test_class_of_loggers_stays_the_program_s_own() -> None:
    before = logging.getLoggerClass()
    with logs.through_logging():
        structlog.get_logger("daemon").info("ready")
        assert logging.getLoggerClass() is before
    assert logging.getLoggerClass() is before


def test_through_logging_blocks_may_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(logs.through_logging())
    second.enter_context(logs.through_logging())
    first.close()
    structlog.get_logger("daemon").info("of the second")
    second.close()
    assert capsys.readouterr().out == ""
    assert not structlog.is_configured()


def test_through_logging_keeps_a_structlog_configuration() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)
    with logs.through_logging():
        structlog.get_logger("daemon").info("ready")
    assert "ready" in stream.getvalue()
    assert structlog.is_configured()


def test_log_file_with_a_lower_count_removes_surplus_old_files(tmp_path: Path) -> None:
    for suffix in ("", ".1", ".2", ".3", ".4", ".20261127"):
        (tmp_path / f"s.log{suffix}").write_text("old")
    LogFileHandler(tmp_path / "s.log", 1 << 20, 2).close()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "s.log",
        "s.log.1",
        "s.log.2",
        "s.log.20261127",
    ]


def test_log_file_that_is_a_pipe_without_a_reader_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="without a reader") as refused:
        LogFileHandler(path, 1 << 20, 2)
    assert refused.value.filename == str(path)


def test_log_file_that_is_a_pipe_with_a_reader_gets_lines(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    handler = LogFileHandler(path, 1 << 20, 2)
    handler.emit(logging.makeLogRecord({"msg": "a line"}))
    handler.close()
    assert os.read(reader, 100) == b"a line\n"
    os.close(reader)


@pytest.mark.parametrize("how", ["removed", "renamed"])
def test_log_file_moved_by_another_program_is_begun_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    path = tmp_path / "s.log"
    with contextlib.closing(logs.configure(file=logs.LogFile(path))):
        structlog.get_logger("daemon").info("first")
        path.unlink() if how == "removed" else path.rename(tmp_path / "s.log-20261127")
        for event in ("second", "third"):
            structlog.get_logger("daemon").info(event)
        lines = path.read_text().splitlines()
        assert ["second" in lines[0], "third" in lines[1], len(lines)] == [True, True, 2]
        if how == "renamed":
            assert "first" in (tmp_path / "s.log-20261127").read_text()
        assert capsys.readouterr().err == f"log file moved or removed, begun again: {path}\n"


def test_log_file_whose_directory_is_gone_is_reported_and_begun_again_in_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs" / "s.log"
    path.parent.mkdir()
    with contextlib.closing(logs.configure(file=logs.LogFile(path))):
        shutil.rmtree(path.parent)
        for event in ("lost", "lost as well"):
            structlog.get_logger("daemon").info(event)
        assert capsys.readouterr().err.count("log file not written") == 1
        path.parent.mkdir()
        structlog.get_logger("daemon").info("kept")
        assert "kept" in path.read_text()
