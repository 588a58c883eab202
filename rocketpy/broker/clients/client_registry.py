"""Connected producers and consumers, by group and by connection.

Heartbeats add entries to both tables. Entries are removed when the client unregisters, when its
connection closes, or when it is silent for `channelExpiredTimeout` (120 s, checked every 10 s by
the monotonic clock). Each change of the members or subscriptions of a consumer group is reported to
`on_change`, which notifies all members to rebalance.

Source: ProducerManager.java, ConsumerManager.java, ConsumerGroupInfo.java (5.4.0).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from rocketpy.broker.clients.expected_members import ExpectedMembers
from rocketpy.broker.clients.memberships import MEMBER_BYTES, Memberships
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.remoting.connection.channel import Channel

_log = structlog.get_logger(__name__)

SCAN_INTERVAL_MS: Final = 10_000

_SUBSCRIPTION_BYTES: Final = 500
_TAG_BYTES: Final = 250
"""Memory of one tag, once as text and once as hash, each in a set."""


def subscription_bytes(subscription: SubscriptionData) -> int:
    """Return the estimated memory of a subscription."""
    tags = subscription.tags_set
    return (
        _SUBSCRIPTION_BYTES
        + len(subscription.topic)
        + len(subscription.sub_string)
        + sum(map(len, tags))
        + _TAG_BYTES * max(len(tags), len(subscription.code_set))
    )


class ClientChannel:
    """Client on one connection.

    Attributes:
        channel: the connection.
        client_id: the id that the client chose.
        language: LanguageCode value.
        version: the client's version ordinal.
        last_update_ms: wall time of its last heartbeat, for display.
        seen_ms: monotonic time of its last heartbeat.
    """

    __slots__ = ("channel", "client_id", "language", "last_update_ms", "seen_ms", "version")

    def __init__(
        self,
        channel: Channel,
        client_id: str,
        language: int,
        version: int,
        last_update_ms: int,
        seen_ms: int = 0,
    ) -> None:
        self.channel: Channel = channel
        self.client_id: str = client_id
        self.language: int = language
        self.version: int = version
        self.last_update_ms: int = last_update_ms
        self.seen_ms: int = seen_ms

    @property
    def size_bytes(self) -> int:
        """Estimated memory of one membership."""
        return MEMBER_BYTES + len(self.client_id)


class _MemberTable(ABC):
    """Common base of both tables: a lock, and bounds.

    Args:
        memberships: memberships of connections, with their bounds.
    """

    def __init__(self, memberships: Memberships) -> None:
        self._lock = threading.Lock()
        self._memberships = memberships

    @property
    def max_per_channel(self) -> int:
        """Maximal number of groups of one connection."""
        return self._memberships.max_per_channel

    @property
    def max_members(self) -> int:
        """Maximal number of members of all groups together."""
        return self._memberships.max_members

    def make_room(self, channel: Channel, sizes: Mapping[str, int]) -> bool:
        """Ensure that a connection may join groups; closes the largest connections if necessary.

        Args:
            channel: the connection.
            sizes: the groups, with the estimated memory of what the connection sent about each.

        Returns:
            False when it is in too many groups, or already uses as much memory as any other.
        """
        with self._lock:
            giving_way = self._memberships.room_for(channel, sizes)
        if giving_way is None:
            return False
        for other in giving_way:
            self.forget_channel(other)
            other.close(
                "it named more groups and subscriptions than any other when there was no room"
            )
        return True

    @abstractmethod
    def forget_channel(self, channel: Channel) -> None:
        """Remove a closed connection from all groups."""


class ProducerTable(_MemberTable):
    """Producer groups and their connections; safe from any thread.

    Args:
        memberships: memberships of connections, with their bounds.
    """

    def __init__(self, memberships: Memberships | None = None) -> None:
        super().__init__(memberships or Memberships())
        self._groups: dict[str, dict[Channel, ClientChannel]] = {}
        self._by_client_id: dict[str, ClientChannel] = {}

    def register(self, group: str, client: ClientChannel) -> None:
        """Add a client to a group, or refresh it."""
        with self._lock:
            self._groups.setdefault(group, {})[client.channel] = client
            self._by_client_id[client.client_id] = client
            size_bytes = client.size_bytes + len(group)
            self._memberships.add(client.channel, group, size_bytes, client.seen_ms)

    def unregister(self, group: str, channel: Channel) -> None:
        """Remove a client that unregisters."""
        with self._lock:
            self._remove(group, channel)

    def forget_channel(self, channel: Channel) -> None:
        """Remove a closed connection from all groups."""
        with self._lock:
            for group in self._memberships.groups_of(channel):
                self._remove(group, channel)

    def expire(self, older_than_ms: int) -> list[Channel]:
        """Remove clients without a heartbeat since a monotonic time; the caller closes them."""
        with self._lock:
            unheard = self._memberships.unheard_since(older_than_ms)
            for channel, group in unheard:
                self._remove(group, channel)
        return [channel for channel, _ in unheard]

    def clients(self, group: str) -> list[ClientChannel]:
        """Return the connected members of a group; empty for an unknown group."""
        with self._lock:
            return list(self._groups.get(group, {}).values())

    def groups(self) -> dict[str, list[ClientChannel]]:
        """Return all groups with their members."""
        with self._lock:
            return {group: list(members.values()) for group, members in self._groups.items()}

    def find_client(self, client_id: str) -> ClientChannel | None:
        """Return the connection of a producer by client id; the one with the last heartbeat."""
        return self._by_client_id.get(client_id)

    def _remove(self, group: str, channel: Channel) -> None:
        self._memberships.remove(channel, group)
        members = self._groups.get(group)
        client = None if members is None else members.pop(channel, None)
        if members is None or client is None:
            return
        if not members:
            del self._groups[group]
        found = self._by_client_id.get(client.client_id)
        is_last = not self._memberships.groups_of(channel)
        if is_last and found is not None and found.channel is channel:
            del self._by_client_id[client.client_id]


class ConsumerGroup:
    """Consumer group with its members.

    Attributes:
        name: the group.
        consume_type: CONSUME_ACTIVELY, CONSUME_PASSIVELY or CONSUME_POP.
        message_model: CLUSTERING or BROADCASTING.
        consume_from_where: value of the last heartbeat.
        subscriptions: subscription by topic.
        last_update_ms: wall time of the last change or heartbeat.
        subscription_bytes: estimated memory of the subscriptions.
        bearer: connection whose memory includes the subscriptions: their last sender.
        is_divided: whether members subscribe differently; then each heartbeat replaces the
            subscriptions of the others.
    """

    __slots__ = (
        "_by_client_id",
        "_members",
        "_wants",
        "bearer",
        "consume_from_where",
        "consume_type",
        "is_divided",
        "last_update_ms",
        "message_model",
        "name",
        "subscription_bytes",
        "subscriptions",
    )

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.consume_type: str = ""
        self.message_model: str = ""
        self.consume_from_where: str = ""
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.last_update_ms: int = 0
        self.subscription_bytes: int = 0
        self.bearer: Channel | None = None
        self.is_divided: bool = False
        self._wants: dict[Channel, int] = {}
        self._members: dict[Channel, ClientChannel] = {}
        self._by_client_id: dict[str, dict[Channel, None]] = {}

    @property
    def is_broadcast(self) -> bool:
        """Whether each member gets all messages."""
        return self.message_model == "BROADCASTING"

    def clients(self) -> list[ClientChannel]:
        """Return the connected members."""
        return list(self._members.values())

    def client_ids(self) -> list[str]:
        """Return the distinct ids of the connected members."""
        return list(dict.fromkeys(client.client_id for client in self.clients()))

    def find_client(self, client_id: str) -> ClientChannel | None:
        """Return a member by id, or None."""
        channels = self._by_client_id.get(client_id)
        return None if not channels else self._members.get(next(iter(channels)))

    def put_member(self, client: ClientChannel) -> bool:
        """Add or refresh a member; True when it is new or has another id."""
        old = self._members.get(client.channel)
        self._members[client.channel] = client
        if old is not None and old.client_id == client.client_id:
            return False
        if old is not None:
            self._forget_id(old)
        self._by_client_id.setdefault(client.client_id, {})[client.channel] = None
        return True

    def remove_member(self, channel: Channel) -> ClientChannel | None:
        """Remove a connection; returns the removed member, or None."""
        member = self._members.pop(channel, None)
        if member is not None:
            self._forget_id(member)
            self._wants.pop(channel, None)
            self.is_divided = len(set(self._wants.values())) > 1
        return member

    def put_wants(self, channel: Channel, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Record the subscriptions of one member; True when members now differ for the first time.

        Only a hash is kept: it is enough to compare them.
        """
        self._wants[channel] = hash(
            frozenset((one.topic, one.expression_type, one.sub_string) for one in subscriptions)
        )
        was_divided = self.is_divided
        self.is_divided = len(set(self._wants.values())) > 1
        return self.is_divided and not was_divided

    def _forget_id(self, member: ClientChannel) -> None:
        channels = self._by_client_id[member.client_id]
        del channels[member.channel]
        if not channels:
            del self._by_client_id[member.client_id]

    def put_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Replace the subscriptions of the group; True when topics were added or removed.

        An older version of a topic's subscription never replaces a newer one.
        """
        wanted = {one.topic: one for one in subscriptions}
        table = dict(self.subscriptions)
        changed = False
        for topic, new in wanted.items():
            old = table.get(topic)
            if old is None:
                changed = True
                table[topic] = new
            elif new.sub_version > old.sub_version:
                table[topic] = new
        for topic in [topic for topic in table if topic not in wanted]:
            del table[topic]
            changed = True
        self.subscriptions = table
        self.subscription_bytes = sum(map(subscription_bytes, table.values()))
        return changed


class ConsumerTable(_MemberTable):
    """Consumer groups with members; safe from any thread.

    Args:
        memberships: memberships of connections, with their bounds.

    Attributes:
        on_change: called (without the lock) with a group whose members or topics changed.
        version: incremented after each change of groups, while the lock is held.
    """

    def __init__(self, memberships: Memberships | None = None) -> None:
        super().__init__(memberships or Memberships())
        self.on_change: Callable[[ConsumerGroup], None] | None = None
        self.version: int = 0
        self._groups: dict[str, ConsumerGroup] = {}
        self._expected = ExpectedMembers()

    def expect(self, members: Mapping[str, Iterable[str]], until_ms: int) -> None:
        """Expect members, by group, that will connect until a monotonic time."""
        with self._lock:
            self._expected.expect(members, until_ms)

    def expire_expected(self, now_ms: int) -> None:
        """Expect members no longer whose time has passed; call it now and then."""
        with self._lock:
            names = self._expected.expire(now_ms)
            touched = [self._groups[name] for name in names if name in self._groups]
        for entry in touched:
            self._report(entry)

    def member_ids(self, group: str) -> list[str]:
        """Return the ids of the connected and the expected members; empty if none is connected."""
        with self._lock:
            entry = self._groups.get(group)
            return [] if entry is None else self._member_ids(group)

    def members(self) -> dict[str, list[str]]:
        """Return the ids of the connected and the expected members by group."""
        with self._lock:
            names = dict.fromkeys([*self._groups, *self._expected.groups()])
            return {name: self._member_ids(name) for name in names}

    def _member_ids(self, group: str) -> list[str]:
        entry = self._groups.get(group)
        connected = [] if entry is None else entry.client_ids()
        return list(dict.fromkeys([*connected, *self._expected.ids(group)]))

    def register(
        self,
        group: str,
        client: ClientChannel,
        subscriptions: Iterable[SubscriptionData] | None,
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
    ) -> bool:
        """Process a heartbeat of a consumer.

        Args:
            group: consumer group.
            client: its sender, with the current time.
            subscriptions: all subscriptions; None keeps the known ones (heartbeat V2).
            consume_type: of the group; the last heartbeat wins.
            message_model: of the group; the last heartbeat wins.
            consume_from_where: of the group; the last heartbeat wins.

        Returns:
            Whether members or topics changed.
        """
        with self._lock:
            entry = self._groups.get(group)
            if entry is None:
                entry = self._groups[group] = ConsumerGroup(group)
            entry.consume_type = consume_type
            entry.message_model = message_model
            entry.consume_from_where = consume_from_where
            entry.last_update_ms = client.last_update_ms
            changed = entry.put_member(client)
            self._expected.remove(group, client.client_id)
            size_bytes = client.size_bytes + len(group)
            self._memberships.add(client.channel, group, size_bytes, client.seen_ms)
            if subscriptions is not None:
                wanted = list(subscriptions)
                if entry.put_wants(client.channel, wanted):
                    _log.warning(
                        "members of a group subscribe differently",
                        group=group,
                        client=client.client_id,
                        wants={one.topic: one.sub_string[:200] for one in wanted[:20]},
                        hint="each heartbeat replaces the subscriptions of the other members",
                    )
                changed |= entry.put_subscriptions(wanted)
                self._bear(entry, client)
            elif entry.bearer in {None, client.channel}:
                self._bear(entry, client)
            self.version += 1
        if changed:
            self._report(entry)
        return changed

    def unregister(self, group: str, channel: Channel, client_id: str = "") -> None:
        """Remove a client that unregisters, and that may only have been expected."""
        with self._lock:
            was_expected = self._expected.remove(group, client_id)
            entry = self._remove(group, channel) or (
                self._groups.get(group) if was_expected else None
            )
        if entry is not None:
            self._report(entry)

    def forget_channel(self, channel: Channel) -> None:
        """Remove a closed connection from all groups."""
        with self._lock:
            names = self._memberships.groups_of(channel)
            touched = [entry for name in names if (entry := self._remove(name, channel))]
        for entry in touched:
            self._report(entry)

    def expire(self, older_than_ms: int) -> list[Channel]:
        """Remove clients without a heartbeat since a monotonic time; the caller closes them."""
        touched: dict[str, ConsumerGroup] = {}
        with self._lock:
            unheard = self._memberships.unheard_since(older_than_ms)
            for channel, group in unheard:
                entry = self._remove(group, channel)
                if entry is not None:
                    touched[group] = entry
        for entry in touched.values():
            self._report(entry)
        return [channel for channel, _ in unheard]

    def group(self, name: str) -> ConsumerGroup | None:
        """Return a group with members, or None."""
        return self._groups.get(name)

    def groups(self) -> list[ConsumerGroup]:
        """Return all groups with members."""
        with self._lock:
            return list(self._groups.values())

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a group to a topic, or None."""
        entry = self._groups.get(group)
        return None if entry is None else entry.subscriptions.get(topic)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the names of connected groups that subscribe to a topic."""
        return {entry.name for entry in self.groups() if topic in entry.subscriptions}

    def _remove(self, group: str, channel: Channel) -> ConsumerGroup | None:
        self._memberships.remove(channel, group)
        entry = self._groups.get(group)
        if entry is None or entry.remove_member(channel) is None:
            return None
        remaining = next(iter(entry.clients()), None)
        if remaining is None:
            del self._groups[group]
        elif entry.bearer is channel:
            entry.bearer = None
            self._bear(entry, remaining)
        self.version += 1
        return entry

    def _bear(self, entry: ConsumerGroup, client: ClientChannel) -> None:
        """Count the subscriptions of a group, which exist once, for one of its members."""
        own_bytes = client.size_bytes + len(entry.name)
        if entry.bearer not in {None, client.channel}:
            assert entry.bearer is not None
            self._memberships.resize(entry.bearer, entry.name, own_bytes)
        entry.bearer = client.channel
        self._memberships.resize(client.channel, entry.name, own_bytes + entry.subscription_bytes)

    def _report(self, entry: ConsumerGroup) -> None:
        if self.on_change is not None:
            self.on_change(entry)
