"""Cost of many topics: creation, registration, start, idle time.

Memory is the process's own, without the pages of files: the first thousand messages anywhere bring
in the index's table of slots, 20 MB, and a start the log's end.
"""

import time
from collections.abc import Iterator
from pathlib import Path

from bench.frames import ext_v2, frame
from bench.further.findings import Context, Finding
from bench.processes import Side, pid_own_mib, start_rocketpy
from bench.raw import connection
from rocketpy.proto.bodies.topic import CreateTopicListRequestBody, TopicConfig
from rocketpy.proto.headers.topic import CreateTopicRequestHeader
from rocketpy.proto.wire.codes import RequestCode

__all__ = ["run"]

KIB_A_TOPIC = 20.0
"""Most memory a topic."""
_REGISTER_EVERY_S = 10
_DEFINES = (
    f"registerNameServerPeriod={_REGISTER_EVERY_S * 1000}",
    "mappedFileSizeConsumeQueue=12000",  # a file a queue that has a message: 12 KB, not 6 MB
)
_IN_FLIGHT = 8
_A_LIST = 500
_ALONE = 300


def run(context: Context) -> list[Finding]:
    """Measure 1,000 and 10,000 topics of four queues."""
    findings = []
    for count in (1_000, 10_000):
        findings += _measure(context, context.scaled(count, 50))
    return findings


def _start(home: Path) -> Side:
    return start_rocketpy(home, _DEFINES, settles_s=1.0)


def _create_frames(begin: int, end: int) -> Iterator[bytes]:
    """Create topics with one request each."""
    for number in range(begin, end):
        header = CreateTopicRequestHeader(
            topic=f"topic-{number}",
            default_topic="TBW102",
            read_queue_nums=4,
            write_queue_nums=4,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=False,
        )
        yield frame(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_ext(), b"", number)


def _create_list_frames(end: int) -> Iterator[bytes]:
    """Create many topics with one request."""
    for at in range(0, end, _A_LIST):
        body = CreateTopicListRequestBody(
            [
                TopicConfig(topic_name=f"topic-{n}", read_queue_nums=4, write_queue_nums=4, perm=6)
                for n in range(at, min(at + _A_LIST, end))
            ]
        )
        yield frame(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body.encode(), at)


def _send_frames(count: int) -> Iterator[bytes]:
    """Send one message to each topic."""
    for number in range(count):
        ext = ext_v2(f"topic-{number}", number % 4, number)
        yield frame(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100, number)


def _all_succeed(side: Side, frames: Iterator[bytes]) -> float:
    """Send the frames; returns the time in seconds."""
    began_s = time.monotonic()
    with connection(side.broker) as client:
        for answer in client.ask_all(frames, _IN_FLIGHT):
            if answer.code:
                raise RuntimeError(f"refused with {answer.code}: {answer.remark}")
    return time.monotonic() - began_s


def _idle_cpu_ms_s(side: Side, seconds: float) -> float:
    """Return the idle processor time, ms a second."""
    before_s = side.cpu_s()
    time.sleep(seconds)
    return (side.cpu_s() - before_s) / seconds * 1000


def _measure(context: Context, count: int) -> list[Finding]:
    home = context.scratch / "topics"
    looks_s = max(1.0, 2 * _REGISTER_EVERY_S * min(1.0, context.scale * 10))
    with context.sides(lambda: _start(home)) as (side,):
        bare_kib = pid_own_mib(side.pids["broker"]) * 1024
        quiet_ms_s = _idle_cpu_ms_s(side, looks_s / 2)
        cpu_before_s = side.cpu_s()
        alone = min(_ALONE, count // 2)
        listed_s = _all_succeed(side, _create_list_frames(count - alone))
        listed_cpu_s = side.cpu_s() - cpu_before_s
        created_s = _all_succeed(side, _create_frames(count - alone, count))
        create_cpu_us = (side.cpu_s() - cpu_before_s - listed_cpu_s) / alone * 1e6
        created_kib = pid_own_mib(side.pids["broker"]) * 1024
        busy_ms_s = _idle_cpu_ms_s(side, looks_s)
        _all_succeed(side, _send_frames(count))
        time.sleep(1.0)
        filled_kib = pid_own_mib(side.pids["broker"]) * 1024
        side.stop()
        again = _start(home)
        side.process, side.pids = again.process, again.pids
        restarted_kib = pid_own_mib(again.pids["broker"]) * 1024
    name = f"{count:,} topics"
    registration_ms = (busy_ms_s - quiet_ms_s) * _REGISTER_EVERY_S
    return [
        Finding(f"{name}: created in lists of {_A_LIST}", (count - alone) / listed_s, "/s"),
        Finding(
            f"{name}: the last {alone} one a request, eight in flight", alone / created_s, "/s"
        ),
        Finding(f"{name}: CPU of creating one of those", create_cpu_us, "us"),
        Finding(f"{name}: CPU of one registration, both ends", max(0.0, registration_ms), "ms"),
        Finding(f"{name}: memory of a topic", (created_kib - bare_kib) / count, "KiB", KIB_A_TOPIC),
        Finding(
            f"{name}: the same with a message in each",
            (filled_kib - bare_kib) / count,
            "KiB",
            KIB_A_TOPIC,
        ),
        Finding(f"{name}: ready after start", again.ready_s, "s"),
        Finding(
            f"{name}: memory of a topic after that start",
            (restarted_kib - bare_kib) / count,
            "KiB",
            KIB_A_TOPIC,
        ),
    ]
