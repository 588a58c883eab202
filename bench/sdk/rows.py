"""Rows of the measurement, with their limits."""

from dataclasses import dataclass
from typing import Final

BODY: Final = bytes(range(32, 132))
IN_FLIGHT: Final = 256
BATCH: Final = 500
SEND_BATCH: Final = 1000
OURS, KAFKA, NATS = "rocketpy", "aiokafka", "nats-py"
CLIENTS: Final = (OURS, KAFKA, NATS)


@dataclass(frozen=True)
class Row:
    """Row of the table.

    Attributes:
        key: short name, also that of the clients' functions.
        name: what is done.
        goal_us: what a message may cost us.
        messages: of a round.
        reads: reads existing messages; each round has another group.
        beside: peers that have something like it.
    """

    key: str
    name: str
    goal_us: float
    messages: int
    reads: bool = False
    beside: tuple[str, ...] = (KAFKA, NATS)


ROWS: Final = (
    Row("awaited", "one awaited send", 65, 4_000),
    Row("in_flight", "256 in flight, each its own request", 18, 40_000, beside=(NATS,)),
    Row("linger", "256 in flight, automatic batching", 7, 80_000, beside=(KAFKA,)),
    Row("iterate", "`async for`", 5.4, 80_000, reads=True),
    Row("batches", "batches of 500", 3, 160_000, reads=True),
    Row("send_batch", "`send_batch` of 1,000", 3, 160_000),
    Row("plain_handler", "plain `def` handler", 25, 40_000, reads=True, beside=()),
)
MOST_READ: Final = max(row.messages for row in ROWS if row.reads)


@dataclass(frozen=True)
class Measured:
    """Resources of a process for a row.

    Attributes:
        messages: how many.
        cpu_us: processor time a message, user and system.
        wall_us: time a message.
    """

    messages: int
    cpu_us: float
    wall_us: float
