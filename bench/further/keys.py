"""Looking messages up by key among ten million index entries."""

import random
import time
from collections.abc import Iterator

from bench.frames import batch_of, ext_v2, frame
from bench.further.findings import Context, Finding
from bench.processes import Side, start_rocketpy
from bench.raw import connection, quota
from rocketpy.proto.headers.pull import QueryMessageRequestHeader
from rocketpy.proto.wire.codes import RequestCode

__all__ = ["run"]

ENTRIES = 10_000_000
_ENTRIES_A_MESSAGE = 2  # its KEYS and its UNIQ_KEY
_BATCH = 200
_IN_FLIGHT = 4
_ASKED = 500
_TOPIC = "bench-keys"
_PROPERTIES = "KEYS\x01order-%d\x02UNIQ_KEY\x017F00000100002A139A20%012X\x02WAIT\x01true\x02"


def run(context: Context) -> list[Finding]:
    """Fill, then ask for keys at random, also ones that are not there."""
    messages = context.scaled(ENTRIES // _ENTRIES_A_MESSAGE) // _BATCH * _BATCH
    with context.sides(lambda: start_rocketpy(context.scratch / "keys")) as (side,):
        began_s, cpu_before_s = time.monotonic(), side.cpu_s()
        _fill(side, messages)
        filled_s, cpu_s = time.monotonic() - began_s, side.cpu_s() - cpu_before_s
        context.say(f"{messages:,} messages in {filled_s:.0f} s")
        chosen = random.Random(7)  # the same keys in each run
        there = _times_us(side, [f"order-{chosen.randrange(messages)}" for _ in range(_ASKED)], 1)
        absent = _times_us(side, [f"none-{number}" for number in range(_ASKED)], 0)
        rss_mib = side.rss_mib()["broker"]
    name = f"{messages * _ENTRIES_A_MESSAGE:,} entries"
    return [
        Finding(f"{name}: a key that is there, p50", quota(there, 0.5), "us"),
        Finding("p99", quota(there, 0.99), "us"),
        Finding("a key that is not there, p50", quota(absent, 0.5), "us"),
        Finding("p99 of that", quota(absent, 0.99), "us"),
        Finding("stored and indexed meanwhile, in batches of 200", messages / filled_s, "/s"),
        Finding("CPU of that a message", cpu_s / messages * 1e6, "us"),
        Finding("resident afterwards, mapped files included", rss_mib, "MiB"),
    ]


def _frames(messages: int) -> Iterator[bytes]:
    for at in range(0, messages, _BATCH):
        ext = ext_v2(_TOPIC, at // _BATCH % 4, at, batch=True)
        body = batch_of([_PROPERTIES % (n, n) for n in range(at, at + _BATCH)], b"x" * 20)
        yield frame(RequestCode.SEND_BATCH_MESSAGE, ext, body, at)


def _fill(side: Side, messages: int) -> None:
    with connection(side.broker) as client:
        for answer in client.ask_all(_frames(messages), _IN_FLIGHT):
            if answer.code:
                raise RuntimeError(f"refused with {answer.code}: {answer.remark}")


def _times_us(side: Side, keys: list[str], found: int) -> list[float]:
    times = []
    with connection(side.broker) as client:
        for key in keys:
            header = QueryMessageRequestHeader(
                topic=_TOPIC,
                key=key,
                max_num=32,
                begin_timestamp=0,
                end_timestamp=1 << 62,
                index_type="K",
            )
            began_s = time.perf_counter()
            answer = client.ask(RequestCode.QUERY_MESSAGE, header.to_ext())
            times.append((time.perf_counter() - began_s) * 1e6)
            if bool(answer.body) != bool(found):
                raise RuntimeError(f"{key}: {answer.code} {answer.remark}")
    return sorted(times)
