"""Second part of the demo: features beyond ordinary messages, on the same flights.

Each of these sends a sample of the departures through one capability and compares what must have
been seen with what was seen:

    arrivals             timed messages: heard of when the flight lands, never before
    connections at risk  transactions with a local SQLite table; one is left open
    aircraft             ordered consumption: what an aircraft does comes in its order
    a difficult carrier  a handler that always fails for it: retries, then the dead letters
    notice board         broadcasting: each member sees everything
    late United flights  an SQL92 filter
    work list            pop consumption: acknowledged one by one
    quotes               request and reply

Run by examples/flights_demo.py, or alone:

    .venv/bin/python examples/flights_features.py [--rows 2000]
"""

import argparse
import asyncio
import csv
import json
import logging
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from flights import StandaloneBroker, end_on_sigterm, flights_csv

import rocketpy
import rocketpy.admin

ROWS = 2_000
QUEUES = 4
MINUTE_S = 0.010
"""A minute of a flight lasts so long here."""
PATIENCE_S = 60.0
UNWANTED = "FL"
"""The carrier that a handler always fails for."""
RETRIES = 2
SETTINGS = {
    "messageDelayLevel": "1s 1s 1s 1s 2s 2s",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "1000",
}
"""Of the broker, so that retries and check-backs take seconds."""


@dataclass(frozen=True)
class Flight:
    """Departure of a flight.

    Attributes:
        number: of the row.
        carrier: two letters.
        tail: the aircraft.
        dep_delay: minutes; None when it did not depart.
        air_time: minutes; None when it did not arrive.
    """

    number: int
    carrier: str
    tail: str
    dep_delay: int | None
    air_time: int | None

    @property
    def key(self) -> str:
        """Names this departure."""
        return f"flight-{self.number}"

    @property
    def body(self) -> bytes:
        """Body of the message."""
        return json.dumps({"carrier": self.carrier, "tail": self.tail}).encode()

    @property
    def headers(self) -> dict[str, str]:
        """Headers for filters."""
        headers = {"carrier": self.carrier, "number": str(self.number)}
        if self.dep_delay is not None:
            headers["dep_delay"] = str(self.dep_delay)
        return headers


def flights(path: Path, rows: int) -> Iterator[Flight]:
    """Yield the first departures of the file."""

    def minutes(text: str) -> int | None:
        return None if text in {"", "NA"} else int(float(text))

    with path.open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            if number >= rows:
                return
            yield Flight(
                number,
                row["carrier"],
                row["tailnum"] or "unknown",
                minutes(row["dep_delay"]),
                minutes(row["air_time"]),
            )


@dataclass(frozen=True)
class Outcome:
    """Expected and observed result of a capability.

    Attributes:
        name: of the capability.
        what: what is compared.
        expected: what must have been seen.
        seen: what was seen.
        note: more about it.
    """

    name: str
    what: str
    expected: object
    seen: object
    note: str = ""

    @property
    def is_well(self) -> bool:
        """Whether the observation is the expected one."""
        return self.expected == self.seen


@dataclass(frozen=True)
class World:
    """Environment of every part."""

    client: rocketpy.Client
    namesrv: str
    flights: list[Flight]

    def connect(self, group: str = "demo-features") -> rocketpy.Client:
        """Return a client with separate connections, like another process."""
        return rocketpy.connect(self.namesrv, group=group)


Part = Callable[[World], Awaitable[list[Outcome]]]


