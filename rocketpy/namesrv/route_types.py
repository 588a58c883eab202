"""What goes into the route table and what comes out of it."""

import enum
from dataclasses import dataclass
from typing import NamedTuple


class BrokerKey(NamedTuple):
    """Identifies one running broker."""

    cluster: str
    address: str


class RegisterOutcome(enum.Enum):
    """What became of a registration."""

    OK = "ok"
    STALE = "stale"  # its place is taken by one with a higher state version
    NOT_YET_REGISTERED = "not yet registered"  # one topic from a broker without a full list
    FULL = "full"  # no room for another broker
    OVERTAKEN = "overtaken"  # the broker registered anew, or left, while it was taken over


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """Bounds of the tables."""

    max_topics: int = 100_000
    max_brokers: int = 1_024
    max_routes: int = 1_000_000  # pairs of topic and broker name
    max_mappings: int = 10_000  # pairs with a static mapping


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """The lowest id of a broker name is another one now; its brokers may want to know.

    Attributes:
        broker_name: whose.
        members: id to address, after the change.
        offline_address: the one that left, if one left.
        ha_address: of the new lowest id.
    """

    broker_name: str
    members: dict[int, str]
    offline_address: str | None = None
    ha_address: str | None = None


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """The response to a registration.

    Attributes:
        outcome: whether it was taken over.
        master_address: told to slaves; empty when there is no master.
        ha_address: of that master.
        is_new: whether this address was unknown.
        dropped_topics: topics left out because the table is full.
        min_change: set when the lowest id changed.
    """

    outcome: RegisterOutcome
    master_address: str = ""
    ha_address: str = ""
    is_new: bool = False
    dropped_topics: int = 0
    min_change: MinBrokerChange | None = None
