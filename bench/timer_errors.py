"""Measures the precision of timed messages on a real clock, and their memory while they wait.

    python -m bench.timer_errors [--apache] [--pending 100000]

Starts a name server and a broker, sends the messages, each due at another millisecond within
a minute, consumes them, and prints how long after its moment each one was stored for
consumers, and how long after it a consumer had it. None may be early.
"""

import argparse
import asyncio
import contextlib
import random
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import rocketpy
from bench.processes import (
    Side,
    compile_package,
    end_on_sigterm,
    pid_own_mib,
    start_apache,
    start_rocketpy,
)
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.runtime.clock import SystemClock

_TOPIC = "bench-timed"
_FIRST_MS, _SPAN_MS = 90_000, 60_000
_IN_FLIGHT = 256
_AFTER_S = 120.0
_clock = SystemClock()


class _Errors:
    """Delays of messages after their delivery time, ms: until stored, until received."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.came: list[int] = []

    def take(self, message: ReceivedMessage) -> None:
        requested_ms = int(message.ext.properties["wanted"])
        self.stored.append(message.ext.store_timestamp_ms - requested_ms)
        self.came.append(_clock.time_ms() - requested_ms)


async def _send(client: rocketpy.Client, pending: int) -> int:
    """Send all of them; return when the last one is due, wall time."""
    producer = client.producer(max_in_flight=_IN_FLIGHT, timeout=30)
    await producer.send(_TOPIC, b"first", headers={"wanted": "0"})
    rng, first_ms = random.Random(1), _clock.time_ms() + _FIRST_MS
    for number in range(pending):
        requested_ms = first_ms + rng.randrange(_SPAN_MS)
        await producer.ready()
        producer.send_nowait(
            _TOPIC,
            b"%d" % number,
            headers={"wanted": str(requested_ms)},
            deliver_at=datetime.fromtimestamp(requested_ms / 1_000, UTC),
        )
    await producer.flush()
    if _clock.time_ms() > first_ms:
        raise SystemExit("the machine is too slow: the first was due before the last was sent")
    return first_ms + _SPAN_MS


async def _measure(side: Side, pending: int) -> None:
    pid, errors, have_all = side.pids["broker"], _Errors(), asyncio.Event()
    before_mib = pid_own_mib(pid)
    async with rocketpy.connect(side.namesrv) as client:
        end_ms = await _send(client, pending)
        print(f"{side.name}: {pending:,} wait; own memory of the broker before, while they wait:")
        print(f"  {before_mib:.1f} MiB, {pid_own_mib(pid):.1f} MiB")

        async def handler(message: ReceivedMessage) -> None:
            if message.body != b"first":
                errors.take(message)
            if len(errors.came) == pending:
                have_all.set()

        async with client.consumer(_TOPIC, group="bench-timed", start="earliest", handler=handler):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((end_ms - _clock.time_ms()) / 1_000 + _AFTER_S):
                    await have_all.wait()
        print(f"  {pid_own_mib(pid):.1f} MiB when all came")
    for what, found in (("stored", errors.stored), ("consumed", errors.came)):
        late = sorted(found)
        print(
            f"  {what} after its moment, ms: median {statistics.median(late):.0f}, "
            f"99 of 100 {late[len(late) * 99 // 100]:.0f}, most {late[-1]:.0f}; "
            f"early {sum(each < 0 for each in late)}, missing {pending - len(late)}"
        )


def main() -> None:
    """Measure one side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--apache", action="store_true", help="Apache's broker instead of ours")
    parser.add_argument("--pending", type=int, default=100_000)
    given = parser.parse_args()
    end_on_sigterm()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        home = Path(directory) / "side"
        if given.apache:
            side = start_apache(home, "1g")
        else:
            compile_package()
            side = start_rocketpy(home)
        try:
            asyncio.run(_measure(side, given.pending))
        finally:
            side.stop()


if __name__ == "__main__":
    main()