async def until(done: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until a condition is true, or for a limited time."""
    for _ in range(int(patience_s / 0.05)):
        if done():
            return
        await asyncio.sleep(0.05)


async def arrivals(world: World) -> list[Outcome]:
    """Timed messages: each arrives when its flight lands, and none before."""
    due_ms: dict[str, int] = {}
    errors_ms: list[int] = []

    async def landed(message: rocketpy.ReceivedMessage) -> None:
        errors_ms.append(time.time_ns() // 1_000_000 - due_ms[message.headers["number"]])

    landing = [flight for flight in world.flights if flight.air_time is not None]
    consumer = world.client.consumer("arrivals", group="tower", start="earliest", handler=landed)
    producer = world.client.producer()
    async with consumer:
        now = datetime.now(UTC)
        sends: list[asyncio.Future[rocketpy.SendResult]] = []
        for flight in landing:
            assert flight.air_time is not None
            due = now + timedelta(seconds=2 + flight.air_time * MINUTE_S)
            due_ms[str(flight.number)] = int(due.timestamp() * 1000)
            future = producer.send_nowait(
                "arrivals", flight.body, headers=flight.headers, deliver_at=due
            )
            sends.append(future)
            if producer.in_flight >= 256:
                await producer.ready()
        await asyncio.gather(*sends)
        await until(lambda: len(errors_ms) >= len(landing))
    early = sum(error < -1 for error in errors_ms)
    middle = sorted(errors_ms)[len(errors_ms) // 2] if errors_ms else 0
    return [
        Outcome("arrivals", "delivered", len(landing), len(errors_ms), f"median {middle} ms late"),
        Outcome("arrivals", "too early", 0, early),
    ]


async def connections_at_risk(world: World) -> list[Outcome]:
    """Transactions: a message becomes visible exactly when its row is in the local table."""
    table = sqlite3.connect(":memory:")
    table.execute("create table risks (flight text primary key)")
    late = [f for f in world.flights if f.dep_delay is not None and f.dep_delay > 60][:100]
    checked: list[str] = []
    seen: Counter[str] = Counter()

    async def check(message: rocketpy.ReceivedMessage) -> rocketpy.TxState:
        checked.append(message.keys[0])
        row = table.execute("select 1 from risks where flight = ?", message.keys).fetchone()
        return rocketpy.TxState.COMMIT if row else rocketpy.TxState.ROLLBACK

    async def at_risk(message: rocketpy.ReceivedMessage) -> None:
        seen[message.keys[0]] += 1

    async with world.connect("connections") as client:
        producer = client.producer(tx_checker=check)
        consumer = client.consumer(
            "connections-at-risk", group="gates", start="earliest", handler=at_risk
        )
        async with consumer:
            for place, flight in enumerate(late):
                send = producer.transaction("connections-at-risk", flight.body, keys=[flight.key])
                try:
                    async with send as transaction:
                        if flight.carrier == UNWANTED or place % 5 == 4:
                            raise ConnectionAbortedError  # noqa: TRY301 - what an application does
                        table.execute("insert into risks values (?)", [flight.key])
                        if place == 0:
                            transaction.unknown()  # as if the process had been too busy to say
                except ConnectionAbortedError:
                    continue
            committed = {row[0] for row in table.execute("select flight from risks")}
            await until(lambda: set(seen) >= committed)
            await asyncio.sleep(1)  # what was rolled back would have come by now
    return [
        Outcome("connections at risk", "committed", len(committed), len(committed & set(seen))),
        Outcome("connections at risk", "rolled back, yet seen", 0, len(set(seen) - committed)),
        Outcome("connections at risk", "left open, asked for", True, late[0].key in checked),
    ]


async def fill(world: World, topic: str) -> None:
    """Send the sample to a topic with its headers, an aircraft's always to the same queue."""
    producer = world.client.producer()
    futures: list[asyncio.Future[rocketpy.SendResult]] = []
    for flight in world.flights:
        futures.append(
            producer.send_nowait(
                topic,
                flight.body,
                tag=flight.carrier,
                keys=[flight.key],
                headers=flight.headers,
                order_key=flight.tail,
            )
        )
        if producer.in_flight >= 256:
            await producer.ready()
    await asyncio.gather(*futures)


async def aircraft(world: World) -> list[Outcome]:
    """Ordered consumption: two members, each aircraft in its order."""
    latest: dict[str, int] = {}
    counts = [0, 0]
    out_of_order = 0
    tails = {str(flight.number): flight.tail for flight in world.flights}

    def handler(member: int) -> Callable[[rocketpy.ReceivedMessage], Awaitable[None]]:
        async def departed(message: rocketpy.ReceivedMessage) -> None:
            nonlocal out_of_order
            number = message.headers["number"]
            tail = tails[number]
            await asyncio.sleep(0)
            if int(number) <= latest.get(tail, -1):
                out_of_order += 1
            latest[tail] = int(number)
            counts[member] += 1

        return departed

    async with world.connect() as one, world.connect() as other:
        members = [
            client.consumer(
                "aircraft", group="hangar", start="earliest", ordered=True, handler=handler(place)
            )
            for place, client in enumerate((one, other))
        ]
        async with members[0], members[1]:
            await until(lambda: all(len(member.assignment) > 0 for member in members))
            await fill(world, "aircraft")
            await until(lambda: sum(counts) >= len(world.flights))
    return [
        Outcome("aircraft", "received", len(world.flights), sum(counts), f"{counts} by member"),
        Outcome("aircraft", "out of order", 0, out_of_order),
    ]


async def difficult_carrier(world: World) -> list[Outcome]:
    """A handler that fails: retries with growing delay, then the dead letters."""
    unwanted = sum(flight.carrier == UNWANTED for flight in world.flights)
    tries: Counter[str] = Counter()
    dead: Counter[str] = Counter()

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        tries[message.keys[0]] += 1
        if message.tag == UNWANTED:
            raise ConnectionRefusedError(UNWANTED)

    async def bury(message: rocketpy.ReceivedMessage) -> None:
        dead[message.keys[0]] += 1

    consumer = world.client.consumer(
        "features", group="desk", start="earliest", max_retries=RETRIES, handler=handle
    )
    async with consumer:
        await until(lambda: len(tries) >= len(world.flights))
        await until(lambda: sum(count > RETRIES for count in tries.values()) >= unwanted)
        undertaker = world.client.consumer(
            "%DLQ%desk", group="undertaker", start="earliest", handler=bury
        )
        async with undertaker:
            await until(lambda: len(dead) >= unwanted)
    return [
        Outcome("a difficult carrier", "handled", len(world.flights), len(tries)),
        Outcome("a difficult carrier", "dead letters", unwanted, len(dead)),
        Outcome(
            "a difficult carrier",
            "tries of a dead letter",
            {RETRIES + 1},
            {tries[key] for key in dead},
        ),
    ]


async def notice_board(world: World) -> list[Outcome]:
    """Broadcasting: every member sees every message."""
    seen: list[set[str]] = [set(), set()]

    def handler(member: int) -> Callable[[rocketpy.ReceivedMessage], Awaitable[None]]:
        async def read(message: rocketpy.ReceivedMessage) -> None:
            seen[member].add(message.keys[0])

        return read

    with tempfile.TemporaryDirectory(prefix="rocketpy-demo-offsets-") as folder:
        async with world.connect() as one, world.connect() as other:
            boards = [
                client.consumer(
                    "features",
                    group="board",
                    start="earliest",
                    broadcast=True,
                    offset_dir=str(Path(folder) / str(place)),
                    handler=handler(place),
                )
                for place, client in enumerate((one, other))
            ]
            async with boards[0], boards[1]:
                await until(lambda: all(len(each) >= len(world.flights) for each in seen))
    return [
        Outcome("notice board", f"member {place + 1} saw", len(world.flights), len(each))
        for place, each in enumerate(seen)
    ]


async def late_united(world: World) -> list[Outcome]:
    """An SQL92 filter, worked out by the broker."""
    expected = {
        flight.key
        for flight in world.flights
        if flight.carrier == "UA" and flight.dep_delay is not None and flight.dep_delay > 60
    }
    seen: set[str] = set()

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        seen.add(message.keys[0])

    consumer = world.client.consumer(
        "features",
        group="care",
        start="earliest",
        sql="dep_delay > 60 AND carrier = 'UA'",
        handler=handle,
    )
    async with consumer:
        await until(lambda: seen >= expected)
        await asyncio.sleep(0.5)  # more would have come by now
    return [Outcome("late United flights", "matched", len(expected), len(seen))]


async def work_list(world: World) -> list[Outcome]:
    """Pop consumption: any member takes any message and acknowledges it by itself."""
    taken: Counter[str] = Counter()

    async def handle(message: rocketpy.ReceivedMessage) -> None:
        taken[message.keys[0]] += 1

    consumer = world.client.pop_consumer("features", group="crew", handler=handle)
    async with consumer:
        await until(lambda: len(taken) >= len(world.flights))
    repeated = sum(taken.values()) - len(taken)
    return [
        Outcome(
            "work list", "taken", len(world.flights), len(taken), f"{repeated} of them repeated"
        )
    ]


async def quotes(world: World) -> list[Outcome]:
    """Request and reply."""

    async def quote(message: rocketpy.ReceivedMessage) -> bytes:
        return json.dumps({"price": 100 + int(message.body)}).encode()

    producer = world.client.producer()
    async with world.client.responder("quotes", group="pricing", handler=quote):
        replies = await asyncio.gather(
            *(producer.request("quotes", str(n).encode(), timeout=20) for n in range(20))
        )
    right = sum(
        json.loads(reply.body) == {"price": 100 + number} for number, reply in enumerate(replies)
    )
    return [Outcome("quotes", "right replies", 20, right)]


PARTS: tuple[Part, ...] = (
    arrivals,
    connections_at_risk,
    aircraft,
    difficult_carrier,
    notice_board,
    late_united,
    work_list,
    quotes,
)


async def run(namesrv: str, path: Path, rows: int) -> bool:
    """Run every part beside the others; True when everything was seen as it must."""
    sample = list(flights(path, rows))
    # One part fails on purpose; what the client says of each failure would bury the table.
    logging.getLogger("rocketpy").setLevel(logging.CRITICAL)
    async with rocketpy.connect(namesrv, group="demo-features") as client:
        world = World(client, namesrv, sample)
        async with rocketpy.admin.connect(namesrv) as admin:
            for topic in ("aircraft", "arrivals", "connections-at-risk", "features", "quotes"):
                await admin.create_topic(topic, queues=QUEUES)
        await fill(world, "features")
        started = time.perf_counter()
        outcomes = [
            each for part in await asyncio.gather(*map(_timed(world), PARTS)) for each in part
        ]
        seconds = time.perf_counter() - started
    print(f"\n{'':22}{'':24}{'must be':>10}{'is':>10}")
    last = ""
    for one in outcomes:
        name, last = ("" if one.name == last else one.name), one.name
        mark = "" if one.is_well else "   WRONG"
        print(f"{name:22}{one.what:24}{one.expected!s:>10}{one.seen!s:>10}   {one.note}{mark}")
    print(f"\n{len(sample):,} flights through {len(PARTS)} capabilities in {seconds:.0f} s")
    return all(one.is_well for one in outcomes)


def _timed(world: World) -> Callable[[Part], Awaitable[list[Outcome]]]:
    async def run_part(part: Part) -> list[Outcome]:
        started = time.perf_counter()
        outcomes = await part(world)
        print(f"  {outcomes[0].name:22} done after {time.perf_counter() - started:.1f} s")
        return outcomes

    return run_part


def main() -> int:
    """Run this part alone; 0 when everything was seen as it must."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=ROWS, help=f"departures (default: {ROWS})")
    parser.add_argument("--flights", type=Path, help="a flights.csv of your own")
    options = parser.parse_args()
    end_on_sigterm()
    path = options.flights or flights_csv()
    with tempfile.TemporaryDirectory(prefix="rocketpy-demo-") as scratch:
        broker = StandaloneBroker(Path(scratch) / "data", SETTINGS)
        try:
            well = asyncio.run(run(broker.namesrv, path, options.rows))
        finally:
            code = broker.stop()
    print("all is well" if well and code == 0 else "something is wrong, see above")
    return 0 if well and code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
