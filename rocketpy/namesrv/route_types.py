"""Values of the route table: keys, results and limits."""

import enum
from dataclasses import dataclass
from typing import NamedTuple


class BrokerKey(NamedTuple):
    """Key of a running broker."""

    cluster: str
    address: str


class RegisterOutcome(enum.Enum):
    """Outcome of a registration."""

    OK = "ok"
    STALE = "stale"  # a broker with a higher state version has its id
    NOT_YET_REGISTERED = "not yet registered"  # one topic from a broker without a full list
    FULL = "full"  # no room for another broker
    OVERTAKEN = "overtaken"  # the broker registered again, or left, before all topics were applied
    WAITING = "waiting"  # another live broker has its name and id; it takes over when that leaves


@dataclass(frozen=True, slots=True)
class RouteLimits:
    """Bounds of the tables."""

    max_topics: int = 100_000
    max_brokers: int = 1_024
    max_routes: int = 1_000_000  # pairs of topic and broker name
    max_mappings: int = 10_000  # pairs with a static mapping


@dataclass(frozen=True, slots=True)
class MinBrokerChange:
    """Change of the lowest id of a broker name, for notifications.

    Attributes:
        broker_name: name of the set.
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
    """Result of a registration, for the response.

    Attributes:
        outcome: whether it was applied.
        master_address: for slaves; empty without a master.
        ha_address: of that master.
        is_new: whether this address was unknown.
        dropped_topics: topics dropped because the table is full.
        min_change: set when the lowest id changed.
        rival: address of another live broker with the same name and id; empty without one.
        holder: connection of that broker, if it has the routes.
    """

    outcome: RegisterOutcome
    master_address: str = ""
    ha_address: str = ""
    is_new: bool = False
    dropped_topics: int = 0
    min_change: MinBrokerChange | None = None
    rival: str = ""
    holder: object = None
